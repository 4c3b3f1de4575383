//! State of the card (clock, temperature, power), from NVML, which is loaded at run time. It only accompanies a
//! measurement, so a value that cannot be read is absent and not an error.
#![allow(unsafe_code)]

use libloading::Library;
use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr,
};

/// The driver's file name of NVML.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// `NVML_CLOCK_SM` and `NVML_TEMPERATURE_GPU` of `nvml.h`.
const CLOCK_SM: c_int = 1;
const TEMPERATURE_GPU: c_int = 0;

/// Functions of NVML, as nvml.h declares them.
type GetHandle = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
type GetOfKind = unsafe extern "C" fn(*mut c_void, c_int, *mut c_uint) -> c_int;
type Get = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;

/// State of the card at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CardState {
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
}

/// NVML and one card.
pub struct Nvml {
    library: Library,
    card: *mut c_void,
}

impl Nvml {
    /// The card at `pci_bus_id`; `None` if NVML is absent or does not list it.
    pub fn open(pci_bus_id: &str) -> Option<Self> {
        let bus = CString::new(pci_bus_id).ok()?;
        // SAFETY: loads a library of the driver by its well-known name.
        let mut nvml = Self { library: unsafe { Library::new(LIBRARY) }.ok()?, card: ptr::null_mut() };
        // SAFETY: declared with this type; takes no arguments; may be called any number of times.
        unsafe { nvml.call::<unsafe extern "C" fn() -> c_int>("nvmlInit_v2", |f| f()) }?;
        let mut card = ptr::null_mut();
        // SAFETY: declared with this type; a NUL-terminated string, and space for one handle.
        unsafe { nvml.call::<GetHandle>("nvmlDeviceGetHandleByPciBusId_v2", |f| f(bus.as_ptr(), &raw mut card)) }?;
        nvml.card = card;
        Some(nvml)
    }

    /// Version of the GPU driver: `580.95.05`.
    pub fn driver(&self) -> Option<String> {
        let mut text = [0; 80];
        // SAFETY: declared with this type; the length is that of the array.
        unsafe { self.call::<GetVersion>("nvmlSystemGetDriverVersion", |f| f(text.as_mut_ptr(), text.len() as c_uint)) }?;
        // SAFETY: NVML wrote a NUL-terminated string that fits.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The current state of the card.
    pub fn state(&self) -> CardState {
        let of_kind = |name, kind| {
            // SAFETY: both functions called below are declared with this type; the handle came from NVML, and there is
            // space for one number.
            written(|value| unsafe { self.call::<GetOfKind>(name, |f| f(self.card, kind, value)) })
        };
        // SAFETY: as above.
        let power = written(|value| unsafe { self.call::<Get>("nvmlDeviceGetPowerUsage", |f| f(self.card, value)) });
        CardState {
            sm_clock_mhz: of_kind("nvmlDeviceGetClockInfo", CLOCK_SM),
            temperature_c: of_kind("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            power_w: power.map(|milliwatts| f64::from(milliwatts) / 1e3),
        }
    }

    /// Calls the function `name`; `Some` if it succeeds.
    ///
    /// # Safety
    /// `F` must be the function pointer type of the function's declaration in nvml.h.
    unsafe fn call<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_int) -> Option<()> {
        // SAFETY: the caller's promise.
        let function = unsafe { self.library.get::<F>(name) }.ok()?;
        (call(*function) == 0).then_some(())
    }
}

/// The number that `query` writes, if it succeeds.
fn written(query: impl FnOnce(*mut c_uint) -> Option<()>) -> Option<u32> {
    let mut value = 0;
    query(&raw mut value).map(|()| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_nothing_rather_than_an_error() {
        assert!(Nvml::open("ffff:ff:1f.7").is_none());
        assert!(Nvml::open("with a \0").is_none());
    }
}
