//! Judges what a launch left in memory: every element that should be there, and every byte that should not have changed.

use super::{numbers::Number, place::Side, problem::Problem, reference::Reference};
use crate::device::{Call, Image, Outputs};

/// How one tensor compares with its reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// `O` or `LSE`.
    pub output: &'static str,
    /// Largest absolute error; infinite where one number is finite and the other is not.
    pub error: f64,
    /// Largest allowed error.
    pub tolerance: f64,
}

impl Distance {
    /// Error as a part of what is allowed.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.tolerance }
    }
}

/// The comparison of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The tensor that comes nearest to its tolerance, or furthest beyond it.
    pub worst: Distance,
    /// What is wrong, if anything is.
    pub complaint: Option<String>,
}

/// Compares the outputs of `call` with the reference.
pub fn compare(problem: &Problem, call: &Call, number: Number, reference: &Reference, outputs: &Outputs) -> Comparison {
    let tolerance = reference.tolerance;
    if !(tolerance.o.is_finite() && tolerance.lse.is_finite()) {
        let worst = Distance { output: "O", error: f64::INFINITY, tolerance: tolerance.o };
        return Comparison {
            worst,
            complaint: Some("the naive computation overflows: this case allows no judgement".to_owned()),
        };
    }
    let mut o = Tally::new("O", tolerance.o);
    let mut lse = Tally::new("LSE", tolerance.lse);
    let plan = problem.rows(Side::Query);
    let head_dim = call.head_dim as usize;
    let place_lse = problem.place_lse();
    let place_o = problem.place(3, Side::Query, problem.heads, head_dim);
    for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
        for head in 0..problem.heads {
            let expected = reference.head(sequence, head);
            for row in 0..rows {
                let masked = expected.lse[row] == f64::NEG_INFINITY;
                let start = problem.offset(&place_o, Side::Query, &plan, sequence, row, head);
                for d in 0..head_dim {
                    let got = number.widen(outputs.o.bits(start + d as i64) as u16);
                    o.see([sequence, head, row, d], f64::from(got), expected.o[row * head_dim + d], masked);
                }
                if let Some(image) = &outputs.lse {
                    let offset = problem.offset(&place_lse, Side::Query, &plan, sequence, row, head);
                    lse.see([sequence, head, row, 0], f64::from(f32::from_bits(image.bits(offset))), expected.lse[row], masked);
                }
            }
        }
    }
    let complaints: Vec<String> =
        [o.complaint(), lse.complaint(), damage("O", Some(&outputs.o)), damage("LSE", outputs.lse.as_ref())]
            .into_iter()
            .flatten()
            .collect();
    let worst = if lse.distance.ratio() > o.distance.ratio() { lse.distance } else { o.distance };
    Comparison { worst, complaint: (!complaints.is_empty()).then(|| complaints.join("; ")) }
}

/// Says where a tensor's surroundings were written to.
fn damage(name: &str, image: Option<&Image>) -> Option<String> {
    let offset = image?.first_damage()?;
    Some(format!(
        "{name}: memory that is no part of it was written, first at element {offset} from its start (a gap between rows, a row that \
         takes no part, or the guard zone)"
    ))
}

/// Collects the comparison of one tensor.
struct Tally {
    distance: Distance,
    seen: usize,
    wrong: usize,
    /// Elements that still hold a NaN, as unwritten ones do.
    nan: usize,
    /// The first wrong element and the worst one: index, got, expected.
    first: Option<([usize; 4], f64, f64)>,
    worst: Option<([usize; 4], f64, f64)>,
}

impl Tally {
    fn new(output: &'static str, tolerance: f64) -> Self {
        Self { distance: Distance { output, error: 0.0, tolerance }, seen: 0, wrong: 0, nan: 0, first: None, worst: None }
    }

    /// Takes an element into account. A `masked` row must match exactly; otherwise a difference that is not a number,
    /// or not finite, is an infinite error and never passes.
    fn see(&mut self, index: [usize; 4], got: f64, expected: f64, masked: bool) {
        self.seen += 1;
        self.nan += usize::from(got.is_nan());
        // Exact: a masked row's zero and infinity, and whatever else happens to be right to the last bit.
        #[expect(clippy::float_cmp, reason = "equality is what is asked")]
        let same = got == expected;
        let difference = (got - expected).abs();
        let error = match (same, difference.is_finite() && !masked) {
            (true, _) => 0.0,
            (false, true) => difference,
            (false, false) => f64::INFINITY,
        };
        if error > self.distance.tolerance {
            self.wrong += 1;
            self.first.get_or_insert((index, got, expected));
        }
        if error > self.distance.error {
            self.distance.error = error;
            self.worst = Some((index, got, expected));
        }
    }

    fn complaint(&self) -> Option<String> {
        let first = self.first?;
        let at = |([b, h, row, d], got, expected): ([usize; 4], f64, f64)| {
            let element = if self.distance.output == "O" { format!(", d {d}") } else { String::new() };
            format!("[sequence {b}, head {h}, row {row}{element}] is {got:.6}, expected {expected:.6}")
        };
        let Distance { output, error, tolerance } = self.distance;
        let nan = match self.nan {
            0 => String::new(),
            nan => format!(" ({nan} NaN: unwritten, or computed from memory nobody wrote)"),
        };
        let worst =
            self.worst.filter(|worst| worst.0 != first.0).map_or_else(String::new, |worst| format!("; worst {}", at(worst)));
        let Self { wrong, seen, .. } = self;
        let first = at(first);
        Some(format!(
            "{output}: {wrong} of {seen} elements are wrong{nan}; first {first}{worst}; error {error:.2e}, allowed {tolerance:.2e}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{
        problem::{Layout, Lengths},
        tensors::Tensors,
    };

    const DIM: usize = 16;

    /// A case, the call for it, its reference, and outputs that hold the rounded reference.
    fn perfect(causal: bool) -> (Problem, Call, Reference, Outputs) {
        let problem = Problem::new(&[(5, 3), (2, 4)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used);
        let tensors = Tensors::draw(&problem, DIM, Number::Bf16, 1);
        let call = tensors.call(&problem, DIM, Number::Bf16, causal);
        let reference = Reference::compute(&problem, &tensors, DIM, Number::Bf16, causal);
        let mut outputs = Outputs { o: call.o.clone(), lse: call.lse.clone() };
        let plan = problem.rows(Side::Query);
        for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
            for (head, row) in itertools::iproduct!(0..2, 0..rows) {
                let answer = reference.head(sequence, head);
                let offset = problem.offset(&problem.place(3, Side::Query, 2, DIM), Side::Query, &plan, sequence, row, head);
                for d in 0..DIM {
                    outputs.o.put(offset + d as i64, Number::Bf16.round(answer.o[row * DIM + d] as f32).into());
                }
                let offset = problem.offset(&problem.place_lse(), Side::Query, &plan, sequence, row, head);
                outputs.lse.as_mut().expect("asked for").put(offset, (answer.lse[row] as f32).to_bits());
            }
        }
        (problem, call, reference, outputs)
    }

    /// The complaint after `spoil` has changed perfect outputs.
    fn complaint(causal: bool, spoil: impl FnOnce(&mut Outputs)) -> Option<String> {
        let (problem, call, reference, mut outputs) = perfect(causal);
        spoil(&mut outputs);
        compare(&problem, &call, Number::Bf16, &reference, &outputs).complaint
    }

    #[test]
    fn the_rounded_reference_passes() {
        assert_eq!(complaint(false, |_| {}), None);
        assert_eq!(complaint(true, |_| {}), None);
    }

    #[test]
    fn an_unwritten_element_fails() {
        let said = complaint(false, |outputs| outputs.o.put(0, crate::device::POISON.into())).expect("it fails");
        assert!(said.contains("1 NaN") && said.contains("[sequence 0, head 0, row 0, d 0]"), "{said}");
    }

    #[test]
    fn nan_and_infinity_never_pass() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(complaint(false, |o| o.o.put(3, Number::Bf16.round(wrong).into())).is_some(), "O {wrong}");
            assert!(complaint(false, |o| o.lse.as_mut().expect("there").put(1, wrong.to_bits())).is_some(), "LSE {wrong}");
        }
    }

    #[test]
    fn a_fully_masked_row_must_be_exactly_zero_with_lse_minus_infinity() {
        // Sequence 0 has 5 queries and 3 keys: its first two rows see nothing.
        assert!(complaint(true, |o| o.o.put(0, Number::Bf16.round(1e-30).into())).is_some());
        assert!(complaint(true, |o| o.lse.as_mut().expect("there").put(0, (-1e30_f32).to_bits())).is_some());
    }

    #[test]
    fn an_error_beyond_the_tolerance_fails_and_says_where() {
        let said = complaint(false, |o| {
            let wrong = Number::Bf16.widen(o.o.bits(5) as u16) + 0.5;
            o.o.put(5, Number::Bf16.round(wrong).into());
        });
        assert!(said.expect("it fails").contains("O: 1 of 224 elements are wrong; first [sequence 0, head 0, row 0, d 5]"));
    }

    #[test]
    fn a_write_to_a_row_that_takes_no_part_fails() {
        let said = complaint(false, |outputs| {
            let unused_row = 5 * perfect(false).1.strides[3].row;
            outputs.o.scribble(unused_row, 7);
        });
        assert!(said.expect("it fails").contains("memory that is no part of it was written"));
    }
}
