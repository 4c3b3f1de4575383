//! The trial of a sum of vectors.

use super::abi;
use crate::{
    bench::{Bench, Matrix, Output, Size, Trial, Work, copies_beyond, elements},
    check::Number,
    device::{Field, Params},
    kernel::Variant,
};

/// Elements that are compared, spread over the vector.
const SAMPLES: usize = 4096;

struct AddTrial<'a> {
    number: Number,
    matrix: Matrix,
    bench: Bench<'a>,
}

/// The trial of the kernel at a size.
pub(super) fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    let matrix = Matrix::of(size)?;
    Some(Box::new(AddTrial { number: Number::of(variant.element()), matrix, bench }))
}

impl AddTrial<'_> {
    fn bytes(&self) -> usize {
        self.matrix.elements() as usize * self.number.element().bytes()
    }
}

impl Trial for AddTrial<'_> {
    fn work(&self) -> Work {
        Work { flops: self.matrix.elements() as f64, bytes: Some(3.0 * self.bytes() as f64) }
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        copies_beyond(l2_bytes, 3 * self.bytes())
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies * 3 * self.bytes() > 2 * l2_bytes as usize
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let vector = |number: u64| {
            let seed = self.bench.seed.wrapping_mul(8).wrapping_add(number).wrapping_add((copy as u64) << 20);
            self.bench.draws.of(self.number).tensor(self.matrix.elements() as usize, seed)
        };
        vec![("a", vector(0)), ("b", vector(1))]
    }

    fn outputs(&self, _workspace_bytes: usize) -> Vec<Output> {
        vec![Output { name: "out", bytes: self.bytes(), number: Some(self.number), may_differ: false }]
    }

    fn params(&self) -> Params {
        abi::params(Field::Tensor("out"), self.matrix.elements(), self.number)
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], _outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let count = self.matrix.elements() as usize;
        let at = |bytes: &[u8], index| elements(bytes, self.number, index, 1)[0];
        for index in (0..count).step_by(count.div_ceil(SAMPLES).max(1)).chain(count.checked_sub(1)) {
            let expected = self.number.through((at(&host[0].1, index) as f32) + (at(&host[1].1, index) as f32));
            let got = at(&written[0], index);
            #[expect(clippy::float_cmp, reason = "each sum is rounded once")]
            if got != f64::from(expected) {
                return Err(format!("out is wrong: element {index} is {got}, expected {expected}"));
            }
        }
        Ok(0.0)
    }
}
