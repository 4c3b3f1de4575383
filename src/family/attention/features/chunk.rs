//! Chunks: a query sees the keys of its own chunk.

use super::{
    FeatureRoom, number_after,
    shapes::{Borders, SPLITS, both, by_turns, counted, counts, decode, unlike},
};
use crate::{
    check::{Change, Expected::Refused},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field},
    family::attention::{
        CallOptions, Point, abi::AttentionFeatures, edits::numbers, oracle::backward::BackwardProblem, oracle::problem::Problem,
        oracle::split::Listed, oracle::split::SPLIT_KEYS, random::Draw,
    },
    kernel::Feature,
};
use rand::RngExt;

/// The feature `chunk`.
pub struct Chunk;

const WITHOUT: &[Change] = &[("chunks", |c| put(c, 1), Refused(ERROR_MISMATCH, "built without the feature `chunk`"))];

const OUT_OF_RANGE: &[Change] = &[("a negative chunk", |c| put(c, -1), Refused(ERROR_INVALID_VALUE, "attention_chunk -1 must"))];

const CHUNK: &str = "features.attention_chunk";

const NUMBERS: &[(&str, Field)] = &[(CHUNK, Field::I32(0))];

fn put(call: &mut Call, positions: i32) {
    numbers(call).features.put(CHUNK, Field::I32(positions));
}

impl FeatureRoom for Chunk {
    fn feature(&self) -> Feature {
        Feature::Chunk
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.chunk > 0
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        (options.chunk > 0).then(|| format!(" chunk{}", options.chunk))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        Some(number_after("chunk", word)?.map(|positions| options.chunk = positions))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn enter(&self, options: &CallOptions, _heads: usize, params: &mut AttentionFeatures) {
        params.put(CHUNK, Field::I32(options.chunk as i32));
    }

    fn request(&self, options: &mut CallOptions, n: usize) {
        options.chunk = n as u32 + 11;
    }

    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, stages, .. } = borders;
        let chunks = [1, n - 1, n, n + 1, 2 * m + 1, 100_000];
        let mut cases: Vec<_> = chunks.map(|chunk| borders.long().asking(chunk_of(chunk))).into();
        cases.push(Problem::new(&[(2 * m + 5, 33)], 2, 1).asking(chunk_of(16)));
        // For all but the last five rows of the first query tile, more key tiles are hidden than the rings have stages;
        // the last five rows see all keys. (FP8 V passes through two rings.)
        let keys = ((2 * stages + 3) * n).next_multiple_of(m) + 5;
        cases.push(Problem::new(&[(keys + m - 10, keys)], 1, 1).asking(chunk_of(100_000)));
        cases
    }

    fn splits(&self) -> Vec<Listed> {
        // The last of 300 positions is the 300th of its chunk, or the 12th, or the 60th, ...
        let chunks = [1, SPLIT_KEYS, SPLIT_KEYS + 1, 60, 63, 251, 252, 253, 299, 100_000];
        let mut cases: Vec<Listed> = chunks.map(|chunk| (counted(decode(4, 1)).asking(chunk_of(chunk)), SPLITS, None)).into();
        cases.extend([
            (Problem::new(&[(20, 130)], 2, 2).asking(chunk_of(33)), SPLITS, None),
            (Problem::new(&[(40, 17)], 2, 1).asking(chunk_of(16)), 2, None),
            (unlike().asking(chunk_of(50)), 4, Some(counts())),
        ]);
        cases
    }

    fn backward(&self, borders: &Borders) -> Vec<BackwardProblem> {
        let &Borders { m, n, .. } = borders;
        let chunks = [1, m - 1, m, m + 1, n - 1, n, n + 1, 100_000];
        let mut cases: Vec<_> = by_turns(chunks.map(|chunk| borders.walked().asking(chunk_of(chunk)))).collect();
        cases.extend(both(Problem::new(&[(2 * m + 5, 33)], 2, 1).asking(chunk_of(16))));
        cases.extend(both(Problem::new(&[(3 * m + 1, 2 * n + 1)], 1, 1).asking(chunk_of(n + 1))));
        cases
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.chunk = match draw.rng.random_range(0..12) {
            0 => 1,
            1 => draw.rng.random_range(2..8),
            2 => 1_000_000,
            3 => i32::MAX as u32,
            _ => draw.length().max(1) as u32,
        };
    }

    fn out_of_range(&self) -> &'static [Change] {
        OUT_OF_RANGE
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.chunk = 0;
    }
}

fn chunk_of(chunk: usize) -> CallOptions {
    CallOptions { chunk: chunk as u32, ..CallOptions::default() }
}
