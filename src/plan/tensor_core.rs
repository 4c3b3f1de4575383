//! A plan's promise about its machine code, which the build verifies.

use serde::Serialize;

/// The tensor-core instructions of a kernel's machine code, by their names in disassemblers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorCore {
    /// None: the kernel multiplies no matrices.
    None,
    /// `HMMA`: `mma.sync` on fp16 and bf16; on Hopper also the translation of FP8 `mma.sync`.
    Hmma,
    /// `QMMA`: `mma.sync` on FP8.
    Qmma,
    /// `QMMA.SF`: block-scaled `mma.sync` on FP8.
    QmmaSf,
    /// `HGMMA`: `wgmma` on fp16 and bf16.
    Hgmma,
    /// `HGMMA` and, in a kernel beside the main one, `HMMA`.
    HgmmaAndHmma,
    /// `QGMMA`: `wgmma` on FP8.
    Qgmma,
}
