//! Devices that run kernels: the GPU of this machine, or the emulator, which implements every instruction's documented
//! meaning in plain C++. Both call the launcher of `kgen.h`, so the code that is checked is the code that ships.
//! Independent of test cases, references and terminals. Apart from `toolchain/process`, the only module with `unsafe`
//! code.

mod abi;
mod cache_dir;
mod call;
mod dispatcher;
mod emulator;
mod emulator_kit;
mod emulator_library;
mod gpu;
mod image;
mod library;
mod memory;
mod nvml;
mod schedule;
mod stopwatch;
#[cfg(test)]
mod test_kit;

#[cfg(test)]
pub(crate) use abi::assert_constants_are_those_of_c;
pub(crate) use abi::code_word;
pub use abi::{
    DTYPE_BF16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP16, DTYPE_FP32, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED,
    Field, Fields, Header, Layout, PATH_PACKED, PATH_SHORT, PATH_SPLIT, Parameters, Params, Paths,
};
pub use call::{Call, DEFAULT_MULTIPROCESSORS, Outputs};
pub use dispatcher::{Candidate, Choice, Dispatcher};
pub(crate) use emulator::Emulator;
pub use emulator_kit::{EmulatorKit, KitError, UNFINISHED as UNFINISHED_KITS};
pub(crate) use gpu::Gpu;
pub use gpu::{GpuFacts, GpuInfo};
pub use image::{Element, Image, POISON};
pub(crate) use library::launchers_in;
pub use memory::DeviceMemory;
pub use nvml::{CardState, Nvml};
pub use schedule::{Order, Schedule};
pub use stopwatch::{Counts, Round, TimingPlan, Turns};
pub(crate) use stopwatch::{Launch, RoundTimes};
#[cfg(test)]
pub(crate) use test_kit::test_kit;

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};

/// A device that can run a kernel's launcher on the tensors of a [`Call`]. Private to kgen: a kernel follows any
/// strides and lengths in a call, and only the modules that lay out tensors and calls together ensure that they match.
pub(crate) trait Device {
    /// Name in reports: `emulator`, or the GPU with its compute capability and driver.
    fn name(&self) -> String;

    /// Runs the kernel once, on fresh copies of the call's tensors, and waits for it. The schedule is the thread order
    /// on the emulator; a GPU ignores it.
    ///
    /// # Errors
    /// [`DeviceError`]: the launcher refused, the device faulted, or the emulator saw a rule of the machine broken.
    fn run(&mut self, call: &Call, schedule: Schedule) -> Result<Outputs, DeviceError>;

    /// True if another schedule could have changed the last run in more than the order of atomic additions.
    fn order_matters(&self) -> bool {
        true
    }

    /// Bytes of workspace that `<name>_workspace` requests for this call on this device.
    ///
    /// # Errors
    /// [`DeviceError::Symbol`] if the library has no such function.
    fn workspace_for(&mut self, call: &Call) -> Result<usize, DeviceError>;

    /// The paths that `kgen_fwd` can take with the workspace of this call on this device.
    ///
    /// # Errors
    /// [`DeviceError::Symbol`] if the library has no dispatcher with this function.
    fn paths_for(&mut self, call: &Call) -> Result<Paths, DeviceError>;
}

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU through the CUDA driver.
    Gpu,
    /// The emulator.
    Emulator,
}

impl DeviceKind {
    /// `gpu` or `emulator`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Emulator => "emulator",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Values of `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// The GPU if there is one, otherwise the emulator.
    #[default]
    Auto,
    /// Only this kind.
    #[serde(untagged)]
    Only(DeviceKind),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "gpu" => Ok(Self::Only(DeviceKind::Gpu)),
            "emulator" => Ok(Self::Only(DeviceKind::Emulator)),
            _ => Err(format!("unknown device `{word}`; known: `auto`, `gpu`, `emulator`")),
        }
    }
}

/// Reasons why a launch gave no outputs.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The machine has no such device.
    #[error("no GPU: {0}")]
    NoGpu(String),
    /// The library of kernels does not load.
    #[error("cannot load `{}`: {reason}; rebuild it, or name another", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The library lacks a function.
    #[error("`{}` holds no `{symbol}`; rebuild it", path.display())]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The name of the function.
        symbol: String,
    },
    /// The CUDA driver refused an operation other than the launch.
    #[error("CUDA driver: {what} failed: {reason}")]
    Driver {
        /// The operation.
        what: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The launcher returned an error code.
    #[error("the launcher returned {code} ({word}){}", detail(message))]
    Launcher {
        /// The code, `KGEN_ERROR_*`.
        code: i32,
        /// The code's meaning.
        word: &'static str,
        /// `kgen_last_error()`, if the library has it.
        message: String,
    },
    /// The kernel started and then faulted on the GPU.
    #[error("the kernel faulted: {0}")]
    Fault(String),
    /// The emulator detected a violation: a race, an access outside a tensor, a deadlock.
    #[error("{0}")]
    Violation(String),
    /// The kernel wrote outside of the workspace that it had requested.
    #[error("the kernel wrote outside of its workspace, first at byte {0} from its start")]
    WorkspaceExceeded(i64),
    /// An input tensor was modified.
    #[error("the kernel wrote to its input `{0}`")]
    InputWritten(&'static str),
}

impl DeviceError {
    /// True if the kernel is at fault, false if the machine or the library is.
    pub fn blames_kernel(&self) -> bool {
        matches!(
            self,
            Self::Launcher { .. } | Self::Fault(_) | Self::Violation(_) | Self::InputWritten(_) | Self::WorkspaceExceeded(_)
        )
    }
}

impl DeviceError {
    /// True if nothing can run in this process any more.
    pub fn spoils_device(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::Driver { .. })
    }
}

/// `: message`, or an empty string.
fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}
