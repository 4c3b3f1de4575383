//! The GPU: memory through the CUDA driver, which is loaded at run time, so that kgen starts on machines without it;
//! launches through the launcher in a library of kernels, on the default stream of the device's primary context.
#![allow(unsafe_code)]

use super::{
    Call, Device, DeviceError, DeviceMemory, Image, Outputs, Params, Paths, Schedule, library::KernelLibrary, stopwatch::Launch,
};
use cudarc::driver::{
    result::{self, DriverError},
    sys::{self, CUdevice_attribute},
};
use serde::Serialize;
use std::{ffi::c_char, fmt, path::Path, ptr};

/// Properties of a GPU for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuInfo {
    /// The driver's device name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Compute capability, `major * 10 + minor`.
    pub compute_capability: u32,
    /// Newest CUDA version that the driver supports: `13.0`.
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
    /// [`DeviceError::NoGpu`] if there is no driver or no device.
    pub fn probe() -> Result<Self, DeviceError> {
        probe().map(|(_, info)| info)
    }
}

/// More than the longest PCI bus id, `00000000:1b:00.0` with its NUL.
const BUS_ID_BYTES: i32 = 32;

/// Properties that limit the speed of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuFacts {
    /// Name, compute capability and driver.
    pub info: GpuInfo,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Highest clock of the multiprocessors.
    pub sm_clock_khz: u32,
    /// Highest clock of the memory; 0 if the driver does not report it.
    pub memory_clock_khz: u32,
    /// Width of the memory bus.
    pub memory_bus_bits: u32,
    /// Size of the L2 cache.
    pub l2_bytes: u32,
    /// PCI bus id in NVML's form: `0000:1b:00.0`.
    pub pci_bus_id: String,
}

impl GpuFacts {
    /// The first GPU of this machine.
    ///
    /// # Errors
    /// [`DeviceError::NoGpu`] if there is none, [`DeviceError::Driver`] if a query fails.
    pub fn probe() -> Result<Self, DeviceError> {
        let (device, info) = probe()?;
        let attribute = |which| {
            // SAFETY: the device came from the driver.
            let value = unsafe { result::device::get_attribute(device, which) };
            value.map(i32::unsigned_abs).map_err(|e| DeviceError::Driver { what: "asking what the GPU has", reason: words(e) })
        };
        let mut bus = [0; BUS_ID_BYTES as usize];
        // SAFETY: the length is that of the array, into which the driver writes a NUL-terminated string.
        let result = unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), BUS_ID_BYTES, device) };
        let bytes: Vec<u8> = bus.iter().map(|&c: &c_char| c.cast_unsigned()).take_while(|&c| c != 0).collect();
        Ok(Self {
            info,
            multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            sm_clock_khz: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            l2_bytes: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            pci_bus_id: result.result().ok().and_then(|()| String::from_utf8(bytes).ok()).unwrap_or_default(),
        })
    }
}

/// The first device and its description. Checks for the driver's library first, because cudarc panics if it is absent.
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

/// The driver's message for an error.
pub(super) fn words(error: DriverError) -> String {
    let text = error.error_string().map_or_else(|_| format!("{:?}", error.0), |text| text.to_string_lossy().into_owned());
    format!("{text} ({:?})", error.0)
}

/// A kernel on the first GPU. A faulting kernel corrupts the process's context, so it belongs in a worker.
pub struct Gpu {
    info: GpuInfo,
    pub(super) library: KernelLibrary,
    /// Memory for the tensors of a call; kept, since allocating takes longer than a small kernel.
    arena: Option<DeviceMemory>,
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
        Ok(Self { info, library: KernelLibrary::open(library, name)?, arena: None })
    }

    /// A launch of this kernel with `tensors`, by their names in `kgen.h`, ready to be repeated; an absent tensor is
    /// NULL.
    pub fn prepare<'a>(params: &Params, tensors: &'a [(&'static str, DeviceMemory)]) -> Launch<'a> {
        let find = |name| tensors.iter().find(|(known, _)| *known == name).map(|(_, memory)| memory);
        let address =
            |name: &'static str| find(name).map_or(ptr::null_mut(), |memory| ptr::without_provenance_mut(memory.address()));
        Launch::new(params.structure(&address, find("workspace").map_or(0, DeviceMemory::bytes)))
    }

    /// Bytes of workspace that a launch with `params` needs; only for kinds with a workspace.
    ///
    /// # Errors
    /// [`DeviceError::Symbol`].
    pub fn workspace_bytes(&self, params: &Params) -> Result<usize, DeviceError> {
        self.library.workspace_bytes(&params.structure(&|_| ptr::null_mut(), 0))
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        self.info.to_string()
    }

    fn run(&mut self, call: &Call, _schedule: Schedule) -> Result<Outputs, DeviceError> {
        let given = call.outputs.iter().chain(&call.inputs).find(|(name, _)| *name == "workspace");
        let mut workspace_bytes = given.map_or(0, |(_, image)| image.span_bytes());
        let mut scratch = Vec::new();
        if call.scratch {
            workspace_bytes = self.workspace_for(call)?;
            scratch.push(("workspace", Image::scratch(workspace_bytes)));
        }
        // One after another, each between its guard zones: a stray write from one tensor shows up in the next.
        let tensors: Vec<&(&'static str, Image)> = call.inputs.iter().chain(&call.outputs).chain(&scratch).collect();
        let mut memory = Vec::with_capacity(tensors.iter().map(|(_, image)| image.bytes()).sum());
        let mut places = Vec::with_capacity(tensors.len());
        for (name, image) in &tensors {
            places.push((*name, memory.len(), memory.len() + image.origin_bytes()));
            memory.extend_from_slice(image.memory());
        }
        let arena = self.arena(memory.len())?;
        arena.write(&memory)?;
        let base = arena.address();
        let address = |name: &'static str| {
            places.iter().find(|(known, ..)| *known == name).map_or(ptr::null_mut(), |(.., origin)| {
                // Device addresses have the width of host pointers; the launcher takes them as pointers.
                ptr::without_provenance_mut(base + origin)
            })
        };
        let params = call.params.structure(&address, workspace_bytes);

        // SAFETY: every pointer points into the arena, which outlives the synchronisation below, and the call's strides
        // and lengths are those the images were laid out with.
        unsafe { self.library.launch(&params, ptr::null_mut()) }?;
        result::ctx::synchronize().map_err(|e| DeviceError::Fault(words(e)))?;

        self.arena(memory.len())?.read(&mut memory)?;
        let mut outputs = Vec::with_capacity(call.outputs.len());
        for (index, ((name, before), (_, from, _))) in tensors.iter().zip(&places).enumerate() {
            let after = &memory[*from..from + before.bytes()];
            if index < call.inputs.len() {
                if after != before.memory() {
                    return Err(DeviceError::InputWritten(name));
                }
                continue;
            }
            let mut image = before.clone();
            image.memory_mut().copy_from_slice(after);
            if index < call.inputs.len() + call.outputs.len() {
                outputs.push((*name, image));
            } else if let Some(offset) = image.first_damage() {
                return Err(DeviceError::WorkspaceExceeded(offset * 4));
            }
        }
        Ok(Outputs(outputs))
    }

    fn workspace_for(&mut self, call: &Call) -> Result<usize, DeviceError> {
        self.library.workspace_bytes(&call.params.structure(&|name| call.stand_in(name), 0))
    }

    fn paths_for(&mut self, call: &Call) -> Result<Paths, DeviceError> {
        self.library.paths(&call.params.structure(&|name| call.stand_in(name), call.workspace_bytes()))
    }
}

impl Gpu {
    /// Memory of at least `bytes` bytes, with any contents.
    fn arena(&mut self, bytes: usize) -> Result<&DeviceMemory, DeviceError> {
        match self.arena.take().filter(|arena| arena.bytes() >= bytes) {
            Some(arena) => Ok(self.arena.insert(arena)),
            None => Ok(self.arena.insert(DeviceMemory::allocate(bytes.next_power_of_two())?)),
        }
    }
}
