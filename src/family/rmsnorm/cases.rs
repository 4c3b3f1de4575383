//! Cases of a normalisation: rows of every length at the borders of pieces, warps and blocks, with spikes of any
//! magnitude at every kind of position, with gaps between rows and starts that are not aligned to pieces, in place and
//! not; and calls that must be refused.

use super::abi;
use crate::{
    check::{
        Case, Change, Comparison, Drawn,
        Expected::{Nothing, Refused, Same},
        Level, Number, STRUCTURE, Subject, Tally, Vector, begin, changed, drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field, Header, Image, Outputs, Params},
};
use std::rc::Rc;

/// Contents of the matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inputs {
    /// Standard normal.
    Normal,
    /// Hundredths of normal numbers, except for one element of each row, at varying positions, which outweighs all
    /// others.
    Spike,
    /// Near the largest numbers whose squares fit in fp32, or the largest of the dtype.
    Huge,
    /// So small that squares are near the smallest fp32 numbers, or inputs are subnormal in the dtype.
    Tiny,
    /// Larger than any number whose square fits in fp32.
    Beyond,
}

impl Inputs {
    fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Spike => "spike",
            Self::Huge => "huge",
            Self::Tiny => "tiny",
            Self::Beyond => "beyond",
        }
    }

    /// The factor on standard normal numbers.
    fn scale(self, number: Number) -> f32 {
        match (self, number) {
            (Self::Normal, _) => 1.0,
            (Self::Spike, _) => 0.01,
            (Self::Huge, Number::Fp16) => 4000.0,
            (Self::Huge, _) => 1e15,
            (Self::Tiny, Number::Fp16) => 2.0_f32.powi(-20),
            (Self::Tiny, _) => 1e-15,
            (Self::Beyond, _) => 1e25,
        }
    }
}

/// A row in float64, and the allowed results of a kernel.
pub(super) struct Reference {
    /// The sum with the residual, rounded to the dtype.
    pub h: Vec<f32>,
    /// The smallest and largest allowed value of each element.
    bounds: Vec<[f64; 2]>,
}

impl Reference {
    /// The reference for a row of `number`.
    ///
    /// With u = 2⁻²⁴, a lane of at least 32 adds at most columns / 32 + 8 squares one after the other, and ten
    /// butterflies follow: (columns / 32 + 18) u of a sum of positive numbers. The share of a column and the sum with
    /// eps add 2 u. The root halves that; rsqrt.approx adds an error of 4 u, two products 2 u. So the value that is
    /// rounded to the dtype, once, is within (columns / 64 + 17) u of the value in float64, and since rounding is
    /// monotonic, the result is between the rounded ends of that interval.
    pub fn of(number: Number, input: &[f32], residual: Option<&[f32]>, weight: &[f32], eps: f32) -> Self {
        let h: Vec<f32> = match residual {
            Some(residual) => input.iter().zip(residual).map(|(a, b)| number.through(a + b)).collect(),
            None => input.to_vec(),
        };
        let squares: f64 = h.iter().map(|h| f64::from(*h) * f64::from(*h)).sum();
        let mean = squares / h.len() as f64;
        // A mean beyond fp32's range is infinite.
        let scale = if squares > f64::from(f32::MAX) { 0.0 } else { 1.0 / (mean + f64::from(eps)).sqrt() };
        let allowed = (h.len() as f64 / 64.0 + 17.0) * 2.0_f64.powi(-24);
        let rounded = |value: f64| f64::from(number.through(value as f32));
        let bounds_of = |(h, weight): (&f32, &f32)| {
            let value = f64::from(*h) * scale * f64::from(*weight);
            [-1.0, 1.0].map(|side| rounded(value + side * allowed * value.abs()))
        };
        let bounds = h.iter().zip(weight).map(bounds_of).collect();
        Self { h, bounds }
    }

    /// True if element `at` may be `got`; never for a NaN.
    pub fn allows(&self, at: usize, got: f64) -> bool {
        let [least, greatest] = self.bounds[at];
        least <= got && got <= greatest
    }

    /// The value to compare `got` with: `got` itself if it is allowed.
    fn expected(&self, at: usize, got: f64) -> f64 {
        if self.allows(at, got) { got } else { self.bounds[at][0] }
    }
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct NormCase {
    pub number: Number,
    pub rows: usize,
    pub columns: usize,
    pub inputs: Inputs,
    pub eps: f32,
    /// True if there is a residual.
    pub residual: bool,
    /// True if `out` is `in`, and `residual_out` is `residual`.
    pub in_place: bool,
    /// Elements between rows of `in`, `residual`, `out` and `residual_out`; in place, the first two count.
    pub gaps: [usize; 4],
    /// Elements from an aligned address to the first element of these and of `weight`.
    pub offsets: [usize; 5],
}

/// The cases of a variant.
pub(super) fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    let number = Number::of(subject.variant.element());
    let (short, held, piece) = (subject.tiling.m, subject.tiling.n, 16 / number.element().bytes());
    let plain = |rows, columns| NormCase::plain(number, rows, columns);
    let alone = |rows, columns| NormCase { residual: false, ..plain(rows, columns) };
    let in_place = |rows, columns| NormCase { in_place: true, ..plain(rows, columns) };
    let of = |inputs, rows, columns| NormCase { inputs, eps: 0.0, ..plain(rows, columns) };
    let mut cases = vec![
        plain(0, 5),
        plain(3, 0),
        plain(1, 1),
        // More rows than a block has warps; rows of no piece, of some, and with a tail.
        plain(11, piece - 1),
        plain(11, 2 * piece),
        plain(19, 33 * piece + 1),
        alone(9, 5 * piece),
        alone(3, 5 * piece + 3),
        // The longest row of a warp and the shortest of a block; the longest in registers and the shortest read twice.
        plain(9, short),
        plain(3, short + 1),
        plain(3, short + piece),
        plain(2, held),
        plain(2, held + 1),
        plain(2, held + piece),
        alone(1, held + piece),
        // Several rounds, the last one of few pieces.
        plain(1, 3 * held + 5 * piece),
        plain(1, 65536 + 3),
        in_place(5, 7 * piece),
        in_place(5, 7 * piece + 1),
        in_place(2, short + 2 * piece),
        in_place(2, held + 3 * piece),
        NormCase { residual: false, ..in_place(2, held + 3) },
        NormCase { gaps: [piece, 0, 2 * piece, 3 * piece], ..plain(5, 6 * piece) },
        NormCase { gaps: [8 * piece, piece, 0, 0], ..in_place(4, 6 * piece) },
        of(Inputs::Normal, 3, 100),
        of(Inputs::Normal, 1, held + held / 2),
        of(Inputs::Huge, 3, 10 * piece),
        of(Inputs::Tiny, 3, 10 * piece),
        of(Inputs::Tiny, 2, short + 3),
        // Squares that do not outweigh eps.
        NormCase { eps: 3.0, ..of(Inputs::Normal, 3, 77) },
        NormCase { eps: 1e-3, ..of(Inputs::Tiny, 3, 77) },
    ];
    // One matrix, or `weight`, whose start or rows are not multiples of 16 bytes.
    for which in 0..5 {
        let mut crooked = plain(3, 4 * piece);
        crooked.offsets[which] = 1;
        cases.push(crooked.clone());
        crooked.offsets[which] = 0;
        if let Some(gap) = crooked.gaps.get_mut(which) {
            *gap = 3;
            cases.push(crooked);
        }
    }
    if number == Number::Bf16 {
        cases.push(of(Inputs::Beyond, 3, 50));
    }
    if level == Level::Thorough {
        for extra in 0..2 * piece {
            cases.extend([
                plain(9, short - extra),
                in_place(3, short + extra),
                plain(2, held - extra),
                in_place(2, held + extra),
            ]);
            cases.push(NormCase { offsets: [extra % piece; 5], ..plain(10, 3 * piece + extra) });
        }
        cases.extend([plain(1000, 3), in_place(257, short), plain(1, 262_144 + 8)]);
    }
    let rows: Rc<dyn Case> = Rc::new(plain(3, 5));
    let without: Rc<dyn Case> = Rc::new(alone(3, 5));
    let empty: Rc<dyn Case> = Rc::new(plain(0, 5));
    let one: Rc<dyn Case> = Rc::new(plain(1, 5));
    let cases = cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>);
    cases
        .chain(changed(&rows, &[STRUCTURE, CHANGES]))
        .chain(changed(&without, &[RESIDUAL]))
        .chain(changed(&empty, &[EMPTY]))
        .chain(changed(&one, &[ONE_ROW]))
        .collect()
}

/// A change of a field that must be refused.
macro_rules! refused {
    ($what:literal, $field:literal, $value:expr, $words:literal) => {
        ($what, |c| *c.field($field) = $value, Refused(ERROR_INVALID_VALUE, $words))
    };
}

/// Changes of a call that the kernel accepts.
const CHANGES: &[Change] = &[
    (
        "a structure that is too short",
        |c| begin(c, Header::TooShort),
        Refused(ERROR_INVALID_VALUE, "version 3 of kgen_rmsnorm_params has"),
    ),
    ("no in", |c| drop_tensor(c, "in"), Refused(ERROR_INVALID_VALUE, "in must not be NULL")),
    ("no weight", |c| drop_tensor(c, "weight"), Refused(ERROR_INVALID_VALUE, "weight must not be NULL")),
    ("no out", |c| drop_tensor(c, "out"), Refused(ERROR_INVALID_VALUE, "out must not be NULL")),
    ("no residual", |c| drop_tensor(c, "residual"), Refused(ERROR_INVALID_VALUE, "must both be NULL, or neither")),
    ("no residual_out", |c| drop_tensor(c, "residual_out"), Refused(ERROR_INVALID_VALUE, "must both be NULL, or neither")),
    refused!("in between elements", "in", Field::TensorAt("in", 1), ": in must be a multiple of 2 bytes"),
    refused!("residual between elements", "residual", Field::TensorAt("residual", 1), ": residual must be a multiple of"),
    refused!("weight between elements", "weight", Field::TensorAt("weight", 1), ": weight must be a multiple of"),
    refused!("out between elements", "out", Field::TensorAt("out", 1), ": out must be a multiple of"),
    refused!("residual_out between elements", "residual_out", Field::TensorAt("residual_out", 1), ": residual_out must be a"),
    ("another dtype", |c| *c.field("dtype") = Field::I32(7), Refused(ERROR_MISMATCH, "params.dtype is 7")),
    refused!("a negative eps", "eps", Field::F32(-1e-6), "eps is -1e-06; it must be 0 or more"),
    refused!("an eps that is no number", "eps", Field::F32(f32::NAN), "it must be 0 or more"),
    refused!("rows of in that overlap", "in_row_stride", Field::I64(4), "in_row_stride is 4, less than columns"),
    refused!("rows of residual backwards", "residual_row_stride", Field::I64(-5), "residual_row_stride is -5, less than"),
    refused!("rows of out that overlap", "out_row_stride", Field::I64(0), "out_row_stride is 0, less than columns"),
    refused!("rows of residual_out that overlap", "residual_out_row_stride", Field::I64(4), "residual_out_row_stride is 4"),
    refused!("more columns than bytes can be counted of", "columns", Field::U64(1 << 62), "columns is more than any memory"),
    refused!("more rows than bytes can be counted of", "rows", Field::U64(1 << 62), "in_row_stride is more than any memory"),
    refused!("out an element after in", "out", Field::TensorAt("in", 2), "out overlaps in"),
    refused!("out in in with another stride", "out", Field::Tensor("in"), "out overlaps in"),
    refused!("out in residual", "out", Field::Tensor("residual"), "out overlaps residual"),
    refused!("out in weight", "out", Field::Tensor("weight"), "out overlaps weight"),
    refused!("out in residual_out", "out", Field::Tensor("residual_out"), "out overlaps residual_out"),
    refused!("residual_out in in", "residual_out", Field::Tensor("in"), "residual_out overlaps in"),
    refused!("residual_out in weight", "residual_out", Field::Tensor("weight"), "residual_out overlaps weight"),
    refused!("residual_out after residual", "residual_out", Field::TensorAt("residual", 2), "residual_out overlaps residual"),
    ("more blocks than a grid has", far_apart, Refused(ERROR_INVALID_VALUE, "more than a grid has")),
];

/// Changes of a call without a residual.
const RESIDUAL: &[Change] = &[refused!("a residual_out", "residual_out", Field::Tensor("in"), "must both be NULL, or neither")];

/// Changes of a call without rows.
const EMPTY: &[Change] = &[("no in", |c| drop_tensor(c, "in"), Nothing)];

/// Changes of a call of one row, for which strides are not read.
const ONE_ROW: &[Change] = &[
    ("a stride of 0", |c| *c.field("in_row_stride") = Field::I64(0), Same),
    ("a negative stride", |c| *c.field("out_row_stride") = Field::I64(-9), Same),
];

/// Matrices larger than any memory, which must not be touched.
fn far_apart(call: &mut Call) {
    for (place, name) in ["in", "residual", "weight", "out", "residual_out"].into_iter().enumerate() {
        *call.field(name) = Field::U64((place as u64 + 1) << 58);
    }
    *call.field("rows") = Field::U64(1 << 50);
}

impl NormCase {
    /// Contiguous matrices, each in separate memory, with a residual and a spike in each row.
    pub fn plain(number: Number, rows: usize, columns: usize) -> Self {
        // `out` has another stride than `in`, so that confusing the two is caught.
        let (gaps, offsets) = ([0, 0, 16, 0], [0; 5]);
        Self { number, rows, columns, inputs: Inputs::Spike, eps: 1e-6, residual: true, in_place: false, gaps, offsets }
    }

    /// The gaps and offsets in effect.
    fn layout(&self) -> ([usize; 4], [usize; 5]) {
        let ([a, b, ..], [c, d, .., weight]) = (self.gaps, self.offsets);
        if self.in_place { ([a, b, a, b], [c, d, c, d, weight]) } else { (self.gaps, self.offsets) }
    }

    /// Values of a matrix; each row has a spike if `spiked`.
    fn values(&self, spiked: bool, seed: u64) -> Vec<f32> {
        let Self { number, rows, columns, inputs, .. } = *self;
        let scale = inputs.scale(number);
        let normal = Vector::normal(number, rows * columns, 0, seed);
        let value = |(index, normal): (usize, &f32)| {
            let (row, column) = (index / columns, index % columns);
            let places = [columns - 1, 0, columns / 2, columns - columns.min(9), columns / 3];
            let spike = spiked && inputs == Inputs::Spike && column == places[row % places.len()];
            number.through(if spike { 100.0 } else { normal * scale })
        };
        normal.values().iter().enumerate().map(value).collect()
    }

    /// Matrix `which` in memory, with these values or unwritten.
    fn image(&self, which: usize, values: Option<&[f32]>) -> Image {
        let (gaps, offsets) = self.layout();
        let (stride, offset) = (self.columns + gaps[which], offsets[which]);
        let mut image = Image::poisoned(self.number.element(), offset + self.rows * stride, offset);
        for index in 0..self.rows * self.columns {
            let at = (index / self.columns * stride + index % self.columns).cast_signed() as i64;
            match values {
                Some(values) => image.put(at, self.number.round(values[index])),
                None => {
                    image.mark(at);
                }
            }
        }
        image
    }

    fn params(&self) -> Params {
        let strides = self.layout().0.map(|gap| (self.columns + gap) as u64);
        abi::params([self.rows, self.columns].map(|size| size as u64), strides, self.eps, self.number)
    }
}

impl Case for NormCase {
    fn name(&self) -> String {
        let Self { rows, columns, eps, .. } = self;
        let (gaps, offsets) = self.layout();
        let residual = if self.residual { " residual" } else { "" };
        let place = if self.in_place { " in place" } else { "" };
        format!("{rows}x{columns} gaps {gaps:?} at {offsets:?} {} eps {eps}{residual}{place}", self.inputs.word())
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { number, rows, columns, eps, .. } = *self;
        let input = self.values(true, seed);
        let residual = self.residual.then(|| self.values(false, seed.wrapping_add(1)));
        let weight = Vector::normal(number, columns, self.offsets[4], seed.wrapping_add(2));
        let mut call = Call {
            inputs: vec![("weight", weight.image())],
            outputs: vec![],
            scratch: false,
            multiprocessors: None,
            params: self.params(),
        };
        let tensors = [(0, "in", "out", Some(&input)), (1, "residual", "residual_out", residual.as_ref())];
        for (which, from, to, values) in tensors {
            let Some(values) = values else { continue };
            if self.in_place {
                call.outputs.push((to, self.image(which, Some(values))));
                *call.field(from) = Field::Tensor(to);
            } else {
                call.inputs.push((from, self.image(which, Some(values))));
                call.outputs.push((to, self.image(which + 2, None)));
            }
        }
        let rows_of = |values: &[f32], row: usize| values[row * columns..][..columns].to_vec();
        let reference = |row| {
            let residual = residual.as_ref().map(|values| rows_of(values, row));
            Reference::of(number, &rows_of(&input, row), residual.as_deref(), weight.values(), eps)
        };
        let references: Vec<Reference> = if columns == 0 { vec![] } else { (0..rows).map(reference).collect() };
        let strides = self.layout().0.map(|gap| columns + gap);
        let judge = move |outputs: &Outputs| {
            let Some(out) = outputs.get("out") else { unreachable!("every call has `out`") };
            let (mut tally, mut sums) = (Tally::of_elements("out", 0.0), Tally::of_elements("residual_out", 0.0));
            let mut images = vec![("out", out)];
            images.extend(outputs.get("residual_out").map(|image| ("residual_out", image)));
            let got = |image: &Image, at: usize| f64::from(number.widen(image.bits(at.cast_signed() as i64)));
            for (row, column) in itertools::iproduct!(0..references.len(), 0..columns) {
                let (index, reference) = (row * columns + column, &references[row]);
                let value = got(out, row * strides[2] + column);
                tally.see_element(index, value, reference.expected(column, value));
                if let Some(image) = outputs.get("residual_out") {
                    sums.see_element(index, got(image, row * strides[3] + column), f64::from(reference.h[column]));
                }
            }
            Comparison::of(&[tally, sums], &images)
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}
