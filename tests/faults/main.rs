//! Plants each fault of `tests/emulator/faults/` in generated kernels and checks that `kgen check` on the emulator
//! rejects it in the expected way. This measures the value of a pass on the emulator.
//!
//! Trials are created from the lists, one for each fault, so this target does not use the standard harness:
//! `cargo test --release --test faults -- 'hopper/'` runs the trials whose name contains the text, `-- lists/` those
//! that run no kernel.

mod code;
mod code_rules;
mod hints;
mod judge;
mod laboratory;
mod list;
mod lists;
mod parts;
mod plant;
mod record;
mod record_rules;
mod statements;
mod unharmed;

use hints::hints;
use laboratory::laboratory;
use libtest_mimic::{Arguments, Trial};
use list::List;
use record::Run;
use std::{process::ExitCode, sync::Arc};

/// Trials by name and body.
type Bodies = Vec<(&'static str, fn() -> Result<(), String>)>;

fn trials_of(group: &'static str, bodies: Bodies) -> impl Iterator<Item = Trial> {
    bodies.into_iter().map(move |(name, body)| Trial::test(format!("{group}/{name}"), move || Ok(body()?)))
}

/// Long trials begin first, so that no thread idles at the end while a long one runs.
fn trials(run: &Arc<Run>) -> Vec<Trial> {
    let passing = unharmed::passing().iter().map(|passing| trial_of(run, passing.name.clone(), || passing.run()));
    let (long, unharmed): (Vec<_>, Vec<_>) = passing.partition(|trial| trial.name().starts_with("variations/"));
    let several = [
        trials_of("emulator", statements::statements()),
        trials_of("lists", lists::rules()),
        trials_of("code", code_rules::rules()),
        trials_of("hints", hints::rules()),
        trials_of("record", record_rules::rules()),
    ];
    let of_list = |list: &'static List| {
        let caught = move |fault| trial_of(run, list.trial(fault), move || laboratory().caught(list, fault));
        list.faults.iter().map(caught)
    };
    let faults = laboratory().lists.iter().flat_map(of_list);
    long.into_iter().chain(several.into_iter().flatten()).chain(unharmed).chain(faults).collect()
}

/// A trial that the record may hold. One on record does nothing, and its line of the report says so.
fn trial_of(run: &Arc<Run>, name: String, verdict: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    if run.requires(&name) {
        let run = Arc::clone(run);
        Trial::test(name.clone(), move || Ok(run.attempt(name, verdict)?))
    } else {
        Trial::test(name, || Ok(())).with_kind("on record")
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let asked = || std::env::var("RUST_TEST_THREADS").ok()?.parse().ok();
    arguments.test_threads = arguments.test_threads.or_else(asked);
    let run = Arc::new(Run::new(laboratory(), arguments.filter.is_some() || arguments.list));
    let trials = trials(&run);
    let names: Vec<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    hints().write(&names);
    run.end();
    conclusion.exit_code()
}
