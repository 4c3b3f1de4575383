//! The paths that a request can take, and the one that is predicted to be the fastest.

use super::{
    DeviceCost, KernelCost, Request, Sharing, Times,
    predict::{COUNTED_NS, UNSPLIT_NS},
};

/// A way to compute forward attention, in the order of `KGEN_PATH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// `fwd`.
    Dense,
    /// `fwd_short`.
    Short,
    /// `fwd_split` with as many splits for every sequence, then `fwd_combine`; with one split, nothing else.
    Split,
    /// `prepare_scheduler`, `fwd_split`, `fwd_combine`.
    Scheduled,
    /// `fwd` for paged K and V, then `fwd_split` for the sequences of few queries. Not weighed here.
    Mixed,
    /// `fwd` whose tiles hold the queries of all heads that read one key head.
    Packed,
}

/// The most splits that last blocks can count: `MOST_COUNTED` of `kgen/split_plan.cuh`.
const MOST_COUNTED: u32 = 255;

/// A kernel that the library holds for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its numbers.
    pub cost: KernelCost,
    /// Blocks of it that a multiprocessor of the device holds at once.
    pub resident: u32,
    /// `fwd_split`: tiles of 16 rows that `prepare_scheduler` is told a multiprocessor runs at once. Others: 0.
    pub scheduled_tiles: u32,
}

/// The kernels that a library holds for a request, each path's own; `None` where it holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    /// `fwd`.
    pub dense: Option<Held>,
    /// `fwd` with packed heads.
    pub packed: Option<Held>,
    /// `fwd_short`.
    pub short: Option<Held>,
    /// `fwd_split`.
    pub split: Option<Held>,
    /// `fwd_combine`.
    pub combine: Option<Held>,
    /// `prepare_scheduler`.
    pub scheduler: Option<Held>,
}

/// The times of all kernels of a path (ns).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathTimes {
    /// The kernel that computes attention.
    pub attention: Times,
    /// `fwd_combine`, or the blocks that end last.
    pub combine: f64,
    /// `prepare_scheduler`.
    pub scheduler: f64,
}

impl PathTimes {
    fn total(&self) -> f64 {
        self.attention.total() + self.combine + self.scheduler
    }
}

/// A path, and what it is predicted to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub path: Path,
    /// Splits of each sequence, at most; 1 where nothing is split.
    pub splits: u32,
    /// What its kernels take; where the number of keys is unknown, by the first of two guesses.
    pub times: PathTimes,
    /// What all of them take (ns): the mean of the guesses.
    pub predicted_ns: f64,
    /// Partial results are merged by the last block of each row tile.
    pub by_last_block: bool,
}

impl Candidate {
    fn new(path: Path, splits: u32, request: &Request, predict: &dyn Fn(&Request) -> PathTimes) -> Self {
        let times = predict(request);
        let other = request.with_one_long_sequence().map(|other| predict(&other).total());
        let predicted_ns = other.map_or(times.total(), |other| f64::midpoint(times.total(), other));
        Self { path, splits, times, predicted_ns, by_last_block: false }
    }
}

impl Candidate {
    /// The faster way to merge partial results; `predict(request, by_last_block)`.
    fn merged(
        path: Path,
        splits: u32,
        request: &Request,
        can_count: bool,
        predict: &dyn Fn(&Request, bool) -> PathTimes,
    ) -> Self {
        let launched = Self::new(path, splits, request, &|guess| predict(guess, false));
        let counted = Self { by_last_block: true, ..Self::new(path, splits, request, &|guess| predict(guess, true)) };
        if can_count && counted.predicted_ns < launched.predicted_ns { counted } else { launched }
    }
}

/// Every path that the library's kernels can take, in the order in which the dispatcher weighs them: dense, short, one
/// split, each split count, scheduled, packed. The request has been found to make sense and asks for nothing in
/// particular.
pub fn weigh(request: &Request, held: &Kernels, device: &DeviceCost) -> Vec<Candidate> {
    let mut candidates = weigh_by_head(request, held, device);
    candidates.extend(held.packed.map(|packed| whole(Path::Packed, packed, request, device)));
    candidates
}

/// A path of one kernel, which divides no keys.
fn whole(path: Path, Held { cost, resident, .. }: Held, request: &Request, device: &DeviceCost) -> Candidate {
    let sharing = Sharing { packed: path == Path::Packed, ..Sharing::NONE };
    Candidate::new(path, 1, request, &|guess| {
        let attention = Times::of(guess, &cost, resident, device, sharing);
        PathTimes { attention, combine: 0.0, scheduler: 0.0 }
    })
}

/// Every path but [`Path::Packed`].
fn weigh_by_head(request: &Request, held: &Kernels, device: &DeviceCost) -> Vec<Candidate> {
    let whole = |path, kernel: Option<Held>| kernel.map(|kernel| whole(path, kernel, request, device));
    let mut candidates: Vec<Candidate> =
        [whole(Path::Dense, held.dense), whole(Path::Short, held.short)].into_iter().flatten().collect();
    let Some(split) = held.split.filter(|_| request.keys.longest > 0) else { return candidates };
    let sharing = Sharing { packed: true, splits: 1.0, balanced: false, most_splits: 1.0 };
    candidates.push(Candidate::new(Path::Split, 1, request, &|guess| {
        let attention = Times::of(guess, &split.cost, split.resident, device, sharing);
        PathTimes { attention, combine: UNSPLIT_NS, scheduler: 0.0 }
    }));
    let Some(combine) = held.combine else { return candidates };
    let counted = request.arrivals >= request.counters(&split.cost);
    let times = |guess: &Request, by_last_block: bool, splits: f64, most_splits: u32, scheduler: Option<Held>| {
        let sharing = Sharing { packed: true, splits, balanced: scheduler.is_some(), most_splits: most_splits.into() };
        let merge = if by_last_block {
            guess.last_block_ns(&split.cost, split.resident, device, splits, sharing.balanced)
        } else {
            guess.combine_ns(&combine.cost, combine.resident, device, splits)
        };
        PathTimes {
            attention: Times::of(guess, &split.cost, split.resident, device, sharing),
            combine: if sharing.balanced { COUNTED_NS + merge } else { merge },
            scheduler: scheduler.map_or(0.0, |scheduler| guess.scheduler_ns(&scheduler.cost, device)),
        }
    };
    for splits in request.split_counts(&split.cost, split.resident, device) {
        candidates.push(Candidate::merged(
            Path::Split,
            splits,
            request,
            counted && splits <= MOST_COUNTED,
            &|guess, by_last_block| times(guess, by_last_block, splits.into(), splits, None),
        ));
    }
    if let (Some(_), true) = (held.scheduler, request.keys.unequal) {
        let blocks = device.multiprocessors * f64::from(split.scheduled_tiles);
        let most = most_splits(request, blocks);
        if most == 1 {
            return candidates;
        }
        // The scheduler clears counters.
        candidates.push(Candidate::merged(Path::Scheduled, most, request, true, &|guess, by_last_block| {
            times(guess, by_last_block, guess.balanced_splits(blocks, most), most, held.scheduler)
        }));
    }
    candidates
}

/// The candidate that is predicted to be the fastest, the first of equals.
pub fn chosen(candidates: &[Candidate]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (place, candidate) in candidates.iter().enumerate() {
        if best.is_none_or(|best| candidate.predicted_ns < candidates[best].predicted_ns) {
            best = Some(place);
        }
    }
    best
}

/// The most splits that any sequence of a batch of unequal lengths can be worth: by itself it should not fill the
/// device more than once (`most_split_count` of `kgen/split_plan.cuh`).
fn most_splits(request: &Request, blocks: f64) -> u32 {
    let group = request.heads / request.heads_k;
    let rows = u64::from(request.queries.longest) * u64::from(group);
    let tiles = rows.div_ceil(16) * u64::from(request.heads_k);
    let blocks = whole_number(blocks);
    let at_once = if tiles < blocks { blocks / tiles } else { 1 };
    let seen = request.most_seen.unwrap_or(u32::MAX);
    let worthwhile = request.keys.longest.min(seen).div_ceil(128).min(MOST_COUNTED);
    u32::try_from(at_once).unwrap_or(MOST_COUNTED).min(worthwhile)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of blocks")]
fn whole_number(count: f64) -> u64 {
    count as u64
}
