//! Existing GPUs, by compute capability, and their common names.

use super::Target;
use crate::text::ticked;

/// GPUs of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// `major * 10 + minor`.
    pub capability: u32,
    /// Well-known products, as a list.
    pub products: &'static str,
    /// Maximum shared memory per block (bytes).
    pub shared_memory_per_block: u32,
    /// Names of products as users type them, normalised by [`normal`].
    names: &'static [&'static str],
}

const fn gpu(capability: u32, kilobytes: u32, products: &'static str, names: &'static [&'static str]) -> Gpu {
    Gpu { capability, products, shared_memory_per_block: kilobytes * 1024, names }
}

/// Every compute capability from Turing on that has products (NVIDIA, "CUDA GPU Compute Capability"; shared memory:
/// CUDA programming guide, "Technical Specifications per Compute Capability"), oldest first.
pub const GPUS: &[Gpu] = &[
    gpu(75, 64, "T4, RTX 20", &["t4", "rtx20", "titanrtx", "rtx4000", "rtx5000", "rtx6000", "rtx8000"]),
    gpu(80, 163, "A100, A30", &["a100", "a100x", "a800", "a30", "a30x"]),
    gpu(
        86,
        99,
        "A10, A40, RTX 30",
        &["a2", "a10", "a10g", "a16", "a40", "rtx30", "a2000", "a3000", "a4000", "a4500", "a5000", "a5500", "a6000"],
    ),
    gpu(87, 163, "Jetson Orin", &["orin", "agxorin", "orinagx", "orinnano", "orinnx"]),
    gpu(
        89,
        99,
        "L4, L40S, RTX 40",
        &[
            "l4",
            "l20",
            "l40",
            "l40s",
            "rtx40",
            "rtx2000ada",
            "rtx4000ada",
            "rtx4500ada",
            "rtx5000ada",
            "rtx5880ada",
            "rtx6000ada",
        ],
    ),
    gpu(90, 227, "H100, H200, GH200", &["h100", "h100nvl", "h200", "h200nvl", "h20", "h800", "gh200"]),
    gpu(100, 227, "B200, GB200", &["b100", "b200", "gb200"]),
    gpu(103, 227, "B300, GB300", &["b300", "gb300"]),
    gpu(110, 227, "Jetson Thor", &["thor", "agxthor", "t5000", "t4000"]),
    gpu(120, 99, "RTX PRO 6000, RTX 50", &["rtx50", "rtxpro2000", "rtxpro4000", "rtxpro4500", "rtxpro5000", "rtxpro6000"]),
    gpu(121, 99, "GB10", &["gb10", "dgxspark", "spark"]),
];

/// GPUs still in use for which kgen has no target.
const TOO_OLD: &[(u32, &[&str])] = &[
    (30, &[]),
    (35, &["k40"]),
    (37, &["k80", "kepler"]),
    (50, &["maxwell"]),
    (52, &["m40", "m60"]),
    (53, &[]),
    (60, &["p100", "pascal"]),
    (61, &["p4", "p40", "gtx10", "titanxp"]),
    (62, &[]),
    (70, &["v100", "volta", "titanv"]),
    (72, &["xavier", "agxxavier"]),
];

/// Prefixes of product names that are ignored.
const PREFIXES: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "jetson"];

/// Suffixes after a GeForce's number that are ignored.
const SUFFIXES: [&str; 7] = ["super", "ti", "d", "laptop", "mobile", "gpu", "maxq"];

/// The compute capability (`major * 10 + minor`) denoted by a word: a product (`rtx3090`, `L40S`, `NVIDIA B300`), or a
/// capability in any spelling (`sm86`, `sm_103a`, `compute_90`, `8.6`). kgen need not have kernels for it.
pub fn capability_of(word: &str) -> Option<u32> {
    by_number(word).or_else(|| by_product(word))
}

/// True if there are GPUs of `capability`, including old ones.
pub fn is_gpu(capability: u32) -> bool {
    GPUS.iter().any(|gpu| gpu.capability == capability) || TOO_OLD.iter().any(|(old, _)| *old == capability)
}

/// `8.0` for 80.
pub fn capability_text(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

/// A hint for a word in a file or filter that names a target by its GPU, or by a number that resembles another
/// target's.
pub(super) fn hint(word: &str) -> Option<String> {
    let of_today = capability_of(word).filter(|capability| GPUS.iter().any(|gpu| gpu.capability == *capability));
    if let Some(capability) = of_today {
        return Some(format!(
            "that is compute capability {}, no target of its own; `--target {word}` says which files run there",
            capability_text(capability)
        ));
    }
    let names: Vec<&str> = Target::ALL.iter().map(|target| target.name()).collect();
    // The word is the number of another architecture, not a misspelling, so the message lists the known ones.
    by_number(word).filter(|capability| *capability >= 20).map(|_| format!("known: {}", ticked(&names)))
}

fn by_number(word: &str) -> Option<u32> {
    let lower = word.trim().to_ascii_lowercase();
    if let Some((major, minor)) = lower.split_once('.') {
        let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        return (major < 100 && minor < 10).then_some(major * 10 + minor);
    }
    let rest = ["sm", "compute", "cc"].iter().find_map(|prefix| lower.strip_prefix(prefix))?;
    let digits = rest.strip_prefix('_').unwrap_or(rest).trim_end_matches(['a', 'f']);
    let number: u32 = (2..=3).contains(&digits.len()).then(|| digits.parse().ok())??;
    // CUDA 12's 10.1 is 11.0 since CUDA 13: Jetson Thor.
    Some(if number == 101 { 110 } else { number })
}

fn by_product(word: &str) -> Option<u32> {
    let name = normal(word);
    let series = series(&name);
    let means = |names: &[&str]| names.iter().any(|known| *known == name || series == Some(known));
    let known = GPUS.iter().find(|gpu| means(gpu.names)).map(|gpu| gpu.capability);
    known.or_else(|| TOO_OLD.iter().find(|(_, names)| means(names)).map(|(capability, _)| *capability))
}

/// `rtxa6000` for `NVIDIA RTX A6000`.
pub(super) fn normal(word: &str) -> String {
    let mut name: String = word.to_ascii_lowercase().chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect();
    for prefix in PREFIXES {
        name = name.strip_prefix(prefix).unwrap_or(&name).to_owned();
    }
    if name.starts_with("rtxa") {
        name = name.replacen("rtx", "", 1);
    }
    // `RTX PRO 6000 Blackwell Server Edition`: the text after the number is ignored.
    if name.starts_with("rtxpro") && name.is_ascii() {
        name.truncate("rtxpro6000".len());
    }
    name
}

/// `rtx30` for a GeForce such as `rtx3090`, `rtx3080ti`.
fn series(name: &str) -> Option<&'static str> {
    let digits = name.strip_prefix("rtx").or_else(|| name.strip_prefix("gtx"))?;
    let (number, mut rest) = digits.split_at_checked(4)?;
    while let Some(shorter) = SUFFIXES.iter().find_map(|suffix| rest.strip_prefix(suffix)) {
        rest = shorter;
    }
    // 2000, 4000 and 5000 are workstation products, which exist in every generation.
    if !rest.is_empty() || !number.ends_with('0') || number.ends_with("00") {
        return None;
    }
    let generation = &name[..5];
    ["gtx10", "rtx20", "rtx30", "rtx40", "rtx50"].into_iter().find(|series| *series == generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_numbers_are_understood_however_they_are_written() {
        for (word, capability) in [
            ("sm86", 86),
            ("SM_87", 87),
            ("sm_103a", 103),
            ("compute_90a", 90),
            ("sm101", 110),
            ("8.6", 86),
            ("12.1", 121),
            ("rtx3090", 86),
            ("RTX 3080 Ti", 86),
            ("GeForce RTX 4070 Ti SUPER", 89),
            ("NVIDIA RTX A6000", 86),
            ("RTX 6000 Ada", 89),
            ("rtx-pro-6000", 120),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120),
            ("rtx5060", 120),
            ("a10", 86),
            ("A10G", 86),
            ("l40s", 89),
            ("h20", 90),
            ("gb200", 100),
            ("b300", 103),
            ("thor", 110),
            ("jetson-orin", 87),
            ("v100", 70),
            ("gtx1080", 61),
        ] {
            assert_eq!(capability_of(word), Some(capability), "{word}");
        }
        for word in
            ["", "sm", "sm_", "sm8", "sm8000", "8.", "rtx", "rtx3095", "rtx3090x", "rtx7090", "mi300", "é", "rtxé3090", "native"]
        {
            assert_eq!(capability_of(word), None, "{word}");
        }
    }

    #[test]
    fn a_product_has_one_capability_and_every_alias_of_a_target_its_own() {
        let mut seen = std::collections::HashSet::new();
        for name in GPUS.iter().flat_map(|gpu| gpu.names).chain(TOO_OLD.iter().flat_map(|(_, names)| *names)) {
            assert!(seen.insert(name), "`{name}` is claimed twice");
            assert_eq!(normal(name), *name);
        }
        for target in Target::ALL {
            for word in target.aliases() {
                if let Some(capability) = capability_of(word) {
                    assert_eq!(capability, target.compute_capability(), "{word}");
                }
            }
        }
    }

    #[test]
    fn a_number_is_never_taken_for_one_that_looks_like_it() {
        let help = |word| super::super::words::read::<Target>(word).expect_err("no target").help;
        assert!(
            help("sm110").contains("compute capability 11.0") && !help("sm110").contains("did you mean"),
            "{}",
            help("sm110")
        );
        assert!(help("rtx3090").contains("compute capability 8.6"), "{}", help("rtx3090"));
        assert!(help("sm_42").starts_with("known: `sm75`"), "{}", help("sm_42"));
        assert_eq!(help("hoper"), "did you mean `hopper`?");
    }
}
