//! The keys that a row sees, as an interval, which lets a kernel skip tiles.

mod solve;
#[cfg(test)]
mod tests;
mod trend;

pub use trend::Trend;

use super::{At, Expr, simplify::simplify};
use std::ops::Range;

/// The keys that a row may see: `low <= k < high`. Both are integers that depend on `q`, `h`, `b`, the lengths and the
/// passed integers, but not on `k`. Either may be outside the range of existing keys; a row with `high <= low` sees
/// none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interval {
    /// The first key.
    pub low: Expr,
    /// The key after the last one.
    pub high: Expr,
    /// True if the row sees all of them. Otherwise the mask must still be applied to every element of these keys.
    pub exact: bool,
}

impl Interval {
    /// The keys of a row among those that exist.
    ///
    /// # Panics
    /// If `at` lacks a declared value.
    pub fn keys(&self, at: &At<'_>) -> Range<i64> {
        let low = self.low.whole(at).max(0);
        let keys = i64::try_from(at.seqlen_k).unwrap_or(i64::MAX);
        low..self.high.whole(at).min(keys).max(low)
    }

    /// Changes of `low` and `high` from row to row. If neither falls, a tile's first key is that of its first row and
    /// its last key that of its last row.
    pub fn trends(&self) -> (Trend, Trend) {
        (trend::of(&self.low), trend::of(&self.high))
    }
}

/// The interval of a mask; `None` if it neither provably excludes a key nor provably shows them all.
pub(super) fn of(mask: &Expr) -> Option<Interval> {
    let found = solve::solve(mask);
    let found = Interval { low: simplify(found.low), high: simplify(found.high), exact: found.exact };
    (found.exact || found != Interval { exact: false, ..solve::all() }).then_some(found)
}
