//! Time of an attention kernel at a shape on a card, by the formulas of the dispatcher.

use super::{
    super::{
        Design, Kind, KvFormat, Point,
        timing::{self, Shape},
    },
    KernelCost,
    kernel::{Busy, resident},
    packed::{self, Sequence, Tile},
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
    /// With `wgmma`: `prepare` and `finish` take a larger part of the time.
    pub const TILE_CYCLES_A_COLUMN_OF_WGMMA: f64 = 87.0;
    pub const WAIT_CYCLES: f64 = 900.0;
    /// Bytes of L2 traffic per column of Q and of V: Q or dO, and half of dQ, which is read and written.
    pub const BYTES_A_COLUMN: f64 = 6.0;
}

/// The time of a kernel with this plan. `None` for a kind without cost parameters, whose kernels are not timed on their
/// own; for a declared score or mask, whose skipped tiles are unknown; and if a block does not fit on the card.
pub fn estimate(point: Point, design: &Design, plan: &Plan, shape: &Shape, card: &Card) -> Option<Estimate> {
    refuse_unknown(point, shape)?;
    let busy = Busy::of(point, design).on(card, point, design);
    let kernel = kernel_of(point, design, plan, busy, card)?;
    let device = device_of(card);
    let splits = (point.kind == Kind::FwdSplit).then(|| timing::splits(point, shape, card.multiprocessors));
    let (request, shares) = request_of(point, shape, splits);
    let time = Time::of(&request, &kernel, &device, &shares);
    let of_memory = Time::of(&request, &kernel, &without_l2(device), &shares).memory;
    let group = if shares.packed { request.heads / request.heads_k } else { 1.0 };
    let heads = if shares.packed { request.heads_k } else { request.heads };
    let blocks = request.batch * heads * (request.queries * group / kernel.rows).ceil() * shares.splits;
    Some(Estimate {
        microseconds: time.total() / 1000.0,
        parts: parts(&time, of_memory, busy),
        work: work(point, shape),
        floor_microseconds: floor(point, work(point, shape), card),
        waves: blocks / (device.multiprocessors * kernel.resident),
        splits,
    })
}

/// The time of a kernel with this plan for sequences of these lengths of queries and keys, with the heads of `shape`.
/// `None` as of [`estimate`], or without sequences.
pub fn estimate_packed(
    point: Point,
    design: &Design,
    plan: &Plan,
    shape: &Shape,
    lengths: &[[u32; 2]],
    card: &Card,
) -> Option<Estimate> {
    refuse_unknown(point, shape)?;
    let busy = Busy::of(point, design).on(card, point, design);
    let kernel = kernel_of(point, design, plan, busy, card)?;
    let device = device_of(card);
    let of = |batch: u32, [seqlen_q, seqlen_k]: [u32; 2]| Shape { batch, seqlen_q, seqlen_k, ..*shape };
    let longest = [0, 1].map(|side| lengths.iter().map(|length| length[side]).max().unwrap_or_default());
    let longest = of(u32::try_from(lengths.len()).ok()?, longest);
    let splits = (point.kind == Kind::FwdSplit).then(|| timing::splits(point, &longest, card.multiprocessors));
    let works: Vec<Work> = lengths.iter().map(|length| work(point, &of(1, *length))).collect();
    let bytes = |work: &Work| work.bytes.unwrap_or_default();
    let all = Work { flops: works.iter().map(|work| work.flops).sum(), bytes: Some(works.iter().map(bytes).sum()) };
    let sequence = |length: [u32; 2], share: f64| {
        let (request, shares) = request_of(point, &of(1, length), splits);
        Sequence { tiles: tiles(point, &of(1, length), &kernel, &shares), request, share }
    };
    let sequences: Vec<Sequence> =
        lengths.iter().zip(&works).map(|(length, work)| sequence(*length, bytes(work) / bytes(&all).max(1.0))).collect();
    let (count, length) = alike(lengths)?;
    let like = vec![sequence(length, 1.0 / f64::from(count)); count as usize];
    let (request, shares) = request_of(point, &of(count, length), splits);
    let time_on = |device: &Device| {
        let of_like = Time::of(&request, &kernel, device, &shares);
        packed::time(&sequences, &like, &of_like, &kernel, device, &shares)
    };
    let (time, of_memory) = (time_on(&device), time_on(&without_l2(device)).memory);
    Some(Estimate {
        microseconds: time.total() / 1000.0,
        parts: parts(&time, of_memory, busy),
        work: all,
        floor_microseconds: floor(point, all, card),
        waves: packed::blocks(&sequences, &shares) / (device.multiprocessors * kernel.resident),
        splits,
    })
}

/// Equal sequences with about the work of these: the lengths that a pair of query and key has on average, and as many
/// sequences as have all pairs. `None` if there are no sequences.
fn alike(lengths: &[[u32; 2]]) -> Option<(u32, [u32; 2])> {
    let pairs = |length: &[u32; 2]| f64::from(length[0]) * f64::from(length[1]);
    let all: f64 = lengths.iter().map(pairs).sum();
    let mean = |side: usize| lengths.iter().map(|length| pairs(length) * f64::from(length[side])).sum::<f64>() / all;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the least and the most of u32s")]
    let whole = |number: f64| number.round().max(1.0) as u32;
    let length = [0, 1].map(|side| whole(mean(side)));
    (!lengths.is_empty()).then(|| (whole(all / pairs(&length)), length))
}

/// `None` for a declared score or mask, and for query heads that no key heads divide.
fn refuse_unknown(point: Point, shape: &Shape) -> Option<()> {
    let is_known = point.features.score().is_none() && shape.heads_k > 0 && shape.heads.is_multiple_of(shape.heads_k);
    is_known.then_some(())
}

/// The tiles of one head and split of a sequence, in the order of the launch. Under a causal mask a forward tile sees
/// the keys of its last query, a backward tile the queries of its first key; forward kernels start with the last tile.
fn tiles(point: Point, shape: &Shape, kernel: &Kernel, shares: &Sharing) -> Vec<Tile> {
    let [queries, keys] = [shape.seqlen_q, shape.seqlen_k].map(f64::from);
    let is_backward = point.kind == Kind::Bwd;
    let group = if shares.packed { f64::from(shape.heads / shape.heads_k) } else { 1.0 };
    let (rows, others) = if is_backward { (keys, queries) } else { (queries * group, keys) };
    let count = (rows / kernel.rows).ceil().max(1.0);
    let tile = |place: u32| {
        let first = f64::from(place) * kernel.rows;
        let last = (first + kernel.rows).min(rows);
        let seen = match (point.causal, is_backward) {
            (false, _) => others,
            (true, false) => keys - queries + (last / group).ceil(),
            (true, true) => queries - (first - (keys - queries)).max(0.0),
        };
        let filled = ((last - first) / kernel.group_rows).ceil() * kernel.group_rows / kernel.rows;
        Tile { steps: (seen.clamp(0.0, others) / shares.splits / kernel.keys).ceil(), filled: filled.min(1.0) }
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length divided by the rows of a tile")]
    let mut tiles: Vec<Tile> = (0..count as u32).map(tile).collect();
    if point.causal && !is_backward {
        tiles.reverse();
    }
    tiles
}

/// A card whose L2 takes no time.
fn without_l2(device: Device) -> Device {
    Device { l2_bytes_per_ns: f64::INFINITY, ..device }
}

/// The time of each unit, of which device memory alone takes `of_memory`.
fn parts(time: &Time, of_memory: f64, busy: Busy) -> Vec<Part> {
    let part = |unit, ns: f64| Part { unit, microseconds: ns / 1000.0 };
    vec![
        part(Unit::Launch, time.launch + time.tile),
        part(Unit::Latency, time.chain),
        part(Unit::TensorCores, time.step * busy.tensor / busy.total()),
        part(Unit::Exponentials, time.step * busy.exponentials / busy.total()),
        part(Unit::L2, if of_memory < time.memory { time.memory } else { 0.0 }),
        part(Unit::Memory, of_memory),
    ]
}

fn work(point: Point, shape: &Shape) -> Work {
    Work { flops: timing::flops(&point, shape), bytes: Some(least_bytes(point, shape)) }
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
        orders_batch: cost.orders_batch,
    }
}

/// A block has `n` keys and steps over `m` queries.
fn of_backward(point: Point, design: &Design) -> Kernel {
    let step = Busy::of(point, design).total();
    let columns = f64::from(point.head_dim.qk + point.head_dim.v);
    // With `wgmma`, products of the next step hide the waits of this one.
    let (wait, of_column) = if design.hopper.is_some() {
        (0.0, backward::TILE_CYCLES_A_COLUMN_OF_WGMMA)
    } else {
        (backward::WAIT_CYCLES, backward::TILE_CYCLES_A_COLUMN)
    };
    Kernel {
        rows: design.tile.n.into(),
        group_rows: design.tile.n.into(),
        keys: design.tile.m.into(),
        resident: 1.0,
        launch_ns: backward::LAUNCHES_NS,
        crowded_ns: 0.0,
        tile_cycles: backward::TILE_CYCLES + of_column * columns,
        chain_cycles: wait + step,
        step_cycles: step,
        longest_first: false,
        orders_batch: false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Features, HeadDim, Target};

    const KINDS: [(Kind, Target); 5] = [
        (Kind::Fwd, Target::Sm90),
        (Kind::Fwd, Target::Sm80),
        (Kind::FwdShort, Target::Sm90),
        (Kind::FwdSplit, Target::Sm90),
        (Kind::Bwd, Target::Sm90),
    ];

    fn point(kind: Kind, target: Target, causal: bool) -> Point {
        Point { kind, head_dim: HeadDim::equal(128), dtype: Dtype::Bf16, causal, features: Features::NONE, target }
    }

    const SHAPE: Shape = Shape { batch: 1, heads: 16, heads_k: 4, seqlen_q: 0, seqlen_k: 0, page_size: 0 };

    /// Microseconds of a batch of these lengths on an H100.
    fn packed(point: Point, lengths: &[[u32; 2]]) -> f64 {
        let (plan, card) = (Plan::new(point, None).expect("a plan"), Card::named("h100").expect("a card"));
        estimate_packed(point, plan.attention(), &plan, &SHAPE, lengths, &card).expect("it runs there").microseconds
    }

    /// As many queries as keys; one of a decoding kernel.
    fn pairs_of(kind: Kind, lengths: &[u32]) -> Vec<[u32; 2]> {
        lengths.iter().map(|keys| [if kind == Kind::FwdSplit { 1 } else { *keys }, *keys]).collect()
    }

    #[test]
    fn equal_lengths_have_the_time_of_a_batch() {
        for ((kind, target), causal) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let point = point(kind, target, causal);
            let (plan, card) = (Plan::new(point, None).expect("a plan"), Card::named("h100").expect("a card"));
            for (batch, length) in [(1, 777), (3, 4096), (40, 512)] {
                let lengths = pairs_of(kind, &vec![length; batch as usize]);
                let [seqlen_q, seqlen_k] = lengths[0];
                let shape = Shape { batch, seqlen_q, seqlen_k, ..SHAPE };
                let of_batch = estimate(point, plan.attention(), &plan, &shape, &card).expect("it runs there");
                let of_lengths = estimate_packed(point, plan.attention(), &plan, &SHAPE, &lengths, &card).expect("likewise");
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
                let parts = of_lengths.parts.iter().zip(&of_batch.parts);
                assert!(parts.clone().all(|(a, b)| a.unit == b.unit && near(a.microseconds, b.microseconds)), "{kind} {target}");
                assert!(near(of_lengths.microseconds, of_batch.microseconds) && of_lengths.splits == of_batch.splits);
                assert!(near(of_lengths.work.flops, of_batch.work.flops) && near(of_lengths.waves, of_batch.waves));
                assert!(near(of_lengths.floor_microseconds, of_batch.floor_microseconds), "{kind} {target} {batch} {length}");
            }
        }
    }

    #[test]
    fn the_sequences_that_a_batch_is_compared_with_have_its_pairs() {
        assert_eq!(alike(&[[512, 512]; 7]), Some((7, [512, 512])));
        // 1024² and eight times 512²: two thirds of the pairs have 512 keys.
        let mixed = [&[[1024, 1024]][..], &[[512, 512]; 8]].concat();
        assert_eq!(alike(&mixed), Some((7, [683, 683])));
        assert_eq!(alike(&[[1, 30], [1, 10]]), Some((2, [1, 25])));
        assert_eq!(alike(&[]), None);
    }

    /// A row less changes no number of steps.
    #[test]
    fn nearly_equal_lengths_have_nearly_the_time_of_equal_ones() {
        let mut far = Vec::new();
        for ((kind, target), causal) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            for (batch, length) in [(2, 8192), (8, 2048), (32, 512)] {
                let mut lengths = vec![length; batch];
                let equal = packed(point(kind, target, causal), &pairs_of(kind, &lengths));
                lengths[0] -= 1;
                let nearly = packed(point(kind, target, causal), &pairs_of(kind, &lengths));
                far.push((nearly / equal, format!("{kind} {target} {causal} {batch} x {length}")));
            }
        }
        assert!(far.iter().all(|(ratio, _)| (0.97..1.001).contains(ratio)), "{far:#?}");
    }

    #[test]
    fn a_batch_takes_less_than_as_many_of_its_longest_and_more_than_of_its_shortest() {
        for ((kind, target), causal) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let of = |lengths: &[u32]| packed(point(kind, target, causal), &pairs_of(kind, lengths));
            let [short, mixed, long] = [of(&[1024; 8]), of(&[4096, 1024, 1024, 4096, 1024, 1024, 1024, 1024]), of(&[4096; 8])];
            assert!(short < mixed && mixed < long, "{kind} {target} {causal}: {short} {mixed} {long}");
        }
    }

    #[test]
    fn tiles_see_what_the_mask_leaves_in_the_order_of_the_launch() {
        let kernel = Kernel { rows: 64.0, group_rows: 64.0, keys: 64.0, ..Kernel::default() };
        let steps = |kind, causal, seqlen_q, seqlen_k| -> Vec<f64> {
            let shape = Shape { seqlen_q, seqlen_k, ..SHAPE };
            let of = tiles(point(kind, Target::Sm90, causal), &shape, &kernel, &Sharing::WHOLE);
            of.iter().map(|tile| tile.steps).collect()
        };
        assert_eq!(steps(Kind::Fwd, false, 130, 200), [4.0, 4.0, 4.0]);
        assert_eq!(steps(Kind::Fwd, true, 130, 130), [3.0, 2.0, 1.0], "forward kernels begin with the last queries");
        assert_eq!(steps(Kind::Fwd, true, 64, 256), [4.0]);
        assert_eq!(steps(Kind::Fwd, true, 256, 64), [1.0, 0.0, 0.0, 0.0], "the first queries see no key");
        assert_eq!(steps(Kind::Bwd, true, 128, 128), [2.0, 1.0], "the first keys are seen by all queries");
        assert_eq!(steps(Kind::Bwd, true, 256, 128), [2.0, 1.0], "half of the queries see no key");
        // Four query heads of a key head share tiles: 40 rows, of which the one group is filled, and two splits.
        let packed = Sharing { packed: true, splits: 2.0, balanced: false, most_splits: 2.0 };
        let of = |seqlen_q| {
            tiles(point(Kind::FwdSplit, Target::Sm90, true), &Shape { seqlen_q, seqlen_k: 640, ..SHAPE }, &kernel, &packed)
        };
        assert_eq!(of(10), [Tile { steps: 5.0, filled: 1.0 }]);
        assert_eq!(of(17).len(), 2);
    }
}
