//! Cases of a reduction: rows of every length at the borders of pieces, warps and chunks, with the decisive elements at
//! every kind of position; results that are exact if arithmetic allows; and calls that must be refused.

use super::{abi, operation::Operation};
use crate::{
    check::{
        Case, Change, Comparison, Drawn,
        Expected::{Refused, Same},
        Level, Number, STRUCTURE, Subject, Tally, Vector, begin, changed, drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field, Header, Outputs, Params},
};
use std::rc::Rc;

/// Contents of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inputs {
    /// -2 to 2: sums are exact.
    Integers,
    /// Standard normal.
    Normal,
    /// Normal, except for one element of each row, at varying positions, which outweighs all others: an exponential
    /// relative to any other element overflows.
    Spike,
    /// Near -200, so that a maximum must be initialised to -infinity.
    Low,
    /// Rising along the row from -40 to 40: the maximum grows in every step.
    Rising,
    /// -infinity.
    Nothing,
}

impl Inputs {
    fn word(self) -> &'static str {
        match self {
            Self::Integers => "integers",
            Self::Normal => "normal",
            Self::Spike => "spike",
            Self::Low => "low",
            Self::Rising => "rising",
            Self::Nothing => "nothing",
        }
    }
}

/// One call.
#[derive(Debug)]
struct ReduceCase {
    operation: Operation,
    number: Number,
    rows: usize,
    columns: usize,
    /// Elements from an aligned address to the first one.
    offset: usize,
    inputs: Inputs,
    /// `out` is inside `in`; such a call is refused.
    shared: bool,
}

/// The cases of a variant.
pub(super) fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    let operation = Operation::of(&subject.variant);
    let number = Number::of(subject.variant.element());
    let (short, chunk, piece) = (subject.tiling.m, subject.tiling.n, 16 / number.element().bytes());
    let usual = if operation == Operation::Sum { Inputs::Integers } else { Inputs::Spike };
    let plain = |rows, columns| ReduceCase { operation, number, rows, columns, offset: 0, inputs: usual, shared: false };
    let of = |rows, columns, inputs| ReduceCase { inputs, ..plain(rows, columns) };
    let mut cases = vec![
        plain(0, 5),
        plain(3, 0),
        plain(1, 1),
        // More rows than a block has warps; rows of which none, some and all start at multiples of 16 bytes.
        plain(11, piece - 1),
        plain(11, 2 * piece),
        plain(3, 33 * piece + 1),
        // Rows of one lane in two blocks, of two lanes, of eight, and of a whole warp once.
        plain(300, piece),
        plain(37, 5 * piece),
        plain(37, 5 * piece + 1),
        plain(41, 20 * piece),
        plain(9, 128 * piece),
        ReduceCase { offset: 1, ..plain(2, 5 * piece) },
        // The longest row of a warp and the shortest of a block.
        plain(9, short),
        plain(3, short + 1),
        plain(2, chunk),
        // Several chunks, the last one of one element, and of an odd number.
        plain(1, chunk + 1),
        plain(3, 2 * chunk + piece + 3),
        ReduceCase { offset: piece - 1, ..plain(1, chunk + 7) },
        of(5, short - 3, Inputs::Normal),
        of(1, chunk + chunk / 2, Inputs::Normal),
        of(3, 100, Inputs::Low),
        of(2, short + 77, Inputs::Low),
        of(3, 77, Inputs::Rising),
        of(2, chunk + 77, Inputs::Rising),
    ];
    if number == Number::Fp32 || level == Level::Thorough {
        // More chunks than threads in the block that folds them. Chunks of 16-bit elements hold twice as many.
        cases.push(plain(1, 257 * chunk + 5));
    }
    if operation != Operation::Sum {
        cases.extend([of(2, 40, Inputs::Nothing), of(1, chunk + 40, Inputs::Nothing)]);
    }
    if level == Level::Thorough {
        for extra in 0..2 * piece {
            cases.push(plain(9, short - extra));
            cases.push(ReduceCase { offset: extra % piece, ..plain(2, short + extra) });
            cases.push(plain(2, chunk - extra));
        }
        cases.push(plain(1000, 3));
    }
    cases.push(ReduceCase { shared: true, ..plain(4, 64) });
    let short: Rc<dyn Case> = Rc::new(plain(3, 5));
    let empty: Rc<dyn Case> = Rc::new(plain(3, 0));
    let chunks: Rc<dyn Case> = Rc::new(plain(1, chunk + 1));
    let cases = cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>);
    cases
        .chain(changed(&short, &[STRUCTURE, CHANGES]))
        .chain(changed(&empty, &[EMPTY]))
        .chain(changed(&chunks, &[WORKSPACE]))
        .collect()
}

/// Changes of a call that the kernel accepts.
const CHANGES: &[Change] = &[
    (
        "a structure that is too short",
        |c| begin(c, Header::TooShort),
        Refused(ERROR_INVALID_VALUE, "version 3 of kgen_reduce_params has"),
    ),
    ("no in", |c| drop_tensor(c, "in"), Refused(ERROR_INVALID_VALUE, "in must not be NULL")),
    ("no out", |c| drop_tensor(c, "out"), Refused(ERROR_INVALID_VALUE, "out must not be NULL")),
    (
        "in between elements",
        |c| *c.field("in") = Field::TensorAt("in", 1),
        Refused(ERROR_INVALID_VALUE, "in must be a multiple of"),
    ),
    (
        "out between numbers",
        |c| *c.field("out") = Field::TensorAt("out", 2),
        Refused(ERROR_INVALID_VALUE, "out must be a multiple of"),
    ),
    ("another dtype", |c| *c.field("dtype") = Field::I32(7), Refused(ERROR_MISMATCH, "params.dtype is 7")),
    ("another operation", |c| *c.field("operation") = Field::I32(7), Refused(ERROR_MISMATCH, "7")),
    (
        "more elements than bytes can be counted of",
        |c| resize(c, 1 << 32, 1 << 31),
        Refused(ERROR_INVALID_VALUE, "is more than any memory holds"),
    ),
    (
        "more results than bytes can be counted of",
        |c| resize(c, 1 << 62, 1),
        Refused(ERROR_INVALID_VALUE, "is more than any memory holds"),
    ),
    ("more blocks than a grid has", |c| far_apart(c, 1 << 48, 1), Refused(ERROR_INVALID_VALUE, "more than a grid has")),
    (
        "more blocks for long rows than a grid has",
        |c| far_apart(c, 1 << 32, 1 << 16),
        Refused(ERROR_INVALID_VALUE, "more than a grid has"),
    ),
    (
        "in that begins in the last result",
        |c| *c.field("in") = Field::TensorAt("out", 8),
        Refused(ERROR_INVALID_VALUE, "out overlaps in"),
    ),
    ("out that ends in in", |c| *c.field("out") = Field::TensorAt("in", -8), Refused(ERROR_INVALID_VALUE, "out overlaps in")),
];

/// Changes of a call whose rows have no elements.
const EMPTY: &[Change] = &[("no in", |c| drop_tensor(c, "in"), Same)];

/// Changes of a call whose only row has several chunks.
const WORKSPACE: &[Change] = &[
    ("no workspace", |c| c.scratch = false, Refused(ERROR_INVALID_VALUE, "workspace must not be NULL")),
    (
        "a workspace between numbers",
        |c| *c.field("workspace") = Field::TensorAt("workspace", 8),
        Refused(ERROR_INVALID_VALUE, "workspace must be a multiple of 16 bytes"),
    ),
    (
        "a workspace of 7 bytes",
        |c| *c.field("workspace_bytes") = Field::U64(7),
        Refused(ERROR_INVALID_VALUE, "workspace_bytes is 7; this takes"),
    ),
    (
        "the workspace in in",
        |c| *c.field("workspace") = Field::Tensor("in"),
        Refused(ERROR_INVALID_VALUE, "workspace overlaps in"),
    ),
    (
        "the workspace in out",
        |c| *c.field("workspace") = Field::Tensor("out"),
        Refused(ERROR_INVALID_VALUE, "workspace overlaps out"),
    ),
];

/// A matrix larger than any memory, which must not be touched.
fn far_apart(call: &mut Call, rows: u64, columns: u64) {
    call.scratch = false;
    *call.field("in") = Field::U64(1 << 60);
    *call.field("out") = Field::U64(1 << 61);
    resize(call, rows, columns);
}

fn resize(call: &mut Call, rows: u64, columns: u64) {
    *call.field("rows") = Field::U64(rows);
    *call.field("columns") = Field::U64(columns);
}

impl ReduceCase {
    /// Index of a row's decisive element.
    fn spike(&self, row: usize) -> usize {
        let places = [self.columns - 1, 0, self.columns / 2, self.columns - self.columns.min(9), self.columns / 3];
        places[row % places.len()]
    }

    fn draw_values(&self, seed: u64) -> Vec<f32> {
        let normal = Vector::normal(self.number, self.rows * self.columns, 0, seed);
        let value = |(index, normal): (usize, &f32)| {
            let (row, column) = (index / self.columns, index % self.columns);
            self.number.through(match self.inputs {
                Inputs::Integers => normal.round().clamp(-2.0, 2.0),
                Inputs::Spike if column == self.spike(row) => 200.0,
                Inputs::Normal | Inputs::Spike => *normal,
                Inputs::Low => normal - 200.0,
                Inputs::Rising => 80.0 * (column as f32 / self.columns as f32) - 40.0,
                Inputs::Nothing => f32::NEG_INFINITY,
            })
        };
        normal.values().iter().enumerate().map(value).collect()
    }

    /// The result of a row in float64, and its tolerance.
    fn expected(&self, row: &[f32]) -> (f64, f64) {
        let wide = || row.iter().map(|value| f64::from(*value));
        let largest = wide().fold(f64::NEG_INFINITY, f64::max);
        match self.operation {
            Operation::Max => (largest, 0.0),
            Operation::Sum if self.inputs == Inputs::Integers => (wide().sum(), 0.0),
            // A thread adds pieces in sequence, then lanes, warps and chunks are added: about a hundred roundings of
            // sums no larger than the sum of magnitudes.
            Operation::Sum => (wide().sum(), 100.0 * f64::from(f32::EPSILON) / 2.0 * wide().map(f64::abs).sum::<f64>()),
            Operation::Logsumexp if largest == f64::NEG_INFINITY => (largest, 0.0),
            Operation::Logsumexp => {
                let sum: f64 = wide().map(|value| (value - largest).exp()).sum();
                let expected = largest + sum.ln();
                // ex2.approx has an error of 2⁻²² in each weight, and a rescaled sum in each factor; lg2.approx 2⁻²²;
                // the result is rounded, as are differences of up to 100.
                (expected, 2.0_f64.powi(-15) + expected.abs() * f64::from(f32::EPSILON))
            }
        }
    }

    fn params(&self) -> Params {
        let out = if self.shared { Field::TensorAt("in", 32) } else { Field::Tensor("out") };
        abi::params(out, [self.rows, self.columns].map(|size| size as u64), self.number, self.operation)
    }
}

impl Case for ReduceCase {
    fn name(&self) -> String {
        let shared = if self.shared { " out in in" } else { "" };
        format!("{}x{} at {} {}{shared}", self.rows, self.columns, self.offset, self.inputs.word())
    }

    fn draw(&self, seed: u64) -> Drawn {
        let values = self.draw_values(seed);
        let input = Vector::of(self.number, values, self.offset);
        let out = Vector::unwritten(Number::Fp32, self.rows, 0);
        let expected: Vec<(f64, f64)> = match self.columns {
            0 => (0..self.rows).map(|_| self.expected(&[])).collect(),
            columns => input.values().chunks_exact(columns).map(|row| self.expected(row)).collect(),
        };
        let call = Call {
            inputs: vec![("in", input.image())],
            outputs: vec![("out", out.image())],
            scratch: true,
            multiprocessors: None,
            params: self.params(),
        };
        let judge = move |outputs: &Outputs| {
            let Some(image) = outputs.get("out") else { unreachable!("every call has `out`") };
            let mut tally = Tally::of_elements("out", expected.iter().map(|(_, allowed)| *allowed).fold(0.0, f64::max));
            for (row, (expected, _)) in expected.iter().enumerate() {
                tally.see_element(row, out.value(image, row), *expected);
            }
            Comparison::of(&[tally], &[("out", image)])
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }

    fn refusal(&self) -> Option<String> {
        self.shared.then(|| "out overlaps in".to_owned())
    }

    fn refusal_code(&self) -> i32 {
        ERROR_INVALID_VALUE
    }
}
