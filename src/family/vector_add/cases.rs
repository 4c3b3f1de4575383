//! Cases of a sum of vectors: sizes at every border of pieces and blocks, vectors with equal and different alignment
//! relative to 16 bytes, and calls that must be refused.

use super::abi;
use crate::{
    check::{
        Case, Change, Comparison, Drawn, Expected::Refused, Level, Number, STRUCTURE, Subject, Tally, Vector, begin, changed,
        drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field, Header, Outputs, Params},
};
use std::rc::Rc;

/// One call.
#[derive(Debug)]
struct AddCase {
    number: Number,
    count: usize,
    /// Elements from an aligned address to the first element of `a`, `b` and `out`.
    offsets: [usize; 3],
    /// `out` begins this many elements after the first of `a`, in the same memory; such a call is refused.
    shared: Option<isize>,
}

/// The cases of a variant.
pub(super) fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    let number = Number::of(subject.variant.element());
    let block = subject.tiling.n;
    let piece = 16 / number.element().bytes();
    let plain = |count, offsets| AddCase { number, count, offsets, shared: None };
    let mut cases = vec![
        plain(0, [0; 3]),
        plain(1, [0; 3]),
        plain(piece, [0; 3]),
        plain(piece + 1, [1; 3]),
        // All elements precede the first boundary of a piece; then one piece, and an element on each side of it.
        plain(1, [1; 3]),
        plain(piece + 1, [piece - 1; 3]),
        plain(block, [0; 3]),
        plain(block + 1, [0; 3]),
        plain(3 * block + 2 * piece - 1, [piece - 1; 3]),
        // One vector with another alignment than the other two.
        plain(block + 3, [1, 0, 0]),
        plain(block + 3, [0, 1, 0]),
        plain(block + 3, [0, 0, 1]),
    ];
    if level == Level::Thorough {
        for offset in 0..piece {
            cases.push(plain(2 * block - offset, [offset; 3]));
            cases.push(plain(piece + offset, [offset; 3]));
            cases.push(plain(block - 1, [offset, 0, piece - 1 - offset]));
        }
    }
    for shared in [0, 1, 99, -99] {
        cases.push(AddCase { shared: Some(shared), ..plain(100, [128; 3]) });
    }
    let base: Rc<dyn Case> = Rc::new(plain(9, [0; 3]));
    let cases = cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>);
    cases.chain(changed(&base, &[STRUCTURE, CHANGES])).collect()
}

/// Changes of a call that the kernel accepts.
const CHANGES: &[Change] = &[
    (
        "a structure that is too short",
        |c| begin(c, Header::TooShort),
        Refused(ERROR_INVALID_VALUE, "version 3 of kgen_vector_add_params has"),
    ),
    ("no a", |c| drop_tensor(c, "a"), Refused(ERROR_INVALID_VALUE, "a must not be NULL")),
    ("no b", |c| drop_tensor(c, "b"), Refused(ERROR_INVALID_VALUE, "b must not be NULL")),
    ("no out", |c| drop_tensor(c, "out"), Refused(ERROR_INVALID_VALUE, "out must not be NULL")),
    ("a between elements", |c| *c.field("a") = Field::TensorAt("a", 1), Refused(ERROR_INVALID_VALUE, "a must be a multiple of")),
    ("b between elements", |c| *c.field("b") = Field::TensorAt("b", 1), Refused(ERROR_INVALID_VALUE, "b must be a multiple of")),
    (
        "out between elements",
        |c| *c.field("out") = Field::TensorAt("out", 1),
        Refused(ERROR_INVALID_VALUE, "out must be a multiple of"),
    ),
    ("out in b", |c| *c.field("out") = Field::Tensor("b"), Refused(ERROR_INVALID_VALUE, "out overlaps b")),
    ("another dtype", |c| *c.field("dtype") = Field::I32(7), Refused(ERROR_MISMATCH, "params.dtype is 7")),
    (
        "more elements than bytes can be counted of",
        |c| *c.field("count") = Field::U64(1 << 63),
        Refused(ERROR_INVALID_VALUE, "9223372036854775808 elements are more than any memory holds"),
    ),
    ("more blocks than a grid has", far_apart, Refused(ERROR_INVALID_VALUE, "more than a grid has")),
];

/// Vectors larger than any memory, which must not be touched.
fn far_apart(call: &mut Call) {
    for (name, address) in [("a", 1 << 56), ("b", 2 << 56), ("out", 3 << 56)] {
        *call.field(name) = Field::U64(address);
    }
    *call.field("count") = Field::U64(1 << 52);
}

impl AddCase {
    fn params(&self) -> Params {
        let bytes = self.number.element().bytes().cast_signed();
        let out = self.shared.map_or(Field::Tensor("out"), |elements| Field::TensorAt("a", elements * bytes));
        abi::params(out, self.count as u64, self.number)
    }
}

impl Case for AddCase {
    fn name(&self) -> String {
        let [a, b, out] = self.offsets;
        let shared = self.shared.map_or_else(String::new, |elements| format!(" out in a{elements:+}"));
        format!("n{} at {a},{b},{out}{shared}", self.count)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { number, count, .. } = *self;
        let [a, b] = [0, 1].map(|which| Vector::normal(number, count, self.offsets[which], seed.wrapping_add(which as u64)));
        let out = Vector::unwritten(number, count, self.offsets[2]);
        let call = Call {
            inputs: vec![("a", a.image()), ("b", b.image())],
            outputs: vec![("out", out.image())],
            scratch: false,
            multiprocessors: None,
            params: self.params(),
        };
        let judge = move |outputs: &Outputs| {
            let Some(image) = outputs.get("out") else { unreachable!("every call has `out`") };
            // Each sum is rounded once: any difference is an error.
            let mut tally = Tally::of_elements("out", 0.0);
            for (i, (a, b)) in a.values().iter().zip(b.values()).enumerate() {
                tally.see_element(i, out.value(image, i), f64::from(number.through(a + b)));
            }
            Comparison::of(&[tally], &[("out", image)])
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }

    fn refusal(&self) -> Option<String> {
        self.shared.map(|_| "out overlaps a".to_owned())
    }

    fn refusal_code(&self) -> i32 {
        ERROR_INVALID_VALUE
    }
}
