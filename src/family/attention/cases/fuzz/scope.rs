//! The kernels and the device that a fuzzing run can call.

use super::{
    case::{Entry, FuzzCase},
    library_call::LibraryCall,
};
use crate::{
    check::Number,
    device::DeviceKind,
    family::attention::{
        self, Kind,
        oracle::arithmetic::{Arithmetic, Sums},
    },
    kernel::{self, Dtype, Features, HeadDim, Target, Variant},
    plan::{self, Limits},
};
use serde::{Deserialize, Serialize};

/// The kernels and the device of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Every kernel in the library, which the dispatcher may choose.
    pub held: Vec<attention::Point>,
    /// Kernels with the requested head dims, dtypes, masks and, on the emulator, targets.
    pub wanted: Vec<attention::Point>,
    /// Requested kernels of other families that the library has and that calls are drawn for.
    pub others: Vec<Variant>,
    /// The device.
    pub device: ScopeDevice,
}

/// Device properties that must be known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeDevice {
    /// This machine's GPU.
    Gpu {
        /// Compute capability, `major * 10 + minor`.
        capability: u32,
        /// Multiprocessors.
        multiprocessors: u32,
    },
    /// The emulator, which emulates the device of each case.
    Emulator,
}

/// Coordinates of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The function.
    pub entry: Entry,
    /// Head dim of Q and K, and of V and O.
    pub head_dim: HeadDim,
    /// Element type.
    pub dtype: Dtype,
    /// Causal mask.
    pub causal: bool,
    /// Features of the kernel that it is drawn for. Calls may use some of them, and other masks.
    pub features: Features,
    /// Compute capability of the emulated device or of the GPU.
    pub capability: u32,
}

impl Scope {
    /// Device of the run.
    pub fn kind(&self) -> DeviceKind {
        match self.device {
            ScopeDevice::Gpu { .. } => DeviceKind::Gpu,
            ScopeDevice::Emulator => DeviceKind::Emulator,
        }
    }

    /// All calls that the library can serve, without duplicates. On the emulator each kernel is called on the device it
    /// was made for; on a GPU, all kernels that run there.
    pub fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for variant in &self.wanted {
            let entry = match variant.kind {
                Kind::Fwd => Entry::Fwd,
                // No other kernel computes these.
                Kind::FwdSplit if variant.features.any(|info| info.is_split_only) => Entry::Fwd,
                Kind::Bwd => Entry::Bwd,
                _ => continue,
            };
            let capability = match self.device {
                ScopeDevice::Gpu { capability, .. } => capability,
                ScopeDevice::Emulator => variant.target.compute_capability(),
            };
            let attention::Point { head_dim, dtype, causal, features, .. } = *variant;
            // Calls of a second tile are those of the first.
            let others = features.iter().filter(|feature| !feature.info().is_second_tile);
            let features = others.collect::<Features>().with_score(features.score());
            let point = Point { entry, head_dim, dtype, causal, features, capability };
            if !points.contains(&point) && Self::runs(*variant, capability) {
                points.push(point);
            }
        }
        points
    }

    /// Calls of other families: kind, element type, and the device's compute capability.
    pub fn drawn_points(&self) -> Vec<(kernel::Kind, Dtype, u32)> {
        let of = |variant: &Variant| {
            let capability = match self.device {
                ScopeDevice::Gpu { capability, .. } => capability,
                ScopeDevice::Emulator => variant.target().compute_capability(),
            };
            let runs = plan::runs_on(variant.target(), capability, true);
            Some((variant.kind(), variant.dtype()?, capability)).filter(|_| runs)
        };
        let mut points: Vec<_> = self.others.iter().filter_map(of).collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The compute capability of the device that a call runs on.
    pub fn capability_for(&self, call: &LibraryCall) -> u32 {
        match (self.device, call) {
            (_, LibraryCall::Attention(case)) => self.capability(case),
            (ScopeDevice::Gpu { capability, .. }, LibraryCall::Drawn(_)) => capability,
            (ScopeDevice::Emulator, LibraryCall::Drawn(call)) => call.capability.unwrap_or_else(|| {
                let serving = self.others.iter().filter(|variant| call.is_served_by(**variant)).map(Variant::target).max();
                serving.unwrap_or(Target::Sm80).compute_capability()
            }),
        }
    }

    /// The compute capability of the device that a case runs on.
    pub fn capability(&self, case: &FuzzCase) -> u32 {
        match (self.device, case.capability) {
            (ScopeDevice::Gpu { capability, .. }, _) | (ScopeDevice::Emulator, Some(capability)) => capability,
            (ScopeDevice::Emulator, None) => {
                let kind = kind_for(case);
                let newest = self.held.iter().filter(|v| v.kind == kind && case.is_served_by(**v)).map(|v| v.target).max();
                newest.unwrap_or(Target::Sm80).compute_capability()
            }
        }
    }

    /// Kernels of a kind in the library that the dispatcher may choose for a case on a device.
    fn candidates(&self, kind: Kind, case: &FuzzCase, capability: u32) -> impl Iterator<Item = &attention::Point> {
        self.held.iter().filter(move |v| v.kind == kind && case.is_served_by(**v) && Self::runs(**v, capability))
    }

    /// True if a kernel runs on a device and fits its shared memory.
    fn runs(variant: attention::Point, capability: u32) -> bool {
        plan::runs_on(variant.target, capability, true)
            && (variant.target.compute_capability() == capability
                || plan::Plan::new(variant, None).is_ok_and(|plan| plan.shared_memory_bytes <= shared_memory_limit(capability)))
    }

    /// True if a dense or backward kernel can compute a case whose tensors do not meet TMA's requirements.
    pub fn has_kernel_without_tma(&self, case: &FuzzCase) -> bool {
        let capability = self.capability(case);
        self.candidates(case.entry.kind(), case, capability).any(|variant| !attention::needs_tma(*variant))
    }

    /// Arithmetic of the sums in the kernel that computes a case: that of Hopper's tensor cores if such a kernel may be
    /// chosen.
    pub fn arithmetic(&self, case: &FuzzCase) -> Arithmetic {
        let kinds = self.candidates(kind_for(case), case, self.capability(case)).map(|variant| Arithmetic::of(*variant));
        let truncated = kinds.filter(|arithmetic| arithmetic.sums == Sums::Truncated).last();
        truncated.unwrap_or_else(|| Number::of(case.dtype).into())
    }

    /// True if the library has a kernel for a case.
    pub fn holds(&self, case: &FuzzCase) -> bool {
        self.candidates(kind_for(case), case, self.capability(case)).next().is_some()
    }
}

/// The kind of kernel that computes a case if any kernel does.
fn kind_for(case: &FuzzCase) -> Kind {
    match case.entry {
        Entry::Bwd => Kind::Bwd,
        Entry::Fwd if case.problem.options.wanted(case.causal).1.any(|info| info.is_split_only) => Kind::FwdSplit,
        Entry::Fwd => Kind::Fwd,
    }
}

/// Shared memory limit per block of a device that is not a target of the grid.
fn shared_memory_limit(capability: u32) -> u32 {
    let of = |target: Target| Limits::of(target).shared_memory_per_block;
    let own = Target::ALL.iter().find(|target| target.compute_capability() == capability);
    own.map_or_else(|| of(if matches!(capability, 86 | 87) { Target::Sm89 } else { Target::Sm90 }), |target| of(*target))
}
