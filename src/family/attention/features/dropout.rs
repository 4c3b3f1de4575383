//! Dropout of attention weights. Philox generates the mask for each query and key.

use super::{
    CallHead, FeatureRoom, Simpler,
    shapes::{Borders, both},
};
use crate::{
    check::{
        Change,
        Expected::{Refused, Same},
        Number,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Element, Field, Image},
    family::attention::{
        CallOptions, Point,
        abi::AttentionFeatures,
        edits::numbers,
        oracle::backward::BackwardProblem,
        oracle::problem::{Inputs, Lengths, Problem, Scale},
        random::{Draw, pick},
    },
    kernel::Feature,
};
use rand::RngExt;

/// The feature `dropout`.
pub struct DroppedOut;

/// The dropout of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// The probability that a weight is dropped, in thousandths.
    pub thousandths: u16,
    /// An index of [`STATES`].
    pub state: u8,
}

/// Seeds and offsets, of which only the low 32 bits count.
const STATES: [[u64; 2]; 4] = [[0, 0], [0x0123_4567_89ab_cdef, 5], [u64::MAX, 0xffff_fffe], [42, 0x9_0000_0007]];

impl Dropout {
    fn probability(self) -> f32 {
        (f64::from(self.thousandths) / 1000.0) as f32
    }

    /// The factor on kept weights.
    fn scale(self) -> f64 {
        1.0 / f64::from(1.0 - self.probability())
    }

    /// The largest byte of a kept weight, by FlashAttention-2's rule.
    fn most_of_kept(self) -> u8 {
        (f64::from(1.0 - self.probability()) * 255.0).floor() as u8
    }

    fn word(self) -> String {
        format!("dropout{}@{}", f64::from(self.thousandths) / 1000.0, self.state)
    }

    /// Reads `0.17@2`.
    fn of_word(word: &str) -> Option<Self> {
        let (probability, state) = word.split_once('@')?;
        let thousandths = probability.parse::<f64>().ok().filter(|p| (0.0..1.0).contains(p))? * 1000.0;
        let state = state.parse().ok().filter(|&state| usize::from(state) < STATES.len())?;
        Some(Self { thousandths: thousandths.round() as u16, state })
    }

    /// `rng_state`: seed and offset, low words first.
    fn image(self) -> Image {
        let mut image = Image::poisoned(Element::Bits32, 4, 0);
        for (number, word) in STATES[usize::from(self.state)].iter().flat_map(|&word| [word, word >> 32]).enumerate() {
            image.put(number as i64, word as u32);
        }
        image
    }
}

/// The dropout of one query head of one sequence.
struct HeadDropout {
    dropout: Dropout,
    /// The head, counted over all sequences.
    head: usize,
}

impl HeadDropout {
    /// The factor on the weight of a key: 0 if it is dropped.
    fn factor(&self, row: usize, key: usize) -> f64 {
        if self.random_byte(row, key) <= self.dropout.most_of_kept() { self.dropout.scale() } else { 0.0 }
    }

    /// Byte `key % 32 / 8` of word `row % 32 / 8`.
    fn random_byte(&self, row: usize, key: usize) -> u8 {
        let place = |index: usize| (index / 32 * 8 + index % 8) as u32;
        let [seed, offset] = STATES[usize::from(self.dropout.state)];
        let words = philox([place(row), place(key), self.head as u32, offset as u32], seed);
        words[row % 32 / 8].to_le_bytes()[key % 32 / 8]
    }
}

/// Philox4x32 with 7 rounds (Salmon et al. 2011).
fn philox(counter: [u32; 4], seed: u64) -> [u32; 4] {
    let product = |factor: u32, number: u32| {
        let wide = u64::from(factor) * u64::from(number);
        ((wide >> 32) as u32, wide as u32)
    };
    let (mut x, mut key) = (counter, [seed as u32, (seed >> 32) as u32]);
    for _ in 0..7 {
        let ((high, low), (other_high, other_low)) = (product(0xd251_1f53, x[0]), product(0xcd9e_8d57, x[2]));
        x = [other_high ^ x[1] ^ key[0], other_low, high ^ x[3] ^ key[1], low];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

const PROBABILITY: &str = "p_dropout";

const NUMBERS: &[(&str, Field)] = &[(PROBABILITY, Field::F32(0.0))];

const WITHOUT: &[Change] = &[("dropout", |c| given(c, 0.25), Refused(ERROR_MISMATCH, "built without the feature `dropout`"))];

const OUT_OF_RANGE: &[Change] = &[
    ("a negative p_dropout", |c| given(c, -0.25), Refused(ERROR_INVALID_VALUE, "p_dropout -0.25 must be at least 0")),
    ("p_dropout of 1", |c| given(c, 1.0), Refused(ERROR_INVALID_VALUE, "p_dropout 1 must be at least 0 and below 1")),
    ("p_dropout that is no number", |c| given(c, f32::NAN), Refused(ERROR_INVALID_VALUE, "must be at least 0 and below 1")),
    (
        "dropout without rng_state",
        |c| {
            c.inputs.retain(|(name, _)| *name != "rng_state");
            numbers(c).features.put(PROBABILITY, Field::F32(0.5));
        },
        Refused(ERROR_INVALID_VALUE, "p_dropout is 0.5, and rng_state"),
    ),
    (
        "rng_state at an odd word",
        |c| {
            given(c, 0.5);
            c.inputs.retain(|(name, _)| *name != "rng_state");
            c.inputs.push(("rng_state", Image::poisoned(Element::Bits32, 5, 1)));
        },
        Refused(ERROR_INVALID_VALUE, "must be 8-byte aligned"),
    ),
];

/// Changes for kernels with dropout.
const WITH: &[Change] = &[("rng_state and no dropout", |c| given(c, 0.0), Same)];

/// Adds dropout to a call.
fn given(call: &mut Call, probability: f32) {
    call.inputs.push(("rng_state", Dropout { thousandths: 0, state: 1 }.image()));
    numbers(call).features.put(PROBABILITY, Field::F32(probability));
}

impl FeatureRoom for DroppedOut {
    fn feature(&self) -> Feature {
        Feature::Dropout
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.dropout.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.dropout.map(|dropout| format!(" {}", dropout.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        let rest = word.strip_prefix("dropout")?;
        let read = Dropout::of_word(rest).ok_or_else(|| format!("`{word}` is not like `dropout0.17@2`"));
        Some(read.map(|dropout| options.dropout = Some(dropout)))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn enter(&self, options: &CallOptions, _heads: usize, params: &mut AttentionFeatures) {
        params.put(PROBABILITY, Field::F32(options.dropout.map_or(0.0, Dropout::probability)));
    }

    fn tensors(&self, problem: &Problem, _number: Number) -> Vec<(&'static str, Image)> {
        problem.options.dropout.iter().map(|dropout| ("rng_state", dropout.image())).collect()
    }

    fn largest_factor(&self, options: &CallOptions) -> Option<f64> {
        options.dropout.map(Dropout::scale)
    }

    fn factor(&self, of: &CallHead, row: usize, key: usize) -> f64 {
        let head = of.sequence * of.heads + of.head;
        of.options.dropout.map_or(1.0, |dropout| HeadDropout { dropout, head }.factor(row, key))
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.dropout = Some(USUAL);
    }

    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, .. } = borders;
        vec![
            Problem::new(&[(m + 1, 2 * n + 3)], 4, 2).asking(dropped(170, 1)),
            Problem::new(&[(2 * m + 3, n + 33); 3], 3, 1).asking(dropped(500, 2)),
            borders.batch().asking(dropped(170, 3)),
            Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Used).asking(dropped(300, 1)),
            // Few weights are left, and most rows lose all of a few keys.
            Problem::new(&[(33, 2 * n + 1), (70, 3)], 2, 2).lengths(Lengths::Packed).asking(dropped(900, 0)),
            // Equal weights: O counts the kept keys.
            Problem::new(&[(m + 1, n + 17)], 2, 1).inputs(Inputs::Constant, Scale::Zero).asking(dropped(17, 1)),
            // Only bytes of 255 are dropped.
            Problem::new(&[(m, 2 * n)], 2, 2).asking(dropped(1, 2)),
        ]
    }

    fn backward(&self, borders: &Borders) -> Vec<BackwardProblem> {
        let &Borders { m, n, .. } = borders;
        let problems = [
            Problem::new(&[(m + 1, n + 33)], 4, 2).asking(dropped(170, 1)),
            Problem::new(&[(2 * m + 3, 71); 2], 3, 1).asking(dropped(500, 2)),
            borders.packed().asking(dropped(170, 3)),
            Problem::new(&[(33, 70)], 2, 2).asking(dropped(900, 0)),
            Problem::new(&[(70, 33), (3, 17)], 2, 1).lengths(Lengths::Used).asking(dropped(17, 1)),
        ];
        let mut cases: Vec<BackwardProblem> = problems.into_iter().flat_map(both).collect();
        cases.extend(both(borders.walked().asking(dropped(300, 2))).map(BackwardProblem::with_lse_gradient));
        if borders.features.has(Feature::Window) {
            // The keys that a tile of queries sees begin inside a block of the mask.
            let window = CallOptions { window: Some([21, 5]), ..dropped(500, 1) };
            cases.extend(both(Problem::new(&[(m + 1, n + m + 5)], 2, 1).asking(window)));
        }
        cases
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![WITH]
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn out_of_range(&self) -> &'static [Change] {
        OUT_OF_RANGE
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        let thousandths = pick(draw.rng, &[1, 17, 100, 170, 250, 500, 900]);
        options.dropout = Some(Dropout { thousandths, state: draw.rng.random_range(0..STATES.len() as u8) });
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.dropout = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[
            |options| options.dropout = options.dropout.map(|dropout| Dropout { state: 0, ..dropout }),
            |options| options.dropout = options.dropout.map(|dropout| Dropout { thousandths: 500, ..dropout }),
        ]
    }
}

const USUAL: Dropout = Dropout { thousandths: 170, state: 1 };

fn dropped(thousandths: u16, state: u8) -> CallOptions {
    CallOptions { dropout: Some(Dropout { thousandths, state }), ..CallOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kat_vectors` of Random123, `philox4x32 7`.
    #[test]
    fn philox_gives_the_known_answers() {
        assert_eq!(philox([0; 4], 0), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
        assert_eq!(philox([u32::MAX; 4], u64::MAX), [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662]);
        let digits = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(digits, 0x299f_31d0_a409_3822), [0x4dfc_caba, 0x190a_87f0, 0xc473_62ba, 0xb6b5_242a]);
    }

    #[test]
    fn about_as_many_weights_are_dropped_as_asked_for() {
        for (thousandths, state) in [(170, 1), (500, 2), (900, 3)] {
            let mask = HeadDropout { dropout: Dropout { thousandths, state }, head: 3 };
            let kept = itertools::iproduct!(0..200, 0..200).filter(|&(row, key)| mask.factor(row, key) > 0.0).count();
            let expected = (f64::from(mask.dropout.most_of_kept()) + 1.0) / 256.0;
            assert!((kept as f64 / 40_000.0 - expected).abs() < 0.01, "{thousandths}: {kept}");
        }
    }

    #[test]
    fn bytes_at_a_distance_of_eight_are_of_one_call() {
        let mask = HeadDropout { dropout: Dropout { thousandths: 500, state: 3 }, head: 9 };
        let words = philox([8 + 5, 2 * 8 + 3, 9, 7], 42);
        for (i, j) in itertools::iproduct!(0..4, 0..4) {
            assert_eq!(mask.random_byte(32 + 8 * i + 5, 64 + 8 * j + 3), words[i].to_le_bytes()[j]);
        }
    }

    #[test]
    fn the_threshold_is_that_of_flash_attention() {
        let most = |thousandths| Dropout { thousandths, state: 0 }.most_of_kept();
        assert_eq!([0, 1, 17, 170, 500, 900, 999].map(most), [255, 254, 250, 211, 127, 25, 0]);
    }
}
