//! A contiguous tensor of a case: its values, and its placement in memory.

use super::Number;
use crate::device::Image;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Contiguous elements that begin `offset` elements after an aligned address.
#[derive(Debug, Clone)]
pub struct Vector {
    number: Number,
    offset: usize,
    count: usize,
    /// Empty for a tensor that is still unwritten.
    values: Vec<f32>,
}

impl Vector {
    /// A tensor of these values, all of which `number` represents exactly.
    pub fn of(number: Number, values: Vec<f32>, offset: usize) -> Self {
        Self { number, offset, count: values.len(), values }
    }

    /// Standard normal numbers, rounded to `number`.
    pub fn normal(number: Number, count: usize, offset: usize, seed: u64) -> Self {
        let mut values = vec![0.0; count];
        fill_normal(&mut values, &mut ChaCha8Rng::seed_from_u64(seed));
        for value in &mut values {
            *value = number.through(*value);
        }
        Self { number, offset, count, values }
    }

    /// Space for a kernel's output.
    pub fn unwritten(number: Number, count: usize, offset: usize) -> Self {
        Self { number, offset, count, values: Vec::new() }
    }

    /// Values of the vector.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The tensor in memory.
    pub fn image(&self) -> Image {
        let mut image = Image::poisoned(self.number.element(), self.offset + self.count, self.offset);
        for index in 0..self.count {
            match self.values.get(index) {
                Some(value) => image.put(index as i64, self.number.round(*value)),
                None => {
                    image.mark(index as i64);
                }
            }
        }
        image
    }

    /// Element `index` of this tensor, read from `image` after a kernel ran.
    pub fn value(&self, image: &Image, index: usize) -> f64 {
        f64::from(self.number.widen(image.bits(index as i64)))
    }
}

/// Standard normal values (Box and Muller, 1958).
pub(crate) fn fill_normal(into: &mut [f32], rng: &mut ChaCha8Rng) {
    for pair in into.chunks_mut(2) {
        let radius = (-2.0 * (1.0 - rng.random::<f32>()).ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * rng.random::<f32>()).sin_cos();
        for (value, direction) in pair.iter_mut().zip([sin, cos]) {
            *value = radius * direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_an_element_that_was_not_written_is_no_number() {
        let vector = Vector::of(Number::Bf16, vec![1.0, -2.5], 3);
        let image = vector.image();
        assert_eq!((vector.value(&image, 0), vector.value(&image, 1)), (1.0, -2.5));
        let blank = Vector::unwritten(Number::Fp32, 2, 1);
        assert!(blank.value(&blank.image(), 1).is_nan());
    }
}
