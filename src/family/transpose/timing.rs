//! The trial of a transposition out of place.

use super::abi;
use crate::{
    bench::{Bench, Matrix, Output, Size, Trial, Work, copies_beyond},
    check::Number,
    device::{Field, Params},
    kernel::Variant,
};

/// Elements that are compared, spread over the matrix.
const SAMPLES: usize = 4096;

struct TransposeTrial<'a> {
    number: Number,
    matrix: Matrix,
    bench: Bench<'a>,
}

/// The trial of the kernel at a size.
pub(super) fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    let matrix = Matrix::of(size)?;
    Some(Box::new(TransposeTrial { number: Number::of(variant.element()), matrix, bench }))
}

impl TransposeTrial<'_> {
    fn bytes(&self) -> usize {
        self.matrix.elements() as usize * self.number.element().bytes()
    }
}

impl Trial for TransposeTrial<'_> {
    fn work(&self) -> Work {
        Work { flops: 0.0, bytes: Some(2.0 * self.bytes() as f64) }
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        copies_beyond(l2_bytes, 2 * self.bytes())
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies * 2 * self.bytes() > 2 * l2_bytes as usize
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let seed = self.bench.seed.wrapping_add((copy as u64) << 20);
        vec![("in", self.bench.draws.of(self.number).tensor(self.matrix.elements() as usize, seed))]
    }

    fn outputs(&self, _workspace_bytes: usize) -> Vec<Output> {
        vec![Output { name: "out", bytes: self.bytes(), number: Some(self.number), may_differ: false }]
    }

    fn params(&self) -> Params {
        let bytes = (self.number.element().bytes() as u32).cast_signed();
        abi::params(["in", "out"].map(Field::Tensor), [self.matrix.rows, self.matrix.columns], bytes)
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], _outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let count = self.matrix.elements() as usize;
        let [rows, columns] = [self.matrix.rows, self.matrix.columns].map(|size| size as usize);
        let width = self.number.element().bytes();
        let at = |bytes: &[u8], index: usize| bytes[index * width..][..width].to_vec();
        for index in (0..count).step_by(count.div_ceil(SAMPLES).max(1)).chain(count.checked_sub(1)) {
            let (row, column) = (index % rows, index / rows);
            let (got, expected) = (at(&written[0], index), at(&host[0].1, row * columns + column));
            if got != expected {
                return Err(format!("out is wrong: element {index} has other bits than element ({row}, {column}) of in"));
            }
        }
        Ok(0.0)
    }
}
