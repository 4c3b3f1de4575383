//! GPU parameters of the cost model.

use serde::Serialize;

/// GPUs of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceRow {
    /// `major * 10 + minor`.
    pub capability: u32,
    /// Clock of the multiprocessors under load (MHz).
    pub clock_mhz: u32,
    /// Rated bandwidth of device memory (GB/s), used if the driver does not report bus width and memory clock.
    pub dram_gbs: u32,
    /// Bandwidth of L2 (GB/s).
    pub l2_gbs: u32,
    /// Size of L2 (MB).
    pub l2_mb: u32,
}

const fn row(capability: u32, clock_mhz: u32, dram_gbs: u32, l2_gbs: u32, l2_mb: u32) -> DeviceRow {
    DeviceRow { capability, clock_mhz, dram_gbs, l2_gbs, l2_mb }
}

/// Sorted by compute capability; a capability that is not listed uses the previous row.
///
/// Clocks, device memory and size of L2: NVIDIA's data sheets of T4, A100 SXM 80 GB, A10, Jetson AGX Orin, L40S, H100
/// SXM, B200, B300, Jetson Thor, RTX PRO 6000 and GB10 (boost clock; H100: 1755 MHz, its sustained clock under these
/// kernels). Bandwidth of L2: fitted on an H100 (`kernel.rs`), 59 bytes per clock and multiprocessor; the others are
/// scaled by clock and multiprocessors, not measured.
pub const DEVICES: &[DeviceRow] = &[
    row(75, 1590, 320, 3400, 4),
    row(80, 1410, 2039, 8100, 40),
    row(86, 1695, 600, 6500, 6),
    row(87, 1300, 205, 1100, 4),
    row(89, 2520, 864, 19200, 96),
    row(90, 1755, 3350, 13650, 50),
    row(100, 1850, 8000, 14600, 126),
    row(103, 1850, 8000, 14600, 126),
    row(110, 1570, 273, 1700, 32),
    row(120, 2400, 1792, 24200, 128),
    row(121, 2400, 273, 6100, 24),
];

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
}
