//! The device that profiles are taken on.

use super::Request;
use crate::{
    command::{CommandError, Observer, build::missing_library, checking},
    device::{DeviceChoice, DeviceError, DeviceKind, GpuInfo},
    profile::{Ncu, NcuError},
};
use std::path::Path;

/// The device.
pub(super) enum Place {
    /// The emulator, which counts accesses by line.
    Emulator,
    /// The GPU, whose counters Nsight Compute reads.
    Gpu {
        /// The GPU.
        gpu: GpuInfo,
        /// Nsight Compute, or the reason why there is none.
        ncu: Result<Ncu, NcuError>,
    },
}

impl Place {
    /// Finds the device. With [`DeviceChoice::Auto`] it is a GPU only if everything is there that counters need; a note
    /// says what is not.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if a GPU is requested and there is none, or no library; [`CommandError::Usage`] if
    /// the request is of a kernel that only the emulator compiles.
    pub fn find(request: &Request, library: &Path, observer: &dyn Observer) -> Result<Self, CommandError> {
        if request.source.is_some() {
            if request.device == DeviceChoice::Only(DeviceKind::Gpu) {
                let why = "`--source` is compiled for the emulator; leave out `--device gpu`";
                return Err(CommandError::Usage(why.to_owned()));
            }
            return Ok(Self::Emulator);
        }
        if request.device == DeviceChoice::Only(DeviceKind::Emulator) {
            return Ok(Self::Emulator);
        }
        let probed = GpuInfo::probe();
        if request.device == DeviceChoice::Only(DeviceKind::Gpu) {
            let gpu = probed.map_err(|error| checking::unusable_gpu(&error))?;
            if !library.is_file() {
                return Err(CommandError::Environment(missing_library(library, None)));
            }
            return Ok(Self::Gpu { gpu, ncu: Ncu::find() });
        }
        let gpu = match probed {
            Ok(gpu) => gpu,
            Err(DeviceError::NoGpu(_)) => return Ok(Self::Emulator),
            Err(error) => return Ok(Self::instead(&format!("the GPU cannot be used ({error})"), observer)),
        };
        if !library.is_file() {
            return Ok(Self::instead(&missing_library(library, None), observer));
        }
        match Ncu::find() {
            Ok(ncu) => Ok(Self::Gpu { gpu, ncu: Ok(ncu) }),
            Err(error) => Ok(Self::instead(&error.to_string(), observer)),
        }
    }

    /// The emulator, with a note on why it is not the GPU.
    fn instead(why: &str, observer: &dyn Observer) -> Self {
        observer.note(&format!("{why}; counting on the emulator"));
        Self::Emulator
    }

    /// The kind of device.
    pub fn device(&self) -> DeviceKind {
        match self {
            Self::Emulator => DeviceKind::Emulator,
            Self::Gpu { .. } => DeviceKind::Gpu,
        }
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        match self {
            Self::Emulator => DeviceKind::Emulator.word(),
            Self::Gpu { gpu, .. } => &gpu.name,
        }
    }

    /// Why the GPU's counters cannot be read.
    pub fn unreadable(&self) -> Option<NcuError> {
        match self {
            Self::Gpu { ncu: Err(error), .. } => Some(error.clone()),
            _ => None,
        }
    }
}
