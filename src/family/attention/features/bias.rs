//! A bias: a tensor that is added to the scores and can hide keys.

use super::{
    AdditionGradient, Broadcast, CallHead, FeatureRoom, Simpler,
    broadcast::index,
    shapes::{Borders, SPLITS, counted, counts, unlike},
};
use crate::{
    check::{Change, Expected::Refused, Number},
    device::{Call, DTYPE_FP8_E4M3, DTYPE_FP32, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED, Element, Field, Image},
    family::attention::{
        CallOptions, Kind, Point,
        abi::AttentionFeatures,
        edits::{BEYOND_MEMORY, bwd, numbers, push},
        oracle::{
            backward::BackwardProblem,
            problem::{Lengths, Problem},
            split::Listed,
        },
        random::{Draw, once_in},
    },
    kernel::Feature,
};

/// The feature `bias`.
pub struct Biased;

/// The bias of a call, of shape (batch or 1, heads or 1, queries or 1, keys).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a bias, each independent of the others")]
pub struct Bias {
    /// True if it is broadcast over batch entries, query heads and queries.
    pub repeats: [bool; 3],
    /// True if it is fp32 instead of the type of O.
    pub wide: bool,
    /// True if columns are not adjacent.
    pub apart: bool,
    /// True if rows begin at multiples of eight elements.
    pub aligned: bool,
    /// True if some elements are -∞.
    pub hides: bool,
    /// True if every third row is so negative that fp32 loses the scores entirely.
    pub far: bool,
}

/// The bias of one query head of one sequence.
struct HeadBias {
    bias: Bias,
    batch: usize,
    head: usize,
}

/// Bound on the elements of rows that are not far.
const NEAR: f64 = 2.0;

/// The elements of rows that are `far`, -1.375 · 2^40: fp32 must round their product with log2(e).
const FAR: f64 = -1_511_828_488_192.0;

impl HeadBias {
    /// The element of a query and a key: a multiple of 1/8, exact in every type, or -∞.
    fn value(&self, row: usize, key: usize) -> f64 {
        let [batch, head, row] = index(self.bias.repeats, [self.batch, self.head, row]);
        let mixed = [batch, head, row, key].iter().fold(0x9e37_79b9_u32, |mixed, &index| {
            let mixed = (mixed ^ index as u32).wrapping_mul(0x85eb_ca6b);
            mixed ^ mixed >> 15
        });
        // Whole rows are hidden too.
        if self.bias.hides && (mixed % 6 == 0 || (row + head) % 5 == 4) {
            return f64::NEG_INFINITY;
        }
        if self.bias.far && row % 3 == 1 {
            return FAR;
        }
        f64::from(mixed >> 8 & 31) / 8.0 - NEAR
    }
}

impl Bias {
    /// The largest magnitude of a finite element.
    fn largest(self) -> f64 {
        if self.far { NEAR - FAR } else { NEAR }
    }

    /// Every form of a bias.
    fn all() -> impl Iterator<Item = Self> {
        let either = [false, true];
        let numbers = itertools::iproduct!(either, either, either, either);
        itertools::iproduct!(either, either, either, numbers, either).map(
            |(batch, head, row, (wide, apart, hides, far), aligned)| Self {
                repeats: [batch, head, row],
                wide,
                apart,
                aligned,
                hides,
                far,
            },
        )
    }

    /// The word used in case names: `bias-batch1-fp32`.
    fn word(self) -> String {
        let [batch, head, row] = self.repeats;
        let parts = [
            (batch, "-batch1"),
            (head, "-head1"),
            (row, "-row1"),
            (self.wide, "-fp32"),
            (self.apart, "-apart"),
            (self.aligned, "-aligned"),
            (self.hides, "-hides"),
            (self.far, "-far"),
        ];
        let parts: String = parts.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect();
        format!("bias{parts}")
    }

    /// Axes and strides of the bias in a call.
    fn places(self, problem: &Problem) -> Broadcast {
        Broadcast { repeats: self.repeats, strides: self.strides(problem.score_extents()) }
    }

    /// Batch, head, row and column stride for a bias of `heads` heads, `rows` rows and `keys` columns. Unless rows are
    /// to be aligned, their stride is odd.
    fn strides(self, [heads, rows, keys]: [usize; 3]) -> [i64; 4] {
        let column = if self.apart { 3 } else { 1 };
        let row = if self.aligned { (keys * column).next_multiple_of(8) } else { keys * column + 1 + keys % 2 };
        let gap = if self.aligned { 8 } else { 5 };
        let head = if self.repeats[2] { row } else { rows * row + gap };
        let batch = if self.repeats[1] { head } else { heads * head };
        let used = |axis: usize, stride: usize| if self.repeats[axis] { 0 } else { stride as i64 };
        [used(0, batch), used(1, head), used(2, row), column as i64]
    }

    /// The tensor, as `kgen.h` describes it, in the type of `number`.
    fn image(self, problem: &Problem, number: Number) -> Image {
        let (number, element) = if self.wide { (Number::Fp32, Element::Bits32) } else { (number_of_o(number), Element::Bits16) };
        let places = self.places(problem);
        let all = self.places_read(problem);
        let span = all.iter().map(|&place| places.offset(place) + 1).max().unwrap_or(0);
        let mut image = Image::poisoned(element, span as usize, 0);
        for place in all {
            let [batch, head, row, key] = place;
            let value = HeadBias { bias: self, batch, head }.value(row, key);
            image.put(places.offset(place), number.round(value as f32));
        }
        image
    }

    /// Indices (batch entry, head, row, key) of every element that a call reads, without duplicates.
    fn places_read(self, problem: &Problem) -> Vec<[usize; 4]> {
        let axes = self.places(problem);
        let mut places = std::collections::BTreeSet::new();
        for (batch, &(queries, keys)) in problem.sequences.iter().enumerate() {
            for (head, row, key) in itertools::iproduct!(0..problem.heads, 0..queries, 0..keys) {
                let [batch, head, row] = axes.index([batch, head, row]);
                places.insert([batch, head, row, key]);
            }
        }
        places.into_iter().collect()
    }

    /// The `KGEN_DTYPE_*` code of the element type.
    fn dtype(self, number: Number) -> i32 {
        if self.wide { DTYPE_FP32 } else { number_of_o(number).code() }
    }
}

/// The type of O, given that of Q.
fn number_of_o(number: Number) -> Number {
    if number == Number::Fp16 { Number::Fp16 } else { Number::Bf16 }
}

const STRIDES: [&str; 4] = ["bias_batch_stride", "bias_head_stride", "bias_row_stride", "bias_column_stride"];

const GRADIENT_STRIDES: [&str; 4] = ["dbias_batch_stride", "dbias_head_stride", "dbias_row_stride", "dbias_column_stride"];

const DTYPE: &str = "bias_dtype";

const NUMBERS: &[(&str, Field)] = &[
    (STRIDES[0], Field::I64(0)),
    (STRIDES[1], Field::I64(0)),
    (STRIDES[2], Field::I64(0)),
    (STRIDES[3], Field::I64(0)),
    (DTYPE, Field::I32(0)),
];

const GRADIENT_NUMBERS: &[(&str, Field)] = &[
    (GRADIENT_STRIDES[0], Field::I64(0)),
    (GRADIENT_STRIDES[1], Field::I64(0)),
    (GRADIENT_STRIDES[2], Field::I64(0)),
    (GRADIENT_STRIDES[3], Field::I64(0)),
];

const WITHOUT: &[Change] = &[("a bias", |c| _ = given(c), Refused(ERROR_MISMATCH, "built without the feature `bias`"))];

const WITH: &[Change] = &[
    ("a bias of FP8", |c| given(c).put(DTYPE, Field::I32(DTYPE_FP8_E4M3)), Refused(ERROR_INVALID_VALUE, "bias_dtype 2 must be")),
    (
        "rows of the bias beyond all memory",
        |c| given(c).put(STRIDES[2], Field::I64(BEYOND_MEMORY)),
        Refused(ERROR_INVALID_VALUE, "bias_row_stride 1152"),
    ),
];

/// Additional changes for a backward kernel.
const WITH_GRADIENT: &[Change] = &[
    ("the gradient of no bias", add_gradient, Refused(ERROR_INVALID_VALUE, "dbias is given and bias is NULL")),
    (
        "a gradient of the bias summed over keys",
        |c| {
            given(c);
            add_gradient(c);
            put_gradient_strides(c, [0; 4]);
        },
        Refused(ERROR_UNSUPPORTED, "dbias_column_stride is 0"),
    ),
    (
        "the same bits from a repeated bias",
        |c| {
            given(c);
            add_gradient(c);
            put_gradient_strides(c, [0, 0, 4, 1]);
            bwd(c).deterministic = true;
        },
        Refused(ERROR_UNSUPPORTED, "dbias_head_stride 0 sums over 2 heads in no fixed order"),
    ),
    (
        "the same bits from a bias that is one row",
        |c| {
            given(c);
            add_gradient(c);
            put_gradient_strides(c, [8, 4, 0, 1]);
            bwd(c).deterministic = true;
        },
        Refused(ERROR_UNSUPPORTED, "dbias_row_stride 0 sums over 17 rows in no fixed order"),
    ),
];

/// Adds a bias to a call and returns its parameters.
fn given(call: &mut Call) -> &mut AttentionFeatures {
    push(call, "bias");
    let features = numbers(call).features;
    features.put(DTYPE, Field::I32(DTYPE_FP32));
    features
}

/// Adds an output for the gradient of a bias to a call.
fn add_gradient(call: &mut Call) {
    call.outputs.push(("dbias", Image::of_numbers(&[(0, 0.0)])));
}

fn put_gradient_strides(call: &mut Call, strides: [i64; 4]) {
    numbers(call).features.put_all(numbered(GRADIENT_STRIDES, strides));
}

/// Strides by their names.
fn numbered(names: [&'static str; 4], strides: [i64; 4]) -> [(&'static str, Field); 4] {
    std::array::from_fn(|axis| (names[axis], Field::I64(strides[axis])))
}

impl FeatureRoom for Biased {
    fn feature(&self) -> Feature {
        Feature::Bias
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.bias.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.bias.map(|bias| format!(" {}", bias.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.bias = Some(Bias::all().find(|bias| bias.word() == word)?);
        Some(Ok(()))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn gradient_numbers(&self) -> &'static [(&'static str, Field)] {
        GRADIENT_NUMBERS
    }

    fn enter_shape(&self, problem: &Problem, number: Number, params: &mut AttentionFeatures) {
        if let Some(bias) = problem.options.bias {
            params.put_all(numbered(STRIDES, bias.places(problem).strides));
            params.put(DTYPE, Field::I32(bias.dtype(number)));
        }
    }

    fn tensors(&self, problem: &Problem, number: Number) -> Vec<(&'static str, Image)> {
        problem.options.bias.iter().map(|bias| ("bias", bias.image(problem, number))).collect()
    }

    fn largest_addition(&self, options: &CallOptions) -> Option<f64> {
        options.bias.map(Bias::largest)
    }

    fn addition(&self, of: &CallHead, row: usize, key: usize) -> f64 {
        let of_head = |bias| HeadBias { bias, batch: of.sequence, head: of.head };
        of.options.bias.map_or(0.0, |bias| of_head(bias).value(row, key))
    }

    fn hides_keys(&self, options: &CallOptions) -> bool {
        options.bias.is_some_and(|bias| bias.hides)
    }

    fn addition_gradient(&self, problem: &Problem) -> Option<AdditionGradient> {
        problem.options.bias.map(|bias| {
            let places = bias.places(problem);
            AdditionGradient { tensor: "dbias", numbers: numbered(GRADIENT_STRIDES, places.strides), places }
        })
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.bias = Some(Bias { repeats: [true, false, false], ..Bias::default() });
    }

    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, .. } = borders;
        vec![
            Problem::new(&[(m + 1, 2 * n + 3)], 4, 2).asking(biased(Bias::default())),
            Problem::new(&[(m + 1, 2 * n + 4)], 4, 2).asking(biased(Bias { wide: true, hides: true, ..Bias::default() })),
            borders.batch().asking(biased(Bias { repeats: [true, false, false], hides: true, ..Bias::default() })),
            borders.batch().asking(biased(Bias { repeats: [false, true, true], wide: true, ..Bias::default() })),
            Problem::new(&[(17, n + 1)], 2, 2).asking(biased(Bias { apart: true, hides: true, ..Bias::default() })),
            Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Packed).asking(biased(HIDING)),
            counted(Problem::new(&[(n + 1, 17)], 2, 2)).asking(biased(Bias { repeats: [true, true, false], ..Bias::default() })),
            Problem::new(&[(m + 1, n + 17)], 2, 2).asking(biased(Bias { wide: true, far: true, ..Bias::default() })),
            Problem::new(&[(2 * m + 3, 3 * n + 8)], 4, 2).asking(biased(ALIGNED)),
            Problem::new(&[(m + 1, 2 * n + 3)], 2, 1).asking(biased(Bias { hides: true, ..ALIGNED })),
            borders.batch().asking(biased(Bias { repeats: [true, false, true], ..ALIGNED })),
        ]
    }

    fn splits(&self) -> Vec<Listed> {
        vec![
            (Problem::new(&[(5, 257)], 8, 2).asking(biased(Bias::default())), SPLITS, None),
            (Problem::new(&[(3, 203); 3], 8, 1).asking(biased(HIDING)), 2, None),
            (unlike().asking(biased(Bias { wide: true, hides: true, ..Bias::default() })), 4, Some(counts())),
            (Problem::new(&[(7, 113)], 6, 2).asking(biased(Bias { apart: true, ..Bias::default() })), 2, None),
        ]
    }

    fn backward(&self, borders: &Borders) -> Vec<BackwardProblem> {
        let m = borders.m;
        let plain = |problem: Problem, bias: Bias| BackwardProblem::plain(problem.asking(biased(bias)));
        let of_batch = |bias: Bias| plain(Problem::new(&[(m + 1, 33); 2], 4, 2), bias);
        let still = BackwardProblem::deterministic;
        vec![
            of_batch(Bias::default()),
            of_batch(Bias { wide: true, hides: true, ..Bias::default() }),
            of_batch(Bias { repeats: [true, false, false], ..Bias::default() }),
            of_batch(Bias { repeats: [false, true, true], apart: true, ..Bias::default() }),
            of_batch(Bias { repeats: [true; 3], hides: true, wide: true, ..Bias::default() }),
            plain(borders.packed(), HIDING).with_lse_gradient(),
            of_batch(ALIGNED),
            plain(Problem::new(&[(3 * m + 5, 2 * borders.n + 8)], 2, 1), Bias { hides: true, ..ALIGNED }),
            plain(borders.packed(), ALIGNED),
            still(Problem::new(&[(m + 1, 71)], 4, 2).asking(biased(Bias { hides: true, ..Bias::default() }))),
            still(Problem::new(&[(17, 41)], 2, 2).asking(biased(Bias { wide: true, apart: true, ..Bias::default() }))),
            BackwardProblem { addition_gradients: false, ..still(Problem::new(&[(m + 1, 70)], 4, 2).asking(biased(HIDING))) },
        ]
    }

    fn with(&self, kernel: Point) -> Vec<&'static [Change]> {
        if kernel.kind == Kind::Bwd { vec![WITH, WITH_GRADIENT] } else { vec![WITH] }
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        let mut flip = |n| once_in(draw.rng, n);
        let repeats = [flip(2), flip(2), flip(3)];
        let (wide, apart, aligned, hides) = (flip(3), flip(4), flip(2), flip(2));
        options.bias = Some(Bias { repeats, wide, apart, aligned, hides, far: false });
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.bias = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[
            |options| options.bias = options.bias.map(|_| Bias::default()),
            |options| options.bias = options.bias.map(|bias| Bias { hides: false, ..bias }),
            |options| options.bias = options.bias.map(|bias| Bias { apart: false, aligned: false, wide: false, ..bias }),
        ]
    }
}

const HIDING: Bias = Bias { repeats: [true, false, false], wide: false, apart: false, aligned: false, hides: true, far: false };

/// Rows that are staged by whole pieces and read as matrices.
const ALIGNED: Bias = Bias { repeats: [false; 3], wide: false, apart: false, aligned: true, hides: false, far: false };

/// A call that requests a bias.
pub fn biased(bias: Bias) -> CallOptions {
    CallOptions { bias: Some(bias), ..CallOptions::default() }
}
