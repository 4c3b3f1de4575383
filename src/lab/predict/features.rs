//! The numbers by which a kernel's measured time differs from its estimate.

use crate::{
    bench::{Estimate, Size, Unit},
    kernel::{self, Card, Dtype, Feature, capability_text},
    plan::{Plan, TensorCore},
};

/// Number of features.
pub const COUNT: usize = 22;

/// Features of one call of one kernel on one card.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// Name of the calls that share corrections: kind, target, element type and features of the kernel, architecture of
    /// the card.
    pub group: String,
    /// Numbers of similar magnitude.
    pub numbers: [f64; COUNT],
}

impl Features {
    /// The features of a call.
    pub fn of(plan: &Plan, size: &Size, estimate: &Estimate, card: &Card) -> Self {
        let (variant, tiling) = (&plan.variant, plan.tiling());
        let number = |name: &str| size.get(name).map_or(0.0, |number| number as f64);
        let (heads, heads_k) = (number("heads").max(1.0), number("heads_k").max(1.0));
        let share = |unit| estimate.of(unit) / estimate.microseconds.max(1e-9);
        let head_dim = variant.head_dim();
        let columns = head_dim.map_or(0.0, |head_dim| f64::from(head_dim.qk + head_dim.v) / 2.0);
        let rest = |of: u32| head_dim.is_some_and(|head_dim| !head_dim.qk.is_multiple_of(of));
        let flag = |condition: bool| if condition { 1.0 } else { 0.0 };
        let causal = flag(variant.causal() == Some(true));
        let features = variant.features().unwrap_or(kernel::Features::NONE);
        let waves = estimate.waves.max(1e-3);
        let log = |number: f64| if number > 0.0 { number.log2() } else { 0.0 };
        let balance = f64::from(card.dram_gbs) / (f64::from(card.multiprocessors) * f64::from(card.clock_mhz) / 1000.0);
        Self {
            group: group(plan, card),
            numbers: [
                log(estimate.microseconds) / 4.0 - 1.5,
                share(Unit::Launch),
                share(Unit::Latency),
                share(Unit::TensorCores),
                share(Unit::Exponentials),
                share(Unit::L2),
                share(Unit::Memory),
                log(waves).clamp(-4.0, 6.0) / 4.0,
                if waves > 1.0 { waves.ceil() / waves - 1.0 } else { 0.0 },
                log(columns / 128.0),
                flag(rest(64)),
                flag(rest(32)),
                causal,
                log(number("seqlen_k") / 2048.0) / 4.0,
                log(heads / heads_k) / 3.0,
                balance / 20.0,
                log(tiling.m as f64 / 64.0) / 2.0,
                log(tiling.n as f64 / 64.0) / 2.0,
                f64::from(plan.occupancy.blocks_per_sm).min(8.0) / 4.0,
                causal * tiling.m as f64 / number("seqlen_k").max(tiling.m as f64),
                flag(features.has(Feature::Paged)),
                flag(is_widened(features)),
            ],
        }
    }
}

/// True if K and V are FP8 and the queries are not.
fn is_widened(features: kernel::Features) -> bool {
    features.has(Feature::KvE4m3) || features.has(Feature::KvE5m2)
}

/// Name of the kernels with the same kind, target, element type and features, on cards of one architecture. FP8 caches
/// and pages are numbers, so that kernels with them learn from those without; so is another tile. Backward kernels of
/// sm90 have two sorts of products.
fn group(plan: &Plan, card: &Card) -> String {
    let variant = &plan.variant;
    let products = if plan.tensor_core == TensorCore::HgmmaAndHmma { " wgmma" } else { "" };
    let dtype = if variant.dtype() == Some(Dtype::Fp8) { " fp8" } else { "" };
    let numbered = [Feature::Paged, Feature::KvE4m3, Feature::KvE5m2, Feature::Long, Feature::M128, Feature::SplitKv];
    let features = variant.features().unwrap_or(kernel::Features::NONE);
    let others: Vec<&str> =
        features.iter().filter(|feature| !numbered.contains(feature)).map(|feature| feature.info().name).collect();
    let features = if others.is_empty() { String::new() } else { format!(" {}", others.join(",")) };
    format!("{} {}{products}{dtype}{features} on {}", variant.kind(), variant.target(), capability_text(card.capability))
}
