//! What the model knows of a GPU.

use serde::Serialize;

/// Part of the memory's rated bandwidth that a kernel which only reads reaches, per mille: 3180 GB/s on an H100 rated
/// 3350 GB/s (docs/results/2026-11-22-families-h100.md, the probe that only reads 1 GiB).
pub const DRAM_PER_MILLE: u32 = 950;

/// GPUs of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceRow {
    /// `major * 10 + minor`.
    pub capability: u32,
    /// Clock of the multiprocessors under load (MHz).
    pub clock_mhz: u32,
    /// Rated bandwidth of device memory (GB/s), where the driver does not tell bus width and memory clock.
    pub dram_gbs: u32,
    /// Bandwidth of L2 (GB/s).
    pub l2_gbs: u32,
    /// Size of L2 (MB).
    pub l2_mb: u32,
}

const fn row(capability: u32, clock_mhz: u32, dram_gbs: u32, l2_gbs: u32, l2_mb: u32) -> DeviceRow {
    DeviceRow { capability, clock_mhz, dram_gbs, l2_gbs, l2_mb }
}

/// By compute capability, oldest first; a capability that is not listed has the numbers of the one before it.
///
/// Clocks, device memory and size of L2: NVIDIA's data sheets of T4, A100 SXM 80 GB, A10, Jetson AGX Orin, L40S, H100
/// SXM, B200, B300, Jetson Thor, RTX PRO 6000 and GB10 (boost clock; H100: 1755 MHz, what it holds under these
/// kernels). Bandwidth of L2: fitted on an H100 (`kernel.rs`), 53 bytes a clock and multiprocessor; the others are that
/// times clock and multiprocessors, not measured.
pub const DEVICES: &[DeviceRow] = &[
    row(75, 1590, 320, 3400, 4),
    row(80, 1410, 2039, 8100, 40),
    row(86, 1695, 600, 6500, 6),
    row(87, 1300, 205, 1100, 4),
    row(89, 2520, 864, 19200, 96),
    row(90, 1755, 3350, 12400, 50),
    row(100, 1850, 8000, 14600, 126),
    row(103, 1850, 8000, 14600, 126),
    row(110, 1570, 273, 1700, 32),
    row(120, 2400, 1792, 24200, 128),
    row(121, 2400, 273, 6100, 24),
];

/// A GPU, in the model's units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceCost {
    /// Multiprocessors.
    pub multiprocessors: f64,
    /// Cycles a nanosecond.
    pub cycles_per_ns: f64,
    /// Bytes a nanosecond that device memory gives.
    pub dram_bytes_per_ns: f64,
    /// Bytes a nanosecond that L2 gives.
    pub l2_bytes_per_ns: f64,
    /// Bytes of a request that L2 may still hold from whatever wrote them: an eighth of it.
    pub kept_bytes: f64,
    /// Shared memory that a block may have (bytes); a multiprocessor has a kilobyte more.
    pub shared_memory_per_block: u32,
}

impl DeviceCost {
    /// A GPU of a compute capability. `rated_gbs` is the rated bandwidth of its memory where that is known of this one.
    pub fn new(capability: u32, multiprocessors: u32, shared_memory_per_block: u32, rated_gbs: Option<f64>) -> Self {
        let row = DEVICES.iter().rev().find(|row| row.capability <= capability).unwrap_or(&DEVICES[0]);
        let rated = rated_gbs.unwrap_or(f64::from(row.dram_gbs));
        Self {
            multiprocessors: multiprocessors.into(),
            cycles_per_ns: f64::from(row.clock_mhz) / 1000.0,
            dram_bytes_per_ns: rated * f64::from(DRAM_PER_MILLE) / 1000.0,
            l2_bytes_per_ns: row.l2_gbs.into(),
            kept_bytes: f64::from(row.l2_mb) * 125_000.0,
            shared_memory_per_block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::GPUS;

    #[test]
    fn every_gpu_has_a_row_of_its_own_in_rising_order() {
        assert!(DEVICES.windows(2).all(|pair| pair[0].capability < pair[1].capability));
        for gpu in GPUS {
            assert!(DEVICES.iter().any(|row| row.capability == gpu.capability), "{}", gpu.capability);
        }
    }

    #[test]
    fn a_gpu_that_is_not_listed_has_the_numbers_of_the_one_before_it() {
        let of = |capability| DeviceCost::new(capability, 100, 100 << 10, None);
        assert_eq!(of(95), of(90));
        assert_eq!(of(130), of(121));
        assert_eq!(of(70), of(75));
        let own = DeviceCost::new(90, 132, 227 << 10, Some(4900.0));
        assert!((own.dram_bytes_per_ns - 4655.0).abs() < 1e-6, "{own:?}");
    }
}
