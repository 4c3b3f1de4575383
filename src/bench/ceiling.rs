//! The peak rates of a card. A measured rate above them is a measurement error.

use crate::{
    device::GpuFacts,
    kernel::{Dtype, flops_a_cycle},
};
use serde::{Deserialize, Serialize};

/// The peak rates of a card at its highest clocks; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Tensor cores in fp16 and bf16, TFLOP/s.
    pub tflops_16_bit: Option<f64>,
    /// Tensor cores in FP8, TFLOP/s: twice as much.
    pub tflops_fp8: Option<f64>,
    /// Device memory, GB/s.
    pub memory_gbs: Option<f64>,
}

impl Ceiling {
    /// The peak rates of the card that `facts` describes.
    pub fn of(facts: &GpuFacts) -> Self {
        let a_cycle = flops_a_cycle(facts.info.compute_capability);
        let tflops = a_cycle.map(|flops| flops * f64::from(facts.multiprocessors) * f64::from(facts.sm_clock_khz) / 1e9);
        // Two transfers per clock; the driver counts the clocks of GDDR and HBM in the same way.
        let gbs = 2.0 * f64::from(facts.memory_clock_khz) * f64::from(facts.memory_bus_bits) / 8.0 / 1e6;
        Self {
            tflops_16_bit: tflops.filter(|rate| *rate > 0.0),
            tflops_fp8: tflops.filter(|rate| *rate > 0.0).map(|rate| 2.0 * rate),
            memory_gbs: (gbs > 0.0).then_some(gbs),
        }
    }

    /// The reason to reject these rates, if they exceed the card's: `gbs` counts traffic from memory, not from a cache.
    pub fn refusal(&self, dtype: Option<Dtype>, tflops: f64, gbs: Option<f64>) -> Option<String> {
        let flops_peak = if dtype == Some(Dtype::Fp8) { self.tflops_fp8 } else { self.tflops_16_bit };
        if let Some(peak) = flops_peak.filter(|peak| tflops > *peak) {
            return Some(format!(
                "{tflops:.0} TFLOP/s is beyond the {peak:.0} of this card's tensor cores: the measurement is wrong"
            ));
        }
        let (gbs, peak) = (gbs?, self.memory_gbs?);
        (gbs > peak).then(|| format!("{gbs:.0} GB/s is beyond the {peak:.0} of this card's memory: the measurement is wrong"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::GpuInfo;

    /// An H100 SXM as the driver reports it.
    fn h100() -> GpuFacts {
        let info = GpuInfo { name: "NVIDIA H100 80GB HBM3".into(), compute_capability: 90, cuda_version: "13.0".into() };
        GpuFacts {
            info,
            multiprocessors: 132,
            sm_clock_khz: 1_980_000,
            memory_clock_khz: 2_619_000,
            memory_bus_bits: 5120,
            l2_bytes: 52_428_800,
            pci_bus_id: String::new(),
        }
    }

    #[test]
    fn an_h100_has_the_rates_of_its_data_sheet_at_its_highest_clock() {
        let ceiling = Ceiling::of(&h100());
        let at_boost = ceiling.tflops_16_bit.expect("it is known") * 1830.0 / 1980.0;
        assert!((at_boost - 989.4).abs() < 1.0, "{at_boost}");
        assert!((ceiling.memory_gbs.expect("the driver says") - 3352.0).abs() < 1.0);
    }

    #[test]
    fn a_rate_beyond_the_card_is_refused_and_an_unknown_card_refuses_nothing() {
        let ceiling = Ceiling::of(&h100());
        assert_eq!(ceiling.refusal(Some(Dtype::Bf16), 900.0, Some(3000.0)), None);
        assert_eq!(ceiling.refusal(Some(Dtype::Fp8), 1900.0, None), None);
        assert!(ceiling.refusal(Some(Dtype::Bf16), 1900.0, None).is_some_and(|why| why.contains("tensor cores")));
        assert!(ceiling.refusal(Some(Dtype::Bf16), 1.0, Some(4000.0)).is_some_and(|why| why.contains("memory")));
        let mut unknown = h100();
        (unknown.info.compute_capability, unknown.memory_clock_khz) = (999, 0);
        assert_eq!(Ceiling::of(&unknown).refusal(Some(Dtype::Bf16), 1e9, Some(1e9)), None);
    }

    #[test]
    fn every_gpu_that_kgen_knows_has_a_ceiling() {
        assert!(crate::kernel::GPUS.iter().all(|gpu| flops_a_cycle(gpu.capability).is_some()));
    }
}
