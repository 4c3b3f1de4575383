//! Limits of one multiprocessor and one block on each target.

use crate::kernel::Target;
use serde::Serialize;

/// Hardware limits (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Maximum shared memory per block (bytes).
    pub shared_memory_per_block: u32,
    /// Shared memory of a multiprocessor (bytes); each block also takes `shared_memory_reserved`.
    pub shared_memory_per_sm: u32,
    /// Shared memory that the system reserves for each block (bytes).
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
    pub fn of(target: Target) -> Self {
        // KB of shared memory per block and per multiprocessor, KB reserved per block, warps and blocks per
        // multiprocessor.
        let (block, sm, reserved, warps, blocks) = match target {
            Target::Sm75 => (64, 64, 0, 32, 16),
            Target::Sm80 => (163, 164, 1, 64, 32),
            Target::Sm89 | Target::Sm120 | Target::Sm121 => (99, 100, 1, 48, 24),
            Target::Sm90 | Target::Sm100 => (227, 228, 1, 64, 32),
        };
        Self {
            shared_memory_per_block: block * 1024,
            shared_memory_per_sm: sm * 1024,
            shared_memory_reserved: reserved * 1024,
            registers_per_sm: 65_536,
            registers_per_thread: 255,
            warps_per_sm: warps,
            blocks_per_sm: blocks,
        }
    }

    /// Maximum registers per thread for `blocks` blocks of `threads` threads on one multiprocessor. Registers are
    /// allocated in units of eight, so the share is rounded down.
    pub fn register_cap(&self, threads: u32, blocks: u32) -> u32 {
        (self.registers_per_sm / (threads * blocks) / 8 * 8).min(self.registers_per_thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_and_its_reserve_fill_a_multiprocessor_of_every_target() {
        for &target in Target::ALL {
            let limits = Limits::of(target);
            assert_eq!(limits.shared_memory_per_block + limits.shared_memory_reserved, limits.shared_memory_per_sm, "{target}");
        }
    }

    #[test]
    fn the_register_cap_is_a_share_rounded_down_to_eight_and_never_above_255() {
        let limits = Limits::of(Target::Sm80);
        assert_eq!(limits.register_cap(128, 1), 255);
        assert_eq!(limits.register_cap(128, 2), 255);
        assert_eq!(limits.register_cap(128, 3), 168);
        assert_eq!(limits.register_cap(256, 2), 128);
    }
}
