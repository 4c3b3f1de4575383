//! Cases of a transposition: matrices of no, one and several tiles, with rows that are multiples of 16 bytes and rows
//! that are not on either side, in place, and calls that must be refused. Every element has distinct bits.

use super::abi;
use crate::{
    check::{Case, Change, Comparison, Drawn, Expected::Refused, Level, STRUCTURE, Subject, Tally, begin, changed, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Element, Field, Header, Image, Outputs, Params},
};
use std::rc::Rc;

/// Placement of `out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In separate memory.
    Apart,
    /// At the address of `in`.
    Same,
    /// This many elements after the start of `in`; such a call is refused.
    Overlapping(isize),
}

/// One call.
#[derive(Debug)]
struct TransposeCase {
    element: Element,
    rows: usize,
    columns: usize,
    /// Elements from an aligned address to the first element of `in` and of `out`.
    offsets: [usize; 2],
    place: Place,
}

/// The cases of a variant.
pub(super) fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    let element = match subject.variant.element().bytes() {
        1 => Element::Bits8,
        2 => Element::Bits16,
        _ => Element::Bits32,
    };
    let (side, piece) = (subject.tiling.n, 16 / element.bytes());
    let plain = |rows, columns| TransposeCase { element, rows, columns, offsets: [0; 2], place: Place::Apart };
    let square = |side, offset| TransposeCase { offsets: [offset; 2], place: Place::Same, ..plain(side, side) };
    let mut cases = vec![
        plain(0, 7),
        plain(7, 0),
        plain(1, 1),
        plain(1, 2 * side + 3),
        plain(2 * side + 3, 1),
        plain(side, side),
        // Sizes that are multiples of 16-byte pieces on both sides, on one side only, and on neither.
        plain(side + piece, 2 * side + 3 * piece),
        plain(side + 1, 2 * side + piece),
        plain(side + piece, side + 1),
        plain(side - 1, side + 1),
        // More rows of tiles than blocks process from top to bottom at a time.
        plain(17 * side + piece, 2 * side),
        // Starts that are not multiples of 16 bytes.
        TransposeCase { offsets: [1, 0], ..plain(side + piece, piece) },
        TransposeCase { offsets: [0, 1], ..plain(piece, side + piece) },
        square(1, 0),
        square(side, 0),
        square(2 * side + piece, 0),
        square(2 * side + 1, 0),
        square(side + piece, 1),
    ];
    if level == Level::Thorough {
        for extra in 1..2 * piece {
            cases.push(plain(side + extra, piece + extra));
            cases.push(plain(extra, 2 * side - extra));
            cases.push(square(3 * side - extra, extra % piece));
        }
    }
    for elements in [1, -1, 40] {
        cases.push(TransposeCase { offsets: [256; 2], place: Place::Overlapping(elements), ..plain(7, 9) });
    }
    cases.push(TransposeCase { place: Place::Same, ..plain(7, 9) });
    let base: Rc<dyn Case> = Rc::new(plain(3, 5));
    let wide: &[Change] = if element == Element::Bits8 { &[] } else { BETWEEN };
    let cases = cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>);
    cases.chain(changed(&base, &[STRUCTURE, CHANGES, wide])).collect()
}

/// Changes of a call that the kernel accepts.
const CHANGES: &[Change] = &[
    (
        "a structure that is too short",
        |c| begin(c, Header::TooShort),
        Refused(ERROR_INVALID_VALUE, "version 3 of kgen_transpose_params has"),
    ),
    ("no in", |c| drop_tensor(c, "in"), Refused(ERROR_INVALID_VALUE, "in must not be NULL")),
    ("no out", |c| drop_tensor(c, "out"), Refused(ERROR_INVALID_VALUE, "out must not be NULL")),
    (
        "elements of 16 bytes",
        |c| *c.field("element_bytes") = Field::I32(16),
        Refused(ERROR_MISMATCH, "params.element_bytes is 16"),
    ),
    (
        "more elements than bytes can be counted of",
        |c| resize(c, 1 << 32, 1 << 31),
        Refused(ERROR_INVALID_VALUE, "rows x columns is more than any memory holds"),
    ),
    ("more blocks than a grid has", |c| far_apart(c, [1 << 56, 2 << 56]), Refused(ERROR_INVALID_VALUE, "more than a grid has")),
    (
        "more blocks than a grid has, in place",
        |c| far_apart(c, [1 << 56, 1 << 56]),
        Refused(ERROR_INVALID_VALUE, "more than a grid has"),
    ),
];

/// Changes of a call whose elements have more than one byte.
const BETWEEN: &[Change] = &[
    (
        "in between elements",
        |c| *c.field("in") = Field::TensorAt("in", 1),
        Refused(ERROR_INVALID_VALUE, "in must be a multiple of"),
    ),
    (
        "out between elements",
        |c| *c.field("out") = Field::TensorAt("out", 1),
        Refused(ERROR_INVALID_VALUE, "out must be a multiple of"),
    ),
];

/// A square matrix larger than any memory, which must not be touched.
fn far_apart(call: &mut Call, [input, out]: [u64; 2]) {
    *call.field("in") = Field::U64(input);
    *call.field("out") = Field::U64(out);
    resize(call, 1 << 26, 1 << 26);
}

fn resize(call: &mut Call, rows: u64, columns: u64) {
    *call.field("rows") = Field::U64(rows);
    *call.field("columns") = Field::U64(columns);
}

impl TransposeCase {
    /// The bits of element `index` of the input: different for neighbours in rows and in columns, for any width.
    fn bits(&self, index: usize, seed: u64) -> u32 {
        let mixed = (index as u64 ^ seed.rotate_left(17))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_right(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (mixed >> 32) as u32;
        match self.element {
            Element::Bits8 => bits & 0xff,
            Element::Bits16 => bits & 0xffff,
            Element::Bits32 => bits,
        }
    }

    fn params(&self) -> Params {
        let bytes = self.element.bytes().cast_signed();
        let tensors = match self.place {
            Place::Apart => [Field::Tensor("in"), Field::Tensor("out")],
            Place::Same => [Field::Tensor("out"); 2],
            Place::Overlapping(elements) => [Field::Tensor("in"), Field::TensorAt("in", elements * bytes)],
        };
        abi::params(tensors, [self.rows, self.columns].map(|size| size as u64), bytes as i32)
    }
}

impl Case for TransposeCase {
    fn name(&self) -> String {
        let place = match self.place {
            Place::Apart => String::new(),
            Place::Same => " in place".to_owned(),
            Place::Overlapping(elements) => format!(" out in in{elements:+}"),
        };
        let [input, out] = self.offsets;
        format!("{}x{} at {input},{out}{place}", self.rows, self.columns)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { element, rows, columns, .. } = *self;
        let count = rows * columns;
        let image = |offset| Image::poisoned(element, offset + count, offset);
        let bits: Vec<u32> = (0..count).map(|index| self.bits(index, seed)).collect();
        let mut input = image(self.offsets[0]);
        bits.iter().enumerate().for_each(|(index, bits)| input.put(index.cast_signed() as i64, *bits));
        let mut out = image(self.offsets[1]);
        (0..count).for_each(|index| {
            out.mark(index.cast_signed() as i64);
        });
        let (inputs, out) = if self.place == Place::Same { (vec![], input) } else { (vec![("in", input)], out) };
        let call = Call { inputs, outputs: vec![("out", out)], scratch: false, multiprocessors: None, params: self.params() };
        let judge = move |outputs: &Outputs| {
            let Some(image) = outputs.get("out") else { unreachable!("every call has `out`") };
            let mut tally = Tally::of_elements("out", 0.0);
            for (index, (column, row)) in itertools::iproduct!(0..columns, 0..rows).enumerate() {
                tally.see_element(
                    index,
                    f64::from(image.bits(index.cast_signed() as i64)),
                    f64::from(bits[row * columns + column]),
                );
            }
            Comparison::of(&[tally], &[("out", image)])
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }

    fn refusal(&self) -> Option<String> {
        match self.place {
            Place::Overlapping(_) => Some("out overlaps in".to_owned()),
            Place::Same if self.rows != self.columns => Some("only a square matrix".to_owned()),
            _ => None,
        }
    }

    fn refusal_code(&self) -> i32 {
        ERROR_INVALID_VALUE
    }
}
