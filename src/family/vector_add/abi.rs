//! Builds `kgen_vector_add_params`.

use crate::{
    check::Number,
    device::{Field, Layout, Params},
};
use std::sync::LazyLock;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../../templates/vector_add/abi.h"), "kgen_vector_add_params"));

/// The sum of `a` and `b`, `count` elements of `number`, written to `out`.
pub(super) fn params(out: Field, count: u64, number: Number) -> Params {
    Params::of(LAYOUT.fill(0, [("out", out), ("count", Field::U64(count)), ("dtype", Field::I32(number.code()))]))
}
