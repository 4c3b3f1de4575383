//! What a user may write for a target: its name or alias, a GPU it does not name (`rtx3090`, `sm86`), or `native`.

use super::CliError;
use crate::{
    device::GpuInfo,
    kernel::{AxisWord, GPUS, Target, Variant, capability_of, capability_text, is_gpu, read_word},
    plan::{self, Plan},
};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::fmt::Write as _;
use std::{ffi::OsStr, sync::OnceLock};

/// The word for the GPU of this machine.
const NATIVE: &str = "native";

/// The alias of `sm120` that people also use for the data-centre chips.
const BLACKWELL: &str = "blackwell";

/// A target as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetWord {
    /// By its name or an alias.
    Named {
        /// What was written.
        word: String,
        /// What it names.
        target: Target,
    },
    /// By a GPU that runs its files.
    Gpu {
        /// What was written.
        word: String,
        /// Compute capability, `major * 10 + minor`.
        capability: u32,
        /// The target whose files run there.
        target: Target,
    },
    /// The GPU of this machine.
    Native,
}

impl TargetWord {
    /// The target, which for `native` the driver is asked for.
    ///
    /// # Errors
    /// [`CliError::Environment`] for `native` where there is no GPU, or one that no kernels are for.
    pub fn target(&self) -> Result<Target, CliError> {
        match self.known()? {
            Self::Named { target, .. } | Self::Gpu { target, .. } => Ok(target),
            Self::Native => unreachable!("`known` leaves none"),
        }
    }

    /// Where the files of a target that was named itself run, if newer GPUs cannot load them; and what else the word
    /// that named it may have meant.
    pub fn places(&self) -> Option<String> {
        let Self::Named { word, target } = self else { return None };
        let files = (!target.carries_ptx()).then(|| format!("`{target}` files run on {}", plan::where_files_run(*target)))?;
        // NVIDIA gives the name Blackwell to two architectures whose files do not run on each other.
        let other = if word.eq_ignore_ascii_case(BLACKWELL) { "; B200 and GB200 are `--target b200`" } else { "" };
        Some(files + other)
    }

    /// What a user has to know of the files of a target that was not named itself, with the plans of what was selected
    /// for it.
    pub fn note(&self, plans: &[Plan]) -> Option<String> {
        let Ok(Self::Gpu { word, capability, target }) = self.known() else { return None };
        let by = if plan::runs_on(target, capability, false) { "" } else { ", from the PTX in them, which its driver compiles" };
        let mut note =
            format!("`{word}` is compute capability {}: the files of `{target}` run there{by}", capability_text(capability));
        let available = GPUS.iter().find(|gpu| gpu.capability == capability)?.shared_memory_per_block;
        let too_large = |plan: &&Plan| plan.variant.target() == target && plan.shared_memory_bytes > available;
        let too_large: Vec<Variant> = plans.iter().filter(too_large).map(|plan| plan.variant).collect();
        if let Some(first) = too_large.first() {
            let (count, of) = (too_large.len(), plans.iter().filter(|plan| plan.variant.target() == target).count());
            let kilobytes = available / 1024;
            // Writing to a string cannot fail.
            let _ = write!(
                note,
                "; not {count} of the {of} selected, `{first}` for one, which need more than its {kilobytes} KB of shared memory a block"
            );
        }
        Some(note)
    }

    /// As it was asked for, with the GPU of this machine in place of `native`.
    fn known(&self) -> Result<Self, CliError> {
        static PRESENT: OnceLock<Result<u32, String>> = OnceLock::new();
        if *self != Self::Native {
            return Ok(self.clone());
        }
        let probe = || GpuInfo::probe().map(|gpu| gpu.compute_capability).map_err(|error| error.to_string());
        let missing =
            |reason: &str| CliError::Environment(format!("`{NATIVE}`: {reason}; name a target instead, such as `sm80`"));
        let capability = PRESENT.get_or_init(probe).as_ref().map_err(|reason| missing(reason))?;
        of_gpu(NATIVE, *capability).map_err(|reason| missing(&reason))
    }
}

/// The target whose files run on a GPU of `capability`, which was asked for as `word`.
fn of_gpu(word: &str, capability: u32) -> Result<TargetWord, String> {
    let target = plan::target_for(capability).ok_or_else(|| {
        let text = capability_text(capability);
        format!(
            "no kernels for `{word}`: its compute capability {text} is older than 7.5 (`sm75`, Turing), the oldest kgen knows"
        )
    })?;
    Ok(TargetWord::Gpu { word: word.to_owned(), capability, target })
}

fn read(word: &str) -> Result<TargetWord, String> {
    if word.trim().eq_ignore_ascii_case(NATIVE) {
        return Ok(TargetWord::Native);
    }
    let unknown = match read_word::<Target>(word) {
        Ok(target) => return Ok(TargetWord::Named { word: word.trim().to_owned(), target }),
        Err(unknown) => unknown,
    };
    match capability_of(word) {
        // A number may be anything; a GPU of it there must be.
        Some(capability) if is_gpu(capability) => of_gpu(word.trim(), capability),
        _ => Err(unknown.to_string()),
    }
}

/// Reads [`TargetWord`]s; completions offer the canonical names and `native`.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetParser;

impl TargetParser {
    /// Reads one word.
    ///
    /// # Errors
    /// What is wrong with it, and what was probably meant.
    pub fn read(word: &str) -> Result<TargetWord, String> {
        read(word)
    }
}

impl TypedValueParser for TargetParser {
    type Value = TargetWord;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<TargetWord, clap::Error> {
        StringValueParser::new().try_map(|word| read(&word)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named =
            Target::all().iter().map(|target| PossibleValue::new(target.name()).aliases(target.aliases().iter().copied()));
        Some(Box::new(named.chain([PossibleValue::new(NATIVE)])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim},
    };

    fn target(word: &str) -> Target {
        let read = read(word).unwrap_or_else(|error| panic!("{word}: {error}"));
        read.target().unwrap_or_else(|error| panic!("{word}: {error}"))
    }

    #[test]
    fn every_gpu_people_type_finds_the_files_that_run_on_it() {
        for (word, expected) in [
            ("sm86", Target::Sm80),
            ("sm87", Target::Sm80),
            ("sm103", Target::Sm100),
            ("sm110", Target::Sm80),
            ("rtx3090", Target::Sm80),
            ("a10", Target::Sm80),
            ("l40s", Target::Sm89),
            ("rtx4090", Target::Sm89),
            ("h20", Target::Sm90),
            ("gb200", Target::Sm100),
            ("B300", Target::Sm100),
            ("thor", Target::Sm80),
            ("rtx5080", Target::Sm120),
            ("dgx-spark", Target::Sm121),
            ("rtx2080ti", Target::Sm75),
        ] {
            assert_eq!(target(word), expected, "{word}");
        }
    }

    #[test]
    fn a_word_without_files_is_answered_with_the_reason() {
        for word in ["v100", "sm70", "sm_61", "gtx1080"] {
            let error = read(word).expect_err(word);
            assert!(error.contains("older than 7.5"), "{word}: {error}");
        }
        let unknown = read("sm85").expect_err("no such GPU");
        assert!(unknown.contains("unknown target `sm85`") && !unknown.contains("did you mean"), "{unknown}");
    }

    #[test]
    fn a_note_tells_what_a_gpu_has_no_shared_memory_for_and_who_compiles_ptx() {
        let variant = Point {
            kind: Kind::Bwd,
            head_dim: HeadDim::equal(128),
            dtype: Dtype::Bf16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm80,
        };
        let plans = [variant, Point { head_dim: HeadDim::equal(64), ..variant }].map(|v| Plan::new(v, None).expect("has a plan"));
        let note = |word| read(word).expect(word).note(&plans);
        let ampere = note("rtx3090").expect("not a target's name");
        assert!(ampere.contains("8.6: the files of `sm80` run there; not 1 of the 2 selected, `flash_bwd_hdim128"), "{ampere}");
        assert!(ampere.contains("99 KB"), "{ampere}");
        let thor = note("thor").expect("not a target's name");
        assert!(thor.contains("PTX") && !thor.contains("selected"), "{thor}");
        assert_eq!(note("a100"), None);
    }
}
