//! Time of an attention kernel at a shape on a card, by the formulas of the dispatcher.

use super::{
    super::{
        Design, Kind, KvFormat, Point,
        timing::{self, Shape},
    },
    KernelCost,
    kernel::{Busy, resident},
    shipped::{Device, Kernel, Request, Sharing, Time},
};
use crate::{
    bench::{Estimate, Part, Unit, Work},
    kernel::{Card, Dtype, GPUS, L2_BYTES_A_CYCLE},
    plan::Plan,
};

/// The backward pass. Three launches (deltas, gradients, rounding of dQ), and per block of keys the loads of K and V
/// and the stores of dK and dV. A step reads a tile of Q and dO and adds one of dQ in fp32. Starting values: the
/// residual of `kgen predict` is learned from measured times.
mod backward {
    pub const LAUNCHES_NS: f64 = 7000.0;
    pub const TILE_CYCLES: f64 = 2500.0;
    pub const TILE_CYCLES_A_COLUMN: f64 = 12.0;
    pub const WAIT_CYCLES: f64 = 900.0;
    /// Bytes of L2 traffic per column of Q and of V: Q or dO, and half of dQ, which is read and written.
    pub const BYTES_A_COLUMN: f64 = 6.0;
}

/// The time of a kernel with this plan. `None` for a kind without cost parameters, whose kernels are not timed on their
/// own; for a declared score or mask, whose skipped tiles are unknown; and if a block does not fit on the card.
pub fn estimate(point: Point, design: &Design, plan: &Plan, shape: &Shape, card: &Card) -> Option<Estimate> {
    if point.features.score().is_some() || shape.heads_k == 0 || !shape.heads.is_multiple_of(shape.heads_k) {
        return None;
    }
    let busy = Busy::of(point, design).on(card, point, design);
    let kernel = kernel_of(point, design, plan, busy, card)?;
    let device = device_of(card);
    let splits = (point.kind == Kind::FwdSplit).then(|| timing::splits(point, shape, card.multiprocessors));
    let (request, shares) = request_of(point, shape, splits);
    let time = Time::of(&request, &kernel, &device, &shares);
    let of_memory = Time::of(&request, &kernel, &Device { l2_bytes_per_ns: f64::INFINITY, ..device }, &shares).memory;
    let part = |unit, ns: f64| Part { unit, microseconds: ns / 1000.0 };
    let parts = vec![
        part(Unit::Launch, time.launch + time.tile),
        part(Unit::Latency, time.chain),
        part(Unit::TensorCores, time.step * busy.tensor / busy.total()),
        part(Unit::Exponentials, time.step * busy.exponentials / busy.total()),
        part(Unit::L2, if of_memory < time.memory { time.memory } else { 0.0 }),
        part(Unit::Memory, of_memory),
    ];
    let work = Work { flops: timing::flops(&point, shape), bytes: Some(least_bytes(point, shape)) };
    let group = if shares.packed { request.heads / request.heads_k } else { 1.0 };
    let heads = if shares.packed { request.heads_k } else { request.heads };
    let blocks = request.batch * heads * (request.queries * group / kernel.rows).ceil() * shares.splits;
    Some(Estimate {
        microseconds: time.total() / 1000.0,
        parts,
        work,
        floor_microseconds: floor(point, work, card),
        waves: blocks / (device.multiprocessors * kernel.resident),
        splits,
    })
}

/// The cost parameters of a kernel whose step takes `busy` on the card, with as many resident blocks as the card's
/// shared memory allows.
fn kernel_of(point: Point, design: &Design, plan: &Plan, busy: Busy, card: &Card) -> Option<Kernel> {
    let mut kernel = match point.kind {
        Kind::Bwd => of_backward(point, design),
        Kind::Fwd | Kind::FwdShort | Kind::FwdSplit => of_forward(&KernelCost::of(plan)),
        Kind::FwdCombine | Kind::PrepareScheduler => return None,
    };
    let slower = busy.total() - Busy::of(point, design).total();
    kernel.step_cycles += slower;
    // The chain of a kernel made of `wgmma` does not depend on the rate, which is that of its only architecture.
    kernel.chain_cycles += slower;
    let of_block = GPUS.iter().find(|gpu| gpu.capability == card.capability)?.shared_memory_per_block;
    if plan.shared_memory_bytes > of_block {
        return None;
    }
    let reserved = plan.limits.shared_memory_reserved;
    let fit = (of_block + reserved) / (plan.shared_memory_bytes + reserved).max(1);
    kernel.resident = f64::from(resident(design, plan).min(fit).max(1));
    Some(kernel)
}

fn of_forward(cost: &KernelCost) -> Kernel {
    Kernel {
        rows: cost.rows.into(),
        group_rows: cost.group_rows.into(),
        keys: cost.keys.into(),
        resident: cost.resident.into(),
        launch_ns: cost.launch_ns.into(),
        crowded_ns: cost.crowded_ns.into(),
        tile_cycles: cost.tile_cycles.into(),
        chain_cycles: cost.chain_cycles.into(),
        step_cycles: cost.step_cycles.into(),
        longest_first: cost.longest_first,
    }
}

/// A block has `n` keys and steps over `m` queries.
fn of_backward(point: Point, design: &Design) -> Kernel {
    let step = Busy::of(point, design).total();
    let columns = f64::from(point.head_dim.qk + point.head_dim.v);
    Kernel {
        rows: design.tile.n.into(),
        group_rows: design.tile.n.into(),
        keys: design.tile.m.into(),
        resident: 1.0,
        launch_ns: backward::LAUNCHES_NS,
        crowded_ns: 0.0,
        tile_cycles: backward::TILE_CYCLES + backward::TILE_CYCLES_A_COLUMN * columns,
        chain_cycles: backward::WAIT_CYCLES + step,
        step_cycles: step,
        longest_first: false,
    }
}

fn device_of(card: &Card) -> Device {
    let cycles_per_ns = card.held_mhz() / 1000.0;
    Device {
        multiprocessors: card.multiprocessors.into(),
        cycles_per_ns,
        dram_bytes_per_ns: card.dram_read_gbs(),
        l2_bytes_per_ns: L2_BYTES_A_CYCLE * cycles_per_ns * f64::from(card.multiprocessors),
        l2_bytes: f64::from(card.l2_mb) * 1e6,
        kept_bytes: f64::from(card.l2_mb) * 125_000.0,
    }
}

/// The shape as the formulas take it. The backward pass has keys in place of queries.
fn request_of(point: Point, shape: &Shape, splits: Option<u32>) -> (Request, Sharing) {
    let element_bytes = f64::from(point.dtype.bytes());
    let [queries, keys] = [shape.seqlen_q, shape.seqlen_k].map(f64::from);
    let request = Request {
        batch: shape.batch.into(),
        heads: shape.heads.into(),
        heads_k: shape.heads_k.into(),
        queries,
        keys,
        longest_queries: queries,
        longest_keys: keys,
        head_dim: point.head_dim.qk.into(),
        head_dim_v: point.head_dim.v.into(),
        element_bytes,
        kv_element_bytes: if KvFormat::of(point.features).is_some() { 1.0 } else { element_bytes },
        most_seen: f64::INFINITY,
        keys_to_mean: 1.0,
        causal: point.causal,
        spread: 1.0,
        ..Request::default()
    };
    if point.kind == Kind::Bwd {
        // Masked pairs are counted in the mean number of queries; with equal lengths the diagonal is that of the
        // forward pass.
        let seen = pairs(point, shape) / keys;
        let (causal, rows) =
            if point.causal && shape.seqlen_q != shape.seqlen_k { (false, seen) } else { (point.causal, queries) };
        let backward = Request {
            heads_k: shape.heads.into(),
            queries: keys,
            longest_queries: keys,
            keys: rows,
            longest_keys: rows,
            kv_element_bytes: backward::BYTES_A_COLUMN,
            causal,
            ..request
        };
        return (backward, Sharing::WHOLE);
    }
    let Some(splits) = splits.map(f64::from) else { return (request, Sharing::WHOLE) };
    (request, Sharing { packed: true, splits, balanced: false, most_splits: splits })
}

/// Visible pairs of a query and a key in one head.
fn pairs(point: Point, shape: &Shape) -> f64 {
    super::super::Mask::new(point.causal, shape.seqlen_q as usize, shape.seqlen_k as usize).pairs()
}

/// Bytes of all tensors that a call must read and write once.
fn least_bytes(point: Point, shape: &Shape) -> f64 {
    let columns = f64::from(point.head_dim.qk + point.head_dim.v);
    // Under a causal mask, queries before the first key need not be read.
    let queries = if point.causal { shape.seqlen_q.min(shape.seqlen_k) } else { shape.seqlen_q };
    let rows = f64::from(shape.batch) * f64::from(queries) * f64::from(shape.heads);
    let of_output = if point.dtype == Dtype::Fp8 { 2.0 } else { 1.0 };
    let queries = rows * columns * f64::from(point.dtype.bytes()) * of_output;
    let keys = timing::key_value_bytes(&point, shape);
    // Backward: Q, O, dO and dQ; K, V, dK and dV.
    if point.kind == Kind::Bwd { 2.0 * (queries + keys) } else { queries + keys }
}

/// Highest clock of a card relative to the one it holds under load: 1980 by 1755 MHz on an H100.
const BOOST: f64 = 1.13;

/// The least time that the card's peak rates allow, in microseconds.
fn floor(point: Point, work: Work, card: &Card) -> f64 {
    let faster = if point.dtype == Dtype::Fp8 { 2.0 } else { 1.0 };
    let cycles = BOOST * card.held_mhz() * f64::from(card.multiprocessors);
    let of_products = work.flops / (card.peak_flops_a_cycle() * faster * cycles);
    // What fits into L2 may still be there.
    let beyond_l2 = work.bytes.filter(|bytes| *bytes > f64::from(card.l2_mb) * 1e6).unwrap_or_default();
    of_products.max(beyond_l2 / (f64::from(card.dram_gbs) * 1000.0))
}
