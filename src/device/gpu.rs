//! The GPU: memory through the CUDA driver, which is loaded at run time, so that kgen starts on machines without it;
//! the launch through the launcher in a library of kernels, on the default stream of the device's primary context.
#![allow(unsafe_code)]

use super::{Call, Device, DeviceError, Image, Outputs, library::KernelLibrary};
use cudarc::driver::{
    result::{self, DriverError},
    sys::{self, CUdevice_attribute},
};
use serde::Serialize;
use std::{fmt, path::Path, ptr};

/// What a report says about a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuInfo {
    /// The driver's name of it: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Compute capability, `major * 10 + minor`.
    pub compute_capability: u32,
    /// Newest CUDA version the driver speaks: `13.0`.
    pub cuda_version: String,
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.compute_capability / 10, self.compute_capability % 10);
        write!(f, "{} (compute capability {major}.{minor}, CUDA {} driver)", self.name, self.cuda_version)
    }
}

impl GpuInfo {
    /// The first GPU of this machine.
    ///
    /// # Errors
    /// [`DeviceError::NoGpu`] where there is no driver or no device.
    pub fn probe() -> Result<Self, DeviceError> {
        probe().map(|(_, info)| info)
    }
}

/// The first device and its description. Never panics: cudarc does when the driver's library is absent, so look first.
fn probe() -> Result<(sys::CUdevice, GpuInfo), DeviceError> {
    // SAFETY: loads and unloads the driver's library by its well-known name.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoGpu("the CUDA driver (`libcuda.so`) is not installed".to_owned()));
    }
    let no_gpu = |e: DriverError| DeviceError::NoGpu(words(e));
    result::init().map_err(no_gpu)?;
    let device = result::device::get(0).map_err(no_gpu)?;
    let name = result::device::get_name(device).map_err(no_gpu)?;
    let attribute = |which| {
        // SAFETY: `device` came from the driver.
        unsafe { result::device::get_attribute(device, which) }.map_err(no_gpu)
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(no_gpu)?;
    let info = GpuInfo {
        name,
        compute_capability: (major * 10 + minor).unsigned_abs(),
        cuda_version: format!("{}.{}", version / 1000, version % 1000 / 10),
    };
    Ok((device, info))
}

/// The driver's own words for an error.
fn words(error: DriverError) -> String {
    let text = error.error_string().map_or_else(|_| format!("{:?}", error.0), |text| text.to_string_lossy().into_owned());
    format!("{text} ({:?})", error.0)
}

/// A kernel on the first GPU. A faulting kernel spoils the process's context: use a worker.
pub struct Gpu {
    info: GpuInfo,
    library: KernelLibrary,
}

impl Gpu {
    /// Makes the first GPU's primary context current and loads `library` to run its launcher `name`.
    ///
    /// # Errors
    /// [`DeviceError`]: no GPU, no such library, no such launcher.
    pub fn open(library: &Path, name: &str) -> Result<Self, DeviceError> {
        let (device, info) = probe()?;
        let failed = |e| DeviceError::Driver { what: "making its context current", reason: words(e) };
        // SAFETY: `device` came from the driver. The context is kept until the process ends, as CUDA's runtime does.
        unsafe { result::ctx::set_current(result::primary_ctx::retain(device).map_err(failed)?) }.map_err(failed)?;
        Ok(Self { info, library: KernelLibrary::open(library, name)? })
    }
}

/// A tensor's copy in device memory, freed on drop.
struct DeviceCopy(sys::CUdeviceptr);

impl DeviceCopy {
    fn of(image: &Image) -> Result<Self, DeviceError> {
        // SAFETY: a context is current; the size is not zero, an image has guard zones.
        let memory = unsafe { result::malloc_sync(image.bytes()) }
            .map_err(|e| DeviceError::Driver { what: "allocating a tensor", reason: words(e) })?;
        let copy = Self(memory);
        // SAFETY: the allocation has the image's size.
        unsafe { result::memcpy_htod_sync(copy.0, image.memory()) }
            .map_err(|e| DeviceError::Driver { what: "copying to the GPU", reason: words(e) })?;
        Ok(copy)
    }

    fn back_into(&self, image: &mut Image) -> Result<(), DeviceError> {
        // SAFETY: the allocation has the image's size, and nothing runs on the GPU any more.
        unsafe { result::memcpy_dtoh_sync(image.memory_mut(), self.0) }
            .map_err(|e| DeviceError::Driver { what: "copying from the GPU", reason: words(e) })
    }
}

impl Drop for DeviceCopy {
    fn drop(&mut self) {
        // After a fault the driver refuses this too; the process is about to end then, and there is nobody to tell.
        // SAFETY: allocated by `of`, freed once.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        self.info.to_string()
    }

    fn run(&mut self, call: &Call, _seed: u64) -> Result<Outputs, DeviceError> {
        let copied = |(name, image): &(&'static str, Image)| Ok((*name, image.origin_bytes(), DeviceCopy::of(image)?));
        let mut tensors = call.inputs.iter().chain(&call.outputs).map(copied).collect::<Result<Vec<_>, DeviceError>>()?;
        let given = call.outputs.iter().chain(&call.inputs).find(|(name, _)| *name == "workspace");
        let mut workspace_bytes = given.map_or(0, |(_, image)| image.span_bytes());
        if call.scratch {
            workspace_bytes = self.library.workspace_bytes(&call.params.structure(&|_| ptr::null_mut(), 0))?;
            tensors.push(copied(&("workspace", Image::scratch(workspace_bytes)))?);
        }
        let address = |name: &'static str| {
            tensors.iter().find(|(known, ..)| *known == name).map_or(ptr::null_mut(), |(_, origin, copy)| {
                // Device addresses are as wide as pointers here; the launcher takes them as such.
                ptr::without_provenance_mut(copy.0 as usize + origin)
            })
        };
        let params = call.params.structure(&address, workspace_bytes);

        // SAFETY: every pointer leads into an allocation above, which lives past the synchronisation below, and the
        // call's strides and lengths are those the images were laid out with.
        unsafe { self.library.launch(&params) }?;
        result::ctx::synchronize().map_err(|e| DeviceError::Fault(words(e)))?;

        let after = |((name, image), (.., copy)): (&(&'static str, Image), &(&'static str, usize, DeviceCopy))| {
            let mut after = image.clone();
            copy.back_into(&mut after)?;
            Ok((*name, after))
        };
        let (inputs, outputs) = tensors.split_at(call.inputs.len());
        for (before, copy) in call.inputs.iter().zip(inputs) {
            if after((before, copy))?.1 != before.1 {
                return Err(DeviceError::InputWritten(before.0));
            }
        }
        Ok(Outputs(call.outputs.iter().zip(outputs).map(after).collect::<Result<_, DeviceError>>()?))
    }
}
