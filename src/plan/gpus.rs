//! Existing GPUs, and those that run a target's files, for people and tools.

use super::{Limits, runs_on};
use crate::kernel::{GPUS, Gpu, Target, capability_text};
use itertools::Itertools;

/// The GPUs that run the machine code of `target`, without compiling PTX.
pub fn gpus_of_machine_code(target: Target) -> impl Iterator<Item = &'static Gpu> {
    GPUS.iter().filter(move |gpu| runs_on(target, gpu.capability, false))
}

/// Compute capabilities of those GPUs as text: `12.0`, `12.1`.
pub fn capabilities_of_machine_code(target: Target) -> Vec<String> {
    gpus_of_machine_code(target).map(|gpu| capability_text(gpu.capability)).collect()
}

/// The target whose files a GPU of `capability` runs: the newest whose machine code it runs, else the one whose PTX
/// suits it best, as the dispatcher chooses. `None` for GPUs older than the oldest target.
pub fn target_for(capability: u32) -> Option<Target> {
    let native = Target::ALL.iter().rev().find(|target| runs_on(**target, capability, false));
    let ptx = || {
        // An unknown GPU may have as little shared memory as any.
        let shared = GPUS.iter().find(|gpu| gpu.capability == capability).map_or(0, |gpu| gpu.shared_memory_per_block);
        let loads = Target::ALL.iter().filter(|target| runs_on(**target, capability, true));
        let generation = |target: Target| target.compute_capability() / 10;
        loads.copied().max_by_key(|target| {
            let made_for = Limits::of(*target).shared_memory_per_block;
            let fits = made_for <= shared;
            (generation(*target), fits, if fits { made_for } else { u32::MAX - made_for })
        })
    };
    native.copied().or_else(ptx)
}

/// The GPUs that run files of `target`, as the rest of a sentence: `compute capability 12.0 (RTX PRO 6000, RTX 50) and
/// 12.1 (GB10), and no other`.
pub fn where_files_run(target: Target) -> String {
    let each = gpus_of_machine_code(target).map(|gpu| format!("{} ({})", capability_text(gpu.capability), gpu.products));
    let others = if target.carries_ptx() { "; newer GPUs compile their PTX" } else { ", and no other" };
    format!("compute capability {}{others}", and_list(&each.collect_vec()))
}

/// `a`, `a and b`, `a, b and c`.
fn and_list(words: &[String]) -> String {
    match words {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(target: Target) -> Vec<u32> {
        gpus_of_machine_code(target).map(|gpu| gpu.capability).collect()
    }

    /// CUDA programming guide, "Compute Capabilities": machine code runs on later minors of its major, family code on
    /// the family's members that are not older, and architecture-specific code on its own capability.
    #[test]
    fn machine_code_runs_on_what_the_programming_guide_says() {
        assert_eq!(numbers(Target::Sm75), [75]);
        assert_eq!(numbers(Target::Sm80), [80, 86, 87, 89]);
        assert_eq!(numbers(Target::Sm89), [89]);
        assert_eq!(numbers(Target::Sm90), [90]);
        assert_eq!(numbers(Target::Sm100), [100, 103]);
        assert_eq!(numbers(Target::Sm120), [120, 121]);
        assert_eq!(numbers(Target::Sm121), [121], "12.1's own features are not in 12.0");
    }

    #[test]
    fn every_gpu_finds_the_target_whose_files_run_on_it() {
        let expected = [
            (75, Target::Sm75),
            (80, Target::Sm80),
            (86, Target::Sm80),
            (87, Target::Sm80),
            (89, Target::Sm89),
            (90, Target::Sm90),
            (100, Target::Sm100),
            (103, Target::Sm100),
            // Neither in 10.0's family nor a target: runs PTX of plans for as much shared memory.
            (110, Target::Sm80),
            (120, Target::Sm120),
            (121, Target::Sm121),
            // A future GPU: by PTX that fits on every GPU with CUDA.
            (130, Target::Sm89),
        ];
        for (capability, target) in expected {
            assert_eq!(target_for(capability), Some(target), "{capability}");
            assert!(runs_on(target, capability, true), "{capability}");
        }
        assert_eq!(target_for(70), None);
        assert!(GPUS.iter().all(|gpu| expected.iter().any(|(capability, _)| *capability == gpu.capability)));
    }

    #[test]
    fn a_gpu_has_the_shared_memory_of_the_target_named_after_it() {
        for target in Target::ALL {
            let gpu = GPUS.iter().find(|gpu| gpu.capability == target.compute_capability()).expect("is listed");
            assert_eq!(gpu.shared_memory_per_block, Limits::of(*target).shared_memory_per_block, "{target}");
        }
    }

    #[test]
    fn people_are_told_which_file_runs_where() {
        let both = "compute capability 12.0 (RTX PRO 6000, RTX 50) and 12.1 (GB10), and no other";
        assert_eq!(where_files_run(Target::Sm120), both);
        assert_eq!(where_files_run(Target::Sm121), "compute capability 12.1 (GB10), and no other");
        assert!(
            where_files_run(Target::Sm80).ends_with("8.7 (Jetson Orin) and 8.9 (L4, L40S, RTX 40); newer GPUs compile their PTX")
        );
    }
}
