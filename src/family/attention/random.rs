//! Random numbers for calls: lengths near the ends of tiles, and weighted choices.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Lengths at which tiles often end.
pub const BORDERS: [usize; 16] = [8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 176, 192, 256, 320, 384];

pub type Rng = ChaCha8Rng;

pub fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// A weighted random choice.
pub fn weighted<T: Copy>(rng: &mut Rng, from: &[(u32, T)]) -> T {
    let mut at = rng.random_range(0..from.iter().map(|(weight, _)| weight).sum());
    for &(weight, value) in from {
        if at < weight {
            return value;
        }
        at -= weight;
    }
    unreachable!("the weights add up to more")
}

/// True once in `n` times.
pub fn once_in(rng: &mut Rng, n: u32) -> bool {
    rng.random_range(0..n) == 0
}

/// Source of a call's random numbers.
pub struct Draw<'a> {
    /// The random number generator.
    pub rng: &'a mut Rng,
    /// The longest sequence of the call.
    pub longest: usize,
}

impl Draw<'_> {
    /// A length at the end of a tile, or one more or less, or any length up to the longest.
    pub fn length(&mut self) -> usize {
        let Self { rng, longest } = self;
        if once_in(rng, 3) { rng.random_range(0..=*longest + 1) } else { pick(rng, &BORDERS) + rng.random_range(0..3) - 1 }
    }
}
