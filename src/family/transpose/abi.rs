//! Builds `kgen_transpose_params`.

use crate::device::{Field, Layout, Params};
use std::sync::LazyLock;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../../templates/transpose/abi.h"), "kgen_transpose_params"));

/// The transposition of a matrix of `rows` x `columns` elements of `bytes` bytes.
pub(super) fn params([input, out]: [Field; 2], [rows, columns]: [u64; 2], bytes: i32) -> Params {
    let sizes = [("rows", Field::U64(rows)), ("columns", Field::U64(columns)), ("element_bytes", Field::I32(bytes))];
    Params::of(LAYOUT.fill(0, [("in", input), ("out", out)].into_iter().chain(sizes)))
}
