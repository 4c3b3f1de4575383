//! Builds `kgen_probe_params`.

use crate::device::{Field, Layout, Params};
use std::sync::LazyLock;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../templates/probe/parts/parameters.tera"), "kgen_probe_params"));

/// The parameters of a launch, beside the pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scalars {
    /// Bytes of `memory`.
    pub bytes: u64,
    /// Blocks of the launch.
    pub blocks: u32,
    /// Steps of the loop.
    pub steps: u32,
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
}

impl Scalars {
    /// The structure; its pointers are to the tensors `memory`, `kept` and `spans`.
    pub(super) fn params(self) -> Params {
        let number = |value: u32| Field::I32(value.cast_signed());
        Params::of(LAYOUT.fill(
            0,
            [
                ("bytes", Field::U64(self.bytes)),
                ("blocks", number(self.blocks)),
                ("steps", number(self.steps)),
                ("shared_bytes", number(self.shared_bytes)),
            ],
        ))
    }
}
