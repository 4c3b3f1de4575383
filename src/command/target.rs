//! Words for a target: its name or alias, the name of a GPU (`rtx3090`, `sm86`), or `native`.

use super::CommandError;
use crate::{
    device::GpuInfo,
    kernel::{GPUS, Target, Variant, capability_of, capability_text, is_gpu, read_word},
    plan::{self, Plan},
};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::{fmt, str::FromStr, sync::OnceLock};

/// The word for the GPU of this machine.
pub(crate) const NATIVE: &str = "native";

/// The alias of `sm120` that people also use for the data-centre chips.
const BLACKWELL: &str = "blackwell";

/// A target as the caller wrote it. JSON contains the word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TargetWord {
    /// A name or an alias of the target.
    Named {
        /// The word.
        word: String,
        /// The target that it names.
        target: Target,
    },
    /// A GPU that runs the target's files.
    Gpu {
        /// The word.
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
    /// The target; for `native`, the driver is queried.
    ///
    /// # Errors
    /// [`CommandError::Environment`] for `native` if there is no GPU, or no target supports it.
    pub fn target(&self) -> Result<Target, CommandError> {
        match self.known()? {
            Self::Named { target, .. } | Self::Gpu { target, .. } => Ok(target),
            Self::Native => unreachable!("`known` leaves none"),
        }
    }

    /// Note on the GPUs that run the files of the target that the caller named, if newer GPUs cannot load them; for
    /// `blackwell` also on the other architecture of this name.
    pub(super) fn places(&self) -> Option<String> {
        let Self::Named { word, target } = self else { return None };
        let files = (!target.carries_ptx()).then(|| format!("`{target}` files run on {}", plan::where_files_run(*target)))?;
        // NVIDIA uses the name Blackwell for two architectures whose files do not run on each other.
        let other = if word.eq_ignore_ascii_case(BLACKWELL) { "; B200 and GB200 are `--target b200`" } else { "" };
        Some(files + other)
    }

    /// Note on the files of a target that the caller did not name, with the plans of the variants selected for it.
    pub(super) fn note(&self, plans: &[Plan]) -> Option<String> {
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

    /// This word, with `native` replaced by the GPU of this machine.
    fn known(&self) -> Result<Self, CommandError> {
        static PRESENT: OnceLock<Result<u32, String>> = OnceLock::new();
        if *self != Self::Native {
            return Ok(self.clone());
        }
        let probe = || GpuInfo::probe().map(|gpu| gpu.compute_capability).map_err(|error| error.to_string());
        let missing =
            |reason: &str| CommandError::Environment(format!("`{NATIVE}`: {reason}; name a target instead, such as `sm80`"));
        let capability = PRESENT.get_or_init(probe).as_ref().map_err(|reason| missing(reason))?;
        of_gpu(NATIVE, *capability).map_err(|reason| missing(&reason))
    }
}

/// The target whose files run on a GPU of `capability`, which the caller wrote as `word`.
fn of_gpu(word: &str, capability: u32) -> Result<TargetWord, String> {
    let target = plan::target_for(capability).ok_or_else(|| {
        let text = capability_text(capability);
        format!(
            "no kernels for `{word}`: its compute capability {text} is older than 7.5 (`sm75`, Turing), the oldest kgen knows"
        )
    })?;
    Ok(TargetWord::Gpu { word: word.to_owned(), capability, target })
}

impl FromStr for TargetWord {
    type Err = String;

    /// Fails with the problem and the word that was probably meant.
    fn from_str(word: &str) -> Result<Self, String> {
        if word.trim().eq_ignore_ascii_case(NATIVE) {
            return Ok(Self::Native);
        }
        let unknown = match read_word::<Target>(word) {
            Ok(target) => return Ok(Self::Named { word: word.trim().to_owned(), target }),
            Err(unknown) => unknown,
        };
        match capability_of(word) {
            // Any number parses as a capability, but a GPU with it must exist.
            Some(capability) if is_gpu(capability) => of_gpu(word.trim(), capability),
            _ => Err(unknown.to_string()),
        }
    }
}

impl fmt::Display for TargetWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { word, .. } | Self::Gpu { word, .. } => f.write_str(word),
            Self::Native => f.write_str(NATIVE),
        }
    }
}

impl TryFrom<String> for TargetWord {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        word.parse()
    }
}

impl From<TargetWord> for String {
    fn from(word: TargetWord) -> Self {
        word.to_string()
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
        let read = word.parse::<TargetWord>().unwrap_or_else(|error| panic!("{word}: {error}"));
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
            let error = word.parse::<TargetWord>().expect_err(word);
            assert!(error.contains("older than 7.5"), "{word}: {error}");
        }
        let unknown = "sm85".parse::<TargetWord>().expect_err("no such GPU");
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
        let note = |word: &str| word.parse::<TargetWord>().expect(word).note(&plans);
        let ampere = note("rtx3090").expect("not a target's name");
        assert!(ampere.contains("8.6: the files of `sm80` run there; not 1 of the 2 selected, `flash_bwd_hdim128"), "{ampere}");
        assert!(ampere.contains("99 KB"), "{ampere}");
        let thor = note("thor").expect("not a target's name");
        assert!(thor.contains("PTX") && !thor.contains("selected"), "{thor}");
        assert_eq!(note("a100"), None);
    }
}
