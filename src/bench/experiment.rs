//! One kernel at one shape on the GPU: checks its results, times it, and checks again.

use super::{
    Status,
    trial::{Output, Trial},
};
use crate::device::{DeviceError, DeviceMemory, Gpu, Launch, Nvml, RoundTimes, TimingPlan, Turns};

/// Reasons for a missing time.
#[derive(Debug)]
pub enum Failure {
    /// The kernel computes wrong results, or faults.
    Wrong(String),
    /// The launcher refuses the call.
    Refused(String),
    /// The machine could not run the experiment.
    Machine(String),
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Launcher { .. } => Self::Refused(error.to_string()),
            _ if error.blames_kernel() => Self::Wrong(error.to_string()),
            _ => Self::Machine(error.to_string()),
        }
    }
}

impl From<Failure> for (Status, String) {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Wrong(message) => (Status::Wrong, message),
            Failure::Refused(message) => (Status::Refused, message),
            Failure::Machine(message) => (Status::Error, message),
        }
    }
}

/// The result of an experiment.
pub struct Finding {
    /// Times, and the state of the card while they were taken.
    pub times: RoundTimes,
    /// Largest relative error among the sampled rows of all outputs.
    pub relative_error: f64,
    /// Number of splits of a split-KV kernel.
    pub num_splits: Option<u32>,
    /// The arguments passed to a declared score, if the kernel has one.
    pub passed: Option<String>,
    /// K and V were read from memory rather than from a warm L2.
    pub cold_l2: bool,
    /// The repeated unit was a CUDA graph.
    pub graph: bool,
    /// Bytes of all tensors and workspaces on the device.
    pub memory_bytes: Option<u64>,
}

/// Tensors of one set on the device, by their names in `kgen.h`.
type Tensors = Vec<(&'static str, DeviceMemory)>;

/// Runs the kernel on the tensors of `trial`, with enough sets to keep an L2 of `l2_bytes` cold if the trial times it
/// cold; with `turns`, a round at a time.
///
/// # Errors
/// [`Failure`].
pub fn run(
    gpu: &Gpu,
    trial: &dyn Trial,
    l2_bytes: u32,
    plan: &TimingPlan,
    nvml: Option<&Nvml>,
    mut turns: Option<&mut dyn Turns>,
) -> Result<Finding, Failure> {
    let params = trial.params();
    let outputs = trial.outputs(if trial.has_workspace() { gpu.workspace_bytes(&params)? } else { 0 });
    let host = trial.inputs(0);
    let mut sets = vec![on_device(&host, &outputs)?];
    for copy in 1..trial.copies(l2_bytes) {
        sets.push(on_device(&trial.inputs(copy), &outputs)?);
    }
    let launches: Vec<Launch<'_>> = sets.iter().map(|set| Gpu::prepare(&params, set)).collect();
    let poison = || sets.iter().flat_map(|set| written(set, &outputs)).try_for_each(DeviceMemory::poison);
    let read = || written(&sets[0], &outputs).map(bytes_of).collect::<Result<Vec<_>, _>>();
    let judge = |when: &str, bytes: &[Vec<u8>]| {
        trial.judge(&host, &outputs, bytes).map_err(|error| Failure::Wrong(format!("{when} timing: {error}")))
    };

    poison()?;
    gpu.launch(&launches[0])?;
    let before = read()?;
    let relative_error = judge("before", &before)?;
    if let Some(turns) = turns.as_deref_mut()
        && !turns.loaded()
    {
        return Err(Failure::Machine("the timing ended before it began".to_owned()));
    }
    // The outputs are poisoned first, so that any numbers found afterwards were written by timed launches.
    poison()?;
    let times = gpu.time(&launches, plan, nvml, turns)?;
    let after = read()?;
    judge("after", &after)?;
    for (output, (before, after)) in outputs.iter().zip(before.iter().zip(&after)) {
        if !output.may_differ && before != after {
            return Err(Failure::Wrong(format!("`{}` has other bits after timing than before: threads race", output.name)));
        }
    }
    let num_splits = trial.splits();
    let cold_l2 = trial.is_cold(sets.len(), l2_bytes);
    let bytes = sets.iter().flatten().map(|(_, memory)| memory.bytes() as u64).sum();
    let (graph, memory_bytes) = (plan.graph, Some(bytes));
    Ok(Finding { times, relative_error, num_splits, passed: trial.passed(), cold_l2, graph, memory_bytes })
}

/// Launches the kernel once on the tensors of `trial`, without timing it; returns the relative error of its results.
///
/// # Errors
/// [`Failure`].
pub fn once(gpu: &Gpu, trial: &dyn Trial) -> Result<f64, Failure> {
    let params = trial.params();
    let outputs = trial.outputs(if trial.has_workspace() { gpu.workspace_bytes(&params)? } else { 0 });
    let host = trial.inputs(0);
    let set = on_device(&host, &outputs)?;
    written(&set, &outputs).try_for_each(DeviceMemory::poison)?;
    gpu.launch(&Gpu::prepare(&params, &set))?;
    let results = written(&set, &outputs).map(bytes_of).collect::<Result<Vec<_>, _>>()?;
    trial.judge(&host, &outputs, &results).map_err(Failure::Wrong)
}

/// A copy of the inputs, followed by space for the outputs.
fn on_device(inputs: &[(&'static str, Vec<u8>)], outputs: &[Output]) -> Result<Tensors, DeviceError> {
    let given = inputs.iter().map(|(name, bytes)| Ok((*name, DeviceMemory::of(bytes)?)));
    given.chain(outputs.iter().map(|output| Ok((output.name, DeviceMemory::allocate(output.bytes)?)))).collect()
}

/// The outputs of a set, in order.
fn written<'a>(set: &'a Tensors, outputs: &[Output]) -> impl Iterator<Item = &'a DeviceMemory> {
    set.iter().skip(set.len() - outputs.len()).map(|(_, memory)| memory)
}

fn bytes_of(memory: &DeviceMemory) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; memory.bytes()];
    memory.read(&mut bytes).map(|()| bytes)
}
