//! The emulator: runs a launcher that the host compiler compiled against `templates/emulator/`.
#![allow(unsafe_code)]

use super::{Call, DEFAULT_MULTIPROCESSORS, Device, DeviceError, Image, Order, Outputs, Paths, Schedule, library::KernelLibrary};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
    ptr,
};

type Reset = unsafe extern "C" fn(u64);
type SetPriorities = unsafe extern "C" fn(u32);
type Steps = unsafe extern "C" fn() -> u64;
type DeclareTensor = unsafe extern "C" fn(*const c_char, *mut c_void, usize, *const u8, usize, c_int);
type Report = unsafe extern "C" fn() -> *const c_char;
type SetCapability = unsafe extern "C" fn(c_int);
type SetMultiprocessors = unsafe extern "C" fn(c_int);

/// A kernel loaded into this process. If it hangs or crashes, so does the process: use a worker.
pub struct Emulator {
    library: KernelLibrary,
    reset: Reset,
    set_priorities: SetPriorities,
    steps: Steps,
    tensor: DeclareTensor,
    report: Report,
    set_capability: SetCapability,
    set_multiprocessors: SetMultiprocessors,
}

impl Emulator {
    /// Loads a library compiled by [`EmulatorKit`](super::EmulatorKit), to run its launcher `name` on an emulated
    /// device of a compute capability (`major * 10 + minor`).
    ///
    /// # Errors
    /// [`DeviceError::Load`] and [`DeviceError::Symbol`].
    pub fn open(library: &Path, name: &str, capability: u32) -> Result<Self, DeviceError> {
        let library = KernelLibrary::open(library, name)?;
        // SAFETY: the emulator's header declares each function with the type of its field, and the library is stored
        // beside them.
        let emulator = unsafe {
            Self {
                set_capability: library.function("kgen_emulator_device")?,
                reset: library.function("kgen_emulator_reset")?,
                set_priorities: library.function("kgen_emulator_priorities")?,
                steps: library.function("kgen_emulator_steps")?,
                tensor: library.function("kgen_emulator_tensor")?,
                report: library.function("kgen_emulator_report")?,
                set_multiprocessors: library.function("kgen_emulator_multiprocessors")?,
                library,
            }
        };
        emulator.emulate(capability);
        Ok(emulator)
    }

    /// Changes the compute capability of the device (`major * 10 + minor`), for every launcher of the library.
    pub fn emulate(&self, capability: u32) {
        // SAFETY: the function takes any number.
        unsafe { (self.set_capability)(capability.cast_signed()) };
    }

    /// Sets the device properties that a call expects.
    fn prepare(&self, call: &Call) {
        let multiprocessors = call.multiprocessors.unwrap_or(DEFAULT_MULTIPROCESSORS);
        // SAFETY: the function takes any number.
        unsafe { (self.set_multiprocessors)(c_int::try_from(multiprocessors).unwrap_or(c_int::MAX)) };
    }

    /// Registers a tensor with the emulator, which then checks every access to it.
    fn declare(&self, name: &str, memory: *mut c_void, image: &Image, writable: bool) {
        let name = CString::new(name).expect("tensor names hold no NUL");
        // SAFETY: `memory` and the map have the sizes given and outlive the launch; the emulator copies the name.
        unsafe {
            (self.tensor)(name.as_ptr(), memory, image.bytes(), image.map().as_ptr(), image.element().bytes(), writable.into());
        }
    }

    /// Accesses by line of the last run, as the emulator writes them (`kgen/emulator.h`).
    ///
    /// # Errors
    /// [`DeviceError::Symbol`] unless the library was compiled to count them.
    pub fn profile(&self) -> Result<String, DeviceError> {
        // SAFETY: the emulator's header declares this type, and `self` holds the library.
        let profile: Report = unsafe { self.library.function("kgen_emulator_profile") }?;
        // SAFETY: the emulator returns a NUL-terminated string that is valid until its next call.
        Ok(unsafe { CStr::from_ptr(profile()) }.to_string_lossy().into_owned())
    }

    /// Clears the declarations of the last run and applies the schedule.
    fn reset(&self, schedule: Schedule) {
        // SAFETY: the function takes any seed.
        unsafe { (self.reset)(schedule.seed) };
        if let Order::Priorities { depth } = schedule.order {
            // SAFETY: the function takes any depth.
            unsafe { (self.set_priorities)(depth) };
        }
    }

    /// The emulator's report on the last launch; empty if it found no error.
    fn report(&self) -> String {
        // SAFETY: the emulator returns a NUL-terminated string that is valid until its next call.
        let text = unsafe { (self.report)() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: as above, and not NULL.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().trim_end().to_owned()
    }
}

impl Device for Emulator {
    fn name(&self) -> String {
        "emulator".to_owned()
    }

    fn run(&mut self, call: &Call, schedule: Schedule) -> Result<Outputs, DeviceError> {
        // Inputs are copied too, so that a kernel that writes to one is caught and cannot corrupt the next run.
        let (mut inputs, mut outputs) = (call.inputs.clone(), call.outputs.clone());
        self.prepare(call);
        let mut scratch = Vec::new();
        if call.scratch {
            let bytes = self.workspace_for(call)?;
            scratch.push(("workspace", Image::scratch(bytes)));
        }
        let workspace_bytes = scratch
            .iter()
            .chain(&outputs)
            .chain(&inputs)
            .find(|(name, _)| *name == "workspace")
            .map_or(0, |(_, i)| i.span_bytes());

        self.reset(schedule);
        let mut origins = Vec::new();
        for (tensors, writable) in [(&mut inputs, false), (&mut outputs, true), (&mut scratch, true)] {
            for (name, image) in tensors {
                let memory = image.memory_mut().as_mut_ptr();
                self.declare(name, memory.cast(), image, writable);
                origins.push((*name, memory.wrapping_add(image.origin_bytes())));
            }
        }
        let address = |name: &'static str| {
            origins.iter().find(|(known, _)| *known == name).map_or(ptr::null_mut(), |(_, pointer)| pointer.cast())
        };
        let params = call.params.structure(&address, workspace_bytes);

        // SAFETY: every pointer points into an image above, which lives until the end of this function, and the call's
        // strides and lengths are those the images were laid out with.
        let launched = unsafe { self.library.launch(&params, ptr::null_mut()) };
        let report = self.report();
        if !report.is_empty() {
            return Err(DeviceError::Violation(report));
        }
        launched?;
        for ((name, original), (_, after)) in call.inputs.iter().zip(&inputs) {
            if original != after {
                return Err(DeviceError::InputWritten(name));
            }
        }
        Ok(Outputs(outputs))
    }

    fn order_matters(&self) -> bool {
        // SAFETY: the function only reads a number.
        unsafe { (self.steps)() > 0 }
    }

    fn workspace_for(&mut self, call: &Call) -> Result<usize, DeviceError> {
        self.prepare(call);
        self.library.workspace_bytes(&call.params.structure(&|name| call.stand_in(name), 0))
    }

    fn paths_for(&mut self, call: &Call) -> Result<Paths, DeviceError> {
        self.prepare(call);
        self.library.paths(&call.params.structure(&|name| call.stand_in(name), call.workspace_bytes()))
    }
}
