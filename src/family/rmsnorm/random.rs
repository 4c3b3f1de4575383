//! Random calls: sizes that favour borders of pieces, any gaps and starts, in place or not.

use super::cases::{Inputs, NormCase};
use crate::check::Number;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A call of at most `4 * size` rows of about `size` pieces; the same seed gives the same call.
pub(super) fn case(number: Number, size: u32, seed: u64) -> NormCase {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let size = size.max(1) as usize;
    let rows = rng.random_range(0..=4 * size);
    let columns = 8 * rng.random_range(1..=size * size) + [0, 0, 1, 7][rng.random_range(0..4)];
    let mut few = |most: usize| if rng.random() { 0 } else { rng.random_range(0..=most) };
    let (gaps, offsets) = ([0; 4].map(|_| 8 * few(3) + few(1)), [0; 5].map(|_| few(7)));
    NormCase {
        inputs: [Inputs::Normal, Inputs::Spike, Inputs::Huge, Inputs::Tiny][rng.random_range(0..4)],
        eps: [0.0, 1e-6, 1.0][rng.random_range(0..3)],
        residual: rng.random(),
        in_place: rng.random(),
        gaps,
        offsets,
        ..NormCase::plain(number, rows, columns)
    }
}
