//! Compiler flags of a plan's file, and the GPUs that run its object: the single source for the header line of a
//! generated file, the manifest, the `CMake` file, the dispatcher and the build.

use crate::kernel::Target;

/// The nvcc flags that determine the code of a kernel of `target`, without inputs, outputs and include paths. `ptx`
/// adds PTX beside the machine code if the target can carry it ([`Target::carries_ptx`]).
pub fn nvcc_flags(target: Target, ptx: bool) -> Vec<String> {
    let (arch, code) = (target.virtual_arch(), target.real_arch());
    let code = if ptx && target.carries_ptx() { format!("[{code},{arch}]") } else { code };
    ["-O3", "-std=c++17", "-gencode"].map(String::from).into_iter().chain([format!("arch={arch},code={code}")]).collect()
}

/// The flags as typed in a shell: those that contain shell patterns are quoted.
pub fn shell_words<S: AsRef<str>>(words: &[S]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| shell_word(word.as_ref())).collect();
    quoted.join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let escaped: String = word.chars().flat_map(|c| "\"\\$`".contains(c).then_some('\\').into_iter().chain([c])).collect();
    format!("\"{escaped}\"")
}

/// Newest compute capability (`major * 10 + minor`) that runs machine code of `target`. Machine code runs on later
/// minor versions of its major version; with suffix `a` only on its own capability, with suffix `f` on its family (CUDA
/// C++ Programming Guide, "Compute Capabilities").
pub fn newest_for_machine_code(target: Target) -> u32 {
    match target {
        Target::Sm75 => 79,
        Target::Sm80 | Target::Sm89 => 89,
        Target::Sm90 => 90,
        Target::Sm100 => 103,
        Target::Sm120 | Target::Sm121 => 121,
    }
}

/// Represents every newer GPU: the driver compiles PTX for any of them.
pub const EVERY_NEWER_GPU: u32 = 999;

/// Newest compute capability that runs an object of `target` if it carries PTX when possible.
pub fn newest_with_ptx(target: Target) -> u32 {
    if target.carries_ptx() { EVERY_NEWER_GPU } else { newest_for_machine_code(target) }
}

/// True if an object of `target`, with PTX if `ptx` is set and the target can carry it, runs on a GPU of `capability`
/// (`major * 10 + minor`).
pub fn runs_on(target: Target, capability: u32, ptx: bool) -> bool {
    let newest = if ptx { newest_with_ptx(target) } else { newest_for_machine_code(target) };
    (target.compute_capability()..=newest).contains(&capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sm80_carries_machine_code_and_ptx_unless_told_otherwise() {
        let both = ["-O3", "-std=c++17", "-gencode", "arch=compute_80,code=[sm_80,compute_80]"];
        assert_eq!(nvcc_flags(Target::Sm80, true), both);
        assert_eq!(nvcc_flags(Target::Sm80, false)[3], "arch=compute_80,code=sm_80");
        assert_eq!(nvcc_flags(Target::Sm120, true)[3], "arch=compute_120f,code=sm_120f", "family code has no portable PTX");
    }

    #[test]
    fn a_word_with_a_shell_pattern_is_quoted() {
        assert_eq!(shell_words(&["-Iinclude", "code=[sm_80]"]), "-Iinclude \"code=[sm_80]\"");
        assert_eq!(shell_words(&["a b", "$x", ""]), "\"a b\" \"\\$x\" \"\"");
    }

    #[test]
    fn machine_code_runs_on_its_own_target_at_least() {
        for &target in Target::ALL {
            assert!(newest_for_machine_code(target) >= target.compute_capability(), "{target}");
            assert!(newest_with_ptx(target) >= newest_for_machine_code(target), "{target}");
        }
        assert_eq!(newest_with_ptx(Target::Sm90), 90, "wgmma code runs on Hopper alone");
    }

    #[test]
    fn ptx_carries_sm80_to_hopper_and_nothing_carries_it_to_turing() {
        assert!(runs_on(Target::Sm80, 86, false) && runs_on(Target::Sm80, 90, true));
        assert!(!runs_on(Target::Sm80, 90, false) && !runs_on(Target::Sm80, 75, true));
    }
}
