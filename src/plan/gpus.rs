//! The GPUs there are, and which of them run a target's files: what people and tools are told.

use super::runs_on;
use crate::grid::Target;
use itertools::Itertools;

/// GPUs of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// `major * 10 + minor`.
    pub capability: u32,
    /// Products people know, as a list.
    pub products: &'static str,
}

/// Every compute capability from Turing on that has products (NVIDIA, "CUDA GPU Compute Capability"), oldest first.
pub const GPUS: &[Gpu] = &[
    Gpu { capability: 75, products: "T4, RTX 20" },
    Gpu { capability: 80, products: "A100, A30" },
    Gpu { capability: 86, products: "A10, A40, RTX 30" },
    Gpu { capability: 87, products: "Jetson Orin" },
    Gpu { capability: 89, products: "L4, L40S, RTX 40" },
    Gpu { capability: 90, products: "H100, H200, GH200" },
    Gpu { capability: 100, products: "B200, GB200" },
    Gpu { capability: 103, products: "B300, GB300" },
    Gpu { capability: 110, products: "Jetson Thor" },
    Gpu { capability: 120, products: "RTX PRO 6000, RTX 50" },
    Gpu { capability: 121, products: "GB10" },
];

/// The GPUs that run the machine code of `target`, without compiling PTX.
pub fn gpus_of_machine_code(target: Target) -> impl Iterator<Item = &'static Gpu> {
    GPUS.iter().filter(move |gpu| runs_on(target, gpu.capability, false))
}

/// Their compute capabilities as text: `12.0`, `12.1`.
pub fn capabilities_of_machine_code(target: Target) -> Vec<String> {
    gpus_of_machine_code(target).map(|gpu| capability_text(gpu.capability)).collect()
}

/// `8.0` for 80.
pub fn capability_text(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

/// Which GPUs run files of `target`, as the rest of a sentence: `compute capability 12.0 (RTX PRO 6000, RTX 50) and 12.1
/// (GB10), and no other`.
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
    fn people_are_told_which_file_runs_where() {
        let both = "compute capability 12.0 (RTX PRO 6000, RTX 50) and 12.1 (GB10), and no other";
        assert_eq!(where_files_run(Target::Sm120), both);
        assert_eq!(where_files_run(Target::Sm121), "compute capability 12.1 (GB10), and no other");
        assert!(
            where_files_run(Target::Sm80).ends_with("8.7 (Jetson Orin) and 8.9 (L4, L40S, RTX 40); newer GPUs compile their PTX")
        );
    }
}
