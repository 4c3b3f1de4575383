//! The trial of a normalisation with a residual.

use super::{abi, cases::Reference};
use crate::{
    bench::{Bench, Matrix, Output, Size, Trial, Work, copies_beyond, elements},
    check::Number,
    device::Params,
    kernel::Variant,
};

/// Rows that are compared, spread over the matrix.
const SAMPLES: usize = 64;

/// The epsilon added to the mean square, as in common models.
const EPS: f32 = 1e-6;

struct NormTrial<'a> {
    number: Number,
    matrix: Matrix,
    bench: Bench<'a>,
}

/// The trial of the kernel at a size.
pub(super) fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    let matrix = Matrix::of(size)?;
    Some(Box::new(NormTrial { number: Number::of(variant.element()), matrix, bench }))
}

impl NormTrial<'_> {
    fn bytes(&self) -> usize {
        self.matrix.elements() as usize * self.number.element().bytes()
    }
}

impl Trial for NormTrial<'_> {
    fn work(&self) -> Work {
        Work { flops: 5.0 * self.matrix.elements() as f64, bytes: Some(4.0 * self.bytes() as f64) }
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        copies_beyond(l2_bytes, 4 * self.bytes())
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies * 4 * self.bytes() > 2 * l2_bytes as usize
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let tensor = |place: u64, count: u64| {
            let seed = self.bench.seed.wrapping_mul(8).wrapping_add(place).wrapping_add((copy as u64) << 20);
            self.bench.draws.of(self.number).tensor(count as usize, seed)
        };
        let count = self.matrix.elements();
        vec![("in", tensor(0, count)), ("residual", tensor(1, count)), ("weight", tensor(2, self.matrix.columns))]
    }

    fn outputs(&self, _workspace_bytes: usize) -> Vec<Output> {
        let output = |name| Output { name, bytes: self.bytes(), number: Some(self.number), may_differ: false };
        vec![output("out"), output("residual_out")]
    }

    fn params(&self) -> Params {
        let Matrix { rows, columns } = self.matrix;
        abi::params([rows, columns], [columns; 4], EPS, self.number)
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], _outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let [rows, columns] = [self.matrix.rows, self.matrix.columns].map(|size| size as usize);
        let row_of = |bytes: &[u8], row: usize| -> Vec<f32> {
            elements(bytes, self.number, row * columns, columns).iter().map(|value| *value as f32).collect()
        };
        let weight = row_of(&host[2].1, 0);
        for row in (0..rows).step_by(rows.div_ceil(SAMPLES).max(1)).chain(rows.checked_sub(1)) {
            let [input, residual] = [0, 1].map(|tensor| row_of(&host[tensor].1, row));
            let reference = Reference::of(self.number, &input, Some(&residual), &weight, EPS);
            let [out, sum] = [0, 1].map(|tensor| row_of(&written[tensor], row));
            #[expect(clippy::float_cmp, reason = "each sum is rounded once")]
            let wrong = (0..columns).find(|at| !reference.allows(*at, f64::from(out[*at])) || sum[*at] != reference.h[*at]);
            if let Some(column) = wrong {
                return Err(format!("row {row} is wrong at column {column}: out {}, residual_out {}", out[column], sum[column]));
            }
        }
        Ok(0.0)
    }
}
