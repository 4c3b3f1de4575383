//! Checks a promise against PTX, for machines without a disassembler: PTX shows the requested products, though not the
//! instructions that ptxas chose for them.

use super::sass::expected;
use crate::plan::TensorCore;

/// The reason why `ptx` cannot become machine code that keeps the promise, as the rest of a sentence; `None` if it can.
pub(super) fn broken_promise(ptx: &str, promised: TensorCore) -> Option<String> {
    let has = |words: &[&str]| ptx.lines().any(|line| words.iter().all(|word| line.contains(word)));
    let (words, kept): (&[&str], bool) = match promised {
        TensorCore::None => (&["mma"], !has(&["mma.sync"]) && !has(&["wgmma.mma_async"])),
        // Including FP8: on Hopper these products become fp16 instructions.
        TensorCore::Hmma => (&["mma.sync"], has(&["mma.sync"])),
        TensorCore::Qmma => (&["mma.sync", ".e4m3"], has(&["mma.sync", ".e4m3"])),
        TensorCore::QmmaSf => (&["mma.sync", ".block_scale"], has(&["mma.sync", ".block_scale"])),
        TensorCore::Hgmma => (&["wgmma.mma_async"], has(&["wgmma.mma_async"])),
        TensorCore::HgmmaAndHmma => (&["wgmma.mma_async", "mma.sync"], has(&["wgmma.mma_async"]) && has(&["mma.sync"])),
        TensorCore::Qgmma => (&["wgmma.mma_async", ".e4m3"], has(&["wgmma.mma_async", ".e4m3"])),
    };
    let (expected, found) = (expected(promised), words.join("…"));
    let has = if promised == TensorCore::None { "has" } else { "has no" };
    (!kept).then(|| format!("its plan promises {expected} and its PTX {has} `{found}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_without_the_promised_products_breaks_the_promise() {
        let plain = "\tld.global.u32 %r1, [%rd1];\n";
        let hmma = "\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1};\n";
        let qmma = "\tmma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1}, {%r1}, {%r2}, {%f1};\n";
        let scaled =
            "\tmma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {%f1};\n";
        let of_bf16 = "\twgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0;\n";
        let of_fp8 = "\twgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%f1}, %rd1, %rd2, p, 1, 1;\n";
        let both = format!("{hmma}{of_bf16}");
        let all = [
            (TensorCore::None, plain, &[hmma, of_bf16][..]),
            (TensorCore::Hmma, hmma, &[plain, of_bf16]),
            (TensorCore::Qmma, qmma, &[plain, hmma, of_bf16]),
            (TensorCore::QmmaSf, scaled, &[plain, hmma, qmma]),
            (TensorCore::Hgmma, of_bf16, &[plain, hmma]),
            (TensorCore::HgmmaAndHmma, &both, &[plain, hmma, of_bf16]),
            (TensorCore::Qgmma, of_fp8, &[plain, of_bf16, qmma]),
        ];
        for (promised, kept, broken) in all {
            assert_eq!(broken_promise(kept, promised), None, "{promised:?}");
            for ptx in broken {
                assert!(broken_promise(ptx, promised).is_some_and(|why| why.contains("its PTX has")), "{promised:?} of {ptx}");
            }
        }
    }
}
