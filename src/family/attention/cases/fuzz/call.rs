//! Makes one call and checks it: the outputs against the reference, refusals against `kgen.h`, and all bytes around the
//! outputs.

use super::{
    case::{Entry, FuzzCase, Merging, Workspace},
    sample,
    scope::Scope,
};
use crate::{
    check::{Comparison, Distance, Drawn, Number, Tally},
    device::{self, Device, DeviceError, Image, Order, Outputs, PATH_PACKED, PATH_SHORT, PATH_SPLIT, Paths, Schedule},
    family::attention::{
        Kind, abi,
        cases::backward::BackwardCase,
        cases::split::counters_for,
        cases::split::what_counters_say,
        features::largest_factor,
        oracle::backward::BackwardProblem,
        oracle::{
            dims::Dims,
            memory_layout::Side,
            page_descales::PageFactors,
            problem::{Lengths, Problem},
            reference::SampledReference,
            tensors::{Source, Tensors},
        },
    },
    kernel,
};
use serde::{Deserialize, Serialize};

/// Result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Kernel kind that the dispatcher tries first.
    pub path: kernel::Kind,
    /// Correct, refused or wrong.
    pub result: CallResult,
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// All outputs were correct.
    Passed {
        /// Largest error relative to the tolerance.
        ratio: f64,
        /// `O`, `LSE`, `dQ`, ...
        output: String,
    },
    /// The library refused the call as `kgen.h` documents.
    Refused {
        /// The code and the reason.
        reason: String,
    },
    /// Something was wrong.
    Failed {
        /// Description.
        message: String,
        /// True if the device is unusable for further calls.
        fatal: bool,
    },
}

impl Outcome {
    /// True if the call failed.
    pub fn is_failure(&self) -> bool {
        matches!(self.result, CallResult::Failed { .. })
    }

    /// True if the device is unusable for further calls.
    pub fn is_fatal(&self) -> bool {
        matches!(self.result, CallResult::Failed { fatal: true, .. })
    }
}

/// An expected refusal, documented in `kgen.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    code: i32,
    reason: &'static str,
}

/// Normally distributed numbers that inputs are copied from.
pub struct Pool(Vec<f32>);

/// Size of the pool, large enough that equal rows are rare.
const POOL: usize = 1 << 17;

impl Pool {
    /// Draws the pool; always the same numbers.
    pub fn draw() -> Self {
        use rand::SeedableRng;
        let mut pool = vec![0.0; POOL];
        crate::check::fill_normal(&mut pool, &mut rand_chacha::ChaCha8Rng::seed_from_u64(0));
        Self(pool)
    }
}

/// Makes the call of a case on the device that its function was opened on, and checks it.
pub fn make(case: &FuzzCase, scope: &Scope, pool: &Pool, device: &mut dyn Device) -> Outcome {
    let outcome = |path: Kind, result| Outcome { path: path.into(), result };
    let failed = |error: &DeviceError| CallResult::Failed { message: error.to_string(), fatal: error.spoils_device() };
    let unknown = case.entry.kind();
    if !scope.holds(case) {
        let message = "the library holds no kernel for it".to_owned();
        return outcome(unknown, CallResult::Failed { message, fatal: false });
    }
    let mut drawn = draw(case, scope, pool);
    let options = match device.workspace_for(&drawn.call) {
        Ok(bytes) => bytes,
        Err(error) => return outcome(unknown, failed(&error)),
    };
    if case.entry == Entry::Bwd && options == 0 && !has_unbounded_queries(case) {
        let message = "kgen_bwd_workspace() gave 0, which says that the call would fail".to_owned();
        return outcome(Kind::Bwd, CallResult::Failed { message, fatal: false });
    }
    let given = match case.workspace {
        Workspace::CallOptions => Some(options),
        // Less than any kernel needs to which the call may come.
        Workspace::Short if case.entry == Entry::Bwd => Some(options.min(4)),
        Workspace::Short => Some(options.saturating_sub(4)),
        Workspace::None => None,
    };
    if let Some(bytes) = given {
        drawn.call.outputs.push(("workspace", Image::scratch(bytes)));
    }
    let paths = match (case.entry, device.paths_for(&drawn.call)) {
        (Entry::Bwd, _) => Paths::default(),
        (Entry::Fwd, Ok(paths)) => paths,
        (Entry::Fwd, Err(error)) => return outcome(unknown, failed(&error)),
    };
    let refusal = refusal(case, scope, &paths);
    let result = run_twice(&drawn, refusal.as_ref(), device, case.seed, case.again).unwrap_or_else(|error| failed(&error));
    outcome(first_kind(case, &paths), result)
}

/// The kernel kind that the dispatcher tries first.
fn first_kind(case: &FuzzCase, paths: &Paths) -> Kind {
    match (case.entry, paths.chosen) {
        (Entry::Bwd, _) => Kind::Bwd,
        (Entry::Fwd, Some(PATH_SHORT)) => Kind::FwdShort,
        (Entry::Fwd, Some(PATH_SPLIT..PATH_PACKED)) => Kind::FwdSplit,
        (Entry::Fwd, _) => Kind::Fwd,
    }
}

/// Runs a call, and repeats it with the order `again` if that is given.
pub(super) fn run_twice(
    drawn: &Drawn,
    refusal: Option<&Refusal>,
    device: &mut dyn Device,
    seed: u64,
    again: Option<Order>,
) -> Result<CallResult, DeviceError> {
    let wrong = |message| Ok(CallResult::Failed { message, fatal: false });
    let outputs = match (device.run(&drawn.call, Schedule::shuffled(seed)), refusal) {
        (Err(DeviceError::Launcher { code, .. }), Some(refusal)) if code == refusal.code => {
            let word = device::code_word(code);
            return Ok(CallResult::Refused { reason: format!("{word}: {}", refusal.reason) });
        }
        (Ok(_), Some(refusal)) => return wrong(format!("it must be refused ({}) and was not", refusal.reason)),
        (launched, _) => launched?,
    };
    let comparison = judge(drawn, &outputs);
    if let Some(complaint) = comparison.complaint {
        return wrong(complaint);
    }
    if let Some(order) = again.filter(|_| device.order_matters()) {
        let again = device.run(&drawn.call, Schedule { seed: !seed, order })?;
        let may_differ = |name: &str| name == "workspace" || drawn.may_differ.contains(&name);
        let differs = outputs.0.iter().zip(&again.0).find(|((name, first), (_, second))| !may_differ(name) && first != second);
        if let Some(((name, _), _)) = differs {
            return wrong(format!("a second run of the same inputs gave other bits in `{name}`: threads race"));
        }
        // Check outputs that differ again, and the bytes around the workspace.
        if let Some(complaint) = (again != outputs).then(|| judge(drawn, &again).complaint).flatten() {
            return wrong(format!("in a second run: {complaint}"));
        }
    }
    let Distance { output, .. } = comparison.worst;
    Ok(CallResult::Passed { ratio: comparison.worst.ratio(), output: output.to_owned() })
}

/// The outputs, and the bytes around the workspace.
fn judge(drawn: &Drawn, outputs: &Outputs) -> Comparison {
    let mut comparison = (drawn.judge)(outputs);
    let beyond = outputs.get("workspace").and_then(Image::first_damage);
    if let (Some(offset), None) = (beyond, &comparison.complaint) {
        comparison.complaint = Some(format!("memory outside of the workspace was written, first at element {offset} of 4 bytes"));
    }
    comparison
}

/// True if the number of query rows is unknown: with `cu_seqlens_q` and `seqused_q`, only `total_q` gives it.
fn has_unbounded_queries(case: &FuzzCase) -> bool {
    case.problem.lengths == Lengths::PackedUsed && !case.totals
}

/// The refusal of tensors that no kernel of the library can read.
const NO_TMA: Refusal = Refusal {
    code: device::ERROR_UNSUPPORTED,
    reason: "TMA cannot read tensors that lie so, and the library holds no other kernel",
};

/// Refusals documented in `kgen.h`.
fn refusal(case: &FuzzCase, scope: &Scope, paths: &Paths) -> Option<Refusal> {
    let problem = &case.problem;
    let has_queries = problem.rows(Side::Query).bound > 0;
    match case.entry {
        Entry::Bwd => {
            let reason = match case.workspace {
                _ if has_unbounded_queries(case) => {
                    return Some(Refusal { code: device::ERROR_INVALID_VALUE, reason: "total_q is not given and must be" });
                }
                Workspace::CallOptions if scope.has_kernel_without_tma(case) => return None,
                Workspace::CallOptions => {
                    let refused = backward_problem(case).what_tma_refuses(case.head_dim.into(), Number::of(case.dtype));
                    return refused.map(|_| NO_TMA);
                }
                Workspace::None => "the backward pass has no workspace",
                Workspace::Short => "the backward pass has too little workspace",
            };
            has_queries.then_some(Refusal { code: device::ERROR_INVALID_VALUE, reason })
        }
        // Split-KV kernels accept any tensor layout, except those for `qv`.
        Entry::Fwd if !problem.options.qv && paths.able.iter().any(|path| (PATH_SPLIT..PATH_PACKED).contains(path)) => None,
        Entry::Fwd if scope.has_kernel_without_tma(case) => None,
        Entry::Fwd => problem.what_tma_refuses_if(case.head_dim, Number::of(case.dtype), case.totals).map(|_| NO_TMA),
    }
}

/// The call's tensors and their check.
fn draw(case: &FuzzCase, scope: &Scope, pool: &Pool) -> Drawn {
    let (problem, number, head_dim) = (&case.problem, Number::of(case.dtype), Dims::from(case.head_dim));
    let tensors = Tensors::draw_from(problem, head_dim, number, &mut Source::from_pool(case.seed, &pool.0));
    match case.entry {
        Entry::Fwd => draw_forward(case, scope, tensors),
        Entry::Bwd => {
            let source = &mut Source::from_pool(!case.seed, &pool.0);
            let dout = Tensors::draw_output_gradient_from(problem, head_dim, number, source);
            let options = backward_problem(case);
            let mut drawn =
                BackwardCase { options, number, head_dim, causal: case.causal, needs_tma: false }.with(&tensors, &dout, source);
            drawn.call.scratch = false;
            drawn
        }
    }
}

/// The problem of a backward case.
fn backward_problem(case: &FuzzCase) -> BackwardProblem {
    let of_pass = if case.deterministic { BackwardProblem::deterministic } else { BackwardProblem::plain };
    BackwardProblem { total_q: case.totals, lse_gradient: case.dlse, ..of_pass(case.problem.clone()) }
}

fn draw_forward(case: &FuzzCase, scope: &Scope, tensors: Tensors) -> Drawn {
    let FuzzCase { head_dim, causal, .. } = *case;
    let (problem, head_dim) = (case.problem.clone(), Dims::from(head_dim));
    let arithmetic = scope.arithmetic(case);
    let mut call = tensors.call(&problem, head_dim, arithmetic.number, causal);
    let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
    params.num_splits = case.splits as i32;
    params.merging = case.merging.flags();
    let counters = match case.merging {
        Merging::Free => 0,
        Merging::OneCounter => 1,
        Merging::Counted | Merging::Launch | Merging::LastBlock => counters_for(&problem),
    };
    params.arrivals = counters as i64;
    if !case.totals {
        params.total_rows = [0, 0];
    }
    if counters > 0 {
        call.outputs.push(("arrivals", Image::of_integers(&vec![0; counters])));
    }
    let samples = sample::draw(&problem, head_dim, arithmetic, case.seed);
    let judge = move |outputs: &Outputs| {
        let reference = SampledReference::compute(&problem, &tensors, head_dim, arithmetic, causal, samples.clone());
        let mut comparison = compare(&problem, &tensors, head_dim.v, arithmetic.number, causal, &reference, outputs);
        comparison.complaint = comparison.complaint.or_else(|| what_counters_say(outputs));
        if let (None, Some(appended)) = (&comparison.complaint, &tensors.appended) {
            comparison.complaint = appended.judge(&tensors, &problem, head_dim, arithmetic.number, outputs).complaint;
        }
        comparison
    };
    Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
}

/// |O| cannot exceed the largest element of V, times the factor on kept weights, by more than the rounding error of P
/// and, in FP8, of O's separate sum.
const BEYOND_V: f64 = 1.125;

/// Compares the sampled rows of O and LSE with the reference. Of the other rows, those that see no key must be exactly
/// 0, and the rest must be possible averages of V.
fn compare(
    problem: &Problem,
    tensors: &Tensors,
    head_dim_v: usize,
    number: Number,
    causal: bool,
    reference: &SampledReference,
    outputs: &Outputs,
) -> Comparison {
    let tolerance = reference.tolerance;
    if !(tolerance.o.is_finite() && tolerance.lse.is_finite()) {
        return Comparison::impossible("O", tolerance.o);
    }
    let (Some(image_o), image_lse) = (outputs.get("o"), outputs.get("lse")) else { unreachable!("every forward call has O") };
    let (mut o, mut lse) = (Tally::new("O", tolerance.o), Tally::new("LSE", tolerance.lse));
    let plan = problem.rows(Side::Query);
    let (place_o, place_lse) = (problem.place(3, Side::Query, problem.heads, head_dim_v), problem.place_lse());
    let group = problem.heads / problem.heads_k;
    let has_factors = problem.options.pages.is_some_and(|pages| pages.descales.is_some());
    let by_page = if has_factors { PageFactors::LARGEST } else { 1.0 };
    let kept = largest_factor(&problem.options);
    let mut references = reference.heads.iter().peekable();
    for (sequence, &(rows, _)) in problem.sequences.iter().enumerate() {
        for head in 0..problem.heads {
            let mask = problem.mask(causal, sequence, head);
            let sink = problem.options.sink(head);
            let sampled = references.next_if(|(sample, _)| (sample.sequence, sample.head) == (sequence, head));
            let largest = tensors.v.head(sequence, head / group).iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
            let bound = BEYOND_V * kept * f64::from(largest * by_page) * f64::from(problem.factors(sequence, head / group)[2]);
            for row in 0..rows {
                let masked = mask.keys(row).is_empty();
                let known =
                    sampled.filter(|(sample, _)| masked || sample.rows.binary_search(&row).is_ok()).map(|(_, known)| known);
                let start = problem.offset(&place_o, Side::Query, &plan, sequence, row, head);
                for d in 0..head_dim_v {
                    let got = f64::from(number.of_output().widen(image_o.bits(start + d as i64)));
                    let expected = match known {
                        _ if masked => 0.0,
                        Some(known) => known.o[row * head_dim_v + d],
                        None if got.abs() <= bound => got,
                        None => bound,
                    };
                    o.see([sequence, head, row, d], got, expected, masked || (known.is_none() && got.abs() > bound));
                }
                if let Some(image) = image_lse {
                    let offset = problem.offset(&place_lse, Side::Query, &plan, sequence, row, head);
                    let got = f64::from(f32::from_bits(image.bits(offset)));
                    let expected = match known {
                        _ if masked => sink.unwrap_or(f64::NEG_INFINITY),
                        Some(known) => known.lse[row],
                        None if got.is_finite() => got,
                        None => 0.0,
                    };
                    lse.see([sequence, head, row, 0], got, expected, masked && sink.is_none());
                }
            }
        }
    }
    let images = [("O", Some(image_o)), ("LSE", image_lse)];
    let images: Vec<_> = images.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
    Comparison::of(&[o, lse], &images)
}
