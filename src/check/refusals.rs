//! Ordinary calls with one change: those that a launcher must refuse before it starts anything, and those that it must
//! accept despite an unusual structure header or a large size.

use super::{
    case::{Case, Drawn},
    compare::{Comparison, Distance},
};
use crate::device::{Call, ERROR_INVALID_VALUE, ERROR_UNSUPPORTED, Header, Outputs};
use std::rc::Rc;

/// Expected outcome of a changed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The launcher returns the code and a message with these words.
    Refused(i32, &'static str),
    /// The outcome of the unchanged call.
    Same,
    /// No effect: the outputs keep their contents.
    Nothing,
}

/// A change: its description, its function and the expected outcome.
pub type Change = (&'static str, fn(&mut Call), Expected);

/// An ordinary case with a change.
#[derive(Debug)]
struct Changed {
    base: Rc<dyn Case>,
    change: Change,
    expected_workspace: Option<usize>,
}

impl Case for Changed {
    fn name(&self) -> String {
        format!("{} with {}", self.base.name(), self.change.0)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let mut drawn = self.base.draw(seed);
        self.change.1(&mut drawn.call);
        if self.change.2 == Expected::Nothing {
            let before = Outputs(drawn.call.outputs.clone());
            drawn.judge = Box::new(move |after| untouched(&before, after));
        }
        drawn
    }

    fn expected_workspace(&self) -> Option<usize> {
        self.expected_workspace
    }

    fn refusal(&self) -> Option<String> {
        match self.change.2 {
            Expected::Refused(_, words) => Some(words.to_owned()),
            Expected::Same | Expected::Nothing => None,
        }
    }

    fn refusal_code(&self) -> i32 {
        match self.change.2 {
            Expected::Refused(code, _) => code,
            Expected::Same | Expected::Nothing => 0,
        }
    }
}

fn untouched(before: &Outputs, after: &Outputs) -> Comparison {
    let complaint = (before != after).then(|| "outputs were written, and there is nothing to compute".to_owned());
    Comparison { worst: Distance { output: "nothing", error: 0.0, tolerance: 0.0 }, complaint }
}

/// Changes the header of the structure.
pub fn begin(call: &mut Call, header: Header) {
    call.params = call.params.clone().headed(header);
}

/// Sets the pointer of tensor `name` to NULL.
pub fn drop_tensor(call: &mut Call, name: &str) {
    call.inputs.retain(|(known, _)| *known != name);
    call.outputs.retain(|(known, _)| *known != name);
}

/// Changes of a structure's header, which every launcher treats alike.
pub const STRUCTURE: &[Change] = &[
    ("no structure", |c| begin(c, Header::Null), Expected::Refused(ERROR_INVALID_VALUE, "params is NULL")),
    (
        "a structure that is too long",
        |c| begin(c, Header::TooLong),
        Expected::Refused(ERROR_INVALID_VALUE, "params.struct_size is 4097"),
    ),
    ("a structure of a later version", |c| begin(c, Header::LaterVersion), Expected::Same),
    (
        "a later version's field in use",
        |c| begin(c, Header::LaterUse),
        Expected::Refused(ERROR_UNSUPPORTED, "is not zero; this library is of version"),
    ),
    ("an unknown flag", |c| begin(c, Header::Flags(1 << 30)), Expected::Refused(ERROR_UNSUPPORTED, "unknown flags 0x40000000")),
];

/// A case for each change of `base`.
pub fn changed(base: &Rc<dyn Case>, lists: &[&[Change]]) -> Vec<Box<dyn Case>> {
    cases(base, lists, None)
}

/// A case for each change of `base` after which the workspace function must return 0, since the call is refused.
pub fn changed_without_workspace(base: &Rc<dyn Case>, lists: &[&[Change]]) -> Vec<Box<dyn Case>> {
    cases(base, lists, Some(0))
}

fn cases(base: &Rc<dyn Case>, lists: &[&[Change]], expected_workspace: Option<usize>) -> Vec<Box<dyn Case>> {
    let changes = lists.iter().flat_map(|list| list.iter());
    changes
        .map(|change| Box::new(Changed { base: Rc::clone(base), change: *change, expected_workspace }) as Box<dyn Case>)
        .collect()
}
