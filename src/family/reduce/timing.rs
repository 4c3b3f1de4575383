//! The trial of a reduction.

use super::{abi, operation::Operation};
use crate::{
    bench::{Bench, Matrix, Output, Size, Trial, Work, copies_beyond, elements, fp32},
    check::Number,
    device::{Field, Params},
    kernel::Variant,
};

/// Rows that are compared, spread over the matrix.
const SAMPLES: usize = 64;

/// Largest error of a result due to rounding, relative to the sum of magnitudes of its row or 1.
const LARGEST_ERROR: f64 = 1e-4;

struct ReduceTrial<'a> {
    operation: Operation,
    number: Number,
    matrix: Matrix,
    bench: Bench<'a>,
}

/// The trial of the kernel at a size.
pub(super) fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    let matrix = Matrix::of(size)?;
    Some(Box::new(ReduceTrial { operation: Operation::of(variant), number: Number::of(variant.element()), matrix, bench }))
}

impl ReduceTrial<'_> {
    fn bytes(&self) -> usize {
        self.matrix.elements() as usize * self.number.element().bytes()
    }
}

impl Trial for ReduceTrial<'_> {
    fn work(&self) -> Work {
        Work { flops: self.matrix.elements() as f64, bytes: Some(self.bytes() as f64) }
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        copies_beyond(l2_bytes, self.bytes())
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies * self.bytes() > 2 * l2_bytes as usize
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let seed = self.bench.seed.wrapping_add((copy as u64) << 20);
        vec![("in", self.bench.draws.of(self.number).tensor(self.matrix.elements() as usize, seed))]
    }

    fn has_workspace(&self) -> bool {
        true
    }

    fn outputs(&self, workspace_bytes: usize) -> Vec<Output> {
        let floats = |name, bytes| Output { name, bytes, number: None, may_differ: false };
        vec![floats("out", self.matrix.rows as usize * 4), floats("workspace", workspace_bytes)]
    }

    fn params(&self) -> Params {
        abi::params(Field::Tensor("out"), [self.matrix.rows, self.matrix.columns], self.number, self.operation)
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], _outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let [rows, columns] = [self.matrix.rows, self.matrix.columns].map(|size| size as usize);
        let mut worst = 0.0_f64;
        for row in (0..rows).step_by(rows.div_ceil(SAMPLES).max(1)).chain(rows.checked_sub(1)) {
            let values = elements(&host[0].1, self.number, row * columns, columns);
            let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (expected, scale) = match self.operation {
                Operation::Max => (largest, 1.0),
                Operation::Sum => (values.iter().sum(), values.iter().map(|value| value.abs()).sum::<f64>().max(1.0)),
                Operation::Logsumexp => (largest + values.iter().map(|value| (value - largest).exp()).sum::<f64>().ln(), 1.0),
            };
            let got = fp32(&written[0], row);
            let error = (got - expected).abs() / scale;
            if error.is_nan() || error > LARGEST_ERROR {
                return Err(format!("out is wrong: row {row} gives {got}, expected {expected}"));
            }
            worst = worst.max(error);
        }
        Ok(worst)
    }
}
