//! Backward attention: its cases, each with the reference gradients.

use super::{feature_cases_backward, lists};
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Subject, Tally},
    device::{Call, Element, Image, Outputs, Params},
    family::attention::{
        self, Mask, Point,
        abi::BwdParams,
        features::{AdditionGradient, Additions, addition_gradients},
        oracle::{
            backward::BackwardProblem,
            dims::Dims,
            gradients::{Gradients, Inputs},
            memory_layout::{Placement, Side},
            problem::Problem,
            tensors::{Source, Tensors, Values, image, lengths, options, side_and_heads},
        },
    },
};
use std::iter;

/// A problem for a variant.
#[derive(Debug)]
pub(super) struct BackwardCase {
    pub options: BackwardProblem,
    pub number: Number,
    pub head_dim: Dims,
    pub causal: bool,
    /// True if the kernel fetches by TMA only.
    pub needs_tma: bool,
}

/// The cases of a backward variant.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let Point { head_dim, dtype, causal, .. } = subject.variant;
    let number = Number::of(dtype);
    let needs_tma = attention::needs_tma(subject.variant);
    let case = |options: BackwardProblem| {
        let options = BackwardProblem { problem: options.problem.for_kernel(subject.variant), ..options };
        BackwardCase { options, number, head_dim: head_dim.into(), causal, needs_tma }
    };
    let problems = lists::backward(subject, level).into_iter().chain(feature_cases_backward::cases(subject, level));
    let mut problems: Vec<BackwardProblem> = problems.collect();
    if needs_tma {
        // Without totals the launcher only refuses them: once for each kind of lengths is enough.
        let mut refused: Vec<BackwardProblem> = Vec::new();
        for options in &mut problems {
            let lengths = options.problem.lengths;
            if options.lacks_totals() && !refused.iter().any(|earlier| earlier.problem.lengths == lengths) {
                refused.push(options.clone());
            }
            options.total_q = true;
        }
        problems.extend(refused);
    }
    problems.into_iter().map(|options| Box::new(case(options)) as Box<dyn Case>).collect()
}

impl Case for BackwardCase {
    fn name(&self) -> String {
        self.options.name(self.causal)
    }

    fn refusal(&self) -> Option<String> {
        if self.needs_tma { self.options.what_tma_refuses(self.head_dim, self.number) } else { None }
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { options: BackwardProblem { problem, .. }, number, head_dim, .. } = self;
        let tensors = Tensors::draw(problem, *head_dim, *number, seed);
        let dout = Tensors::draw_output_gradient(problem, *head_dim, *number, seed);
        self.with(&tensors, &dout, &mut Source::new(seed.wrapping_add(1)))
    }
}

impl BackwardCase {
    /// The case with these inputs. If dLSE is passed, it comes from `source`.
    pub(super) fn with(&self, Tensors { q, k, v, .. }: &Tensors, dout: &Values, source: &mut Source<'_>) -> Drawn {
        let Self { ref options, number, head_dim, causal, .. } = *self;
        let problem = options.problem.clone();
        let dlse = options.lse_gradient.then(|| Tensors::draw_lse_gradient_from(&problem, source));
        let inputs = Inputs { q, k, v, dout, dlse: dlse.as_ref() };
        let gradients = Gradients::compute(&problem, inputs, head_dim, number, causal);
        let call = self.call(inputs, &gradients);
        let judge = move |outputs: &Outputs| compare(&problem, head_dim, number, causal, &gradients, outputs);
        // Blocks add to dQ in no fixed order.
        let requested = options.requested_addition_gradients();
        let summed = requested.iter().filter(|gradient| gradient.places.is_repeated()).map(|gradient| gradient.tensor);
        let may_differ = if options.deterministic { Vec::new() } else { iter::once("dq").chain(summed).collect() };
        Drawn { call, judge: Box::new(judge), may_differ }
    }

    /// Lays out the tensors of the problem: inputs and outputs of the forward pass, and poisoned gradients.
    fn call(&self, inputs: Inputs<'_>, gradients: &Gradients) -> Call {
        let Self { options: BackwardProblem { ref problem, deterministic, total_q, .. }, number, head_dim, causal, .. } = *self;
        let given = |tensor, values: &Values| {
            image(problem, tensor, head_dim, number, |sequence, head, row| Some(values.row(sequence, head, row)))
        };
        let outputs: Vec<Vec<f32>> = (0..problem.sequences.len() * problem.heads)
            .map(|i| gradients.query_head(i / problem.heads, i % problem.heads).o.iter().map(|&o| o as f32).collect())
            .collect();
        let o = image(problem, 3, head_dim, number, |sequence, head, row| {
            Some(&outputs[sequence * problem.heads + head][row * head_dim.v..][..head_dim.v])
        });
        let lse_of = |sequence, head, row: usize| gradients.query_head(sequence, head).lse[row];
        let tensors = [
            ("q", given(0, inputs.q)),
            ("k", given(1, inputs.k)),
            ("v", given(2, inputs.v)),
            ("o", o),
            ("dout", given(4, inputs.dout)),
            ("lse", of_rows(problem, &problem.place_lse(), |sequence, head, row| lse_of(sequence, head, row) as f32)),
        ];
        // The O of a row with an LSE of -∞ is not used.
        let dlse = inputs.dlse.map(|dlse| {
            let number = |sequence, head, row| {
                if lse_of(sequence, head, row) == f64::NEG_INFINITY { f32::NAN } else { dlse.row(sequence, head, row)[0] }
            };
            ("dlse", of_rows(problem, &problem.place_dlse(), number))
        });
        let poisoned = |tensor| image(problem, tensor, head_dim, number, |_, _, _| None);
        let place = |tensor| {
            let (side, heads) = side_and_heads(problem, tensor);
            problem.place(tensor, side, heads, head_dim.of(tensor))
        };
        let [lse_strides, dlse_strides] =
            [problem.place_lse(), problem.place_dlse()].map(|place| [place.strides.batch, place.strides.head]);
        let query_rows = problem.rows(Side::Query);
        let sink_gradient = self.options.has_sink_gradient().then(|| {
            let mut image = Image::poisoned(Element::Bits32, problem.heads, 0);
            (0..problem.heads).for_each(|head| _ = image.mark(head as i64));
            ("dsinks", image)
        });
        let additions = self.options.requested_addition_gradients();
        let mut features = problem.feature_params(number);
        features.put_all(additions.iter().flat_map(|gradient| gradient.numbers));
        let addition_gradients = additions.iter().map(|gradient| {
            let places: Vec<i64> = gradient.places.all_places(problem).map(|place| gradient.places.offset(place)).collect();
            let span = places.iter().map(|&offset| offset as usize + 1).max().unwrap_or(0);
            let mut image = Image::poisoned(Element::Bits32, span, 0);
            for offset in places {
                image.mark(offset);
            }
            (gradient.tensor, image)
        });
        let outputs = [("dq", poisoned(5)), ("dk", poisoned(6)), ("dv", poisoned(7))];
        Call {
            inputs: tensors.into_iter().chain(dlse).chain(lengths(problem)).chain(options(problem, number)).collect(),
            outputs: outputs.into_iter().chain(sink_gradient).chain(addition_gradients).collect(),
            scratch: true,
            multiprocessors: problem.multiprocessors,
            params: Params::of(BwdParams {
                strides: std::array::from_fn(|tensor| place(tensor).strides),
                lse_strides,
                dlse_strides,
                batch: problem.sequences.len() as i32,
                num_heads: problem.heads as i32,
                num_heads_k: problem.heads_k as i32,
                seqlen_q: query_rows.bound as i32,
                seqlen_k: problem.rows(Side::Key).bound as i32,
                total_q: if total_q { query_rows.rows as i32 } else { 0 },
                total_k: if total_q { problem.rows(Side::Key).rows as i32 } else { 0 },
                head_dim: head_dim.qk as i32,
                head_dim_v: head_dim.v as i32,
                dtype: number.code(),
                causal,
                deterministic,
                softmax_scale: problem.softmax_scale(head_dim.qk),
                features,
            }),
        }
    }
}

/// One number per row and query head, like LSE.
fn of_rows(problem: &Problem, place: &Placement, number: impl Fn(usize, usize, usize) -> f32) -> Image {
    let plan = problem.rows(Side::Query);
    let mut image = Image::poisoned(Element::Bits32, place.span, place.origin);
    for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
        for (head, row) in itertools::iproduct!(0..problem.heads, 0..rows) {
            let offset = problem.offset(place, Side::Query, &plan, sequence, row, head);
            image.put(offset, number(sequence, head, row).to_bits());
        }
    }
    image
}

/// Compares dQ, dK and dV, and the gradient of sinks if requested, with the reference. Gradients of rows that see no
/// key, and of keys that no row sees, must be exactly 0.
fn compare(
    problem: &Problem,
    head_dim: Dims,
    number: Number,
    causal: bool,
    gradients: &Gradients,
    outputs: &Outputs,
) -> Comparison {
    let mut tolerances = gradients.tolerance.iter().chain([&gradients.sink_tolerance]);
    if let Some(&tolerance) = tolerances.find(|tolerance| !tolerance.is_finite()) {
        return Comparison::impossible("dQ", tolerance);
    }
    let named = [("dQ", "dq"), ("dK", "dk"), ("dV", "dv")];
    let images = named.map(|(output, name)| (output, outputs.get(name)));
    let mut images: Vec<_> = images
        .into_iter()
        .map(|(output, image)| match image {
            Some(image) => (output, image),
            None => unreachable!("every backward call has {output}"),
        })
        .collect();
    let mut tallies: Vec<Tally> = (0..3).map(|i| Tally::new(images[i].0, gradients.tolerance[i])).collect();
    for (i, tally) in tallies.iter_mut().enumerate() {
        let (side, heads) = side_and_heads(problem, 5 + i);
        let head_dim = head_dim.of(5 + i);
        let (place, plan) = (problem.place(5 + i, side, heads, head_dim), problem.rows(side));
        for sequence in 0..problem.sequences.len() {
            let all_alike = !differs_between_heads(problem);
            let parts: Vec<Vec<bool>> =
                (0..if all_alike { 1 } else { heads }).map(|head| taking_part(problem, causal, sequence, side, head)).collect();
            for (head, row) in itertools::iproduct!(0..heads, 0..parts[0].len()) {
                let takes_part = parts[if all_alike { 0 } else { head }][row];
                let expected = match i {
                    0 => &gradients.query_head(sequence, head).dq,
                    1 => &gradients.key_head(sequence, head).dk,
                    _ => &gradients.key_head(sequence, head).dv,
                };
                let start = problem.offset(&place, side, &plan, sequence, row, head);
                for d in 0..head_dim {
                    let got = f64::from(number.widen(images[i].1.bits(start + d as i64)));
                    tally.see([sequence, head, row, d], got, expected[row * head_dim + d], !takes_part);
                }
            }
        }
    }
    if let Some(image) = outputs.get("dsinks") {
        let mut tally = Tally::new("dsinks", gradients.sink_tolerance);
        for (head, &expected) in gradients.sinks.iter().enumerate() {
            tally.see([0, head, 0, 0], f64::from(f32::from_bits(image.bits(head as i64))), expected, false);
        }
        tallies.push(tally);
        images.push(("dsinks", image));
    }
    for (AdditionGradient { tensor, places, .. }, expected) in addition_gradients(problem).iter().zip(&gradients.additions) {
        let Some(image) = outputs.get(tensor) else { continue };
        let mut tally = Tally::new(tensor, expected.tolerance);
        for place in places.all_places(problem) {
            let got = f64::from(f32::from_bits(image.bits(places.offset(place))));
            let expected = expected.elements.get(&place).copied();
            tally.see(place, got, expected.unwrap_or(0.0), expected.is_none());
        }
        tallies.push(tally);
        images.push((tensor, image));
    }
    Comparison::of(&tallies, &images)
}

/// True if masks may differ between the heads of a sequence: only declared masks and additions to scores do.
fn differs_between_heads(problem: &Problem) -> bool {
    problem.options.declared.is_some() || Additions::of(problem.call_head(0, 0)).is_some()
}

/// True if each query of a query head sees a key, or each key of a key head is seen by a query.
fn taking_part(problem: &Problem, causal: bool, sequence: usize, side: Side, head: usize) -> Vec<bool> {
    let (queries, keys) = problem.sequences[sequence];
    if side == Side::Query {
        let mask = problem.mask(causal, sequence, head);
        return (0..queries).map(|row| !mask.keys(row).is_empty()).collect();
    }
    let group = problem.heads / problem.heads_k;
    if differs_between_heads(problem) {
        let masks: Vec<Mask> = (head * group..(head + 1) * group).map(|head| problem.mask(causal, sequence, head)).collect();
        return (0..keys).map(|key| masks.iter().any(|mask| (0..queries).any(|row| mask.sees(row, key)))).collect();
    }
    let mask = problem.mask(causal, sequence, head * group);
    // Only the ends of ranges are recorded, so that the cost per row does not grow with the sequence.
    let mut change = vec![0_i64; keys + 1];
    for seen in (0..queries).map(|row| mask.keys(row)).filter(|seen| !seen.is_empty()) {
        change[seen.start] += 1;
        change[seen.end] -= 1;
    }
    let depth = change.iter().take(keys).scan(0, |depth, change| {
        *depth += change;
        Some(*depth > 0)
    });
    depth.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::POISON,
        family::attention::{
            CallOptions, SinkType, features,
            oracle::problem::{Layout, Lengths},
        },
    };

    const DIM: usize = 16;

    fn case(causal: bool) -> BackwardCase {
        let problem = Problem::new(&[(5, 3), (2, 4), (0, 2)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used);
        let problem = problem.asking(features::sunk(SinkType::Fp32));
        BackwardCase {
            options: BackwardProblem::plain(problem),
            number: Number::Bf16,
            head_dim: DIM.into(),
            causal,
            needs_tma: false,
        }
    }

    /// The error message for outputs that contain the rounded reference, modified by `spoil`.
    fn complaint(causal: bool, spoil: impl FnOnce(&mut Outputs)) -> Option<String> {
        let case = case(causal);
        let (problem, number) = (&case.options.problem, case.number);
        let tensors = Tensors::draw(problem, DIM, number, 1);
        let dout = Tensors::draw_output_gradient(problem, DIM, number, 1);
        let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout, dlse: None };
        let gradients = Gradients::compute(problem, inputs, DIM, number, causal);
        let mut outputs = Outputs(case.call(inputs, &gradients).outputs);
        for (i, (_, output)) in outputs.0.iter_mut().take(3).enumerate() {
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
        if let Some(image) = outputs.get_mut("dsinks") {
            gradients.sinks.iter().enumerate().for_each(|(head, &sink)| image.put(head as i64, (sink as f32).to_bits()));
        }
        spoil(&mut outputs);
        compare(problem, DIM.into(), number, causal, &gradients, &outputs).complaint
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
        let BwdParams { strides, .. } = *case(true).draw(1).call.params.get().expect("a backward call");
        for (tensor, name) in [(6, "dk"), (7, "dv")] {
            let offset = 2 * strides[tensor].batch;
            assert!(complaint(false, |all| output(all, name).put(offset, tiny)).is_some(), "no queries, two keys");
        }
    }

    #[test]
    fn a_wrong_gradient_of_a_sink_fails_and_so_does_one_that_is_not_written() {
        let said = complaint(false, |all| {
            let wrong = f32::from_bits(output(all, "dsinks").bits(1)) + 0.5;
            output(all, "dsinks").put(1, wrong.to_bits());
        });
        assert!(said.expect("it fails").contains("dsinks: 1 of 2 elements are wrong; first [sequence 0, head 1"));
        let said = complaint(false, |all| output(all, "dsinks").put(0, f32::NAN.to_bits()));
        assert!(said.expect("it fails").contains("1 NaN"));
    }

    #[test]
    fn a_query_takes_part_if_it_sees_a_key_and_a_key_if_a_query_sees_it() {
        let problem =
            Problem::new(&[(5, 3), (1, 4)], 1, 1).asking(CallOptions { window: Some([1, 0]), ..CallOptions::default() });
        assert_eq!(taking_part(&problem, false, 0, Side::Query, 0), [false, false, true, true, true]);
        assert_eq!(taking_part(&problem, false, 0, Side::Key, 0), [true; 3]);
        assert_eq!(taking_part(&problem, false, 1, Side::Key, 0), [false, false, true, true]);
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
        let BwdParams { strides, .. } = *case(false).draw(1).call.params.get().expect("a backward call");
        let said = complaint(false, |all| output(all, "dv").scribble(3 * strides[7].row, 7));
        assert!(said.expect("it fails").contains("dV: memory that is no part of it was written"));
    }

    #[test]
    fn the_gradient_of_lse_has_strides_of_its_own_and_is_nothing_beside_an_lse_of_minus_infinity() {
        let problem = Problem::new(&[(5, 3), (2, 4)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used);
        let options = BackwardProblem::plain(problem).with_lse_gradient();
        let drawn = BackwardCase { options, ..case(true) }.draw(1);
        let BwdParams { dlse_strides, lse_strides, .. } = *drawn.call.params.get().expect("a backward call");
        assert_ne!(dlse_strides, lse_strides);
        let dlse = &drawn.call.inputs.iter().find(|(name, _)| *name == "dlse").expect("it is given").1;
        let number =
            |batch: i64, head: i64, row| f32::from_bits(dlse.bits(batch * dlse_strides[0] + head * dlse_strides[1] + row));
        assert!(number(0, 1, 0).is_nan() && number(0, 1, 1).is_nan(), "five queries, three keys");
        assert!((2..5).all(|row| number(0, 1, row).is_finite()) && number(1, 0, 1).is_finite());
    }

    #[test]
    fn only_dq_may_differ_and_only_where_nothing_else_is_asked() {
        let deterministic =
            BackwardCase { options: BackwardProblem { deterministic: true, ..case(false).options }, ..case(false) };
        assert_eq!(case(false).draw(1).may_differ, ["dq"]);
        assert!(deterministic.draw(1).may_differ.is_empty());
    }
}
