//! Shrinks a failing call while it keeps failing: fewer sequences, heads and rows, and default values for the rest.

use super::{
    case::{Entry, FuzzCase, Merging, Workspace},
    library_call::LibraryCall,
};
use crate::{
    device::Order,
    family::attention::{
        features::{FEATURES, FeatureRoom, features_of_rows, masks_and_scores},
        oracle::{
            descale::Descales,
            problem::{Inputs, Layout, Lengths, Scale},
        },
    },
};

/// Maximum number of calls to shrink one failure.
const TRIES: usize = 3000;

/// Number of candidates per worker.
const AT_ONCE: usize = 40;

/// Finds the first failing call of a list, with its failure.
pub type Probe<'a> = dyn FnMut(&[LibraryCall]) -> Option<(usize, String)> + 'a;

/// Approximate work of a call, to compare calls.
pub fn work(case: &FuzzCase) -> usize {
    let products: usize = case.problem.sequences.iter().map(|&(q, k)| (q + 1) * (k + 1)).sum();
    products * case.problem.heads * (case.head_dim.qk + case.head_dim.v) as usize
}

/// A smaller failing call and its failure; `None` if none was found. `first_failure` finds the first failing call of a
/// list; `proceed` is false when the time is up.
pub fn shrink(case: &LibraryCall, proceed: &dyn Fn() -> bool, first_failure: &mut Probe<'_>) -> Option<(LibraryCall, String)> {
    let mut smallest: Option<(LibraryCall, String)> = None;
    let mut left = TRIES;
    'smaller: while proceed() && left > 0 {
        let current = smallest.as_ref().map_or(case, |(case, _)| case);
        for candidates in current.simpler().chunks(AT_ONCE) {
            if !proceed() || left == 0 {
                break 'smaller;
            }
            let failed = first_failure(candidates);
            left = left.saturating_sub(failed.as_ref().map_or(candidates.len(), |(index, _)| index + 1));
            if let Some((index, message)) = failed {
                smallest = Some((candidates[index].clone(), message));
                continue 'smaller;
            }
        }
        break;
    }
    smallest
}

/// Calls that are simpler than this one in one respect, the largest simplifications first.
pub(super) fn simpler(case: &FuzzCase) -> Vec<FuzzCase> {
    let mut all = Vec::new();
    let mut offer = |change: &dyn Fn(&mut FuzzCase)| {
        let mut changed = case.clone();
        change(&mut changed);
        // Lengths named by their style must be listed explicitly once they change.
        if changed.problem.sequences != case.problem.sequences {
            (changed.problem.times, changed.problem.drawn) = (1, None);
        }
        changed.problem.options = changed.problem.options.placed(changed.causal);
        if changed != *case && changed.complaint().is_none() && !all.contains(&changed) {
            all.push(changed);
        }
    };
    let count = case.problem.sequences.len();
    let (heads, heads_k) = (case.problem.heads, case.problem.heads_k);
    for (from, to) in [(0, count / 2), (count / 2, count), (0, count * 3 / 4), (count / 4, count)] {
        offer(&|c| c.problem.sequences = c.problem.sequences[from..to].to_vec());
    }
    for (heads, heads_k) in [
        (1, 1),
        (heads / heads_k, 1),
        (heads_k, heads_k),
        (heads / 2, heads_k),
        (heads / 2, heads_k / 2),
        (heads - heads / heads_k, heads_k - 1),
    ] {
        if heads > 0 && heads_k > 0 {
            offer(&|c| (c.problem.heads, c.problem.heads_k) = (heads, heads_k));
        }
    }
    if count <= 24 {
        for sequence in 0..count {
            offer(&|c| _ = c.problem.sequences.remove(sequence));
        }
    }
    plainer(case, &mut offer);
    let to_each = |change: fn(usize) -> usize| {
        move |c: &mut FuzzCase| c.problem.sequences.iter_mut().for_each(|s| *s = (change(s.0), change(s.1)))
    };
    offer(&to_each(|rows| rows / 2));
    offer(&to_each(|rows| rows * 3 / 4));
    offer(&to_each(|rows| rows / 16 * 16));
    if count <= 24 {
        let shorter: [fn(usize) -> usize; 6] = [
            |_| 0,
            |rows| rows.min(1),
            |rows| rows / 2,
            |rows| rows * 3 / 4,
            |rows| rows.saturating_sub(8),
            |rows| rows.saturating_sub(1),
        ];
        for change in shorter {
            if case.problem.lengths == Lengths::Uniform {
                offer(&|c| c.problem.sequences.iter_mut().for_each(|s| s.0 = change(s.0)));
                offer(&|c| c.problem.sequences.iter_mut().for_each(|s| s.1 = change(s.1)));
                continue;
            }
            for sequence in 0..count {
                offer(&|c| c.problem.sequences[sequence].0 = change(c.problem.sequences[sequence].0));
                offer(&|c| c.problem.sequences[sequence].1 = change(c.problem.sequences[sequence].1));
            }
        }
    }
    all
}

/// Offers calls of the same shape, each with one option at its default. Of two calls, at most one may be a
/// simplification of the other.
fn plainer(case: &FuzzCase, offer: &mut impl FnMut(&dyn Fn(&mut FuzzCase))) {
    offer(&|c| c.problem.layout = Layout::Bshd);
    if case.problem.layout != Layout::Bshd {
        offer(&|c| c.problem.layout = Layout::Padded);
    }
    for lengths in [Lengths::Uniform, Lengths::Packed, Lengths::Used] {
        offer(&|c| c.problem.lengths = lengths);
        if lengths == case.problem.lengths {
            break;
        }
    }
    offer(&|c| c.problem.inputs = Inputs::Normal);
    offer(&|c| c.problem.scale = Scale::Usual);
    offer(&|c| c.problem.lse = true);
    fewer_features(offer);
    offer(&|c| c.problem.fp8 = c.problem.fp8.map(|_| Descales::Absent));
    offer(&|c| c.splits = 0);
    offer(&|c| c.merging = Merging::Free);
    if case.entry == Entry::Fwd {
        offer(&|c| c.workspace = Workspace::None);
    } else {
        offer(&|c| c.workspace = Workspace::CallOptions);
    }
    offer(&|c| c.totals = false);
    offer(&|c| c.deterministic = false);
    offer(&|c| c.dlse = false);
    for again in [None, Some(Order::Shuffled), Some(Order::Priorities { depth: 0 })] {
        offer(&|c| c.again = again);
        if again == case.again {
            break;
        }
    }
    if case.problem.multiprocessors.is_some() {
        for multiprocessors in [1, 2] {
            offer(&|c| c.problem.multiprocessors = Some(multiprocessors));
            if case.problem.multiprocessors == Some(multiprocessors) {
                break;
            }
        }
    }
    offer(&|c| c.seed = 0);
}

/// Uses fewer features: none, one fewer, or a simpler form of one.
fn fewer_features(offer: &mut impl FnMut(&dyn Fn(&mut FuzzCase))) {
    offer(&|c| {
        masks_and_scores().for_each(|room| room.leave_out(&mut c.problem.options));
        (c.problem.options.declared, c.problem.options.query_limits) = (None, [0; 2]);
    });
    for room in FEATURES {
        offer(&|c| room.leave_out(&mut c.problem.options));
    }
    for change in features_of_rows().chain(masks_and_scores()).flat_map(FeatureRoom::plainer) {
        offer(&|c| change(&mut c.problem.options));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> FuzzCase {
        name.parse().expect("a case")
    }

    /// Shrinks with a predicate in place of a kernel.
    fn shrunk(name: &str, fails: impl Fn(&FuzzCase) -> bool) -> Option<String> {
        let fails = |call: &LibraryCall| matches!(call, LibraryCall::Attention(case) if fails(case));
        let mut first = |cases: &[LibraryCall]| cases.iter().position(fails).map(|index| (index, "wrong".to_owned()));
        shrink(&LibraryCall::Attention(case(name)), &|| true, &mut first).map(|(case, _)| case.to_string())
    }

    const BIG: &str = "fwd hdim64 bf16 b5 h8/2 sq3+70+128+9+200 sk70+3+128+9+200 causal cu_seqlens+seqused padded large scale1/4 no-lse \
                       splits3 totals twice on8 sm90 seed77";

    #[test]
    fn what_always_fails_becomes_the_smallest_call() {
        let smallest = shrunk(BIG, |_| true).expect("it fails");
        assert_eq!(smallest, "fwd hdim64 bf16 b1 h1/1 sq0 sk0 causal bshd normal on1 no-workspace sm90 seed0");
    }

    #[test]
    fn what_makes_it_fail_is_kept() {
        let fails = |case: &FuzzCase| case.problem.sequences.iter().any(|&(q, k)| q >= 65 && k > 0) && case.problem.heads >= 3;
        let smallest = case(&shrunk(BIG, fails).expect("it fails"));
        assert_eq!(smallest.problem.sequences, [(65, 1)]);
        assert!(smallest.problem.heads <= 4, "{smallest}");
    }

    #[test]
    fn a_call_that_fails_by_itself_alone_stays_as_it_is() {
        assert_eq!(shrunk(BIG, |_| false), None);
    }

    #[test]
    fn features_that_do_not_matter_are_dropped_one_by_one() {
        let all = format!("{BIG} window70,-1 chunk33 softcap2.5 alibi-by-batch sinks-bf16");
        let fails = |case: &FuzzCase| case.problem.options.chunk > 0 && case.problem.options.sinks.is_some();
        let smallest = shrunk(&all, fails).expect("it fails");
        assert_eq!(smallest, "fwd hdim64 bf16 b1 h1/1 sq0 sk0 causal bshd normal chunk33 sinks on1 no-workspace sm90 seed0");
    }

    #[test]
    fn no_call_is_offered_twice_or_is_none() {
        let offered = simpler(&case(BIG));
        for (index, one) in offered.iter().enumerate() {
            assert_eq!(one.to_string().parse::<FuzzCase>().as_ref(), Ok(one));
            assert!(!offered[..index].contains(one));
        }
    }
}
