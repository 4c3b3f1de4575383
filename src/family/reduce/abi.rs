//! `kgen_reduce_params`, as Rust fills it in.

use super::operation::Operation;
use crate::{
    check::Number,
    device::{Field, Fields, Params},
};

/// The parameters of `operation` on each row of a matrix of `rows` x `columns` elements of `number`; `out` says where
/// results go.
pub(super) fn params(out: Field, [rows, columns]: [u64; 2], number: Number, operation: Operation) -> Params {
    let workspace = [Field::Tensor("workspace"), Field::WorkspaceBytes];
    let rest = [Field::U64(rows), Field::U64(columns), Field::I32(number.code()), Field::I32(operation.code())];
    let fields = [Field::Tensor("in"), out].into_iter().chain(workspace).chain(rest);
    Params::of(Fields { flags: 0, fields: fields.collect(), later: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{assert_constants_are_those_of_c, assert_layout_is_that_of_c};

    #[test]
    fn operations_are_numbered_as_in_kgen_h() {
        use Operation::{Logsumexp, Max, Sum};
        let names = [("KGEN_REDUCE_SUM", Sum), ("KGEN_REDUCE_MAX", Max), ("KGEN_REDUCE_LOGSUMEXP", Logsumexp)];
        assert_constants_are_those_of_c(&names.map(|(name, operation)| (name, operation.code() as usize)));
    }

    #[test]
    fn fields_lie_where_kgen_h_has_them() {
        let params = params(Field::Tensor("out"), [1; 2], Number::Fp32, Operation::Sum);
        let names = ["in", "out", "workspace", "workspace_bytes", "rows", "columns", "dtype", "operation"];
        assert_layout_is_that_of_c("kgen_reduce_params", &names, params.get().expect("written field by field"));
    }
}
