//! The files beside a kernel in a file of its own: predicted times, an explanation, and a test.

mod explained;

use super::name_of;
use crate::{
    command::{CommandError, explain, predict, session::Session},
    kernel::Card,
    plan::{Plan, runs_on},
    render::{self, OutputFile},
};
use std::path::Path;

/// The files, and notes on those that there are not.
#[derive(Default)]
pub(super) struct Companions {
    pub files: Vec<OutputFile>,
    pub notes: Vec<String>,
}

impl Companions {
    /// Those of the kernel in `file`. They depend on nothing but the kernel: no measured time of this machine is in
    /// them.
    ///
    /// # Errors
    /// [`CommandError`] if a template fails.
    pub fn of(session: &Session, plan: &Plan, file: &Path) -> Result<Self, CommandError> {
        let name = name_of(file);
        let stem = name.strip_suffix(".cu").unwrap_or(&name);
        let mut companions = Self::default();
        if let Some(text) = prediction(plan) {
            companions.files.push(OutputFile { path: format!("{stem}.prediction.json"), text });
        } else {
            let why = "its time is not predicted, by itself or on a card of its target";
            companions.notes.push(format!("no `{stem}.prediction.json` of `{}`: {why}", plan.variant.name()));
        }
        let explanation = explain::of_kernel(plan.variant, session)?;
        companions.files.push(OutputFile { path: format!("{stem}.md"), text: explained::page(&explanation) });
        match render::kernel_test(&session.renderer, plan, &name)? {
            Ok(test) => {
                companions.files.push(test);
                companions.files.extend(render::emulator_tree(&session.templates));
            }
            Err(untested) => {
                let why = format!("{untested} have no test of their own; `kgen check` tests them");
                companions.notes.push(format!("no `{stem}_test.cpp` of `{}`: {why}", plan.variant.name()));
            }
        }
        Ok(companions)
    }
}

/// What `kgen predict --format json` prints for a kernel at the usual sizes, on the cards that run its machine code.
fn prediction(plan: &Plan) -> Option<String> {
    let names = Card::names();
    let cards = names.into_iter().filter_map(Card::named);
    let cards: Vec<Card> = cards.filter(|card| runs_on(plan.variant.target(), card.capability, false)).collect();
    let outcome = predict::of_plan(plan, &cards)?;
    serde_json::to_string_pretty(&outcome).ok().map(|text| text + "\n")
}
