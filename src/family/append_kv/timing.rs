//! A trial of appending to a dense cache: every row of the cache is written, and Q is rotated.

use super::abi::{CAUSAL, Request};
use crate::{
    bench::{Bench, Matrix, Output, Size, Trial, Work, copies_beyond, elements},
    check::Number,
    device::{Field, Params},
    family::attention::abi::Strides,
    family::rotary::{Rotary, Tables, nearest_right},
    kernel::Variant,
};

/// Numbers of sequences, and of new rows in each.
pub(super) const SIZES: [Matrix; 2] = [Matrix { rows: 64, columns: 1 }, Matrix { rows: 64, columns: 512 }];

/// Rows of Q and of K that are compared, spread over the tensors.
const SAMPLES: usize = 64;

const HEADS: usize = 32;
const HEADS_K: usize = 8;
const HEAD_DIM: usize = 128;

struct AppendTrial<'a> {
    number: Number,
    sequences: usize,
    new: usize,
    bench: Bench<'a>,
}

/// The trial of the kernel at a size.
pub(super) fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    let Matrix { rows, columns } = Matrix::of(size)?;
    Some(Box::new(AppendTrial { number: Number::of(variant.element()), sequences: rows as usize, new: columns as usize, bench }))
}

impl AppendTrial<'_> {
    fn elements(&self, heads: usize) -> usize {
        self.sequences * self.new * heads * HEAD_DIM
    }

    /// Bytes read and written.
    fn bytes(&self) -> usize {
        2 * self.elements(HEADS + 2 * HEADS_K) * self.number.element().bytes()
    }

    fn rotary(&self) -> Rotary {
        Rotary { dim: HEAD_DIM, interleaved: false, rows: self.new.max(1) }
    }

    fn strides(&self, heads: usize) -> Strides {
        let row = (heads * HEAD_DIM) as i64;
        Strides { batch: self.new as i64 * row, row, head: HEAD_DIM as i64 }
    }

    /// Compares samples of a tensor that is rotated or copied.
    fn compare(&self, what: &str, heads: usize, from: &[u8], to: &[u8], tables: Option<&Tables>) -> Result<(), String> {
        let count = self.sequences * self.new * heads;
        for row in (0..count).step_by(count.div_ceil(SAMPLES).max(1)).chain(count.checked_sub(1)) {
            let values: Vec<f32> = elements(from, self.number, row * HEAD_DIM, HEAD_DIM).iter().map(|&x| x as f32).collect();
            let position = row / heads % self.new;
            let exact =
                tables.map_or_else(|| values.iter().map(|&x| x.into()).collect(), |tables| tables.rotated(&values, position));
            for (column, (got, exact)) in elements(to, self.number, row * HEAD_DIM, HEAD_DIM).iter().zip(&exact).enumerate() {
                let right = nearest_right(self.number, *exact, u32::from(tables.is_some()), *got);
                #[expect(clippy::float_cmp, reason = "what is stored is one of the right numbers or is not")]
                if *got != right {
                    return Err(format!("{what} is wrong: column {column} of row {row} is {got}, expected {right}"));
                }
            }
        }
        Ok(())
    }
}

impl Trial for AppendTrial<'_> {
    fn work(&self) -> Work {
        let rotated = self.elements(HEADS + HEADS_K) as f64;
        Work { flops: 3.0 * rotated, bytes: Some(self.bytes() as f64) }
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        copies_beyond(l2_bytes, self.bytes())
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies * self.bytes() > 2 * l2_bytes as usize
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let tensor = |number: u64, heads| {
            let seed = self.bench.seed.wrapping_mul(8).wrapping_add(number).wrapping_add((copy as u64) << 20);
            self.bench.draws.of(self.number).tensor(self.elements(heads), seed)
        };
        let tables = Tables::new(self.rotary(), self.number);
        let width = self.number.element().bytes();
        let bytes = |values: &[f32]| values.iter().flat_map(|&x| self.number.round(x).to_le_bytes()[..width].to_vec()).collect();
        vec![
            ("q", tensor(0, HEADS)),
            ("k", tensor(1, HEADS_K)),
            ("v", tensor(2, HEADS_K)),
            ("rotary_cos", bytes(&tables.cos)),
            ("rotary_sin", bytes(&tables.sin)),
            ("cache_seqlens", vec![0; 4 * self.sequences]),
        ]
    }

    fn outputs(&self, _workspace_bytes: usize) -> Vec<Output> {
        let bytes = |heads| self.elements(heads) * self.number.element().bytes();
        let output = |name, heads| Output { name, bytes: bytes(heads), number: Some(self.number), may_differ: false };
        vec![output("q_out", HEADS), output("k_cache", HEADS_K), output("v_cache", HEADS_K)]
    }

    fn params(&self) -> Params {
        let [of_q, of_k] = [HEADS, HEADS_K].map(|heads| self.strides(heads));
        let request = Request {
            flags: CAUSAL,
            k_cache: Field::Tensor("k_cache"),
            v_cache: Field::Tensor("v_cache"),
            q_out: Field::Tensor("q_out"),
            strides: [of_k, of_k, of_k, of_k, of_q, of_q],
            rotary_row_stride: self.rotary().columns(),
            page_table_stride: 0,
            descale_strides: [[0; 2]; 2],
            batch: self.sequences,
            seqlen_new: self.new,
            total_new: 0,
            seqlen_q: self.new,
            total_q: 0,
            heads: HEADS,
            heads_k: HEADS_K,
            head_dims: [HEAD_DIM; 2],
            rotary_dim: HEAD_DIM,
            rotary_rows: self.rotary().rows,
            page_size: self.new,
            num_pages: self.sequences,
            pages_per_sequence: 0,
            number: self.number,
            cache: self.number,
        };
        request.params()
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], _outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let tables = Tables::new(self.rotary(), self.number);
        self.compare("q_out", HEADS, &host[0].1, &written[0], Some(&tables))?;
        self.compare("k_cache", HEADS_K, &host[1].1, &written[1], Some(&tables))?;
        self.compare("v_cache", HEADS_K, &host[2].1, &written[2], None)?;
        Ok(0.0)
    }
}
