//! What proves a sum of vectors right: sizes at every border of pieces and blocks, vectors that lie alike and
//! differently relative to 16 bytes, and calls that must be refused.

use super::Point;
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Subject, Tally, Vector},
    device::{Call, ERROR_INVALID_VALUE, Field, Fields, Outputs, Params},
};

/// One call.
#[derive(Debug)]
struct AddCase {
    number: Number,
    count: usize,
    /// Elements from an aligned place to the first element of `a`, `b` and `out`.
    offsets: [usize; 3],
    /// `out` begins so many elements after the first of `a`, in the same memory; such a call is refused.
    shared: Option<isize>,
}

/// The cases of a variant.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let number = Number::of(subject.variant.dtype);
    let block = subject.tiling.n;
    let piece = 16 / number.element().bytes();
    let plain = |count, offsets| AddCase { number, count, offsets, shared: None };
    let mut cases = vec![
        plain(0, [0; 3]),
        plain(1, [0; 3]),
        plain(piece, [0; 3]),
        plain(piece + 1, [1; 3]),
        // All elements before the first boundary; one piece and an element on each side of it.
        plain(1, [1; 3]),
        plain(piece + 1, [piece - 1; 3]),
        plain(block, [0; 3]),
        plain(block + 1, [0; 3]),
        plain(3 * block + 2 * piece - 1, [piece - 1; 3]),
        // One vector lies otherwise than the two others.
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
    cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>).collect()
}

impl AddCase {
    fn fields(&self) -> Params {
        let bytes = self.number.element().bytes().cast_signed();
        let out = self.shared.map_or(Field::Tensor("out"), |elements| Field::TensorAt("a", elements * bytes));
        let count = Field::U64(self.count as u64);
        let fields = vec![Field::Tensor("a"), Field::Tensor("b"), out, count, Field::I32(self.number.code()), Field::I32(0)];
        Params::Fields(Fields { flags: 0, fields })
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
            params: self.fields(),
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
        Drawn { call, judge: Box::new(judge), may_differ: &[] }
    }

    fn refusal(&self) -> Option<String> {
        self.shared.map(|_| "out overlaps a".to_owned())
    }

    fn refusal_code(&self) -> i32 {
        ERROR_INVALID_VALUE
    }
}
