//! What one multiprocessor and one block have on each target.

use crate::grid::Target;
use serde::Serialize;

/// Hardware limits (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Shared memory one block may ask for (bytes).
    pub shared_memory_per_block: u32,
    /// Shared memory of a multiprocessor (bytes); each block also takes `shared_memory_reserved`.
    pub shared_memory_per_sm: u32,
    /// Shared memory the system takes of each block (bytes).
    pub shared_memory_reserved: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Registers one thread can address.
    pub registers_per_thread: u32,
    /// Resident warps of a multiprocessor.
    pub warps_per_sm: u32,
    /// Resident blocks of a multiprocessor.
    pub blocks_per_sm: u32,
}

impl Limits {
    /// The limits of `target`.
    pub fn of(_target: Target) -> Self {
        unimplemented!()
    }
}
