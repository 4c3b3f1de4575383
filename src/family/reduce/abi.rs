//! Builds `kgen_reduce_params`.

use super::operation::Operation;
use crate::{
    check::Number,
    device::{Field, Layout, Params},
};
use std::sync::LazyLock;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../../templates/reduce/abi.h"), "kgen_reduce_params"));

/// The parameters of `operation` on each row of a matrix of `rows` x `columns` elements of `number`; results go to
/// `out`.
pub(super) fn params(out: Field, [rows, columns]: [u64; 2], number: Number, operation: Operation) -> Params {
    Params::of(LAYOUT.fill(
        0,
        [
            ("out", out),
            ("rows", Field::U64(rows)),
            ("columns", Field::U64(columns)),
            ("dtype", Field::I32(number.code())),
            ("operation", Field::I32(operation.code())),
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_constants_are_those_of_c;

    #[test]
    fn operations_are_numbered_as_in_kgen_h() {
        use Operation::{Logsumexp, Max, Sum};
        let names = [("KGEN_REDUCE_SUM", Sum), ("KGEN_REDUCE_MAX", Max), ("KGEN_REDUCE_LOGSUMEXP", Logsumexp)];
        assert_constants_are_those_of_c(&names.map(|(name, operation)| (name, operation.code() as usize)));
    }
}
