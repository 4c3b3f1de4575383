//! Cases of kernels that write new rows of K and V themselves. They replace the generic
//! split cases, because these kernels reject calls without new rows and all queries of a key head are rows of one tile.

use crate::{
    check::{Case, Comparison, Drawn, Number},
    device::Outputs,
    family::attention::{
        Append, Cache, CallOptions, KvFormat, Point, Starts,
        features::{cache_of, in_pages, together},
        oracle::{
            dims::Dims,
            problem::{Layout, Part, Problem},
            split::Listed,
            tensors::Tensors,
        },
    },
    kernel::Feature,
};
use itertools::Itertools;

/// One new token each, with keys that end at every boundary of a slice; sequences without queries and without keys.
const TOKENS: [(usize, usize); 8] = [(1, 300), (1, 17), (0, 203), (1, 1), (0, 40), (2, 0), (2, 64), (1, 16)];

/// Splits of each: 0 without keys.
fn counts() -> Vec<usize> {
    vec![4, 1, 2, 1, 1, 0, 3, 2]
}

/// Many new rows, in several slices and splits; one sequence has only new rows, another one more key.
const CHUNKS: [(usize, usize); 5] = [(2, 300), (1, 40), (0, 64), (3, 41), (1, 0)];

/// The cases of a kernel; those with a workspace can also be computed without one.
pub(super) fn listed(variant: Point) -> Vec<Listed> {
    let features = variant.features;
    let all = (variant.head_dim.qk / 16) as usize;
    let new = |rows, rotary| Append { rotary, ..Append::new(rows) };
    let with = |append| CallOptions { append: Some(append), ..CallOptions::default() };
    let chunk = Append { starts: Starts::Given, ..new(40, Some((1, false))) };
    let problem = |sequences: &[(usize, usize)], heads, heads_k, options| Problem::new(sequences, heads, heads_k).asking(options);
    let mut cases: Vec<Listed> = vec![
        (problem(&[(1, 300)], 8, 2, with(new(1, None))), 3, None),
        (problem(&TOKENS, 8, 2, with(new(1, Some((all, false))))), 4, Some(counts())),
        (problem(&TOKENS, 4, 4, with(new(1, Some((all, true))))).layout(Layout::Padded), 9, None),
        // A whole tile of rows; speculative decoding, with a number of heads that is not a power of two.
        (problem(&[(4, 300), (4, 19), (3, 4), (0, 7), (2, 0)], 4, 1, with(new(4, Some((1, true))))), 3, None),
        (problem(&[(3, 150), (2, 33)], 5, 1, with(new(3, Some((all, false))))).layout(Layout::Bhsd), 2, None),
        (problem(&CHUNKS, 4, 2, with(chunk)), 4, None),
        (problem(&CHUNKS, 4, 1, with(Append { rotary: None, starts: Starts::Cached, ..chunk })).layout(Layout::Padded), 2, None),
        // New rows beyond `seqlen_k`; queries beyond the rotary tables.
        (problem(&CHUNKS, 4, 2, with(Append { clipped: true, ..chunk })), 3, None),
        (problem(&[(3, 300), (1, 9)], 4, 1, with(Append { short_tables: true, ..new(1, Some((1, false))) })), 2, None),
        // No new rows.
        (problem(&[(2, 130), (1, 0)], 4, 2, with(new(0, Some((1, false))))), 2, None),
        (problem(&[(1, 65)], 4, 1, with(new(2, None))), 9, None),
        (problem(&[(2, 40); 2], 2, 2, with(new(2, None))).layout(Layout::UnalignedPart(3, Part::Row)), 2, None),
        (problem(&[(2, 40); 2], 2, 2, with(new(2, Some((1, false))))).without_lse(), 1, None),
    ];
    if features.has(Feature::Paged) {
        for rows in [16, 64, 8, 17, 1, 48, 512] {
            cases.push((problem(&CHUNKS, 4, 2, CallOptions { append: Some(chunk), ..in_pages(rows, 0) }), 4, None));
            let token = new(1, Some((all, rows % 2 == 1)));
            cases.push((problem(&TOKENS, 8, 2, CallOptions { append: Some(token), ..in_pages(rows, 0) }), 4, Some(counts())));
        }
    }
    if features.has(Feature::Cache) {
        for cache in Cache::ALL {
            let options = |append| CallOptions { append: Some(append), ..cache_of(cache) };
            cases.push((problem(&TOKENS, 8, 2, options(new(1, Some((all, false))))), 4, Some(counts())));
            cases.push((problem(&CHUNKS, 4, 2, options(chunk)).layout(Layout::Padded), 3, None));
            cases.push((problem(&CHUNKS, 2, 1, options(Append { clipped: true, ..chunk })), 2, None));
        }
    }
    let besides: Vec<Feature> = features.iter().collect();
    let alone = besides.iter().map(|feature| vec![*feature]);
    let pairs = besides.iter().copied().array_combinations().map(|pair: [Feature; 2]| pair.to_vec());
    for some in alone.chain(pairs).chain([besides.clone()]) {
        // Windows and chunks that leave some new rows unseen.
        let options = |append| CallOptions { append: Some(append), ..together(&some, 10) };
        cases.push((problem(&CHUNKS, 4, 2, options(chunk)), 4, None));
        cases.push((problem(&TOKENS, 8, 2, options(new(1, Some((all, true))))), 2, None));
    }
    // Rows of bytes are multiples of 16 only with gaps.
    if KvFormat::of(features).is_some() {
        for (problem, ..) in &mut cases {
            problem.layout = Layout::Padded;
        }
    }
    cases
}

/// Tensors that the launcher refuses, with the messages.
pub(super) fn refused(variant: Point) -> Vec<(Problem, &'static str)> {
    let options = CallOptions { append: Some(Append::new(2)), ..CallOptions::default() };
    let problem = |sequences: &[(usize, usize)], heads| Problem::new(sequences, heads, 1).asking(options);
    let parts =
        [(0, Part::Start), (0, Part::Row), (0, Part::Head), (1, Part::Start), (1, Part::Row), (1, Part::Batch), (2, Part::Row)];
    let unaligned = parts.map(|(tensor, part)| {
        let problem = problem(&[(2, 17); 2], 2).layout(Layout::UnalignedPart(tensor, part));
        (problem, "new rows need tensors that are aligned to 16 bytes")
    });
    let several = problem(&[(3, 40), (1, 40)], 6);
    let several = (several, "18 rows of queries and heads that read one key head; new rows need 1 .. 16");
    let padded = |(problem, said): (Problem, _)| (problem.layout(Layout::Padded), said);
    let wide = variant.dtype.bytes() == 2;
    unaligned.into_iter().filter(|_| wide).chain([padded(several)]).collect()
}

/// A case of attention that also checks the caches.
#[derive(Debug)]
pub(super) struct AppendedCase {
    /// O and LSE, or their partial results.
    pub(super) attention: Box<dyn Case>,
    pub(super) problem: Problem,
    pub(super) head_dim: Dims,
    pub(super) number: Number,
    /// The launcher's error message, if it refuses the call.
    pub(super) refusal: Option<&'static str>,
}

impl Case for AppendedCase {
    fn name(&self) -> String {
        self.attention.name()
    }

    fn expected_workspace(&self) -> Option<usize> {
        self.attention.expected_workspace()
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.map(str::to_owned)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let drawn = self.attention.draw(seed);
        let number = self.number;
        let tensors = Tensors::draw(&self.problem, self.head_dim, number, seed);
        let (problem, head_dim) = (self.problem.clone(), self.head_dim);
        let judge = move |outputs: &Outputs| {
            let attended = (drawn.judge)(outputs);
            let appended = tensors.appended.as_ref().expect("the problem has new rows");
            let mut cached = appended.judge(&tensors, &problem, head_dim, number, outputs);
            let complaints: Vec<String> = attended.complaint.into_iter().chain(cached.complaint.take()).collect();
            let complaint = (!complaints.is_empty()).then(|| complaints.join("; "));
            let worst = if cached.worst.ratio() > attended.worst.ratio() { cached.worst } else { attended.worst };
            Comparison { worst, complaint }
        };
        Drawn { call: drawn.call, judge: Box::new(judge), may_differ: drawn.may_differ }
    }
}
