//! `kgen_vector_add_params`, as Rust fills it in.

use crate::{
    check::Number,
    device::{Field, Fields, Params},
};

/// The sum of `a` and `b`, `count` elements of `number`, to where `out` says.
pub(super) fn params(out: Field, count: u64, number: Number) -> Params {
    let [a, b] = ["a", "b"].map(Field::Tensor);
    Params::of(Fields {
        flags: 0,
        fields: vec![a, b, out, Field::U64(count), Field::I32(number.code()), Field::I32(0)],
        later: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_layout_is_that_of_c;

    #[test]
    fn fields_lie_where_kgen_h_has_them() {
        let params = params(Field::Tensor("out"), 1, Number::Fp32);
        assert_layout_is_that_of_c(
            "kgen_vector_add_params",
            &["a", "b", "out", "count", "dtype", "reserved"],
            params.get().expect("written field by field"),
        );
    }
}
