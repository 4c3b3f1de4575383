//! Counts of a kernel's instructions from its disassembly, and the test against the plan's promise.

use crate::plan::TensorCore;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of the interesting instructions of one object, over all its kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCode {
    /// Number of all instructions.
    pub instructions: u32,
    /// Tensor-core instructions by full name: `HMMA.16816.F32.BF16`.
    pub tensor_cores: BTreeMap<String, u32>,
    /// Accesses to local memory by full name: `STL.128`.
    pub local_memory: BTreeMap<String, u32>,
    /// BLAKE3 of the instructions and their operands, without addresses and names of functions: equal for kernels that
    /// execute the same code.
    #[serde(default)]
    pub sass: String,
    /// Release of the disassembler used.
    pub disassembler: String,
}

impl MachineCode {
    /// Adds the instructions of an `nvdisasm` listing.
    pub(super) fn count(&mut self, listing: &str) {
        for name in listing.lines().filter_map(instruction) {
            self.instructions += 1;
            let counts = if family(name).is_some() {
                &mut self.tensor_cores
            } else if matches!(name.split('.').next(), Some("LDL" | "STL")) {
                &mut self.local_memory
            } else {
                continue;
            };
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Families of tensor-core instructions present, with their counts.
    pub fn families(&self) -> BTreeMap<&str, u32> {
        let mut families = BTreeMap::new();
        for (name, count) in &self.tensor_cores {
            *families.entry(family(name).unwrap_or(name)).or_default() += count;
        }
        families
    }

    /// The reason why this breaks the plan's promise, as the rest of a sentence; `None` if `promised` is the only
    /// family of tensor-core instructions.
    pub(super) fn broken_promise(&self, promised: TensorCore) -> Option<String> {
        let families = self.families();
        if families.keys().copied().eq(promised_families(promised).iter().copied()) {
            return None;
        }
        let expected = expected(promised);
        let found = if families.is_empty() { "none".to_owned() } else { listed(&self.tensor_cores) };
        Some(format!("its plan promises {expected} and its machine code has {found}"))
    }

    /// Accesses to local memory, as a sentence; `None` if there are none.
    pub(super) fn slow_memory(&self) -> Option<String> {
        (!self.local_memory.is_empty()).then(|| {
            format!(
                "its machine code uses local memory ({}): registers spill, or an array is indexed at run time; change its tile, or accept it \
                 with `--allow-spills`",
                listed(&self.local_memory)
            )
        })
    }
}

/// The families that a promise names, sorted; none for kernels that promise no tensor-core instruction.
fn promised_families(promised: TensorCore) -> &'static [&'static str] {
    match promised {
        TensorCore::None => &[],
        TensorCore::Hmma => &["HMMA"],
        TensorCore::Qmma => &["QMMA"],
        TensorCore::QmmaSf => &["QMMA.SF"],
        TensorCore::Hgmma => &["HGMMA"],
        TensorCore::HgmmaAndHmma => &["HGMMA", "HMMA"],
        TensorCore::Qgmma => &["QGMMA"],
    }
}

/// The promised families as words of a sentence.
pub(super) fn expected(promised: TensorCore) -> String {
    match promised_families(promised) {
        [] => "no tensor-core instruction".to_owned(),
        families => families.iter().join(" and "),
    }
}

/// `384 HMMA.16816.F32, 2 HMMA.16816.F16`
fn listed(counts: &BTreeMap<String, u32>) -> String {
    counts.iter().map(|(name, count)| format!("{count} {name}")).join(", ")
}

/// The instructions of a listing, one per line, without their addresses. Names of functions, which depend on the file's
/// name and text, are left out.
pub(super) fn code_of(listing: &str) -> String {
    let lines = listing.lines().filter_map(|line| Some(line.trim_start().strip_prefix("/*")?.split_once("*/")?.1.trim()));
    lines.filter(|line| !line.is_empty()).map(|line| without_functions(line) + "\n").collect()
}

/// An instruction without the symbols in `` `(…) ``; labels such as `.L_x_2` stay.
fn without_functions(line: &str) -> String {
    let mut parts = line.split("`(");
    let head = parts.next().unwrap_or_default().to_owned();
    parts.fold(head, |text, part| match part.split_once(')') {
        Some((name, rest)) if !name.starts_with(".L") => format!("{text}`(){rest}"),
        _ => format!("{text}`({part}"),
    })
}

/// The name of the instruction in a line of a listing: `/*0a10*/  @!P0 HMMA.16816.F32 R4, R8, R12, R4 ;`.
fn instruction(line: &str) -> Option<&str> {
    let mut words = line.trim_start().strip_prefix("/*")?.split_once("*/")?.1.split_whitespace();
    let first = words.next()?;
    let name = if first.starts_with('@') { words.next()? } else { first };
    Some(name.trim_end_matches(';'))
}

/// The family of a tensor-core instruction, `HMMA` or with block scales `QMMA.SF`; `None` for any other instruction.
/// (`HFMA2.MMA` is not one: it runs on the FMA pipe and multiplies no matrices.)
fn family(name: &str) -> Option<&str> {
    let base = name.split('.').next()?;
    let scaled = name[base.len()..].starts_with(".SF").then(|| base.len() + ".SF".len());
    base.ends_with("MMA").then(|| &name[..scaled.unwrap_or(base.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(listing: &str) -> MachineCode {
        let mut code = MachineCode::default();
        code.count(listing);
        code
    }

    const LISTING: &str = "\t.target\tsm_120f\n\
        .text.kernel:\n\
        \x20       /*0000*/                   LDC R1, c[0x0][0x37c] ;\n\
        \x20       /*0010*/                   HFMA2.MMA R6, -RZ, RZ, 0, 0 ;\n\
        \x20       /*0020*/              @!P0 HMMA.16816.F32.BF16 R4, R8.reuse, R12, R4 ;\n\
        \x20       /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R14, RZ ;\n\
        \x20       /*0040*/                   QMMA.SF.16832.F32.E4M3.E4M3.E8 R8, R4, R2, RZ, R0, R0, URZ ;\n\
        \x20       /*0050*/                   EXIT;\n\
        .L_x_2:\n";

    #[test]
    fn instructions_are_counted_by_their_full_names() {
        let code = code(LISTING);
        assert_eq!(code.instructions, 6);
        let counts: Vec<_> = code.tensor_cores.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(counts, [("HMMA.16816.F32.BF16", 2), ("QMMA.SF.16832.F32.E4M3.E4M3.E8", 1)]);
        assert_eq!(code.families().into_iter().collect::<Vec<_>>(), [("HMMA", 2), ("QMMA.SF", 1)]);
        assert!(code.local_memory.is_empty());
    }

    #[test]
    fn the_same_code_is_the_same_text_wherever_it_lies_and_whatever_it_is_called() {
        let code = "/*0000*/ CALL.REL.NOINC `(_ZN62_GLOBAL__N__a03803d0_1_a_cu_072c659b3addEv) ;\n/*0010*/ @P0 BRA `(.L_x_2) ;\n";
        let other = ".text.b:\n  /*0a00*/ CALL.REL.NOINC `(_ZN62_GLOBAL__N__b03803d0_1_b_cu_172c659b3addEv) ;\n/*0a10*/ @P0 BRA `(.L_x_2) ;\n";
        assert_eq!(code_of(code), "CALL.REL.NOINC `() ;\n@P0 BRA `(.L_x_2) ;\n");
        assert_eq!(code_of(code), code_of(other));
        assert_ne!(code_of(code), code_of(&code.replace("x_2", "x_3")));
        assert_ne!(code_of(LISTING), code_of(&LISTING.replace("R4, R8, R14", "R4, R8, R15")));
    }

    #[test]
    fn a_promise_holds_only_with_its_own_family_and_no_other() {
        let hmma = code("/*0000*/ HMMA.1688.F32 R4, R8, R12, R4 ;");
        let scaled = code("/*0000*/ QMMA.SF.16832.F32.E4M3.E4M3.E8 R8, R4, R2, RZ, R0, R0, URZ ;");
        let plain = code("/*0000*/ QMMA.16832.F32.E4M3.E4M3 R8, R4, R2, R8 ;");
        let none = code("/*0000*/ EXIT ;");
        let warpgroup = code("/*0000*/ HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;");
        let all = [
            (TensorCore::Hmma, &hmma),
            (TensorCore::Qmma, &plain),
            (TensorCore::QmmaSf, &scaled),
            (TensorCore::Hgmma, &warpgroup),
            (TensorCore::None, &none),
        ];
        for (promised, _) in all {
            for (made, code) in all {
                assert_eq!(code.broken_promise(promised).is_none(), promised == made, "{promised:?} of {made:?}");
            }
        }
        let both = code(LISTING).broken_promise(TensorCore::Hmma).expect("two families");
        assert_eq!(
            both,
            "its plan promises HMMA and its machine code has 2 HMMA.16816.F32.BF16, 1 QMMA.SF.16832.F32.E4M3.E4M3.E8"
        );
        let missing = none.broken_promise(TensorCore::QmmaSf).expect("nothing there");
        assert_eq!(missing, "its plan promises QMMA.SF and its machine code has none");
    }

    #[test]
    fn local_memory_is_slow_and_breaks_no_promise() {
        let spilling = code("/*0000*/ @P1 LDL.64 R2, [R1+0x8] ;\n/*0010*/ STL [R1], R4 ;\n/*0020*/ LDG.E R2, [R4] ;\n");
        assert!(spilling.slow_memory().expect("spills").contains("(1 LDL.64, 1 STL)"));
        assert_eq!(spilling.broken_promise(TensorCore::None), None);
        assert_eq!(code("/*0000*/ EXIT ;").slow_memory(), None);
    }
}
