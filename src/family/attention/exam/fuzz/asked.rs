//! Draws what a call asks of masks and scores, of what a kernel has.

use super::draw::{BORDERS, Rng, once_in, pick, weighted};
use crate::{
    expression::KeptScore,
    family::attention::{Append, Asked, Cache, DeclaredCall, KvFormat, PageDescales, Pages, SinkType, Slopes, Starts},
    kernel::{Feature, Features},
};
use rand::RngExt;

/// Some of the features, often all, sometimes none; nothing is drawn for a plain kernel. Ends of windows and chunks lie
/// where tiles end, and one beside, near the lengths of the sequences, or beyond all of them.
pub fn draw(rng: &mut Rng, features: Features, sequences: &[(usize, usize)]) -> Asked {
    if features.is_empty() {
        return Asked::default();
    }
    let paged = features.has(Feature::Paged);
    let longest = sequences.iter().map(|s| s.0.max(s.1)).max().unwrap_or(0);
    let one_of = weighted(rng, &[(3, 1), (4, 2), (1, 0)]);
    let mut asks = |feature| features.has(feature) && one_of > 0 && once_in(rng, one_of);
    let [window, chunk, softcap, alibi, sinks] =
        [Feature::Window, Feature::Chunk, Feature::Softcap, Feature::Alibi, Feature::Sinks].map(&mut asks);
    let cache = !paged && asks(Feature::Cache);
    Asked {
        window: window.then(|| [side(rng, longest), side(rng, longest)]),
        chunk: if chunk { chunk_length(rng, longest) } else { 0 },
        softcap_hundredths: if softcap { pick(rng, &[50, 100, 250, 1000, 1500, 3000, 5000, 100_000]) } else { 0 },
        alibi: alibi.then(|| pick(rng, &[Slopes::ByHead, Slopes::ByBatchAndHead])),
        sinks: sinks.then(|| pick(rng, &[SinkType::Fp32, SinkType::Bf16])),
        pages: paged.then(|| pages(rng, features.has(Feature::PageDescale))),
        cache: cache.then(|| pick(rng, &Cache::ALL)),
        qv: features.has(Feature::Qv),
        kv: KvFormat::of(features),
        query_limits: [0; 2],
        declared: features.score().map(|score| declared(rng, score, longest)),
        append: features.has(Feature::Append).then(|| append(rng)),
    }
}

/// New rows, mostly one; the rotation of a kernel that has too few columns is left out later.
fn append(rng: &mut Rng) -> Append {
    let rows = weighted(rng, &[(6, 1), (2, 2), (1, 3), (1, 4), (1, 0), (1, 17), (1, 40)]);
    let rotary = weighted(rng, &[(2, None), (2, Some(1)), (2, Some(usize::MAX)), (1, Some(2))]);
    let rotary = rotary.map(|sixteenths| (sixteenths, once_in(rng, 2)));
    let starts = if rotary.is_some() && once_in(rng, 3) { Starts::Given } else { Starts::Cached };
    let (clipped, short_tables) = (rows > 0 && once_in(rng, 4), rotary.is_some() && once_in(rng, 4));
    Append { clipped, rotary, starts, short_tables, ..Append::new(rows) }
}

/// Pages, mostly of 16 rows as engines have them, and mostly with descales where those can be.
fn pages(rng: &mut Rng, with_descales: bool) -> Pages {
    let odd = rng.random_range(1..100);
    let rows = weighted(rng, &[(8, 16), (3, 32), (3, 64), (2, 128), (1, 256), (1, 48), (1, 1), (2, odd)]);
    let (shared, counter) = (pick(rng, &[0, 0, 0, 1, 3, 10]), once_in(rng, 2));
    let [both, of_k, of_v] = PageDescales::ALL.map(Some);
    let descales = if with_descales { pick(rng, &[both, both, of_k, of_v, None]) } else { None };
    Pages { rows, shared, counter, descales }
}

/// A declared score, which is always asked for: nothing else has its kernels.
fn declared(rng: &mut Rng, score: KeptScore, longest: usize) -> DeclaredCall {
    let integer = match rng.random_range(0..8) {
        0 => rng.random_range(-3..8),
        1 => 1_000_000,
        _ => length(rng, longest) as i32,
    };
    DeclaredCall { set: pick(rng, &DeclaredCall::sets(score)), integer, score }
}

/// Keys that a window holds on one side of the position; -1: all.
fn side(rng: &mut Rng, longest: usize) -> i32 {
    match rng.random_range(0..16) {
        0..3 => -1,
        3 | 4 => 0,
        5 => rng.random_range(1..8),
        14 => 1_000_000,
        15 => i32::MAX,
        _ => length(rng, longest) as i32,
    }
}

fn chunk_length(rng: &mut Rng, longest: usize) -> u32 {
    match rng.random_range(0..12) {
        0 => 1,
        1 => rng.random_range(2..8),
        2 => 1_000_000,
        3 => i32::MAX as u32,
        _ => length(rng, longest).max(1) as u32,
    }
}

/// Where tiles end, and one beside, or any length that the sequences have.
fn length(rng: &mut Rng, longest: usize) -> usize {
    if once_in(rng, 3) { rng.random_range(0..=longest + 1) } else { pick(rng, &BORDERS) + rng.random_range(0..3) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_call_asks_for_some_of_what_a_kernel_has_and_for_nothing_else() {
        let mut rng = Rng::seed_from_u64(1);
        let held = Features::from_iter([Feature::Window, Feature::Sinks]);
        let drawn: Vec<Asked> = (0..400).map(|_| draw(&mut rng, held, &[(70, 300)])).collect();
        assert!(drawn.iter().all(|asked| held.hold(asked.wanted(false).1)));
        for (window, sinks) in itertools::iproduct!([false, true], [false, true]) {
            let count = drawn.iter().filter(|asked| (asked.window.is_some(), asked.sinks.is_some()) == (window, sinks)).count();
            assert!(count > 20, "{window} {sinks}: {count}");
        }
    }

    #[test]
    fn windows_and_chunks_end_at_the_borders_of_tiles_and_beside_them() {
        let mut rng = Rng::seed_from_u64(1);
        let drawn: Vec<Asked> = (0..4000).map(|_| draw(&mut rng, Features::all(), &[(70, 300)])).collect();
        for wanted in [-1, 0, 63, 64, 65, 127, 128, 129, i32::MAX] {
            assert!(drawn.iter().any(|asked| asked.window.is_some_and(|sides| sides.contains(&wanted))), "window {wanted}");
        }
        for wanted in [1, 63, 64, 65, 128, i32::MAX as u32] {
            assert!(drawn.iter().any(|asked| asked.chunk == wanted), "chunk {wanted}");
        }
    }
}
