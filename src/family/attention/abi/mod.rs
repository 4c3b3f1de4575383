//! Builds `kgen_fwd_params` and `kgen_bwd_params` of `kgen.h`.

mod bwd;
mod features;
mod fwd;
mod score;

pub use bwd::BwdParams;
pub use features::AttentionFeatures;
pub use fwd::{FwdParams, NewRows, PagedKeys};
pub use score::{SCORE_TABLES, ScoreParams};

use crate::device::Field;

/// The header that declares the structures of attention.
pub(in crate::family) const HEADER: &str = include_str!("../../../../templates/include/kgen.h");

/// `KGEN_FLAG_CAUSAL`.
const FLAG_CAUSAL: u32 = 1;

/// `KGEN_FLAG_DETERMINISTIC`.
const FLAG_DETERMINISTIC: u32 = 2;

/// `KGEN_FLAG_WINDOW`.
const FLAG_WINDOW: u32 = 4;

/// Element strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strides {
    /// Distance between batch entries; not read if the call has `cu_seqlens`.
    pub batch: i64,
    /// Distance between tokens.
    pub row: i64,
    /// Distance between heads.
    pub head: i64,
}

/// Values of fields by their names in C. Pointers to tensors need none: their fields have the tensors' names.
#[derive(Debug, Default)]
struct Values(Vec<(String, Field)>);

impl Values {
    fn put(&mut self, name: impl Into<String>, field: Field) {
        self.0.push((name.into(), field));
    }

    fn integers<const N: usize>(&mut self, integers: [(&str, i32); N]) {
        self.0.extend(integers.map(|(name, value)| (name.to_owned(), Field::I32(value))));
    }

    /// `<tensor>_<axis>_stride` for two axes.
    fn pair(&mut self, tensor: &str, axes: [&str; 2], strides: [i64; 2]) {
        let values = axes.into_iter().zip(strides);
        self.0.extend(values.map(|(axis, stride)| (format!("{tensor}_{axis}_stride"), Field::I64(stride))));
    }

    /// Batch, row and head stride of a tensor.
    fn strides(&mut self, tensor: &str, Strides { batch, row, head }: Strides) {
        self.pair(tensor, ["batch", "row"], [batch, row]);
        self.put(format!("{tensor}_head_stride"), Field::I64(head));
    }

    fn array<const N: usize>(&mut self, name: &str, elements: [Field; N]) {
        self.0.extend(elements.into_iter().enumerate().map(|(index, field)| (format!("{name}[{index}]"), field)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_constants_are_those_of_c;

    #[test]
    fn flags_are_those_of_kgen_h() {
        assert_constants_are_those_of_c(&[
            ("KGEN_FLAG_CAUSAL", FLAG_CAUSAL as usize),
            ("KGEN_FLAG_DETERMINISTIC", FLAG_DETERMINISTIC as usize),
            ("KGEN_FLAG_WINDOW", FLAG_WINDOW as usize),
        ]);
    }
}
