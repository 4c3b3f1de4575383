//! Time of a batch whose sequences have lengths of their own. The dispatcher knows the longest and the mean; here each
//! length is known, so blocks with unlike numbers of steps take their places one after the other, as the card starts
//! them. The times are those of the dispatcher's formulas for equal sequences, which were fitted to measured calls, by
//! what unlike blocks change.

use super::shipped::{Device, Kernel, Request, Sharing, Time};
use std::{cmp::Reverse, collections::BinaryHeap};

/// A block's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// Steps over the keys that it sees; 0 if it sees none.
    pub steps: f64,
    /// Part of its rows that are computed: groups without rows are skipped.
    pub filled: f64,
}

/// A sequence.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The sequence as a batch of its own.
    pub request: Request,
    /// The tiles of one head and split, in the order of the launch.
    pub tiles: Vec<Tile>,
    /// Its part of the batch's bytes.
    pub share: f64,
}

/// Blocks beyond which their order makes no difference to the time: there are thousands for every place.
const MOST_BLOCKS: f64 = 1e6;

/// The time of a batch: that of the equal sequences `like`, which is `of_like`, times the ratio of what both keep busy.
pub fn time(batch: &[Sequence], like: &[Sequence], of_like: &Time, kernel: &Kernel, device: &Device, shares: &Sharing) -> Time {
    // The first tile of a place is a part of its own.
    let in_slots = |sequences: &[Sequence]| cycles_in_slots(sequences, kernel, device, shares) - kernel.tile_cycles;
    let in_multiprocessors = |sequences: &[Sequence]| cycles_in_multiprocessors(sequences, kernel, device, shares);
    let traffic = |sequences: &[Sequence]| memory(sequences, kernel, device, shares);
    let ratio = |of: &dyn Fn(&[Sequence]) -> f64| {
        let (batch, like) = (of(batch), of(like));
        if like > 0.0 { batch / like } else { 1.0 }
    };
    Time {
        chain: of_like.chain * ratio(&in_slots),
        step: of_like.step * ratio(&in_multiprocessors),
        memory: of_like.memory * ratio(&traffic),
        ..*of_like
    }
}

/// Cycles until the last slot has done its blocks, whose steps wait for one another.
fn cycles_in_slots(sequences: &[Sequence], kernel: &Kernel, device: &Device, shares: &Sharing) -> f64 {
    let cost = |tile: &Tile| tile.steps * kernel.chain_cycles + kernel.tile_cycles;
    makespan(sequences, kernel, shares, &cost, device.multiprocessors * kernel.resident.max(1.0))
}

/// Cycles for which the units of the last multiprocessor are busy.
fn cycles_in_multiprocessors(sequences: &[Sequence], kernel: &Kernel, device: &Device, shares: &Sharing) -> f64 {
    let cost = |tile: &Tile| tile.steps * tile.filled * kernel.step_cycles;
    makespan(sequences, kernel, shares, &cost, device.multiprocessors)
}

/// The traffic of all sequences, each of which has its share of the card: what L2 holds of a batch, it holds of each.
fn memory(sequences: &[Sequence], kernel: &Kernel, device: &Device, shares: &Sharing) -> f64 {
    let of = |sequence: &Sequence| {
        let scaled = Device {
            multiprocessors: device.multiprocessors * sequence.share,
            l2_bytes: device.l2_bytes * sequence.share,
            kept_bytes: device.kept_bytes * sequence.share,
            ..*device
        };
        Time::of(&sequence.request, kernel, &scaled, shares).memory
    };
    sequences.iter().map(of).sum()
}

/// Blocks of the batch.
pub fn blocks(sequences: &[Sequence], shares: &Sharing) -> f64 {
    sequences.iter().map(|sequence| copies(sequence, shares) as f64 * sequence.tiles.len() as f64).sum()
}

/// How often the tiles of a head and split are launched for a sequence.
fn copies(sequence: &Sequence, shares: &Sharing) -> u64 {
    let heads = if shares.packed { sequence.request.heads_k } else { sequence.request.heads };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "heads and splits are small numbers")]
    let copies = (heads * shares.splits) as u64;
    copies
}

/// Cycles until the last place is done: every block goes to the place that is free first. They come in the order of the
/// launch, or those with the most steps first if the kernel assigns them so.
fn makespan(sequences: &[Sequence], kernel: &Kernel, shares: &Sharing, cost: &dyn Fn(&Tile) -> f64, places: f64) -> f64 {
    let costs = || sequences.iter().flat_map(|sequence| sequence.tiles.iter().map(move |tile| (sequence, cost(tile))));
    let total: f64 = costs().map(|(sequence, cost)| copies(sequence, shares) as f64 * cost).sum();
    let longest = costs().map(|(_, cost)| cost).fold(0.0, f64::max);
    if blocks(sequences, shares) > MOST_BLOCKS {
        return longest.max(total / places);
    }
    let mut all: Vec<f64> = Vec::new();
    for sequence in sequences {
        for _ in 0..copies(sequence, shares) {
            all.extend(sequence.tiles.iter().map(cost));
        }
    }
    if kernel.longest_first {
        all.sort_by(|a, b| b.total_cmp(a));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a multiple of multiprocessors, and cycles")]
    let (places, cycles) = (places.max(1.0) as usize, |cost: f64| cost.round() as u64);
    let mut free: BinaryHeap<Reverse<u64>> = (0..places).map(|_| Reverse(0)).collect();
    let mut last = 0;
    for cost in all {
        let Some(Reverse(start)) = free.pop() else { break };
        let end = start + cycles(cost);
        last = last.max(end);
        free.push(Reverse(end));
    }
    last as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Kernel = Kernel {
        rows: 64.0,
        group_rows: 64.0,
        keys: 64.0,
        resident: 1.0,
        launch_ns: 100.0,
        crowded_ns: 0.0,
        tile_cycles: 1000.0,
        chain_cycles: 1000.0,
        step_cycles: 500.0,
        longest_first: false,
        orders_batch: false,
    };

    const DEVICE: Device = Device {
        multiprocessors: 2.0,
        cycles_per_ns: 1.0,
        dram_bytes_per_ns: 1e3,
        l2_bytes_per_ns: 64.0,
        l2_bytes: 1e9,
        kept_bytes: 1e9,
    };

    /// A sequence of one head with tiles of these steps.
    fn sequence(steps: &[f64], share: f64) -> Sequence {
        let length = 64.0 * steps.len() as f64;
        let request = Request {
            batch: 1.0,
            heads: 1.0,
            heads_k: 1.0,
            queries: length,
            keys: length,
            longest_queries: length,
            longest_keys: length,
            head_dim: 64.0,
            head_dim_v: 64.0,
            element_bytes: 2.0,
            kv_element_bytes: 2.0,
            most_seen: f64::INFINITY,
            keys_to_mean: 1.0,
            spread: 1.0,
            ..Request::default()
        };
        Sequence { request, tiles: steps.iter().map(|steps| Tile { steps: *steps, filled: 1.0 }).collect(), share }
    }

    fn slots(sequences: &[Sequence], kernel: Kernel) -> f64 {
        cycles_in_slots(sequences, &kernel, &DEVICE, &Sharing::WHOLE)
    }

    fn multiprocessors(sequences: &[Sequence]) -> f64 {
        cycles_in_multiprocessors(sequences, &KERNEL, &DEVICE, &Sharing::WHOLE)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs()
    }

    #[test]
    fn blocks_take_the_place_that_is_free_first() {
        // Two places: 3000 and 3000 cycles, then 2000 behind one of them. The units: 1000, 1000 and 500.
        let batch = [sequence(&[2.0, 2.0], 0.8), sequence(&[1.0], 0.2)];
        assert!(near(slots(&batch, KERNEL), 5000.0) && near(multiprocessors(&batch), 1500.0));
        // Two heads: four blocks of 3000 cycles, two on each place, then one of 2000 on each.
        let of_heads =
            |sequence: Sequence| Sequence { request: Request { heads: 2.0, heads_k: 2.0, ..sequence.request }, ..sequence };
        assert!(near(slots(&batch.map(of_heads), KERNEL), 8000.0));
    }

    #[test]
    fn kernels_that_take_the_longest_first_have_no_tail() {
        let batch = [sequence(&[1.0], 0.25), sequence(&[1.0], 0.25), sequence(&[2.0], 0.5)];
        // In the order of the launch the long block begins after a short one: 2000 + 3000. Else it has a place alone.
        let found = [false, true].map(|longest_first| slots(&batch, Kernel { longest_first, ..KERNEL }));
        assert!(near(found[0], 5000.0) && near(found[1], 4000.0), "{found:?}");
    }

    #[test]
    fn a_tile_that_is_half_empty_keeps_the_units_half_as_busy() {
        let mut half = sequence(&[4.0], 1.0);
        half.tiles[0].filled = 0.5;
        assert!(near(slots(&[half.clone()], KERNEL), 5000.0) && near(multiprocessors(&[half]), 1000.0));
    }

    #[test]
    fn of_very_many_blocks_the_mean_counts() {
        let one = sequence(&[1.0], 1.0);
        let many = Sequence { request: Request { heads: 5e6, heads_k: 5e6, ..one.request }, ..one };
        assert!(near(slots(&[many], KERNEL), 5e6 * 2000.0 / 2.0));
    }

    #[test]
    fn traffic_is_that_of_each_sequence() {
        let batch = [sequence(&[2.0, 2.0], 0.8), sequence(&[1.0], 0.2)];
        // Two tiles read 128 keys of 256 bytes, and one 64, at 64 bytes a cycle.
        assert!(near(memory(&batch, &KERNEL, &DEVICE, &Sharing::WHOLE), (2.0 * 128.0 + 64.0) * 256.0 / 64.0));
    }

    #[test]
    fn the_time_is_that_of_equal_sequences_by_what_differs() {
        let (batch, like) = ([sequence(&[2.0, 2.0], 0.8), sequence(&[1.0], 0.2)], [sequence(&[2.0, 2.0], 1.0)]);
        let of_like = Time { launch: 7.0, tile: 5.0, chain: 100.0, step: 10.0, memory: 1.0 };
        let found = time(&batch, &like, &of_like, &KERNEL, &DEVICE, &Sharing::WHOLE);
        // 4000 by 2000 cycles after the first tile, 1500 by 1000, and 320 by 256 tiles of keys.
        assert!(near(found.chain, 200.0) && near(found.step, 15.0) && near(found.memory, 1.25), "{found:?}");
        assert!(near(found.launch, 7.0) && near(found.tile, 5.0));
        assert_eq!(time(&like, &like, &of_like, &KERNEL, &DEVICE, &Sharing::WHOLE), of_like);
    }
}
