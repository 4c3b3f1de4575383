//! Backward attention: its cases, each with the gradients that judge it.

use super::{
    cases,
    gradients::{Gradients, Inputs},
    place::Side,
    problem::Problem,
    tensors::{Tensors, Values, image, lengths, side_and_heads},
};
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Subject, Tally},
    device::{BwdParams, Call, Element, Image, Outputs, Params},
    family::attention::Point,
};

/// A problem of the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackwardProblem {
    /// The forward pass's.
    pub problem: Problem,
    /// Asks for the same bits from the same inputs.
    pub deterministic: bool,
    /// Tells the launcher how many rows packed queries have.
    pub total_q: bool,
}

impl BackwardProblem {
    fn name(&self, causal: bool) -> String {
        let mut name = self.problem.name(causal);
        if self.total_q {
            name += " total_q";
        }
        if self.deterministic {
            name += " deterministic";
        }
        name
    }
}

/// One problem, for one variant.
#[derive(Debug)]
pub(super) struct BackwardCase {
    pub asked: BackwardProblem,
    pub number: Number,
    pub head_dim: usize,
    pub causal: bool,
}

/// The cases of a backward variant.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let Point { head_dim, dtype, causal, .. } = subject.variant;
    let number = Number::of(dtype);
    let case = |asked| BackwardCase { asked, number, head_dim: head_dim as usize, causal };
    cases::backward(subject, level).into_iter().map(|asked| Box::new(case(asked)) as Box<dyn Case>).collect()
}

impl Case for BackwardCase {
    fn name(&self) -> String {
        self.asked.name(self.causal)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { asked: BackwardProblem { problem, .. }, number, head_dim, .. } = self;
        let tensors = Tensors::draw(problem, *head_dim, *number, seed);
        self.with(&tensors, &Tensors::draw_output_gradient(problem, *head_dim, *number, seed))
    }
}

impl BackwardCase {
    /// The case with these inputs.
    pub(super) fn with(&self, Tensors { q, k, v }: &Tensors, dout: &Values) -> Drawn {
        let Self { ref asked, number, head_dim, causal } = *self;
        let problem = asked.problem.clone();
        let inputs = Inputs { q, k, v, dout };
        let gradients = Gradients::compute(&problem, inputs, head_dim, number, causal);
        let call = self.call(inputs, &gradients);
        let judge = move |outputs: &Outputs| compare(&problem, head_dim, number, causal, &gradients, outputs);
        // Blocks add to dQ in whatever order they come.
        let may_differ: &[&str] = if asked.deterministic { &[] } else { &["dq"] };
        Drawn { call, judge: Box::new(judge), may_differ }
    }

    /// Lays the tensors out as the problem wants them: what the forward pass read and gave, and poisoned gradients.
    fn call(&self, inputs: Inputs<'_>, gradients: &Gradients) -> Call {
        let Self { asked: BackwardProblem { ref problem, deterministic, total_q }, number, head_dim, causal } = *self;
        let given = |tensor, values: &Values| {
            image(problem, tensor, head_dim, number, |sequence, head, row| {
                Some(&values.head(sequence, head)[row * head_dim..][..head_dim])
            })
        };
        let outputs: Vec<Vec<f32>> = (0..problem.sequences.len() * problem.heads)
            .map(|i| gradients.query_head(i / problem.heads, i % problem.heads).o.iter().map(|&o| o as f32).collect())
            .collect();
        let o = image(problem, 3, head_dim, number, |sequence, head, row| {
            Some(&outputs[sequence * problem.heads + head][row * head_dim..][..head_dim])
        });
        let tensors = [
            ("q", given(0, inputs.q)),
            ("k", given(1, inputs.k)),
            ("v", given(2, inputs.v)),
            ("o", o),
            ("dout", given(4, inputs.dout)),
            ("lse", log_sum_exp(problem, gradients)),
        ];
        let poisoned = |tensor| image(problem, tensor, head_dim, number, |_, _, _| None);
        let place = |tensor| {
            let (side, heads) = side_and_heads(problem, tensor);
            problem.place(tensor, side, heads, head_dim)
        };
        let place_lse = problem.place_lse();
        let query_rows = problem.rows(Side::Query);
        Call {
            inputs: tensors.into_iter().chain(lengths(problem)).collect(),
            outputs: vec![("dq", poisoned(5)), ("dk", poisoned(6)), ("dv", poisoned(7))],
            scratch: true,
            multiprocessors: problem.multiprocessors,
            params: Params::Bwd(BwdParams {
                strides: std::array::from_fn(|tensor| place(tensor).strides),
                lse_strides: [place_lse.strides.batch, place_lse.strides.head],
                batch: problem.sequences.len() as i32,
                num_heads: problem.heads as i32,
                num_heads_k: problem.heads_k as i32,
                seqlen_q: query_rows.bound as i32,
                seqlen_k: problem.rows(Side::Key).bound as i32,
                total_q: if total_q { query_rows.rows as i32 } else { 0 },
                head_dim: head_dim as i32,
                dtype: number.code(),
                causal,
                deterministic,
                softmax_scale: problem.softmax_scale(head_dim),
                features: problem.asked.params(problem.heads),
            }),
        }
    }
}

/// LSE as the forward pass gives it.
fn log_sum_exp(problem: &Problem, gradients: &Gradients) -> Image {
    let place = problem.place_lse();
    let plan = problem.rows(Side::Query);
    let mut image = Image::poisoned(Element::Bits32, place.span, place.origin);
    for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
        for (head, row) in itertools::iproduct!(0..problem.heads, 0..rows) {
            let lse = gradients.query_head(sequence, head).lse[row] as f32;
            image.put(problem.offset(&place, Side::Query, &plan, sequence, row, head), lse.to_bits());
        }
    }
    image
}

/// Compares dQ, dK and dV with the reference. A row that sees no key must be exactly 0, and so must keys that no row
/// sees.
fn compare(
    problem: &Problem,
    head_dim: usize,
    number: Number,
    causal: bool,
    gradients: &Gradients,
    outputs: &Outputs,
) -> Comparison {
    if let Some(&tolerance) = gradients.tolerance.iter().find(|tolerance| !tolerance.is_finite()) {
        return Comparison::impossible("dQ", tolerance);
    }
    let named = [("dQ", "dq"), ("dK", "dk"), ("dV", "dv")];
    let images = named.map(|(output, name)| (output, outputs.get(name)));
    let images = images.map(|(output, image)| match image {
        Some(image) => (output, image),
        None => unreachable!("every backward call has {output}"),
    });
    let tallies: [Tally; 3] = std::array::from_fn(|i| {
        let (side, heads) = side_and_heads(problem, 5 + i);
        let (place, plan) = (problem.place(5 + i, side, heads, head_dim), problem.rows(side));
        let mut tally = Tally::new(images[i].0, gradients.tolerance[i]);
        for (sequence, &(queries, keys)) in problem.sequences.iter().enumerate() {
            let rows = if side == Side::Query { queries } else { keys };
            for (head, row) in itertools::iproduct!(0..heads, 0..rows) {
                let (expected, unseen) = match i {
                    0 => {
                        let seen = if causal { (row + 1 + keys).saturating_sub(queries) } else { keys };
                        (&gradients.query_head(sequence, head).dq, seen == 0)
                    }
                    1 => (&gradients.key_head(sequence, head).dk, queries == 0),
                    _ => (&gradients.key_head(sequence, head).dv, queries == 0),
                };
                let start = problem.offset(&place, side, &plan, sequence, row, head);
                for d in 0..head_dim {
                    let got = f64::from(number.widen(images[i].1.bits(start + d as i64)));
                    tally.see([sequence, head, row, d], got, expected[row * head_dim + d], unseen);
                }
            }
        }
        tally
    });
    Comparison::of(&tallies, &images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::POISON,
        family::attention::exam::problem::{Layout, Lengths},
    };

    const DIM: usize = 16;

    fn case(causal: bool) -> BackwardCase {
        let problem = Problem::new(&[(5, 3), (2, 4), (0, 2)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used);
        let asked = BackwardProblem { problem, deterministic: false, total_q: false };
        BackwardCase { asked, number: Number::Bf16, head_dim: DIM, causal }
    }

    /// The complaint about outputs that hold the rounded reference, after `spoil` has changed them.
    fn complaint(causal: bool, spoil: impl FnOnce(&mut Outputs)) -> Option<String> {
        let case = case(causal);
        let (problem, number) = (&case.asked.problem, case.number);
        let tensors = Tensors::draw(problem, DIM, number, 1);
        let dout = Tensors::draw_output_gradient(problem, DIM, number, 1);
        let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout };
        let gradients = Gradients::compute(problem, inputs, DIM, number, causal);
        let mut outputs = Outputs(case.call(inputs, &gradients).outputs);
        for (i, (_, output)) in outputs.0.iter_mut().enumerate() {
            let (_, heads) = side_and_heads(problem, 5 + i);
            let all: Vec<Vec<f32>> = (0..problem.sequences.len() * heads)
                .map(|at| match i {
                    0 => &gradients.query_head(at / heads, at % heads).dq,
                    1 => &gradients.key_head(at / heads, at % heads).dk,
                    _ => &gradients.key_head(at / heads, at % heads).dv,
                })
                .map(|values| values.iter().map(|&value| value as f32).collect())
                .collect();
            *output =
                image(problem, 5 + i, DIM, number, |sequence, head, row| Some(&all[sequence * heads + head][row * DIM..][..DIM]));
        }
        spoil(&mut outputs);
        compare(problem, DIM, number, causal, &gradients, &outputs).complaint
    }

    fn output<'a>(outputs: &'a mut Outputs, name: &str) -> &'a mut Image {
        outputs.get_mut(name).expect("every call has it")
    }

    #[test]
    fn the_rounded_reference_passes() {
        assert_eq!(complaint(false, |_| {}), None);
        assert_eq!(complaint(true, |_| {}), None);
    }

    #[test]
    fn an_unwritten_element_of_each_gradient_fails() {
        for (name, shown) in [("dq", "dQ: 1 of"), ("dk", "dK: 1 of"), ("dv", "dV: 1 of")] {
            let said = complaint(false, |all| output(all, name).put(0, POISON.into())).expect("it fails");
            assert!(said.contains(shown) && said.contains("1 NaN"), "{said}");
        }
    }

    #[test]
    fn a_row_that_sees_no_key_and_a_key_that_no_row_sees_must_be_exactly_zero() {
        let tiny = Number::Bf16.round(1e-30);
        assert!(complaint(true, |all| output(all, "dq").put(0, tiny)).is_some(), "five queries, three keys");
        let Params::Bwd(BwdParams { strides, .. }) = case(true).draw(1).call.params else { unreachable!("a backward call") };
        for (tensor, name) in [(6, "dk"), (7, "dv")] {
            let offset = 2 * strides[tensor].batch;
            assert!(complaint(false, |all| output(all, name).put(offset, tiny)).is_some(), "no queries, two keys");
        }
    }

    #[test]
    fn an_error_beyond_the_tolerance_fails_and_says_where() {
        let said = complaint(false, |all| {
            let wrong = Number::Bf16.widen(output(all, "dk").bits(5)) + 0.5;
            output(all, "dk").put(5, Number::Bf16.round(wrong));
        });
        assert!(said.expect("it fails").contains("dK: 1 of 144 elements are wrong; first [sequence 0, head 0, row 0, d 5]"));
    }

    #[test]
    fn a_write_to_a_row_that_takes_no_part_fails() {
        let Params::Bwd(BwdParams { strides, .. }) = case(false).draw(1).call.params else { unreachable!("a backward call") };
        let said = complaint(false, |all| output(all, "dv").scribble(3 * strides[7].row, 7));
        assert!(said.expect("it fails").contains("dV: memory that is no part of it was written"));
    }

    #[test]
    fn only_dq_may_differ_and_only_where_nothing_else_is_asked() {
        let deterministic = BackwardCase { asked: BackwardProblem { deterministic: true, ..case(false).asked }, ..case(false) };
        assert_eq!(case(false).draw(1).may_differ, ["dq"]);
        assert!(deterministic.draw(1).may_differ.is_empty());
    }
}
