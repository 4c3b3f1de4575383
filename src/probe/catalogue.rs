//! The probes: which kernel each runs, how it is launched, and how much a block does in a step of its loop.

use super::abi::Scalars;
use crate::{
    check::Number,
    device::GpuFacts,
    kernel::{Dtype, GPUS, Target},
};
use serde_json::{Map, Value, json};

/// A memory of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Device memory.
    Dram,
    /// The second cache.
    L2,
    /// Shared memory.
    Shared,
}

/// What is done to a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Every byte is read.
    Read,
    /// Every byte is written.
    Write,
    /// One half is read and the other one written.
    Copy,
}

impl Access {
    /// The word in templates.
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }
}

/// A scalar operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// 2^x.
    Exp2,
    /// a x + b, rounded once.
    Fma,
}

/// What a probe's kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: launches alone, or as nodes of a CUDA graph.
    Launch { graph: bool },
    /// Reads, writes or copies a memory.
    Traffic(Level, Access),
    /// Scalar operations in fp32.
    Scalar(Operation),
    /// Products of tensor cores by `mma.sync`.
    Mma(Dtype),
    /// Products of tensor cores by `wgmma`.
    Wgmma(Dtype),
    /// Follows pointers in a memory.
    Latency(Level),
    /// Warps meet at a named barrier.
    Barrier,
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its name, with which the names of its constants begin.
    pub name: &'static str,
    pub(super) kind: Kind,
    /// Threads of a block.
    pub(super) threads: u32,
    /// Independent loads or chains of a thread.
    pub(super) chains: u32,
    /// Repetitions of each in a step.
    repeats: u32,
}

const fn probe(name: &'static str, kind: Kind, [threads, chains, repeats]: [u32; 3]) -> Probe {
    Probe { name, kind, threads, chains, repeats }
}

/// In the order in which they run: tensor cores last, which heat the card.
const PROBES: &[Probe] = &[
    probe("launch", Kind::Launch { graph: false }, [128, 1, 1]),
    probe("launch_graph", Kind::Launch { graph: true }, [128, 1, 1]),
    probe("dram_read", Kind::Traffic(Level::Dram, Access::Read), [512, 8, 1]),
    probe("dram_write", Kind::Traffic(Level::Dram, Access::Write), [512, 8, 1]),
    probe("dram_copy", Kind::Traffic(Level::Dram, Access::Copy), [512, 8, 1]),
    probe("l2_read", Kind::Traffic(Level::L2, Access::Read), [512, 4, 1]),
    probe("shared_read", Kind::Traffic(Level::Shared, Access::Read), [512, 4, 1]),
    probe("dram_latency", Kind::Latency(Level::Dram), [32, 16, 1]),
    probe("l2_latency", Kind::Latency(Level::L2), [32, 16, 1]),
    probe("shared_latency", Kind::Latency(Level::Shared), [32, 64, 1]),
    probe("barrier", Kind::Barrier, [128, 1, 16]),
    probe("exp2", Kind::Scalar(Operation::Exp2), [1024, 4, 16]),
    probe("fma", Kind::Scalar(Operation::Fma), [1024, 4, 64]),
    probe("mma_fp16", Kind::Mma(Dtype::Fp16), [512, 4, 8]),
    probe("mma_bf16", Kind::Mma(Dtype::Bf16), [512, 4, 8]),
    probe("mma_e4m3", Kind::Mma(Dtype::Fp8), [512, 4, 8]),
    probe("wgmma_bf16", Kind::Wgmma(Dtype::Bf16), [256, 1, 4]),
    probe("wgmma_e4m3", Kind::Wgmma(Dtype::Fp8), [256, 1, 4]),
];

/// Device memory is measured on so many times the size of L2, which then serves next to nothing.
const BEYOND_L2: u64 = 40;

/// Part of L2 that its own probes use: what is read from a far partition has a copy in the near one.
const PART_OF_L2: u64 = 4;

/// Bytes of a line of memory.
const LINE: u64 = 128;

/// Elements of the random operands.
const OPERANDS: usize = 1 << 16;

impl Probe {
    /// The probes of a card whose kernels are compiled for `target`.
    pub fn of(target: Target) -> impl Iterator<Item = &'static Self> {
        PROBES.iter().filter(move |probe| probe.runs_on(target))
    }

    /// All probes.
    pub fn all() -> &'static [Self] {
        PROBES
    }

    /// The probe of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROBES.iter().find(|probe| probe.name == name)
    }

    fn runs_on(&self, target: Target) -> bool {
        match self.kind {
            // Hopper and Blackwell of data centres have no such instruction: they convert to fp16 and multiply that.
            Kind::Mma(Dtype::Fp8) => matches!(target, Target::Sm89 | Target::Sm120 | Target::Sm121),
            Kind::Mma(_) => target >= Target::Sm80,
            Kind::Wgmma(_) => target == Target::Sm90,
            _ => true,
        }
    }

    /// Path of the kernel's template below `templates/`.
    pub fn template(&self) -> &'static str {
        match self.kind {
            Kind::Launch { .. } => "probe/empty.cu.tera",
            Kind::Traffic(Level::Shared, _) => "probe/shared.cu.tera",
            Kind::Traffic(..) => "probe/memory.cu.tera",
            Kind::Scalar(_) => "probe/scalar.cu.tera",
            Kind::Mma(_) => "probe/mma.cu.tera",
            Kind::Wgmma(_) => "probe/wgmma.cu.tera",
            Kind::Latency(Level::Shared) => "probe/chase_shared.cu.tera",
            Kind::Latency(_) => "probe/chase.cu.tera",
            Kind::Barrier => "probe/barrier.cu.tera",
        }
    }

    /// Name of the launcher, which also names its file.
    pub fn launcher(&self) -> String {
        format!("kgen_probe_{}", self.name)
    }

    /// Name of the launcher that prepares memory, if there is one.
    pub(super) fn preparation(&self) -> Option<String> {
        matches!(self.kind, Kind::Latency(Level::Dram | Level::L2)).then(|| self.launcher() + "_lay")
    }

    /// Words of the template.
    pub fn words(&self) -> Map<String, Value> {
        let Self { threads, chains, repeats, .. } = self;
        let words = json!({
            "name": self.launcher(),
            "threads": threads,
            "warps": threads / 32,
            "warpgroups": threads / 128,
            "loads": chains,
            "chains": chains,
            "repeats": repeats,
            "products": self.products(),
            "amount": self.amount(),
            "chunk_bytes": threads * chains * 16,
            "access": if let Kind::Traffic(_, access) = self.kind { access.word() } else { "" },
            "operation": if self.kind == Kind::Scalar(Operation::Exp2) { "exp2" } else { "fma" },
            "of": if self.kind == Kind::Latency(Level::L2) { "l2" } else { "dram" },
            "element": self.element().map(|dtype| if dtype == Dtype::Fp8 { "e4m3" } else { dtype.name() }),
            "depth": self.depth(),
        });
        let Value::Object(words) = words else { unreachable!("an object was written") };
        words
    }

    fn element(&self) -> Option<Dtype> {
        match self.kind {
            Kind::Mma(dtype) | Kind::Wgmma(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// Products of a warp or warpgroup in a step.
    pub fn products(&self) -> u32 {
        // `wgmma` takes four to a row of 128 bytes.
        self.chains * self.repeats * if matches!(self.kind, Kind::Wgmma(_)) { 4 } else { 1 }
    }

    /// The inner dimension of a product: 32 bytes of elements.
    fn depth(&self) -> u32 {
        self.element().map_or(0, |dtype| 32 / dtype.bytes())
    }

    /// What a block does in a step: bytes, operations, or floating-point operations of products; of a chain, its
    /// length.
    pub fn amount(&self) -> u64 {
        let [threads, chains, repeats] = [self.threads, self.chains, self.repeats].map(u64::from);
        let of_product = |[m, n]: [u64; 2]| 2 * m * n * u64::from(self.depth()) * u64::from(self.products());
        match self.kind {
            Kind::Launch { .. } => 1,
            Kind::Traffic(_, access) => threads * chains * 16 * if access == Access::Copy { 2 } else { 1 },
            Kind::Scalar(_) => threads * chains * repeats,
            Kind::Mma(_) => threads / 32 * of_product([16, 8]),
            Kind::Wgmma(_) => threads / 128 * of_product([64, 256]),
            Kind::Latency(_) | Kind::Barrier => chains * repeats,
        }
    }

    /// Blocks that share a multiprocessor.
    pub(super) fn blocks_a_multiprocessor(&self) -> u32 {
        if matches!(self.kind, Kind::Traffic(Level::Dram | Level::L2, _)) { 2 } else { 1 }
    }

    /// How the kernel is launched on a card; `steps` is 0 if it is chosen by the time that a step takes.
    pub(super) fn launch(&self, facts: &GpuFacts) -> Scalars {
        let l2 = u64::from(facts.l2_bytes).max(1 << 16);
        let all = facts.multiprocessors.max(1) * self.blocks_a_multiprocessor();
        let chunk = u64::from(self.threads * self.chains) * 16;
        let one_block = Scalars { bytes: 0, blocks: 1, steps: 0, shared_bytes: 0 };
        let each = Scalars { blocks: all, shared_bytes: shared_memory_of_a_block(facts), ..one_block };
        match self.kind {
            Kind::Launch { .. } => Scalars { blocks: all, steps: 1, ..one_block },
            Kind::Traffic(Level::Dram, access) => {
                let steps = (BEYOND_L2 * l2).div_ceil(u64::from(all) * chunk).max(1);
                let halves = if access == Access::Copy { 2 } else { 1 };
                // The copied half is as large as what the others visit.
                let steps = (steps / halves).max(1);
                Scalars { bytes: halves * steps * u64::from(all) * chunk, blocks: all, steps: steps as u32, ..one_block }
            }
            Kind::Traffic(Level::L2, _) => {
                let most = (l2 / PART_OF_L2 / chunk).max(1);
                let chunks = (1..=most).rev().find(|chunks| divisor(*chunks, all.into()) == 1).unwrap_or(1);
                Scalars { bytes: chunks * chunk, blocks: all, ..one_block }
            }
            Kind::Latency(Level::Dram) => Scalars { bytes: (4 * l2 / LINE).next_power_of_two() * LINE, ..one_block },
            Kind::Latency(Level::L2) => Scalars { bytes: (l2 / PART_OF_L2 / LINE).next_power_of_two() / 2 * LINE, ..one_block },
            Kind::Latency(Level::Shared) => Scalars { shared_bytes: self.threads * 4, ..one_block },
            _ => each,
        }
    }

    /// Threads of a launch.
    pub(super) fn threads_of(&self, launch: Scalars) -> usize {
        self.threads as usize * launch.blocks as usize
    }

    /// The type of the random numbers that the kernel computes with; `None` if the contents of memory do not matter.
    pub(super) fn operands(&self) -> Option<(Number, usize)> {
        let number = match self.kind {
            Kind::Scalar(_) | Kind::Traffic(Level::Shared, _) => Number::Fp32,
            Kind::Mma(dtype) | Kind::Wgmma(dtype) => Number::of(dtype),
            _ => return None,
        };
        Some((number, OPERANDS))
    }
}

/// The most shared memory of a block: what keeps a second block off the multiprocessor.
fn shared_memory_of_a_block(facts: &GpuFacts) -> u32 {
    let gpu = GPUS.iter().rev().find(|gpu| gpu.capability <= facts.info.compute_capability);
    gpu.map_or(0, |gpu| gpu.shared_memory_per_block)
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
