//! Cases of `prepare_scheduler` alone: the split counts that it writes are compared with the rule stated in its file.

use crate::{
    check::{Case, Comparison, Drawn, Level, Subject, Tally},
    device::{Call, DeviceKind, Element, Image, Outputs, Params},
    family::attention::{
        Append, CallOptions, Point,
        abi::{FwdParams, NewRows, Strides},
        oracle::{
            memory_layout::Side,
            problem::{Lengths, Problem},
            split::SPLIT_KEYS,
            tensors::lengths,
        },
    },
};
/// A split has at least this many units of [`SPLIT_KEYS`] keys.
const LEAST_UNITS: u64 = 8;

/// Rows per tile that the rule counts.
const TILE_ROWS: u64 = 16;

/// Multiprocessors of the emulated device, which the launcher queries.
const MULTIPROCESSORS: usize = 7;

/// Counters to clear: more words than the block has threads.
const ARRIVALS: u16 = 300;

#[derive(Debug)]
struct ScheduleCase {
    problem: Problem,
    /// `concurrent_blocks`; `None`: 0, so that the launcher uses two per multiprocessor ([`MULTIPROCESSORS`]).
    blocks: Option<u64>,
    /// `num_splits`.
    most: u64,
}

/// A small case.
pub(super) fn plain() -> impl Case + use<> {
    ScheduleCase { problem: Problem::new(&[(1, 300)], 4, 2), blocks: Some(8), most: 4 }
}

/// The cases.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let decode = |keys: &[usize], heads: (usize, usize)| {
        let sequences: Vec<_> = keys.iter().map(|&keys| (1, keys)).collect();
        Problem::new(&sequences, heads.0, heads.1)
    };
    let long: Vec<usize> = (0..64).map(|i| if i == 40 { 131_072 } else { 700 + 37 * i }).collect();
    let mut dwarfed = vec![1600; 34];
    dwarfed.push(16_000);
    let mut list = vec![
        // One long sequence: as many splits as can run at once, but no more than the workspace has space for.
        (decode(&[32_768], (32, 8)), 264, 256),
        (decode(&[32_768], (32, 8)), 264, 20),
        (decode(&[100], (32, 8)), 264, 256),
        // Unequal lengths; one is much longer than the others.
        (decode(&[5000, 300, 0, 16, 12_000, 1], (8, 2)).lengths(Lengths::Used), 108, 64),
        (decode(&long, (32, 8)).lengths(Lengths::Packed), 264, 256),
        // All sequences fit at once only unsplit, and then all would wait for the longest.
        (decode(&dwarfed, (1, 1)).lengths(Lengths::Packed), 35, 256),
        // Equal lengths, in just under two waves and in slightly more than one; lengths where two thirds of the average
        // leave some sequences unsplit.
        (decode(&[4110; 64], (32, 8)).lengths(Lengths::Used), 264, 32),
        (decode(&[4110; 64], (32, 8)).lengths(Lengths::Used), 396, 32),
        (decode(&(0..64).map(|i| 3000 + 60 * i).collect::<Vec<_>>(), (32, 8)).lengths(Lengths::Used), 264, 32),
        // Slightly more than the minimum length of a split, and twice that.
        (decode(&[145; 64], (32, 8)).lengths(Lengths::Used), 264, 32),
        (decode(&[100, 128, 129, 255, 256, 257, 400], (4, 4)).lengths(Lengths::Used), 264, 32),
        // More sequences than blocks, than lanes and than threads.
        (decode(&vec![4096; 300], (8, 8)).lengths(Lengths::PackedQuery), 216, 32),
        (decode(&[777; 3], (4, 1)).lengths(Lengths::Packed), 1, 8),
        // As many tiles as blocks, of equal length: they fit at once unsplit.
        (decode(&[4096; 8], (8, 8)).lengths(Lengths::Packed), 64, 32),
        // Several row tiles; no queries, no keys.
        (Problem::new(&[(100, 9000), (0, 9000), (17, 0), (1, 20_000)], 16, 2).lengths(Lengths::Used), 132, 256),
        (Problem::new(&[(0, 0)], 2, 1), 132, 4),
        // No sequence, and no output pointer.
        (Problem::new(&[], 2, 1), 132, 4),
        // One row fewer than a tile, a whole tile, and one row more, which needs two tiles.
        (Problem::new(&[(15, 5000), (16, 6000), (17, 7000), (31, 3000)], 2, 2).lengths(Lengths::Used), 40, 256),
        (Problem::new(&[(4, 20_000)], 8, 2), 66, 256),
    ];
    // Windows and chunks leave the last query of a sequence fewer keys: some, one, or all.
    let windowed = |window| CallOptions { window: Some(window), ..CallOptions::default() };
    let chunked = |chunk| CallOptions { chunk, ..CallOptions::default() };
    list.extend([
        (decode(&[5000, 300, 0, 4096, 12_000, 1], (8, 2)).lengths(Lengths::Used).asking(windowed([4095, 0])), 108, 64),
        (decode(&[32_768, 9000], (32, 8)).lengths(Lengths::Packed).asking(windowed([1024, 5])), 264, 256),
        (decode(&[5000, 4000], (4, 2)).lengths(Lengths::Packed).asking(windowed([0, 0])), 66, 32),
        (decode(&[5000, 4000], (4, 2)).lengths(Lengths::Packed).asking(windowed([-1, 7])), 66, 32),
        (decode(&[8192, 8193, 16_000, 50], (8, 2)).lengths(Lengths::Packed).asking(chunked(8192)), 108, 64),
        (decode(&[5000, 4000], (4, 2)).lengths(Lengths::Packed).asking(chunked(1)), 66, 32),
        (
            Problem::new(&[(9, 16_000), (30, 9000), (70, 20)], 4, 2)
                .lengths(Lengths::Used)
                .asking(CallOptions { chunk: 3000, ..windowed([2000, -1]) }),
            108,
            64,
        ),
    ]);
    // New rows count, unless a sequence takes none.
    let appending = |rows, options| CallOptions { append: Some(Append::new(rows)), ..options };
    list.extend([
        (
            decode(&[5000, 300, 0, 4096, 1, 17], (8, 2))
                .lengths(Lengths::PackedQuery)
                .asking(appending(1, CallOptions::default())),
            108,
            64,
        ),
        (decode(&[9000, 600, 64], (4, 2)).lengths(Lengths::PackedQuery).asking(appending(64, windowed([600, 0]))), 66, 32),
    ]);
    if level == Level::Thorough {
        for (blocks, stride, heads) in itertools::iproduct!([1, 66, 264, 296], [17, 1000, 4096], [(8, 1), (32, 8), (16, 16)]) {
            for batch in [1, 2, 7, 33, 257] {
                let keys: Vec<usize> = (0..batch).map(|i| (i * i * 7919 + 13) % 40 * stride).collect();
                list.push((decode(&keys, heads).lengths(Lengths::Used), blocks, 128));
            }
        }
    }
    let boxed = |(problem, blocks, most)| Box::new(ScheduleCase { problem, blocks, most }) as Box<dyn Case>;
    let mut cases: Vec<_> = list.into_iter().map(|(problem, blocks, most)| boxed((problem, Some(blocks), most))).collect();
    if subject.device == DeviceKind::Emulator {
        cases.push(boxed((decode(&[6000, 300, 4000], (4, 2)).lengths(Lengths::Packed), None, 64)));
    }
    cases
}

impl Case for ScheduleCase {
    fn name(&self) -> String {
        let Self { problem, blocks, most } = self;
        let Problem { sequences, heads, heads_k, .. } = problem;
        let longest = sequences.iter().map(|s| s.1).max().unwrap_or(0);
        let total: usize = sequences.iter().map(|s| s.1).sum();
        let lengths = format!("{:?}", problem.lengths).to_lowercase();
        let blocks = blocks.unwrap_or(0);
        let options = problem.options.words();
        format!(
            "b{} h{heads}/{heads_k} keys{total} longest{longest} {lengths}{options} blocks{blocks} splits{most}",
            sequences.len()
        )
    }

    fn draw(&self, _seed: u64) -> Drawn {
        let Self { ref problem, blocks, most } = *self;
        let mut counts = Image::poisoned(Element::Bits32, problem.sequences.len(), 0);
        for sequence in 0..problem.sequences.len() {
            counts.mark(sequence as i64);
        }
        let mut arrivals = Image::poisoned(Element::Bits32, ARRIVALS as usize, 0);
        for word in 0..ARRIVALS.into() {
            arrivals.mark(word);
        }
        let outputs = vec![("split_counts", counts), ("arrivals", arrivals)];
        // The scheduler only tests whether new rows are passed.
        let new_rows =
            problem.options.append.map(|append| ("k_new", NewRows { seqlen: append.rows as i32, ..NewRows::default() }));
        let call = Call {
            inputs: lengths(problem).chain(new_rows.map(|(name, _)| (name, Image::of_integers(&[0])))).collect(),
            outputs: if problem.sequences.is_empty() { vec![] } else { outputs },
            scratch: false,
            multiprocessors: blocks.is_none().then_some(MULTIPROCESSORS),
            params: Params::of(FwdParams {
                cache_entries: 0,
                strides: [Strides::default(); 4],
                lse_strides: [0; 2],
                descale_strides: [[0; 2]; 3],
                batch: problem.sequences.len() as i32,
                num_heads: problem.heads as i32,
                num_heads_k: problem.heads_k as i32,
                seqlen_q: problem.rows(Side::Query).bound as i32,
                seqlen_k: problem.rows(Side::Key).bound as i32,
                total_rows: [0; 2],
                num_splits: most as i32,
                concurrent_blocks: blocks.unwrap_or(0) as i32,
                head_dim: 128,
                head_dim_v: 0,
                kv_dtype: 0,
                dtype: crate::device::DTYPE_BF16,
                causal: false,
                merging: 0,
                arrivals: ARRIVALS.into(),
                softmax_scale: 1.0,
                features: problem.options.params(problem.heads),
                qv_strides: None,
                pages: None,
                new_rows: new_rows.map(|(_, params)| params),
            }),
        };
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| {
            let mut counts = Tally::new("split count", 0.0);
            let Some(image) = outputs.get("split_counts") else { return Comparison::of(&[counts], &[]) };
            let blocks = blocks.unwrap_or(2 * MULTIPROCESSORS as u64);
            for (sequence, expected) in split_counts(&problem, blocks, most).into_iter().enumerate() {
                let got = image.bits(sequence as i64).cast_signed();
                counts.see([sequence, 0, 0, 0], f64::from(got), expected as f64, true);
            }
            let Some(arrivals) = outputs.get("arrivals") else { unreachable!("every call has counters") };
            let mut cleared = Tally::new("counter", 0.0);
            for word in 0..ARRIVALS.into() {
                cleared.see([word as usize, 0, 0, 0], f64::from(arrivals.bits(word)), 0.0, true);
            }
            Comparison::of(&[counts, cleared], &[("split counts", image), ("counters", arrivals)])
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}

/// The rule of `prepare_scheduler.cu.tera`, implemented by exhaustive search.
fn split_counts(problem: &Problem, blocks: u64, most: u64) -> Vec<u64> {
    let group = (problem.heads / problem.heads_k) as u64;
    let work = |(sequence, &(queries, keys)): (usize, &(usize, usize))| {
        if queries == 0 || keys == 0 {
            return (0, 0);
        }
        let tiles = (queries as u64 * group).div_ceil(TILE_ROWS) * problem.heads_k as u64;
        let seen = problem.mask(false, sequence, 0).keys(queries - 1).len();
        (tiles, seen.div_ceil(SPLIT_KEYS) as u64)
    };
    let work: Vec<(u64, u64)> = problem.sequences.iter().enumerate().map(work).collect();
    let load: u64 = work.iter().map(|(tiles, units)| tiles * units).sum();
    let splits_of = |units: u64, units_a_split: u64| units.div_ceil(units_a_split).min((units / LEAST_UNITS).max(1));
    let blocks_with =
        |units_a_split: u64| -> u64 { work.iter().map(|(tiles, units)| tiles * splits_of(*units, units_a_split)).sum() };
    let longest = work.iter().map(|(_, units)| *units).max().unwrap_or(0).max(1);
    let at_once = (1..=longest).find(|&units| blocks_with(units) <= blocks).filter(|units| 2 * units * blocks <= 3 * load);
    let whole_up_to = 2 * load / (3 * blocks);
    let units_a_split = at_once.unwrap_or(load / (2 * blocks)).max(LEAST_UNITS);
    let count = |units: u64| if units <= whole_up_to { units.min(1) } else { splits_of(units, units_a_split).min(most) };
    work.iter().map(|(_, units)| count(*units)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_sequence_fills_the_gpu_exactly_once() {
        let problem = Problem::new(&[(1, 32_768)], 32, 8);
        assert_eq!(split_counts(&problem, 264, 256), [33], "8 key heads x 33 splits are 264 blocks");
        assert_eq!(split_counts(&problem, 264, 20), [20]);
    }

    #[test]
    fn a_sequence_that_dwarfs_the_others_is_cut_to_half_the_average_load() {
        // 34 sequences of 100 units and one of 1000 on 35 blocks: none can be split if all run at once.
        let mut sequences = vec![(1, 1600); 34];
        sequences.push((1, 16_000));
        let counts = split_counts(&Problem::new(&sequences, 1, 1), 35, 256);
        assert_eq!((counts[0], counts[34]), (2, 17), "a load of 4400 units: 125 a block, 62 a split");
    }
}
