//! Tensors of realistic size filled with normal numbers quickly: drawing every element would take seconds.

use crate::check::{Number, fill_normal};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::cell::OnceCell;

/// Elements of the block of random numbers; longer tensors repeat chunks of it.
const BLOCK: usize = 1 << 20;

/// Elements drawn from one seed; pieces are drawn in parallel.
const PIECE: usize = 1 << 14;

/// Elements per copy from a random position of the block: a few rows of a tensor.
const CHUNK: usize = 1 << 12;

/// Standard normal numbers of one type, as bytes.
pub struct Normals {
    number: Number,
    bytes: Vec<u8>,
}

impl Normals {
    /// Draws the block from which all tensors are copied.
    pub fn draw(number: Number, seed: u64) -> Self {
        let width = number.element().bytes();
        let mut bytes = vec![0; BLOCK * width];
        bytes.par_chunks_mut(PIECE * width).enumerate().for_each(|(piece, into)| {
            let mut values = vec![0.0; PIECE];
            fill_normal(&mut values, &mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(piece as u64)));
            for (value, into) in values.iter().zip(into.chunks_exact_mut(width)) {
                into.copy_from_slice(&number.round(*value).to_le_bytes()[..width]);
            }
        });
        Self { number, bytes }
    }

    /// The type of the numbers.
    pub fn number(&self) -> Number {
        self.number
    }

    /// A contiguous tensor assembled from chunks of the block at positions that `seed` draws, so that rows differ
    /// between heads, sequences and tensors.
    pub fn tensor(&self, elements: usize, seed: u64) -> Vec<u8> {
        let width = self.number.element().bytes();
        let mut tensor = vec![0; elements * width];
        tensor.par_chunks_mut(CHUNK * width).enumerate().for_each(|(chunk, into)| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.rotate_left(32) ^ chunk as u64);
            let from = rng.random_range(0..=BLOCK - CHUNK) * width;
            into.copy_from_slice(&self.bytes[from..from + into.len()]);
        });
        tensor
    }
}

/// Blocks of normal numbers, one per type, drawn on first use.
pub struct Draws {
    seed: u64,
    blocks: [(Number, OnceCell<Normals>); 5],
}

impl Draws {
    /// Blocks drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        let types = [Number::Fp32, Number::Fp16, Number::Bf16, Number::E4m3, Number::E5m2];
        Self { seed, blocks: types.map(|number| (number, OnceCell::new())) }
    }

    /// The block of a type.
    pub fn of(&self, number: Number) -> &Normals {
        let block = self.blocks.iter().find(|(known, _)| *known == number);
        let (_, block) = block.unwrap_or_else(|| unreachable!("every type is listed"));
        block.get_or_init(|| Normals::draw(number, self.seed))
    }
}

/// Elements `start .. start + count` of a tensor.
pub(crate) fn elements(bytes: &[u8], number: Number, start: usize, count: usize) -> Vec<f64> {
    let width = number.element().bytes();
    let bits = |element: &[u8]| element.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
    let wanted = bytes[start * width..].chunks_exact(width).take(count);
    wanted.map(|element| f64::from(number.widen(bits(element)))).collect()
}

/// Element `index` of a tensor of fp32.
pub(crate) fn fp32(bytes: &[u8], index: usize) -> f64 {
    let mut element = [0; 4];
    element.copy_from_slice(&bytes[index * 4..index * 4 + 4]);
    f32::from_le_bytes(element).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(number: Number, bytes: &[u8]) -> Vec<f32> {
        let width = number.element().bytes();
        let bits = |element: &[u8]| element.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        bytes.chunks_exact(width).map(|element| number.widen(bits(element))).collect()
    }

    #[test]
    fn a_tensor_of_any_type_and_length_has_mean_zero_and_variance_one() {
        for number in [Number::Fp16, Number::Bf16, Number::E4m3] {
            let values = values(number, &Normals::draw(number, 1).tensor(100_001, 2));
            assert_eq!(values.len(), 100_001);
            let mean = values.iter().sum::<f32>() / 1e5;
            let variance = values.iter().map(|v| v * v).sum::<f32>() / 1e5;
            assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{number:?}: {mean} {variance}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tensor_and_another_another() {
        let normals = Normals::draw(Number::Bf16, 1);
        assert_eq!(normals.tensor(5000, 2), normals.tensor(5000, 2));
        assert_ne!(normals.tensor(5000, 2), normals.tensor(5000, 3));
        assert_ne!(normals.tensor(5000, 2), Normals::draw(Number::Bf16, 9).tensor(5000, 2));
    }

    #[test]
    fn chunks_of_a_tensor_differ() {
        let tensor = Normals::draw(Number::Bf16, 1).tensor(2 * CHUNK, 2);
        assert_ne!(tensor[..CHUNK * 2], tensor[CHUNK * 2..]);
    }
}
