//! `kgen_transpose_params`, as Rust fills it in.

use crate::device::{Field, Fields, Params};

/// The transposition of a matrix of `rows` x `columns` elements of `bytes` bytes.
pub(super) fn params([input, out]: [Field; 2], [rows, columns]: [u64; 2], bytes: i32) -> Params {
    let fields = vec![input, out, Field::U64(rows), Field::U64(columns), Field::I32(bytes), Field::I32(0)];
    Params::of(Fields { flags: 0, fields, later: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_layout_is_that_of_c;

    #[test]
    fn fields_lie_where_kgen_h_has_them() {
        let params = params(["in", "out"].map(Field::Tensor), [1; 2], 2);
        let names = ["in", "out", "rows", "columns", "element_bytes", "reserved"];
        assert_layout_is_that_of_c("kgen_transpose_params", &names, params.get().expect("written field by field"));
    }
}
