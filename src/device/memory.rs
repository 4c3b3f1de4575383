//! Owned GPU memory.
#![allow(unsafe_code)]

use super::{DeviceError, gpu::words};
use cudarc::driver::{result, sys};

/// An allocation on the first GPU, freed on drop.
#[derive(Debug)]
pub struct DeviceMemory {
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Uninitialised memory of `bytes` bytes, at least one. A [`Gpu`](super::Gpu) must have been opened in this thread.
    ///
    /// # Errors
    /// [`DeviceError::Driver`]: there is not enough memory.
    pub fn allocate(bytes: usize) -> Result<Self, DeviceError> {
        let bytes = bytes.max(1);
        // SAFETY: the size is not zero; without a current context the driver refuses.
        let address = unsafe { result::malloc_sync(bytes) }
            .map_err(|e| DeviceError::Driver { what: "allocating a tensor", reason: words(e) })?;
        Ok(Self { address, bytes })
    }

    /// A copy of `data`.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn of(data: &[u8]) -> Result<Self, DeviceError> {
        let memory = Self::allocate(data.len())?;
        memory.write(data)?;
        Ok(memory)
    }

    /// Copies `data` to the start of the allocation.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    ///
    /// # Panics
    /// If `data` is larger than the allocation.
    pub fn write(&self, data: &[u8]) -> Result<(), DeviceError> {
        assert!(data.len() <= self.bytes, "more is written than there is room for");
        // SAFETY: the allocation is at least as large.
        unsafe { result::memcpy_htod_sync(self.address, data) }
            .map_err(|e| DeviceError::Driver { what: "copying to the GPU", reason: words(e) })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Device address.
    pub(super) fn address(&self) -> usize {
        self.address as usize
    }

    /// Sets every byte to `0xff`, which makes every element of every type a NaN.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn poison(&self) -> Result<(), DeviceError> {
        // SAFETY: the allocation has that size.
        unsafe { result::memset_d8_sync(self.address, 0xff, self.bytes) }
            .and_then(|()| result::ctx::synchronize())
            .map_err(|e| DeviceError::Driver { what: "filling a tensor", reason: words(e) })
    }

    /// Copies the first bytes back to the host.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    ///
    /// # Panics
    /// If `into` is larger than the allocation.
    pub fn read(&self, into: &mut [u8]) -> Result<(), DeviceError> {
        assert!(into.len() <= self.bytes, "more is read than there is");
        // SAFETY: the allocation is at least as large, and the caller waits for the device's work.
        unsafe { result::memcpy_dtoh_sync(into, self.address) }
            .map_err(|e| DeviceError::Driver { what: "copying from the GPU", reason: words(e) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // After a fault the driver refuses this too; the process is then about to end, and the error cannot be
        // reported. SAFETY: allocated by `allocate`, freed once.
        let _ = unsafe { result::free_sync(self.address) };
    }
}
