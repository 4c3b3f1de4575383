//! The arithmetic of `templates/include/kgen/path_cost.cuh`, operation by operation.

use super::{DeviceCost, KernelCost};
use crate::kernel::HeadDim;

/// A split is cut between multiples of so many keys, and has at least so many of them (`kgen/split_plan.cuh`).
const LEAST_KEYS_OF_A_SPLIT: f64 = 128.0;

/// Rows of the tiles that `prepare_scheduler` counts (`kgen/split_plan.cuh`).
const SCHEDULED_ROWS: f64 = 16.0;

/// Most splits of a sequence (`kgen/split_plan.cuh`).
pub(super) const MOST_SPLITS: u32 = 256;

/// Split counts that are weighed, besides those that fill the device.
const ROUND: [u32; 15] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// What the host knows of a batch's lengths on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The longest, which bounds the grid.
    pub longest: u32,
    /// Whether they may differ: the side has `cu_seqlens` or `seqused`.
    pub unequal: bool,
    /// Rows of all together, where the caller gives them; 0 where not.
    pub total: u32,
}

/// One long sequence among short ones: the longest to each of the others.
const LONG_TO_SHORT: u32 = 16;

impl Lengths {
    /// Sequences of one length.
    pub fn equal(length: u32) -> Self {
        Self { longest: length, unequal: false, total: 0 }
    }

    /// The mean, of which one is the longest; where nobody says how many rows there are together, the others have about
    /// half as many.
    fn mean(self, batch: f64) -> f64 {
        let longest = f64::from(self.longest);
        if !self.unequal || batch <= 1.0 {
            return longest;
        }
        if self.total == 0 {
            return (longest + (batch - 1.0) * f64::midpoint(longest, 1.0)) / batch;
        }
        longest.min((f64::from(self.total) / batch).max(1.0))
    }
}

/// A request of `kgen_fwd`, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Sequences.
    pub batch: u32,
    /// Query heads, a multiple of `heads_k`.
    pub heads: u32,
    /// Key heads.
    pub heads_k: u32,
    /// Rows of Q.
    pub queries: Lengths,
    /// Rows of K.
    pub keys: Lengths,
    /// Elements of a row of Q and K, and of V and O.
    pub head_dim: HeadDim,
    /// Bytes of an element of Q.
    pub element_bytes: u32,
    /// Bytes of an element of K and V.
    pub kv_element_bytes: u32,
    /// Causal mask.
    pub causal: bool,
    /// Keys that one query sees at most, by a window or chunks.
    pub most_seen: Option<u32>,
    /// The caller's words of counters.
    pub arrivals: u64,
}

impl Request {
    fn group(&self) -> f64 {
        f64::from(self.heads) / f64::from(self.heads_k)
    }

    /// How many more keys a query has than a sequence, on the average. Where sequences attend to themselves, the long
    /// ones have more of both. Taken is that lengths are the longest times a power of an even spread from 0 to 1, that
    /// with the given mean; where both sides differ in length by themselves, that one sequence is the longest in both.
    fn keys_to_mean(&self) -> f64 {
        if !self.queries.unequal || !self.keys.unequal || self.batch <= 1 {
            return 1.0;
        }
        let [batch, longest_queries, longest] = [self.batch, self.queries.longest, self.keys.longest].map(f64::from);
        let mean = self.mean_keys();
        if self.queries.longest == self.keys.longest && self.mean_queries().total_cmp(&mean).is_eq() {
            return longest * longest / (mean * (2.0 * longest - mean));
        }
        let (queries, keys) = (self.mean_queries() * batch, mean * batch);
        let others = (queries - longest_queries).max(0.0) * (keys - longest).max(0.0) / (batch - 1.0);
        (longest_queries * longest + others) / queries / mean
    }

    /// Query tiles of a sequence, which has `rows` rows. Of unequal lengths the last tile is half full on the average.
    fn tiles_of_sequence(&self, rows: f64, tile_rows: f64) -> f64 {
        let tiles = rows / tile_rows;
        if self.queries.unequal && self.batch > 1 { (tiles + 0.5).max(1.0) } else { tiles.ceil() }
    }

    fn mean_queries(&self) -> f64 {
        self.queries.mean(self.batch.into())
    }

    /// Rows of a sequence before its first key.
    fn rows_without_keys(&self) -> f64 {
        if self.causal { (self.mean_queries() - self.mean_keys()).max(0.0) } else { 0.0 }
    }

    fn mean_keys(&self) -> f64 {
        self.keys.mean(self.batch.into())
    }

    fn most_seen(&self) -> f64 {
        self.most_seen.map_or(f64::INFINITY, f64::from)
    }

    /// The keys that `queries` neighbouring queries of a sequence see at most.
    fn most_seen_by(&self, queries: f64) -> f64 {
        self.most_seen() + (queries.min(self.mean_queries()) - 1.0).max(0.0)
    }

    /// The other guess where the number of keys is unknown: one long sequence among short ones.
    pub(super) fn with_one_long_sequence(&self) -> Option<Self> {
        let Lengths { longest, unequal, total } = self.keys;
        let total_then = longest.saturating_add((longest / LONG_TO_SHORT).max(1).saturating_mul(self.batch - 1));
        (unequal && self.batch > 1 && total == 0).then_some(Self { keys: Lengths { total: total_then, ..self.keys }, ..*self })
    }

    /// Tiles of all sequences, where their rows are those of all heads that read one key head.
    fn packed_tiles(&self, kernel: &KernelCost) -> f64 {
        f64::from(self.batch) * f64::from(self.heads_k) * (self.mean_queries() * self.group() / f64::from(kernel.rows)).ceil()
    }

    /// Split counts that are weighed, in rising order.
    pub fn split_counts(&self, kernel: &KernelCost, resident: u32, device: &DeviceCost) -> Vec<u32> {
        let filling = (device.multiprocessors * f64::from(resident) / self.packed_tiles(kernel)).floor();
        let most =
            f64::from(MOST_SPLITS).min((f64::from(self.keys.longest).min(self.most_seen()) / LEAST_KEYS_OF_A_SPLIT).ceil());
        let wanted = ROUND.map(f64::from).into_iter().chain([filling, 2.0 * filling]);
        let mut counts: Vec<u32> = wanted.filter(|splits| (2.0..=most).contains(splits)).map(whole).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Splits that `prepare_scheduler` gives a sequence on the average, at most `most`, where it is told of `blocks` at
    /// once: all run at once, or in two turns.
    pub(super) fn balanced_splits(&self, blocks: f64, most: u32) -> f64 {
        let rows = self.mean_queries() * self.group();
        let tiles = f64::from(self.batch) * f64::from(self.heads_k) * (rows / SCHEDULED_ROWS).ceil();
        let keys = self.mean_keys().min(self.most_seen());
        let longest = f64::from(self.keys.longest).min(self.most_seen());
        if tiles > blocks && 3.0 * longest * blocks <= 2.0 * keys * tiles {
            return 1.0;
        }
        let turns = if tiles <= blocks { 1.0 } else { 2.0 };
        let splits = (turns * blocks / tiles).min((keys / LEAST_KEYS_OF_A_SPLIT).floor());
        splits.min(most.into()).max(1.0)
    }

    /// The merge of partial results: a block for each row, as if all sequences had as many as the longest.
    pub(super) fn combine_ns(&self, kernel: &KernelCost, resident: u32, device: &DeviceCost, splits: f64) -> f64 {
        let rows_of = |queries: f64| f64::from(self.batch) * queries * f64::from(self.heads);
        let rows = rows_of(self.mean_queries());
        let launched = rows_of(self.queries.longest.into());
        let rows_with_keys = rows_of(self.mean_queries() - self.rows_without_keys());
        let pieces = f64::from(self.head_dim.v.div_ceil(8).next_power_of_two());
        let rounds = (splits * pieces / f64::from(kernel.keys)).ceil();
        let slots = device.multiprocessors * f64::from(resident);
        let empty = (launched - rows) / slots * (WITHOUT_KEYS * f64::from(kernel.tile_cycles));
        let merged = (rows_with_keys / slots).ceil() * rounds * f64::from(kernel.chain_cycles);
        let started = launched.min(slots) / device.multiprocessors * f64::from(kernel.step_cycles);
        let busy = ((rows / slots).ceil() * f64::from(kernel.tile_cycles) + merged + empty + started) / device.cycles_per_ns;
        let bytes = rows_with_keys * splits * (f64::from(self.head_dim.v) + 1.0) * 4.0;
        f64::from(kernel.launch_ns) + busy.max(bytes / device.l2_bytes_per_ns)
    }

    /// Words of counters for the row tiles of a kernel that splits, four tiles each. A launch has as many tiles for
    /// each sequence as for the longest.
    pub(super) fn counters(&self, kernel: &KernelCost) -> u64 {
        let rows = u64::from(self.queries.longest) * u64::from(self.heads / self.heads_k);
        (rows.div_ceil(kernel.rows.into()) * u64::from(self.heads_k) * u64::from(self.batch)).div_ceil(4)
    }

    /// The merge of partial results by the block of each row tile that ends last. Warps share out the rows of a tile,
    /// and a warp reads 32 pieces of 4 columns 8 times before it adds them. `balanced`: sequences of one split
    /// are written whole.
    pub(super) fn last_block_ns(
        &self,
        kernel: &KernelCost,
        resident: u32,
        device: &DeviceCost,
        splits: f64,
        balanced: bool,
    ) -> f64 {
        let merged = if balanced { (splits - 1.0).min(1.0) } else { 1.0 }; // of all sequences
        let tile_rows = f64::from(kernel.rows);
        let rows_of_sequence = self.mean_queries() * self.group();
        let tiles = f64::from(self.batch) * f64::from(self.heads_k) * self.tiles_of_sequence(rows_of_sequence, tile_rows);
        let warps = if kernel.rows > 32 { 8.0 } else { 4.0 };
        let rows = (tile_rows.min(rows_of_sequence) / warps).ceil();
        let head_dim_v = f64::from(self.head_dim.v);
        let lanes = f64::from(self.head_dim.v.div_ceil(4).next_power_of_two().clamp(4, 32)); // that share a split's row
        let rounds = (splits * lanes / (32.0 * 8.0)).ceil() * (head_dim_v / 128.0).ceil();
        let turns = (tiles * splits / (device.multiprocessors * f64::from(resident))).ceil();
        let counted = COUNTING + (turns - 1.0) * COUNTING_BESIDE;
        let busy = (counted + rows * (LOG_SUM_EXPS + rounds * ROUND_OF_PARTS)) / device.cycles_per_ns;
        let rows_with_keys = f64::from(self.batch) * (self.mean_queries() - self.rows_without_keys()) * f64::from(self.heads);
        let bytes = rows_with_keys * splits * (head_dim_v + 1.0) * 4.0;
        merged * busy.max(bytes / device.l2_bytes_per_ns) + (1.0 - merged) * UNSPLIT_NS
    }

    /// The choice of split counts on the device.
    pub(super) fn scheduler_ns(&self, kernel: &KernelCost, device: &DeviceCost) -> f64 {
        let rounds = (f64::from(self.batch) / f64::from(kernel.rows)).ceil();
        f64::from(kernel.launch_ns) + rounds * f64::from(kernel.tile_cycles) / device.cycles_per_ns
    }
}

/// How the keys of a sequence are shared out over blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// A tile's rows are those of all heads that read one key head.
    pub packed: bool,
    /// Blocks of each sequence's tile, on the average.
    pub splits: f64,
    /// Longer sequences have more of them.
    pub balanced: bool,
    /// Those of the longest sequence's tile.
    pub most_splits: f64,
}

impl Sharing {
    /// Not at all.
    pub const NONE: Self = Self { packed: false, splits: 1.0, balanced: false, most_splits: 1.0 };
}

/// Of what should run beside the longest part, the part that does not.
const NOT_BESIDE: f64 = 0.2;

/// A tile whose rows see no key takes this part of what another takes besides its steps: nothing is waited for. So does
/// a block of `fwd_combine` for a row that a shorter sequence does not have.
const WITHOUT_KEYS: f64 = 0.3;

/// What a split-KV kernel takes besides where it writes O itself (ns).
pub(super) const UNSPLIT_NS: f64 = 700.0;

/// What it takes besides where counts of splits are given (ns).
pub(super) const COUNTED_NS: f64 = 1500.0;

/// What a merge by last blocks takes (cycles): a block counting itself, behind a fence and between two barriers, in the
/// last turn and in earlier ones, where others compute; the log-sum-exps of a row; a round of loads of partial O.
/// Fitted to nine shapes of decoding in 2 to 32 splits on an H200.
const COUNTING: f64 = 1750.0;
const COUNTING_BESIDE: f64 = 500.0;
const LOG_SUM_EXPS: f64 = 1500.0;
const ROUND_OF_PARTS: f64 = 1500.0;

/// Where places do not end together, the part of an average tile that the last ones take longer.
const DRAIN: f64 = 0.375;

/// A line of L2.
const LINE_BYTES: f64 = 128.0;

/// Where a row of K or V does not fill its last line, what of the rest is fetched besides: the block of the next head,
/// which wants it, often comes too late. Not where each block has a multiprocessor to itself: then they keep step.
const OF_LINE: f64 = 0.3;

/// Parts of the bytes that L2 may still hold. K and V of the first one at most are there as a whole, those of the
/// second one or more not at all: what was written last has driven out what is read first.
const KEYS_KEPT: [f64; 2] = [0.4, 0.64];

/// The times of a kernel that computes attention (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Of the launch.
    pub launch: f64,
    /// Of a block's place with its first query tile besides the steps.
    pub tile: f64,
    /// Of steps one after another in a block's place, each as if the block were alone, and of the other tiles there.
    pub chain: f64,
    /// Of a multiprocessor's units with all steps of its blocks, and of the other tiles.
    pub step: f64,
    /// Of device memory or L2 with all that is moved.
    pub memory: f64,
}

impl Times {
    /// The kernel's time.
    pub fn total(&self) -> f64 {
        let longest = self.chain.max(self.step).max(self.memory);
        self.launch + self.tile + longest + NOT_BESIDE * (self.chain + self.step + self.memory - longest)
    }

    /// A kernel of which a multiprocessor holds `resident` blocks at once.
    pub fn of(request: &Request, kernel: &KernelCost, resident: u32, device: &DeviceCost, sharing: Sharing) -> Self {
        let [batch, heads, heads_k] = [request.batch, request.heads, request.heads_k].map(f64::from);
        let [tile_rows, group_rows, tile_keys] = [kernel.rows, kernel.group_rows, kernel.keys].map(f64::from);
        let (queries, mean_keys) = (request.mean_queries(), request.mean_keys());
        let group = if sharing.packed { request.group() } else { 1.0 };
        let tiles_of_sequence = request.tiles_of_sequence(queries * group, tile_rows);
        let blocks = batch * if sharing.packed { heads_k } else { heads } * tiles_of_sequence * sharing.splits;
        let seen = queries.min(mean_keys);
        let span = seen.min(tile_rows / group);
        let diagonal = request.causal && seen > span;
        let keys = if diagonal { (mean_keys - (seen - span) / 2.0) * (seen / queries) } else { mean_keys };
        // With a window or chunks no tile sees more than this.
        let limit = request.most_seen_by(tile_rows / group);
        let longest_keys = f64::from(request.keys.longest).min(limit);
        let keys = longest_keys.min(keys * request.keys_to_mean());
        let steps = |keys: f64| keys / sharing.splits / tile_keys;
        let most = steps(if sharing.balanced { mean_keys.min(limit) } else { longest_keys }).ceil();
        let average = most.min(if diagonal { steps(keys) + 0.5 } else { steps(keys).ceil() });
        let longest = if sharing.balanced { average.max((longest_keys / sharing.most_splits / tile_keys).ceil()) } else { most };

        // The longest sequence's blocks begin when they do, and half of what they have more comes after all others have
        // ended.
        let unequal = request.queries.unequal || request.keys.unequal;
        let tail = if unequal { (longest - average) / 2.0 } else { 0.0 };

        // Rows before the first key: their tiles are written and no more.
        let without_keys = request.rows_without_keys();
        let with_keys = if without_keys > 0.0 { 1.0_f64.min((seen * group / tile_rows).ceil() / tiles_of_sequence) } else { 1.0 };
        let full_tiles = with_keys + WITHOUT_KEYS * (1.0 - with_keys);

        let slots = device.multiprocessors * f64::from(resident);
        let blocks_with_keys = blocks * with_keys;
        // What must have more than one turn for a block to end later than others.
        let in_turns = if kernel.longest_first { blocks_with_keys } else { blocks };
        let (tiles, in_slot, in_multiprocessor) = if diagonal || unequal {
            let turns = |places: f64| {
                longest.max(blocks * average / places + if in_turns > places { DRAIN * average + tail } else { 0.0 })
            };
            let tiles = blocks * full_tiles / slots + if in_turns > slots { 2.0 * DRAIN } else { 0.0 };
            (tiles.max(1.0), turns(slots), turns(device.multiprocessors))
        } else {
            let turns = |places: f64| (blocks_with_keys / places).ceil() * longest;
            (((blocks / slots).ceil() * full_tiles).max(1.0), turns(slots), turns(device.multiprocessors))
        };
        // The last tile of a sequence, or its only one, may lack groups of rows. The fullest tile is one that does not.
        let rows_of_groups = (queries * group / group_rows).ceil() * group_rows;
        let fullest = 1.0_f64.min(rows_of_groups / tile_rows);
        let average_tile = 1.0_f64.min(rows_of_groups / (tiles_of_sequence * tile_rows));
        let busy_steps = (longest * fullest).max(in_multiprocessor * average_tile);
        let of_line = if blocks > device.multiprocessors { OF_LINE } else { 0.0 };
        let fetched = |element_bytes: u32| {
            let with_line = |head_dim: u32| {
                let row_bytes = f64::from(head_dim * element_bytes);
                row_bytes + of_line * ((row_bytes / LINE_BYTES).ceil() * LINE_BYTES - row_bytes)
            };
            with_line(request.head_dim.qk) + with_line(request.head_dim.v)
        };
        // Of a row of Q and one of O, and of a row of K and one of V.
        let (of_row, of_key) = (fetched(request.element_bytes), fetched(request.kv_element_bytes));
        let keys_read = mean_keys.min(request.most_seen_by(queries));
        let rows_bytes = of_row * batch * (queries - without_keys / 2.0) * heads;
        let keys_bytes = of_key * batch * keys_read * heads_k;
        let keys_gone = (keys_bytes / device.kept_bytes - KEYS_KEPT[0]) / (KEYS_KEPT[1] - KEYS_KEPT[0]);
        let from_dram = (rows_bytes - device.kept_bytes).max(0.0) + keys_bytes * keys_gone.clamp(0.0, 1.0);
        let partial_bytes = (f64::from(request.head_dim.v) + 1.0) * 4.0;
        let partial =
            if sharing.packed { batch * (queries - without_keys) * heads * sharing.splits * partial_bytes } else { 0.0 };
        let from_l2 = blocks * (keys / sharing.splits) * of_key + partial;
        // Of a slot's first tile nothing is hidden; the others start and end while other blocks fetch.
        let later = (tiles - 1.0) * f64::from(kernel.tile_cycles);
        Self {
            launch: f64::from(kernel.launch_ns) + if blocks > slots / 2.0 { f64::from(kernel.crowded_ns) } else { 0.0 },
            tile: f64::from(kernel.tile_cycles) / device.cycles_per_ns,
            chain: (in_slot * f64::from(kernel.chain_cycles) + later) / device.cycles_per_ns,
            step: (busy_steps * f64::from(kernel.step_cycles) + later) / device.cycles_per_ns,
            memory: (from_dram / device.dram_bytes_per_ns).max(from_l2 / device.l2_bytes_per_ns)
                + tail * f64::from(kernel.chain_cycles) / device.cycles_per_ns,
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 1 to 256")]
fn whole(splits: f64) -> u32 {
    splits as u32
}
