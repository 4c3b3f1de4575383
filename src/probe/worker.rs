//! The worker's side: runs one probe on the GPU, in a separate process because a kernel may fault or hang.

use super::{Probe, abi::Scalars, catalogue::Kind};
use crate::{
    bench::Draws,
    device::{CardState, DeviceError, DeviceMemory, Gpu, GpuFacts, Nvml, TimingPlan},
    isolate,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    path::PathBuf,
};

/// Request to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Name of the probe.
    pub probe: String,
    /// Shared library that holds its launcher.
    #[serde(with = "crate::files::path::exact")]
    pub library: PathBuf,
    /// Rounds and durations.
    pub plan: TimingPlan,
    /// Seed of the operands.
    pub seed: u64,
    /// The parent's time limit.
    pub time_limit_seconds: f64,
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The readings, one for each round, and the state of the card after them.
    Done { readings: Vec<Reading>, card: CardState },
    /// The reason why there are none.
    Failed(String),
}

/// What was read in one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Time of a launch by device events, microseconds.
    pub microseconds: f64,
    /// Cycles of the loop in a block: the median over the blocks of the last launch. 0 if the kernel has no loop.
    pub cycles: f64,
    /// Nanoseconds of the same loop, by the card's timer.
    pub nanoseconds: f64,
    /// Steps of the loop.
    pub steps: u32,
    /// Blocks of the launch.
    pub blocks: u32,
}

/// Duration of a launch whose steps are chosen by their time, seconds: so long that beginning and end do not count.
const LAUNCH_SECONDS: f64 = 2e-3;

/// Steps of the launch by which the others are chosen.
const FIRST_STEPS: u32 = 64;

/// Most steps of a launch.
const MOST_STEPS: f64 = 1e7;

/// Milliseconds of launches before each round, so that a round begins with a busy card.
const BEFORE_A_ROUND_MS: f64 = 2.0;

/// Bytes of a block's span: cycles and nanoseconds.
const SPAN: usize = 16;

/// Serves one request.
///
/// # Errors
/// A message for the parent's log if the request cannot be read or the answer cannot be written.
pub fn serve(input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    let _watch = isolate::end_when_forgotten(request.time_limit_seconds);
    let answer = match Probe::named(&request.probe) {
        None => Answer::Failed(format!("`{}` is no probe", request.probe)),
        Some(probe) => measure(probe, &request).unwrap_or_else(|error| Answer::Failed(error.to_string())),
    };
    reply.say(&answer).map_err(|e| format!("cannot report: {e}"))
}

fn measure(probe: &Probe, request: &Request) -> Result<Answer, DeviceError> {
    let facts = GpuFacts::probe()?;
    let gpu = Gpu::open(&request.library, &probe.launcher())?;
    let nvml = Nvml::open(&facts.pci_bus_id);
    let mut scalars = probe.launch(&facts);
    let tensors = tensors(probe, scalars, request.seed)?;
    if let Some(preparation) = probe.preparation() {
        let all = Scalars { blocks: facts.multiprocessors, ..scalars };
        Gpu::open(&request.library, &preparation)?.launch(&Gpu::prepare(&all.params(), &tensors))?;
    }
    let plan = &request.plan;
    let graph = probe.kind == Kind::Launch { graph: true };
    let round = |scalars: Scalars, warm_up_ms: f64| -> Result<Reading, DeviceError> {
        let plan = TimingPlan { warm_up_ms, measure_ms: plan.measure_ms / plan.rounds as f64, rounds: 1, graph, counts: None };
        let times = gpu.time(&[Gpu::prepare(&scalars.params(), &tensors)], &plan, None, None)?;
        let microseconds = times.rounds.iter().flat_map(|round| &round.microseconds).copied().next().unwrap_or_default();
        let [cycles, nanoseconds] = read_spans(&tensors, scalars.blocks)?;
        Ok(Reading { microseconds, cycles, nanoseconds, steps: scalars.steps, blocks: scalars.blocks })
    };
    if scalars.steps == 0 {
        scalars.steps = FIRST_STEPS;
        gpu.launch(&Gpu::prepare(&scalars.params(), &tensors))?;
        gpu.launch(&Gpu::prepare(&scalars.params(), &tensors))?;
        let [cycles, _] = read_spans(&tensors, scalars.blocks)?;
        let wanted = LAUNCH_SECONDS * f64::from(facts.sm_clock_khz) * 1e3;
        if cycles > 0.0 {
            scalars.steps = (f64::from(FIRST_STEPS) * wanted / cycles).clamp(1.0, MOST_STEPS) as u32;
        }
    }
    round(scalars, plan.warm_up_ms)?;
    let readings = (0..plan.rounds).map(|_| round(scalars, BEFORE_A_ROUND_MS)).collect::<Result<_, _>>()?;
    Ok(Answer::Done { readings, card: nvml.as_ref().map(Nvml::state).unwrap_or_default() })
}

/// The memory of a probe.
fn tensors(probe: &Probe, scalars: Scalars, seed: u64) -> Result<[(&'static str, DeviceMemory); 3], DeviceError> {
    let memory = if let Some((number, elements)) = probe.operands() {
        DeviceMemory::of(&Draws::new(seed).of(number).tensor(elements, seed))?
    } else {
        let memory = DeviceMemory::allocate(scalars.bytes as usize)?;
        memory.poison()?;
        memory
    };
    // A word for each thread, and eight bytes after them for where a chain ended.
    let kept = DeviceMemory::allocate(probe.threads_of(scalars) * 4 + 4096)?;
    let spans = DeviceMemory::of(&vec![0; scalars.blocks as usize * SPAN])?;
    Ok([("memory", memory), ("kept", kept), ("spans", spans)])
}

/// Medians of cycles and nanoseconds over the blocks of the last launch.
fn read_spans(tensors: &[(&'static str, DeviceMemory)], blocks: u32) -> Result<[f64; 2], DeviceError> {
    let mut bytes = vec![0; blocks as usize * SPAN];
    if let Some((_, spans)) = tensors.iter().find(|(name, _)| *name == "spans") {
        spans.read(&mut bytes)?;
    }
    let number = |span: &[u8], place: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&span[place * 8..place * 8 + 8]);
        i64::from_le_bytes(word) as f64
    };
    let median = |place: usize| crate::bench::median(bytes.chunks_exact(SPAN).map(|span| number(span, place)));
    Ok([0, 1].map(|place| median(place).unwrap_or_default()))
}
