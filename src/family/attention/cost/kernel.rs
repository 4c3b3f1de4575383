//! Kernel parameters of the cost model, derived from the plan.

use super::super::{Design, Kind, KvFormat, Point};
use crate::{
    kernel::{Card, Dtype, EXPONENTIALS_A_CYCLE, Feature, HeadDim, Target},
    plan::Plan,
};
use serde::Serialize;

/// Parameters of a forward kernel. All zero for any other kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCost {
    /// Rows of a block's query tile; `prepare_scheduler`: sequences that its warps handle at once.
    pub rows: u32,
    /// Rows per MMA group (64 per warpgroup on Hopper, else the tile's M). A group without valid rows skips its MMAs.
    pub group_rows: u32,
    /// Keys per step of a block; `fwd_combine`: its threads.
    pub keys: u32,
    /// Resident blocks per multiprocessor, without the shared-memory limit.
    pub resident: u32,
    /// Time from the launch to the first product, plus from the last store to the end (ns).
    pub launch_ns: u32,
    /// Extra time of a launch whose blocks fill more than half of the slots (ns). A kernel that is launched early then
    /// finds no space beside the blocks of the previous call, and its prologue is not hidden.
    pub crowded_ns: u32,
    /// Fixed cost of a query tile, without its steps (cycles).
    pub tile_cycles: u32,
    /// A step of a block that is alone on a multiprocessor: it waits for its products, its exponentials and its copies
    /// in sequence (cycles).
    pub chain_cycles: u32,
    /// A step if enough blocks or warpgroups share a multiprocessor to keep its units busy (cycles).
    pub step_cycles: u32,
    /// True if tiles are scheduled in order of decreasing number of keys, so that tiles without keys fill the tail.
    pub longest_first: bool,
    /// True if that order spans all sequences of a batch, whatever their lengths.
    pub orders_batch: bool,
}

/// Cycles for which one step occupies each unit of a multiprocessor, without the part that overlaps with other units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Tensor cores.
    pub tensor: f64,
    /// Special function units.
    pub exponentials: f64,
    /// Integer units that widen FP8 keys and values.
    pub widening: f64,
}

impl Busy {
    /// The step of a kernel.
    pub fn of(point: Point, design: &Design) -> Self {
        let (HeadDim { qk, v }, tile) = (point.head_dim, &design.tile);
        let twice_as_fast = if point.dtype == Dtype::Fp8 { 2.0 } else { 1.0 };
        let rate = |wgmma| flops_a_cycle(point.target, wgmma);
        let step = |pairs: u32, columns: u32, rate: f64, factors: [f64; 2]| Self::new(pairs, columns, rate, factors);
        let pairs = tile.m * tile.n;
        match point.kind {
            Kind::Bwd if design.hopper.is_some() => step(pairs, 3 * qk + 2 * v, rate(true), WGMMA_BACKWARD),
            Kind::Bwd => step(pairs, 3 * qk + 2 * v, rate(false), MMA_BACKWARD),
            Kind::FwdSplit if design.hopper.is_some() => step(pairs, qk + 2 * v, rate(true), LATENT),
            Kind::FwdSplit => Self { widening: widening(point, tile.n), ..step(pairs, qk + v, rate(false), MMA_OF_16_ROWS) },
            Kind::FwdShort => {
                let columns = taken(point.head_dim);
                step(tile.m * tile.n * (tile.warps / 4), columns.qk + columns.v, rate(true), WGMMA_OF_ONE_STEP)
            }
            _ if design.hopper.is_some() => step(pairs, qk + v, rate(true) * twice_as_fast, WGMMA),
            _ => Self { widening: widening(point, tile.n * tile.warps), ..step(pairs, qk + v, rate(false) * twice_as_fast, MMA) },
        }
    }

    /// `pairs` of a query and a key with two products of `columns` together. Exponentials overlap with products, and
    /// neither is completely hidden: the factors are the exposed parts.
    fn new(pairs: u32, columns: u32, flops_a_cycle: f64, [products, exponentials]: [f64; 2]) -> Self {
        let pairs = f64::from(pairs);
        Self {
            tensor: products * (pairs * 2.0 * f64::from(columns) / flops_a_cycle),
            exponentials: exponentials * (pairs / EXPONENTIALS_A_CYCLE),
            widening: 0.0,
        }
    }

    /// The same step on a card whose tensor cores or exponentials have another rate than those of the kernel's target.
    pub fn on(self, card: &Card, point: Point, design: &Design) -> Self {
        let wgmma = design.hopper.is_some() || point.kind == Kind::FwdShort;
        let is_fp8 = point.dtype == Dtype::Fp8;
        let twice_as_fast = if is_fp8 { 2.0 } else { 1.0 };
        let rated = flops_a_cycle(point.target, wgmma) * twice_as_fast;
        Self {
            tensor: self.tensor * rated / card.tensor_flops_a_cycle(wgmma, is_fp8),
            exponentials: self.exponentials * EXPONENTIALS_A_CYCLE / card.exponentials_a_cycle(),
            ..self
        }
    }

    /// All units together.
    pub fn total(&self) -> f64 {
        self.tensor + self.exponentials + self.widening
    }
}

/// Factors on the cycles of `wgmma` and on those of the exponentials when both overlap: the parts that stay exposed.
/// Fitted to times measured on an H100, like all numbers of [`KernelCost::hopper`], [`KernelCost::short`],
/// [`KernelCost::split`] and `fwd_combine`: docs/dispatch.md, "The numbers".
const WGMMA: [f64; 2] = [0.65, 0.83];

/// [`WGMMA`] for warpgroups that do not take turns: the products and exponentials of one warpgroup follow one another.
const WGMMA_OF_ONE_STEP: [f64; 2] = [0.79, 1.16];

/// [`WGMMA`] for `mma.sync`: FlashAttention-2's authors report 180 and 220 TFLOP/s on an A100 at head dims 64 and 128.
const MMA: [f64; 2] = [1.03, 1.18];

/// [`WGMMA`] for blocks of 16 rows, which load K and V from shared memory for few products.
const MMA_OF_16_ROWS: [f64; 2] = [1.4, 0.6];

/// [`WGMMA`] for MLA decoding. Assumption: scores are limited by shared memory, because each warpgroup reads all
/// queries for half of the keys.
const LATENT: [f64; 2] = [1.3, 1.0];

/// [`WGMMA`] for the five products of the backward pass with `mma.sync`: starting values; the residual of `kgen
/// predict` is learned from measured times.
const MMA_BACKWARD: [f64; 2] = [1.3, 1.5];

/// [`MMA_BACKWARD`] for `wgmma`, fitted to four calls on an H200 (docs/results/2026-11-28-backward-h200.md).
const WGMMA_BACKWARD: [f64; 2] = [1.11, 0.77];

/// Dense floating-point operations per multiprocessor and cycle, 16-bit inputs, fp32 sums. NVIDIA's data sheets: T4 65
/// TFLOP/s, A100 312, L40S 362, H100 989, divided by multiprocessors and boost clock. `mma.sync` reaches 0.62 of
/// `wgmma`'s rate on an H100 and is rated there like an A100's.
fn flops_a_cycle(target: Target, wgmma: bool) -> f64 {
    match target {
        Target::Sm90 if wgmma => 4096.0,
        Target::Sm75 | Target::Sm89 | Target::Sm120 | Target::Sm121 => 1024.0,
        Target::Sm80 | Target::Sm90 | Target::Sm100 => 2048.0,
    }
}

/// Latency in cycles of L2 or device memory under load, as measured with `fwd_split` on an H100.
const LATENCY: f64 = 660.0;

/// Cycles an SM needs to widen `keys` rows of FP8 K and V: seven integer ops per four bytes at 64 ops per cycle.
/// Counted, not measured; 0 if K and V have Q's type.
fn widening(point: Point, keys: u32) -> f64 {
    let bytes = f64::from(keys * (point.head_dim.qk + point.head_dim.v));
    if KvFormat::widened(point).is_some() { bytes * 7.0 / 4.0 / 64.0 } else { 0.0 }
}

/// Number of panel widths that a row of `head_dim` columns is divided into: each needs its own tensor map and boxes.
fn panel_widths(head_dim: u32) -> u32 {
    let rest = head_dim % 64;
    u32::from(head_dim >= 64) + u32::from(rest >= 32) + u32::from(!rest.is_multiple_of(32))
}

/// Cycles of a tile for the panel widths after the first: one of 32 columns costs less than a narrower one.
fn cycles_of_widths(HeadDim { qk, v }: HeadDim) -> u32 {
    let of = |head_dim: u32| {
        let rest = head_dim % 64;
        let of_32 = if head_dim > 64 && rest >= 32 { 1030 } else { 0 };
        let narrower = if head_dim > 32 && !rest.is_multiple_of(32) { 1630 } else { 0 };
        of_32 + narrower
    };
    of(qk).max(of(v))
}

/// The larger [`panel_widths`] of the two head dims.
fn most_widths(HeadDim { qk, v }: HeadDim) -> u32 {
    panel_widths(qk).max(panel_widths(v))
}

/// Columns that short kernels compute: a last panel of less than 64 columns costs half of the missing ones as well.
fn taken(HeadDim { qk, v }: HeadDim) -> HeadDim {
    let taken = |head_dim: u32| {
        let lacking = if head_dim > 64 { head_dim.next_multiple_of(64) - head_dim } else { 0 };
        head_dim + lacking / 2
    };
    HeadDim { qk: taken(qk), v: taken(v) }
}

/// Mean columns of a row, over Q, K, V and O.
fn mean(HeadDim { qk, v }: HeadDim) -> f64 {
    f64::midpoint(qk.into(), v.into())
}

impl KernelCost {
    /// The parameters of a plan.
    pub fn of(plan: &Plan) -> Self {
        let point = Point::of(&plan.variant);
        point.zip(plan.design_as()).map_or_else(Self::default, |(point, design)| Self::of_attention(point, design, plan))
    }

    fn of_attention(point: Point, design: &Design, plan: &Plan) -> Self {
        let resident = resident(design, plan);
        match point.kind {
            Kind::Bwd => Self::default(),
            Kind::FwdCombine => Self {
                rows: 1,
                group_rows: 1,
                keys: plan.threads,
                resident,
                launch_ns: 860,
                tile_cycles: 3100,
                chain_cycles: 480,
                // Time to start a block of the first wave.
                step_cycles: 820,
                ..Self::default()
            },
            Kind::PrepareScheduler => {
                Self { rows: 32, group_rows: 32, keys: 0, resident: 1, launch_ns: 9420, tile_cycles: 700, ..Self::default() }
            }
            Kind::FwdSplit if design.hopper.is_some() => Self { resident, ..Self::latent(point, design) },
            Kind::FwdSplit => Self { resident, ..Self::split(point, design) },
            Kind::FwdShort => Self { resident, ..Self::short(point, design) },
            Kind::Fwd if design.hopper.is_some() => Self { resident, ..Self::hopper(point, design) },
            Kind::Fwd => Self { resident, ..Self::portable(point, design) },
        }
    }

    /// 0.6 µs per launch; per tile, 0.9 µs and 14 ns per column in addition to its steps; per step of 64 keys per
    /// warpgroup, 0.5 µs and 1.4 ns per column. A last panel of less than 64 columns costs half of the missing columns
    /// as well. If no prologue is hidden, 0.3 µs more, and 0.2 µs for each panel width but one.
    fn short(point: Point, design: &Design) -> Self {
        let (head_dim, n) = (mean(taken(point.head_dim)), f64::from(design.tile.n));
        Self {
            rows: design.tile.m,
            group_rows: design.tile.m,
            keys: design.tile.n * (design.tile.warps / 4),
            launch_ns: 590,
            crowded_ns: 310 + 240 * (most_widths(point.head_dim) - 1),
            tile_cycles: rounded(1660.0 + 25.0 * head_dim),
            chain_cycles: rounded((950.0 + 2.5 * head_dim) * n / 64.0),
            step_cycles: rounded(Busy::of(point, design).total()),
            ..Self::default()
        }
    }

    /// 1.9 µs per launch; per tile, 1.2 µs and 4 ns per column, and for each panel width but one 0.6 or 0.9 µs. If no
    /// prologue is hidden, 0.8 µs more, and for each width but one 1 µs, with tiles of 128 queries 0.3. A step runs in
    /// sequence from Q Kᵀ to P V. With packed rows, a launch takes 1.7 µs longer, a tile 0.3 µs, as rows of several
    /// heads are stored one by one, and without pages a step about an eighth. With the tile of `long`, twice as many
    /// keys, what is fixed in a step counts half as often, and the first step of a tile, which overlaps with nothing,
    /// is longer.
    fn hopper(point: Point, design: &Design) -> Self {
        let (n, head_dim, widths) = (f64::from(design.tile.n), mean(point.head_dim), most_widths(point.head_dim));
        let chain_cycles = rounded(190.0 + 5.2 * n + 0.047 * n * head_dim);
        let step = Busy::of(point, design).total();
        let crowded_by_width = if point.features.has(Feature::M128) { 330 } else { 1000 };
        let whole = Self {
            rows: design.tile.m,
            group_rows: 64,
            keys: design.tile.n,
            launch_ns: 1870,
            crowded_ns: 780 + crowded_by_width * (widths - 1),
            tile_cycles: rounded(2090.0 + 6.9 * head_dim) + cycles_of_widths(point.head_dim),
            chain_cycles,
            step_cycles: rounded(step),
            longest_first: true,
            orders_batch: design.hopper.as_ref().is_some_and(|hopper| hopper.searches),
            ..Self::default()
        };
        if point.features.has(Feature::Long) {
            return Self { tile_cycles: whole.tile_cycles + 1100, step_cycles: rounded(0.925 * step), ..whole };
        }
        if !point.features.has(Feature::PackGqa) {
            return whole;
        }
        let slower = match (point.features.has(Feature::Paged), point.causal) {
            (true, _) => 1.0,
            (false, true) => 1.15,
            (false, false) => 1.12,
        };
        Self {
            launch_ns: 3610,
            crowded_ns: 750 + 520 * (widths - 1),
            tile_cycles: rounded(2620.0 + 6.8 * head_dim) + 460 * (widths - 1),
            step_cycles: rounded(slower * step),
            ..whole
        }
    }

    /// `mma.sync`: each scheduler has one warp of a block, so a block alone keeps the units as busy, but waits for its
    /// copies.
    fn portable(point: Point, design: &Design) -> Self {
        let step = Busy::of(point, design).total();
        Self {
            rows: design.tile.m,
            group_rows: design.tile.m,
            keys: design.tile.n,
            launch_ns: 2800,
            tile_cycles: 1500 + 3 * (point.head_dim.qk + point.head_dim.v),
            chain_cycles: rounded(600.0 + step),
            step_cycles: rounded(step),
            ..Self::default()
        }
    }

    /// 1.1 µs per launch, 0.9 µs less if it starts early, 0.8 µs more if blocks share multiprocessors from the start;
    /// 2.3 µs and 5 ns per column per tile, and more for each row that it has: Q is read before the first product, and
    /// the warps' results are merged in shared memory. A step waits for the oldest of its stages.
    fn split(point: Point, design: &Design) -> Self {
        let tile = &design.tile;
        let (n, head_dim, busy) = (f64::from(tile.n), mean(point.head_dim), Busy::of(point, design));
        Self {
            rows: tile.m,
            group_rows: tile.m,
            keys: tile.n,
            launch_ns: if design.early { 260 } else { 1120 },
            crowded_ns: 800,
            tile_cycles: rounded(4090.0 + 8.5 * head_dim),
            chain_cycles: rounded(LATENCY / f64::from(tile.stages) + 1.6 * n + 0.044 * n * head_dim + busy.widening),
            step_cycles: rounded(busy.total()),
            ..Self::default()
        }
    }

    /// Queries of two parts. Assumptions: a launch costs the same as for other kernels that occupy a whole
    /// multiprocessor; a tile reads all columns of its queries before its steps and writes O after them; a step's
    /// scores are limited by shared memory rather than by the tensor cores, because each warpgroup reads all queries
    /// for half of the keys, and the warpgroups wait for each other's maxima and weights.
    fn latent(point: Point, design: &Design) -> Self {
        let (HeadDim { qk, v }, tile) = (point.head_dim, &design.tile);
        let columns = HeadDim { qk: qk + v, v };
        let step = Busy::of(point, design).total();
        Self {
            rows: tile.m,
            group_rows: tile.m,
            keys: tile.n,
            launch_ns: 2020,
            crowded_ns: 890,
            tile_cycles: rounded(1850.0 + 7.1 * mean(columns)),
            chain_cycles: rounded(400.0 + step),
            step_cycles: rounded(step),
            ..Self::default()
        }
    }
}

/// Blocks per multiprocessor within its limits of registers, warps and blocks. A block whose warpgroups reallocate
/// registers starts with the full count.
pub fn resident(design: &Design, plan: &Plan) -> u32 {
    if design.hopper.as_ref().is_some_and(|hopper| hopper.producer_registers != hopper.consumer_registers) {
        return design.tile.min_blocks_per_sm;
    }
    let (limits, warps) = (&plan.limits, plan.threads / 32);
    let registers_a_warp = plan.registers.total.min(limits.registers_per_thread).next_multiple_of(8) * 32;
    (limits.registers_per_sm / registers_a_warp / warps).min(limits.warps_per_sm / warps).min(limits.blocks_per_sm)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cycles of a step: small and not negative")]
fn rounded(cycles: f64) -> u32 {
    cycles.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Features;

    fn cost(kind: Kind, head_dim: u32, target: Target) -> KernelCost {
        let head_dim = if kind.has_shape() { head_dim } else { 0 };
        KernelCost::of(
            &Plan::new(
                Point {
                    kind,
                    head_dim: HeadDim::equal(head_dim),
                    dtype: Dtype::Fp16,
                    causal: false,
                    features: Features::NONE,
                    target,
                },
                None,
            )
            .expect("fits"),
        )
    }

    #[test]
    fn a_kernel_of_the_forward_pass_has_numbers_and_no_other_has() {
        for (kind, target) in [
            (Kind::Fwd, Target::Sm75),
            (Kind::Fwd, Target::Sm80),
            (Kind::Fwd, Target::Sm90),
            (Kind::Fwd, Target::Sm120),
            (Kind::FwdShort, Target::Sm90),
            (Kind::FwdSplit, Target::Sm80),
        ] {
            let cost = cost(kind, 128, target);
            assert!(
                cost.chain_cycles > 0 && cost.step_cycles > 0 && cost.resident > 0 && cost.launch_ns > 0,
                "{kind} {target}: {cost:?}"
            );
        }
        assert_eq!(cost(Kind::Bwd, 64, Target::Sm80), KernelCost::default());
    }

    #[test]
    fn more_columns_take_more_cycles() {
        for (kind, target) in [(Kind::Fwd, Target::Sm80), (Kind::FwdShort, Target::Sm90), (Kind::FwdSplit, Target::Sm80)] {
            let a_key = |head_dim| {
                let KernelCost { rows, keys, step_cycles, .. } = cost(kind, head_dim, target);
                f64::from(step_cycles) / f64::from(rows * keys)
            };
            assert!(a_key(64) < a_key(128) && a_key(128) < a_key(256), "{kind}");
        }
    }

    #[test]
    fn head_dim_128_of_hopper_is_bound_by_its_tensor_cores() {
        let cost = cost(Kind::Fwd, 128, Target::Sm90);
        // 192 x 80 products of 512 operations, at 4096 per cycle, and 16 exponentials per cycle.
        assert_eq!((cost.rows, cost.keys, cost.step_cycles), (192, 80, 2045));
        assert!(cost.chain_cycles < cost.step_cycles);
    }
}
