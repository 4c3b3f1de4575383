//! Builds `kgen_rmsnorm_params`.

use crate::{
    check::Number,
    device::{Field, Layout, Params},
};
use std::sync::LazyLock;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../../templates/rmsnorm/abi.h"), "kgen_rmsnorm_params"));

/// The names of the strides.
const STRIDES: [&str; 4] = ["in_row_stride", "residual_row_stride", "out_row_stride", "residual_out_row_stride"];

/// A call on `rows` x `columns` elements of `number`, with strides of `in`, `residual`, `out` and `residual_out`.
pub(super) fn params([rows, columns]: [u64; 2], strides: [u64; 4], eps: f32, number: Number) -> Params {
    let strides = STRIDES.into_iter().zip(strides.map(|stride| Field::I64(stride.cast_signed())));
    let others = [("rows", Field::U64(rows)), ("columns", Field::U64(columns)), ("eps", Field::F32(eps))];
    Params::of(LAYOUT.fill(0, strides.chain(others).chain([("dtype", Field::I32(number.code()))])))
}
