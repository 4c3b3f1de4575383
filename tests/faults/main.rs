//! Plants each fault of `tests/emulator/faults/` in generated kernels and checks that `kgen check` on the emulator
//! rejects it the way the fault is expected to show. This is what a pass on the emulator is worth.
//!
//! Trials are made from the lists, one for each fault, so this target has no harness of its own:
//! `cargo test --release --test faults -- 'hopper/'` runs the trials whose name contains the text, `-- lists/` those
//! that run no kernel.

mod code;
mod code_rules;
mod laboratory;
mod list;
mod lists;
mod parts;
mod plant;
mod statements;
mod unharmed;

use laboratory::laboratory;
use libtest_mimic::{Arguments, Trial};
use list::Fault;
use std::process::ExitCode;

/// The trials of this name and body.
type Bodies = Vec<(&'static str, fn() -> Result<(), String>)>;

fn trials_of(group: &'static str, bodies: Bodies) -> impl Iterator<Item = Trial> {
    bodies.into_iter().map(move |(name, body)| Trial::test(format!("{group}/{name}"), move || Ok(body()?)))
}

/// What takes long begins first: threads that have ended wait for nothing long.
fn trials() -> Vec<Trial> {
    let several = [
        trials_of("variations", unharmed::variations()),
        trials_of("emulator", statements::statements()),
        trials_of("lists", lists::rules()),
        trials_of("code", code_rules::rules()),
    ];
    let faults = laboratory().lists.iter().flat_map(|list| {
        let trial = |fault: &'static Fault| {
            let caught = || Ok(laboratory().caught(&list.grid, fault)?);
            Trial::test(format!("{}/{}", list.name, fault.name), caught)
        };
        list.faults.iter().map(trial)
    });
    several.into_iter().flatten().chain(unharmed::trials()).chain(faults).collect()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let asked = || std::env::var("RUST_TEST_THREADS").ok()?.parse().ok();
    arguments.test_threads = arguments.test_threads.or_else(asked);
    libtest_mimic::run(&arguments, trials()).exit_code()
}
