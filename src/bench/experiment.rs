//! One kernel at one shape on the GPU: checks what it computes, times it, and checks again.

use super::trial::{Output, Trial};
use crate::device::{DeviceError, DeviceMemory, Gpu, Launch, Nvml, RoundTimes, TimingPlan};

/// Why there is no time.
#[derive(Debug)]
pub enum Failure {
    /// The kernel computes something else, or refuses, or faults.
    Wrong(String),
    /// The machine did not let it run.
    Machine(String),
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        if error.blames_kernel() { Self::Wrong(error.to_string()) } else { Self::Machine(error.to_string()) }
    }
}

/// What was measured.
pub struct Finding {
    /// Times and the card meanwhile.
    pub times: RoundTimes,
    /// Largest relative error of a sampled row, over all outputs.
    pub relative_error: f64,
    /// Splits of the keys, where they are split.
    pub num_splits: Option<u32>,
    /// What the launches passed to a declared score, where there is one.
    pub passed: Option<String>,
    /// Whether K and V came from memory rather than from a warm L2.
    pub cold_l2: bool,
}

/// Tensors of one set on the device, by their names in `kgen.h`.
type Tensors = Vec<(&'static str, DeviceMemory)>;

/// Runs the kernel on the tensors of `trial`, of as many sets as keep an L2 of `l2_bytes` cold where it is to be.
///
/// # Errors
/// [`Failure`].
pub fn run(gpu: &Gpu, trial: &dyn Trial, l2_bytes: u32, plan: &TimingPlan, nvml: Option<&Nvml>) -> Result<Finding, Failure> {
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
    // What is found afterwards was then written by launches that were timed.
    poison()?;
    let times = gpu.time(&launches, plan, nvml)?;
    let after = read()?;
    judge("after", &after)?;
    for (output, (before, after)) in outputs.iter().zip(before.iter().zip(&after)) {
        if !output.may_differ && before != after {
            return Err(Failure::Wrong(format!("`{}` has other bits after timing than before: threads race", output.name)));
        }
    }
    let num_splits = trial.splits();
    let cold_l2 = trial.is_cold(sets.len(), l2_bytes);
    Ok(Finding { times, relative_error, num_splits, passed: trial.passed(), cold_l2 })
}

/// A copy of the inputs, and room for the outputs after them.
fn on_device(inputs: &[(&'static str, Vec<u8>)], outputs: &[Output]) -> Result<Tensors, DeviceError> {
    let given = inputs.iter().map(|(name, bytes)| Ok((*name, DeviceMemory::of(bytes)?)));
    given.chain(outputs.iter().map(|output| Ok((output.name, DeviceMemory::allocate(output.bytes)?)))).collect()
}

/// The outputs of a set, in their order.
fn written<'a>(set: &'a Tensors, outputs: &[Output]) -> impl Iterator<Item = &'a DeviceMemory> {
    set.iter().skip(set.len() - outputs.len()).map(|(_, memory)| memory)
}

fn bytes_of(memory: &DeviceMemory) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; memory.bytes()];
    memory.read(&mut bytes).map(|()| bytes)
}
