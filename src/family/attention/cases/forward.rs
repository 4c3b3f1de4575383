//! Forward attention: its cases, each with the reference.

use super::{feature_cases, lists};
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Subject, Tally, Twin},
    device::Outputs,
    family::{
        attention,
        attention::{
            Point,
            oracle::{
                arithmetic::Arithmetic,
                dims::Dims,
                memory_layout::Side,
                problem::{Layout, Problem},
                reference::Reference,
                tensors::Tensors,
            },
        },
    },
    kernel::Dtype,
    plan::Tiling,
};
/// Maximum multiprocessors of an emulated device: enough that the launcher forms groups of several heads.
const MOST_MULTIPROCESSORS: usize = 16;

/// A problem for a variant.
#[derive(Debug)]
struct ForwardCase {
    problem: Problem,
    arithmetic: Arithmetic,
    head_dim: Dims,
    causal: bool,
    /// True if the kernel loads Q, K and V by TMA only.
    needs_tma: bool,
    tiling: Tiling,
}

/// The cases of a forward variant.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let problems = match (subject.variant.dtype == Dtype::Fp8, subject.tiling.whole_tiles) {
        (true, true) => lists::forward_fp8_tma(subject, level),
        (true, false) => lists::forward_fp8(subject, level),
        (false, true) => lists::forward_tma(subject, level),
        (false, false) => lists::forward(subject, level),
    };
    let mut featured = feature_cases::cases(subject, level);
    if subject.variant.dtype == Dtype::Fp8 {
        featured = lists::in_fp8(featured);
    }
    problems.into_iter().chain(featured).map(|problem| Box::new(case(subject, problem)) as Box<dyn Case>).collect()
}

/// A problem.
pub(super) fn case(subject: &Subject<Point>, problem: Problem) -> impl Case + use<> {
    let Point { head_dim, causal, .. } = subject.variant;
    ForwardCase {
        problem: problem.for_kernel(subject.variant),
        arithmetic: Arithmetic::of(subject.variant),
        head_dim: head_dim.into(),
        causal,
        needs_tma: attention::needs_tma(subject.variant),
        tiling: subject.tiling,
    }
}

impl Case for ForwardCase {
    fn name(&self) -> String {
        self.problem.name(self.causal)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { ref problem, arithmetic, head_dim, causal, .. } = *self;
        let number = arithmetic.number;
        let tensors = Tensors::draw(problem, head_dim, number, seed);
        let mut call = tensors.call(problem, head_dim, number, causal);
        call.multiprocessors = call.multiprocessors.or_else(|| self.multiprocessors(seed));
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| {
            let reference = Reference::compute(&problem, &tensors, head_dim, arithmetic, causal);
            compare(&problem, head_dim.v, number, &reference, outputs)
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }

    fn refusal(&self) -> Option<String> {
        if self.needs_tma { self.problem.what_tma_refuses(self.head_dim, self.arithmetic.number) } else { None }
    }

    /// Element-wise copies must give the same bits as 16-byte copies.
    fn twin(&self, seed: u64) -> Option<Twin> {
        let Self { ref problem, arithmetic, head_dim, causal, needs_tma, .. } = *self;
        if problem.layout != Layout::Unaligned || needs_tma {
            return None;
        }
        let problem = problem.clone();
        let aligned = problem.clone().layout(Layout::Bhsd);
        let number = arithmetic.number;
        let call = Tensors::draw(&aligned, head_dim, number, seed).call(&aligned, head_dim, number, causal);
        let difference =
            move |first: &Outputs, second: &Outputs| first_difference([&problem, &aligned], head_dim.v, [first, second]);
        Some(Twin { call, difference: Box::new(difference) })
    }
}

/// The first difference between the bits of O or LSE in two runs of a problem with two layouts.
fn first_difference(problems: [&Problem; 2], head_dim_v: usize, outputs: [&Outputs; 2]) -> Option<String> {
    let places = problems.map(|problem| {
        let plan = problem.rows(Side::Query);
        (plan, problem.place(3, Side::Query, problem.heads, head_dim_v), problem.place_lse())
    });
    for (sequence, rows) in problems[0].used_rows(Side::Query).enumerate() {
        for (head, row) in itertools::iproduct!(0..problems[0].heads, 0..rows) {
            let [o, lse] = ["o", "lse"].map(|name| {
                std::array::from_fn::<_, 2, _>(|which| {
                    let (plan, place_o, place_lse) = &places[which];
                    let (place, elements) = if name == "o" { (place_o, head_dim_v) } else { (place_lse, 1) };
                    let start = problems[which].offset(place, Side::Query, plan, sequence, row, head);
                    let image = outputs[which].get(name)?;
                    Some((0..elements).map(|d| image.bits(start + d as i64)).collect::<Vec<_>>())
                })
            });
            for (name, [one, other]) in [("O", o), ("LSE", lse)] {
                if one != other {
                    return Some(format!("{name} of sequence {sequence}, head {head}, row {row}"));
                }
            }
        }
    }
    None
}

impl ForwardCase {
    /// Number of multiprocessors that gives persistent blocks 3 to 20 work items each, depending on the seed; 1 to 16.
    fn multiprocessors(&self, seed: u64) -> Option<usize> {
        let Self { ref problem, ref tiling, .. } = *self;
        let pieces = tiling.pieces(problem.rows(Side::Query).bound, problem.heads, problem.sequences.len());
        let each = 3 + (seed % 18) as usize;
        tiling.persistent.then(|| pieces.div_ceil(each).clamp(tiling.cluster, MOST_MULTIPROCESSORS))
    }
}

/// Largest error of O in a row dominated by one key, in units in the last place. The key's weight is exactly 1 relative
/// to the row's maximum, so what remains is the rounding of O, half a unit, and fp32 errors: FlashAttention's kernels
/// and cuDNN's reach 0.59 to 0.60 (`docs/results/accuracy.md`).
const MOST_ULPS: f64 = 0.75;

/// Compares O and LSE with the reference.
pub(super) fn compare(
    problem: &Problem,
    head_dim_v: usize,
    number: Number,
    reference: &Reference,
    outputs: &Outputs,
) -> Comparison {
    let tolerance = reference.tolerance;
    if !(tolerance.o.is_finite() && tolerance.lse.is_finite()) {
        return Comparison::impossible("O", tolerance.o);
    }
    let Some(image_o) = outputs.get("o") else { unreachable!("every forward call has O") };
    let mut o = Tally::new("O", tolerance.o);
    let mut ulps = Tally::new("ulp of O", MOST_ULPS);
    let mut lse = Tally::new("LSE", tolerance.lse);
    let plan = problem.rows(Side::Query);
    let place_lse = problem.place_lse();
    let place_o = problem.place(3, Side::Query, problem.heads, head_dim_v);
    for (sequence, rows) in problem.served_rows().enumerate() {
        for head in 0..problem.heads {
            let expected = reference.head(sequence, head);
            for row in 0..rows {
                let masked = expected.blind[row];
                let start = problem.offset(&place_o, Side::Query, &plan, sequence, row, head);
                for d in 0..head_dim_v {
                    let got = f64::from(number.of_output().widen(image_o.bits(start + d as i64)));
                    let exact = expected.o[row * head_dim_v + d];
                    o.see([sequence, head, row, d], got, exact, masked);
                    if let Some(rest) = expected.dominated[row] {
                        let error = ((got - exact).abs() - rest).max(0.0) / number.of_output().ulp(exact);
                        ulps.see([sequence, head, row, d], error, 0.0, false);
                    }
                }
                if let Some(image) = outputs.get("lse") {
                    let offset = problem.offset(&place_lse, Side::Query, &plan, sequence, row, head);
                    lse.see([sequence, head, row, 0], f64::from(f32::from_bits(image.bits(offset))), expected.lse[row], masked);
                }
            }
        }
    }
    let counter = outputs.get("work_counter");
    let images = [("O", outputs.get("o")), ("LSE", outputs.get("lse")), ("the work counter", counter)];
    let images: Vec<_> = images.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
    let mut comparison = Comparison::of(&[o, ulps, lse], &images);
    if counter.is_some_and(|counter| [0, 1].iter().any(|word| counter.bits(*word) != 0)) {
        let left = "the work counter is not zero afterwards, and the next call would leave out work".to_owned();
        comparison.complaint = comparison.complaint.or(Some(left));
    }
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Call, Image, POISON},
        family::attention::abi::FwdParams,
        family::attention::oracle::problem::Lengths,
    };

    const DIM: usize = 16;

    /// A case, its call and reference, and outputs that contain the rounded reference.
    fn perfect(causal: bool) -> (Problem, Call, Reference, Outputs) {
        let problem = Problem::new(&[(5, 3), (2, 4)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used);
        let tensors = Tensors::draw(&problem, DIM, Number::Bf16, 1);
        let call = tensors.call(&problem, DIM, Number::Bf16, causal);
        let reference = Reference::compute(&problem, &tensors, DIM, Number::Bf16, causal);
        let mut outputs = Outputs(call.outputs.clone());
        let plan = problem.rows(Side::Query);
        for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
            for (head, row) in itertools::iproduct!(0..2, 0..rows) {
                let answer = reference.head(sequence, head);
                let offset = problem.offset(&problem.place(3, Side::Query, 2, DIM), Side::Query, &plan, sequence, row, head);
                for d in 0..DIM {
                    o(&mut outputs).put(offset + d as i64, Number::Bf16.round(answer.o[row * DIM + d] as f32));
                }
                let offset = problem.offset(&problem.place_lse(), Side::Query, &plan, sequence, row, head);
                lse(&mut outputs).put(offset, (answer.lse[row] as f32).to_bits());
            }
        }
        (problem, call, reference, outputs)
    }

    fn o(outputs: &mut Outputs) -> &mut Image {
        outputs.get_mut("o").expect("every call has O")
    }

    fn lse(outputs: &mut Outputs) -> &mut Image {
        outputs.get_mut("lse").expect("this one has LSE")
    }

    /// The error message after `spoil` has modified correct outputs.
    fn complaint(causal: bool, spoil: impl FnOnce(&mut Outputs)) -> Option<String> {
        let (problem, _, reference, mut outputs) = perfect(causal);
        spoil(&mut outputs);
        compare(&problem, DIM, Number::Bf16, &reference, &outputs).complaint
    }

    #[test]
    fn the_rounded_reference_passes() {
        assert_eq!(complaint(false, |_| {}), None);
        assert_eq!(complaint(true, |_| {}), None);
    }

    #[test]
    fn outputs_of_two_layouts_are_the_same_bit_for_bit_or_the_place_is_told() {
        let (problem, _, _, outputs) = perfect(false);
        assert_eq!(first_difference([&problem; 2], DIM, [&outputs; 2]), None);
        let mut other = outputs.clone();
        let bits = lse(&mut other).bits(1);
        lse(&mut other).put(1, bits ^ 1);
        let said = first_difference([&problem; 2], DIM, [&outputs, &other]);
        assert_eq!(said.as_deref(), Some("LSE of sequence 0, head 0, row 1"));
    }

    #[test]
    fn an_unwritten_element_fails() {
        let said = complaint(false, |outputs| o(outputs).put(0, POISON.into())).expect("it fails");
        assert!(said.contains("1 NaN") && said.contains("[sequence 0, head 0, row 0, d 0]"), "{said}");
    }

    #[test]
    fn nan_and_infinity_never_pass() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(complaint(false, |all| o(all).put(3, Number::Bf16.round(wrong))).is_some(), "O {wrong}");
            assert!(complaint(false, |all| lse(all).put(1, wrong.to_bits())).is_some(), "LSE {wrong}");
        }
    }

    #[test]
    fn a_fully_masked_row_must_be_exactly_zero_with_lse_minus_infinity() {
        // Sequence 0 has 5 queries and 3 keys: its first two rows see no key.
        assert!(complaint(true, |all| o(all).put(0, Number::Bf16.round(1e-30))).is_some());
        assert!(complaint(true, |all| lse(all).put(0, (-1e30_f32).to_bits())).is_some());
    }

    #[test]
    fn an_error_beyond_the_tolerance_fails_and_says_where() {
        let said = complaint(false, |all| {
            let wrong = Number::Bf16.widen(o(all).bits(5)) + 0.5;
            o(all).put(5, Number::Bf16.round(wrong));
        });
        assert!(said.expect("it fails").contains("O: 1 of 224 elements are wrong; first [sequence 0, head 0, row 0, d 5]"));
    }

    #[test]
    fn a_write_to_a_row_that_takes_no_part_fails() {
        let said = complaint(false, |outputs| {
            let FwdParams { strides, .. } = *perfect(false).1.params.get().expect("a forward call");
            o(outputs).scribble(5 * strides[3].row, 7);
        });
        assert!(said.expect("it fails").contains("memory that is no part of it was written"));
    }
}
