//! Random calls: every way to specify destinations, positions and transformations of rows, with lengths that favour
//! borders of pages.

use super::{
    abi,
    case::{AppendCase, Cache, Descales, Queries, Sequence, Starts},
    memory::Crooked,
};
use crate::check::Number;
use crate::family::rotary::Rotary;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A random element of a list.
fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

impl AppendCase {
    /// A call of at most `size` sequences, with about `size` rows each; the same seed gives the same call.
    pub(super) fn random(number: Number, size: u32, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rng = &mut rng;
        let size = size.max(1) as usize;
        let page = pick(rng, &[1, 2, 5, 15, 16, 17, 32, 64, 256]).min(4 * size);
        let packed = rng.random_ratio(2, 3);
        let rotary = rotary(rng, size);
        let queries = match rotary {
            Some(_) => pick(rng, &[Queries::None, Queries::InPlace, Queries::Apart]),
            None => Queries::None,
        };
        let starts = match rotary {
            Some(_) => pick(rng, &[Starts::Cached, Starts::Cached, Starts::Given, Starts::EachRow]),
            None => Starts::Cached,
        };
        // With a position for each row, K and Q share it.
        let sequences = sequences(rng, size, page, packed, starts == Starts::EachRow);
        let rows = sequences.iter().map(|s| s.cached.max(0) as usize + s.new).max().unwrap_or(0).max(1);
        // Usually with space for all rows, sometimes for fewer.
        let rows = if rng.random_ratio(1, 4) { rows.div_ceil(2) } else { rows + rng.random_range(0..=page) };
        let cache = match rng.random_range(0..3) {
            0 => Cache::Dense { rows, named: rng.random() },
            1 => Cache::Paged { page, pages: rows.div_ceil(page), holes: rng.random() },
            _ => Cache::Slots { page },
        };
        let stored = pick(rng, &[number, number, Number::E4m3, Number::E5m2]);
        let head_dim = |rng: &mut ChaCha8Rng| 8 * rng.random_range(1..=if size > 8 { 32 } else { 8 });
        let head_dims = [rotary.map_or(0, |r| r.dim).max(head_dim(rng)), head_dim(rng)];
        let heads_k = rng.random_range(1..=size.min(6));
        let descales = if stored == number {
            Descales::None
        } else {
            pick(rng, &[Descales::None, Descales::None, Descales::BySequence, Descales::ByPage])
        };
        Self {
            number,
            stored,
            heads: heads_k * rng.random_range(1..=4),
            heads_k,
            head_dims,
            sequences,
            packed,
            spare: if packed { pick(rng, &[0, 0, 1, 3]) } else { 0 },
            cache,
            one_cache: rng.random_ratio(1, 3),
            rotary,
            queries,
            starts,
            mask: pick(rng, &[0, abi::CAUSAL, abi::WINDOW]),
            descales,
            pad: pick(rng, &[0, 0, 0, 8, 1, 5]),
            crooked: crooked(rng),
        }
    }
}

fn rotary(rng: &mut ChaCha8Rng, size: usize) -> Option<Rotary> {
    let dim = 16 * rng.random_range(1..=if size > 8 { 16 } else { 4 });
    // Positions in `seqlens_rotary` increase by 3 from sequence to sequence; positions of rows end below 23.
    let rows = pick(rng, &[4 * size + 32, 17, size]);
    let rotary = Rotary { dim, interleaved: rng.random(), rows };
    rng.random_ratio(3, 4).then_some(rotary)
}

/// At least one row of K, and one of Q; cached lengths at borders of pages, and occasionally an invalid one.
fn sequences(rng: &mut ChaCha8Rng, size: usize, page: usize, packed: bool, same_rows: bool) -> Vec<Sequence> {
    let count = rng.random_range(1..=size);
    let length = |rng: &mut ChaCha8Rng| match rng.random_range(0..8) {
        0 => 0,
        1..4 => 1,
        4 => rng.random_range(0..=page.min(2 * size)),
        _ => rng.random_range(0..=size),
    };
    let cached = |rng: &mut ChaCha8Rng| match rng.random_range(0..8) {
        0 => 0,
        1 => -1,
        2..5 => (page * rng.random_range(0..3) + rng.random_range(0..3)).saturating_sub(1) as i32,
        _ => rng.random_range(0..=2 * size) as i32,
    };
    let (mut new, mut queries) = (length(rng), length(rng));
    let mut drawn = Vec::new();
    for number in 0..count {
        if packed {
            (new, queries) = (length(rng), length(rng));
        }
        if number == 0 {
            (new, queries) = (new.max(1), queries.max(1));
        }
        drawn.push(Sequence { cached: cached(rng), new, queries: if same_rows { new } else { queries } });
    }
    drawn
}

fn crooked(rng: &mut ChaCha8Rng) -> Option<(&'static str, Crooked)> {
    let name = pick(rng, &["k", "v", "k_cache", "v_cache", "q", "q_out", "rotary_cos", "rotary_sin"]);
    let what = pick(rng, &[Crooked::Origin, Crooked::Batch, Crooked::Row, Crooked::Head]);
    // The tables share a row stride.
    let what = if name.starts_with("rotary") { Crooked::Origin } else { what };
    rng.random_ratio(1, 3).then_some((name, what))
}
