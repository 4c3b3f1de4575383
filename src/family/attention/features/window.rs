//! Windows: a query sees the keys around its position. The cases end at tile boundaries, one before and one after.

use super::{
    FeatureRoom, Simpler,
    shapes::{Borders, SPLITS, both, by_turns, counted, counts, decode, unlike},
};
use crate::{
    check::{Change, Expected::Refused, Level},
    device::{ERROR_INVALID_VALUE, ERROR_MISMATCH},
    family::attention::{
        CallOptions, Point,
        abi::AttentionFeatures,
        edits::numbers,
        oracle::backward::BackwardProblem,
        oracle::problem::{Layout, Lengths, Problem},
        oracle::split::Listed,
        oracle::split::SPLIT_KEYS,
        random::Draw,
    },
    kernel::Feature,
};
use rand::RngExt;

/// The feature `window`.
pub struct Window;

/// An unlimited side of a window; larger values are equivalent (`kgen/features.cuh`).
const NO_LIMIT: i32 = (1 << 30) - 1;

const WITHOUT: &[Change] = &[(
    "a window",
    |c| numbers(c).features.window = Some([3, -1]),
    Refused(ERROR_MISMATCH, "built without the feature `window`"),
)];

const OUT_OF_RANGE: &[Change] = &[
    ("a window of -2 keys", |c| numbers(c).features.window = Some([-2, 0]), Refused(ERROR_INVALID_VALUE, "window_left -2 and")),
    ("a window of -3 keys", |c| numbers(c).features.window = Some([0, -3]), Refused(ERROR_INVALID_VALUE, "window_right -3 must")),
];

impl FeatureRoom for Window {
    fn feature(&self) -> Feature {
        Feature::Window
    }

    fn is_wanted(&self, options: &CallOptions, causal: bool) -> bool {
        let [left, right] = options.window.unwrap_or([-1, -1]);
        let is_closed = |side: i32| (0..NO_LIMIT).contains(&side);
        is_closed(left) || (is_closed(right) && !causal)
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.window.map(|[left, right]| format!(" window{left},{right}"))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        let sides = word.strip_prefix("window")?;
        let numbers = sides.split_once(',').and_then(|(left, right)| Some([left.parse().ok()?, right.parse().ok()?]));
        options.window = numbers;
        let wrong = || format!("`window{sides}` does not name its two sides, as `window64,-1` does");
        Some(numbers.map(|_| ()).ok_or_else(wrong))
    }

    fn enter(&self, options: &CallOptions, _heads: usize, params: &mut AttentionFeatures) {
        params.window = options.window;
    }

    fn request(&self, options: &mut CallOptions, n: usize) {
        options.window = Some([n as i32 + 3, 2]);
    }

    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, level, .. } = borders;
        let mut cases: Vec<_> = windows(m, n, level).into_iter().map(|window| borders.long().asking(window_of(window))).collect();
        // Rows that see no key: before the first key and after the last one.
        cases.push(Problem::new(&[(2 * m + 5, 17)], 2, 1).layout(Layout::Bhsd).asking(window_of([3, 2])));
        let short = Problem::new(&[(40, 17), (9, 0), (3, 200)], 2, 2).lengths(Lengths::Packed);
        cases.push(short.asking(window_of([5, 0])).without_lse());
        cases
    }

    fn splits(&self) -> Vec<Listed> {
        let unit = SPLIT_KEYS as i32;
        // One query sees `left` keys and its own; the log-sum-exp of a split shows the number of its keys.
        let sides = [0, unit - 2, unit - 1, unit, 3 * unit - 2, 3 * unit - 1, 3 * unit, 299, 5000];
        let mut cases: Vec<Listed> = sides.map(|left| (counted(decode(8, 2)).asking(window_of([left, 0])), SPLITS, None)).into();
        cases.extend([
            (decode(8, 1).layout(Layout::Bhsd).asking(window_of([100, -1])), SPLITS, None),
            // Several row tiles with different keys, and groups of 4, 1 and 8 heads.
            (Problem::new(&[(13, 257)], 8, 2).layout(Layout::Padded).asking(window_of([20, 0])), SPLITS, None),
            (Problem::new(&[(21, 300)], 2, 2).asking(window_of([90, 5])), 4, None),
            (Problem::new(&[(9, 300)], 8, 1).asking(window_of([150, 0])), 2, None),
            (Problem::new(&[(35, 203)], 2, 1).asking(window_of([-1, 3])), SPLITS, None),
            (Problem::new(&[(35, 203)], 2, 1).asking(window_of([17, -1])), SPLITS, None),
            // Rows that see no key.
            (Problem::new(&[(40, 17)], 2, 1).asking(window_of([5, 2])), 2, None),
            (unlike().asking(window_of([33, 4])), 4, Some(counts())),
        ]);
        cases
    }

    /// Windows with all pairs of these sides, on one query row and on several.
    fn splits_thoroughly(&self) -> Vec<Listed> {
        let sides = [-1, 0, 1, 15, 16, 17, 100];
        let shapes = [((1, 300), 8, 2), ((19, 300), 2, 2), ((9, 113), 8, 1)];
        let windows = itertools::iproduct!(sides, sides, shapes).map(|(left, right, (lengths, heads, heads_k))| {
            let problem = Problem::new(&[lengths], heads, heads_k).layout(Layout::Bhsd);
            (problem.asking(window_of([left, right])), SPLITS, None)
        });
        windows.collect()
    }

    fn backward(&self, borders: &Borders) -> Vec<BackwardProblem> {
        let &Borders { m, n, level, .. } = borders;
        let plain = BackwardProblem::plain;
        // Each window in one of the two passes, or in both if a side ends at a tile boundary.
        let windows = windows(m, m, level).into_iter().map(|window| borders.walked().asking(window_of(window)));
        let mut cases: Vec<_> = by_turns(windows).collect();
        cases.extend(both(borders.walked().asking(window_of([n as i32, 0]))));
        // The first query that sees a tile's last key is the second of its query tile.
        cases.push(plain(borders.walked().asking(window_of([-1, m as i32 - 4]))));
        // More queries than those that see a key tile, so that query tiles on both sides are skipped.
        cases.extend(both(Problem::new(&[(4 * m + 3, n + 9)], 2, 1).asking(window_of([7, 3]))));
        // Rows that see no key, and keys that no row sees.
        cases.extend(both(Problem::new(&[(2 * m + 5, 17)], 2, 1).layout(Layout::Bhsd).asking(window_of([3, 2]))));
        cases.extend(both(Problem::new(&[(5, 2 * n + 3)], 2, 1).asking(window_of([3, 2]))));
        let short = Problem::new(&[(40, 17), (9, 0), (3, 200)], 2, 2).lengths(Lengths::Packed);
        cases.push(plain(short.asking(window_of([5, 0]))));
        cases
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.window = Some([side(draw), side(draw)]);
    }

    fn out_of_range(&self) -> &'static [Change] {
        OUT_OF_RANGE
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.window = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[
            |options| options.window.iter_mut().for_each(|[left, _]| *left = -1),
            |options| options.window.iter_mut().for_each(|[_, right]| *right = -1),
        ]
    }
}

/// Sides of windows.
fn windows(m: usize, n: usize, level: Level) -> Vec<[i32; 2]> {
    let [m, n] = [m, n].map(|rows| rows as i32);
    let mut windows =
        vec![[0, 0], [n - 1, 0], [n, 0], [n + 1, 0], [-1, 0], [-1, 5], [17, -1], [m + 1, n - 1], [1, m], [5000, 5000]];
    if level == Level::Thorough {
        let sides = [-1, 0, 1, n - 1, n, n + 1, m, 2 * n + 1];
        windows.extend(itertools::iproduct!(sides, sides).map(|(left, right)| [left, right]));
    }
    windows
}

fn window_of(window: [i32; 2]) -> CallOptions {
    CallOptions { window: Some(window), ..CallOptions::default() }
}

/// Number of keys in the window on one side of the position; -1: all.
fn side(draw: &mut Draw<'_>) -> i32 {
    match draw.rng.random_range(0..16) {
        0..3 => -1,
        3 | 4 => 0,
        5 => draw.rng.random_range(1..8),
        14 => 1_000_000,
        15 => i32::MAX,
        _ => draw.length() as i32,
    }
}
