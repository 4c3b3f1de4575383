//! What a plan promises of the machine code it will become.

use serde::{Deserialize, Serialize};

/// The family of tensor-core instructions a kernel is made of, as a disassembler names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorCore {
    /// None: the kernel multiplies no matrices.
    None,
    /// `HMMA`: fp16 and bf16 `mma.sync`, and FP8 where it is emulated.
    Hmma,
    /// `QMMA`: FP8 `mma.sync`.
    Qmma,
    /// `QMMA.SF`: FP8 `mma.sync` with block scales.
    QmmaSf,
    /// `HGMMA`: fp16 and bf16 `wgmma`.
    Hgmma,
}
