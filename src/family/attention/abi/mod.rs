//! `kgen_fwd_params` and `kgen_bwd_params` of `kgen.h`, as Rust fills them in.

mod bwd;
mod features;
mod fwd;
mod score;

pub use bwd::BwdParams;
pub use features::AttentionFeatures;
pub use fwd::{FwdParams, NewRows, PagedKeys};
pub use score::{SCORE_TABLES, ScoreParams};

use crate::device::{Field, Fields};

/// `KGEN_FLAG_CAUSAL`.
const FLAG_CAUSAL: u32 = 1;

/// `KGEN_FLAG_DETERMINISTIC`.
const FLAG_DETERMINISTIC: u32 = 2;

/// `KGEN_FLAG_WINDOW`.
const FLAG_WINDOW: u32 = 4;

/// Element strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strides {
    /// From one batch entry to the next; not read if `cu_seqlens` is given.
    pub batch: i64,
    /// From one token to the next.
    pub row: i64,
    /// From one head to the next.
    pub head: i64,
}

/// Fields in the order of the structure in C, with their names there.
#[derive(Debug, Default)]
struct Rows(Vec<(String, Field)>);

impl Rows {
    fn push(&mut self, name: impl Into<String>, field: Field) {
        self.0.push((name.into(), field));
    }

    /// Pointers to tensors of the same names.
    fn tensors<const N: usize>(&mut self, names: [&'static str; N]) {
        self.0.extend(names.map(|name| (name.to_owned(), Field::Tensor(name))));
    }

    fn integers<const N: usize>(&mut self, integers: [(&str, i32); N]) {
        self.0.extend(integers.map(|(name, value)| (name.to_owned(), Field::I32(value))));
    }

    /// `<tensor>_<axis>_stride` of two axes.
    fn pair(&mut self, tensor: &str, axes: [&str; 2], strides: [i64; 2]) {
        let rows = axes.into_iter().zip(strides);
        self.0.extend(rows.map(|(axis, stride)| (format!("{tensor}_{axis}_stride"), Field::I64(stride))));
    }

    /// Batch, row and head stride of a tensor.
    fn strides(&mut self, tensor: &str, Strides { batch, row, head }: Strides) {
        self.pair(tensor, ["batch", "row"], [batch, row]);
        self.push(format!("{tensor}_head_stride"), Field::I64(head));
    }

    fn array<const N: usize>(&mut self, name: &str, elements: [Field; N]) {
        self.0.extend(elements.into_iter().enumerate().map(|(index, field)| (format!("{name}[{index}]"), field)));
    }

    /// What follows is a structure within, which is aligned to 8 bytes.
    fn begin_structure(&mut self, name: &str) {
        self.push(name, Field::Aligned);
    }

    /// The fields, of which the first `first_version` are those of the structure's first version.
    fn into_fields(self, flags: u32, first_version: usize) -> Fields {
        let later = self.0.len() - first_version;
        Fields { flags, fields: self.0.into_iter().map(|(_, field)| field).collect(), later }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Parameters, assert_constants_are_those_of_c, assert_layout_is_that_of_c};

    const FWD: FwdParams = FwdParams {
        strides: [Strides { batch: 0, row: 0, head: 0 }; 4],
        lse_strides: [0; 2],
        descale_strides: [[0; 2]; 3],
        batch: 0,
        num_heads: 0,
        num_heads_k: 0,
        seqlen_q: 0,
        seqlen_k: 0,
        total_rows: [0; 2],
        num_splits: 0,
        concurrent_blocks: 0,
        head_dim: 0,
        head_dim_v: 0,
        dtype: 0,
        kv_dtype: 0,
        causal: false,
        merging: 0,
        arrivals: 0,
        softmax_scale: 0.0,
        features: FEATURES,
        qv_strides: None,
        pages: None,
        cache_entries: 0,
        new_rows: None,
    };

    const FEATURES: AttentionFeatures = AttentionFeatures {
        window: None,
        chunk: 0,
        softcap: 0.0,
        alibi_batch_stride: 0,
        sinks_dtype: 0,
        score: ScoreParams { id: 0, scalars: [0.0; 8], integers: [0; 8] },
    };

    const BWD: BwdParams = BwdParams {
        strides: [Strides { batch: 0, row: 0, head: 0 }; 8],
        lse_strides: [0; 2],
        dlse_strides: [0; 2],
        batch: 0,
        num_heads: 0,
        num_heads_k: 0,
        seqlen_q: 0,
        seqlen_k: 0,
        total_q: 0,
        head_dim: 0,
        head_dim_v: 0,
        dtype: 0,
        causal: false,
        deterministic: false,
        softmax_scale: 0.0,
        features: FEATURES,
    };

    #[test]
    fn fields_are_where_kgen_h_has_them() {
        for (structure, rows, fields) in
            [("kgen_fwd_params", FWD.rows(), FWD.fields()), ("kgen_bwd_params", BWD.rows(), BWD.fields())]
        {
            let names: Vec<&str> = rows.0.iter().map(|(name, _)| name.as_str()).collect();
            assert_layout_is_that_of_c(structure, &names, &fields);
        }
    }

    #[test]
    fn the_first_version_ends_where_kgen_h_says() {
        let first_later = |fields: &Fields, rows: &Rows| rows.0[fields.fields.len() - fields.later].0.clone();
        assert_eq!(first_later(&FWD.fields(), &FWD.rows()), "q_descale");
        assert_eq!(first_later(&BWD.fields(), &BWD.rows()), "features");
    }

    #[test]
    fn flags_are_those_of_kgen_h() {
        assert_constants_are_those_of_c(&[
            ("KGEN_FLAG_CAUSAL", FLAG_CAUSAL as usize),
            ("KGEN_FLAG_DETERMINISTIC", FLAG_DETERMINISTIC as usize),
            ("KGEN_FLAG_WINDOW", FLAG_WINDOW as usize),
        ]);
    }
}
