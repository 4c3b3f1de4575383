//! The keys that a query sees: the single definition for the reference, the gradients, the sample check, the count of
//! work and the names of cases.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

use super::{CallOptions, DeclaredRule, features::Additions};
use std::ops::Range;

/// The mask of one head of one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    causal: bool,
    options: CallOptions,
    declared: Option<DeclaredRule>,
    /// Additions to scores of which some hide keys.
    additions: Option<Additions>,
    queries: usize,
    keys: usize,
}

impl Mask {
    /// Full, or causal and aligned to the bottom right: the last query sees every key.
    pub fn new(causal: bool, queries: usize, keys: usize) -> Self {
        Self { causal, options: CallOptions::default(), declared: None, additions: None, queries, keys }
    }

    /// This mask with the window and the chunks of a call.
    #[must_use]
    pub fn with(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }

    /// This mask combined with a declared mask, for one head.
    #[must_use]
    pub fn declared(self, declared: Option<DeclaredRule>) -> Self {
        Self { declared, ..self }
    }

    /// This mask with additions to the scores of one head, which hide keys if they are -∞.
    #[must_use]
    pub fn adding(self, additions: Option<Additions>) -> Self {
        Self { additions: additions.filter(Additions::hide_keys), ..self }
    }

    /// True if a declared mask and the additions leave a key of query `row` visible.
    fn shows(&self, row: usize, key: usize) -> bool {
        self.declared.is_none_or(|declared| declared.sees(self.position(row), key))
            && self.additions.is_none_or(|additions| additions.value(row, key) > f64::NEG_INFINITY)
    }

    /// The word used in names of cases and variants.
    pub fn word(causal: bool) -> &'static str {
        if causal { "causal" } else { "full" }
    }

    /// The position of query `row` among the keys; the last query is at the last key. Negative for the first queries if
    /// there are more queries than keys.
    pub fn position(&self, row: usize) -> i64 {
        row as i64 + self.keys as i64 - self.queries as i64
    }

    /// The keys that query `row` sees under the causal mask, the window and the chunk.
    fn allowed(&self, row: usize) -> Range<usize> {
        let position = self.position(row);
        let (mut first, mut end) = (0, self.keys as i64);
        if self.causal {
            end = end.min(position + 1);
        }
        if let Some([left, right]) = self.options.window {
            if left >= 0 {
                first = first.max(position - i64::from(left));
            }
            if right >= 0 {
                end = end.min(position + i64::from(right) + 1);
            }
        }
        if self.options.chunk > 0 {
            let chunk = i64::from(self.options.chunk);
            let start = position.div_euclid(chunk) * chunk;
            first = first.max(start);
            end = end.min(start + chunk);
        }
        let first = first.min(self.keys as i64);
        first as usize..end.max(first) as usize
    }

    /// The keys that query `row` sees; an empty range if it sees none. A declared mask or additions to scores may
    /// hide some of them, but neither the first nor the last.
    pub fn keys(&self, row: usize) -> Range<usize> {
        let shown = self.allowed(row);
        if self.declared.is_none() && self.additions.is_none() {
            return shown;
        }
        let mut seen = shown.clone().filter(|key| self.shows(row, *key));
        match seen.next() {
            None => shown.start..shown.start,
            Some(first) => first..seen.next_back().unwrap_or(first) + 1,
        }
    }

    /// True if query `row` sees `key`.
    pub fn sees(&self, row: usize, key: usize) -> bool {
        self.allowed(row).contains(&key) && self.shows(row, key)
    }

    /// Number of keys that query `row` sees.
    pub fn count(&self, row: usize) -> usize {
        if self.declared.is_none() && self.additions.is_none() {
            return self.allowed(row).len();
        }
        self.allowed(row).filter(|key| self.shows(row, *key)).count()
    }

    /// Query-key pairs that count as work. By convention a causal mask counts half of them if both sides are equally
    /// long and no other mask applies; otherwise the visible pairs are counted.
    pub fn pairs(&self) -> f64 {
        if self.causal
            && self.queries == self.keys
            && self.options.window.is_none()
            && self.options.chunk == 0
            && self.declared.is_none()
            && self.additions.is_none()
        {
            return self.queries as f64 * self.keys as f64 / 2.0;
        }
        (0..self.queries).map(|row| self.count(row) as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_query_sees_every_key_and_each_before_it_one_less() {
        let mask = Mask::new(true, 3, 5);
        assert_eq!([0, 1, 2].map(|row| mask.keys(row)), [0..3, 0..4, 0..5]);
        let mask = Mask::new(true, 5, 2);
        assert_eq!([0, 2, 3, 4].map(|row| mask.keys(row)), [0..0, 0..0, 0..1, 0..2]);
        assert_eq!(Mask::new(false, 5, 2).keys(0), 0..2);
    }

    #[test]
    fn work_is_half_of_a_causal_square_and_elsewhere_what_the_mask_leaves() {
        assert!((Mask::new(true, 4, 4).pairs() - 8.0).abs() < f64::EPSILON);
        assert!((Mask::new(true, 3, 5).pairs() - 12.0).abs() < f64::EPSILON);
        assert!((Mask::new(true, 5, 2).pairs() - 3.0).abs() < f64::EPSILON);
        assert!((Mask::new(false, 5, 2).pairs() - 10.0).abs() < f64::EPSILON);
    }

    /// The definition of each mask, key by key.
    fn sees(causal: bool, options: CallOptions, position: i64, key: i64) -> bool {
        let window = options.window.is_none_or(|[left, right]| {
            (left < 0 || position - i64::from(left) <= key) && (right < 0 || key <= position + i64::from(right))
        });
        let chunk = i64::from(options.chunk);
        let chunked = chunk == 0 || position.div_euclid(chunk) == key.div_euclid(chunk);
        (!causal || key <= position) && window && chunked
    }

    #[test]
    fn windows_and_chunks_are_what_their_definitions_say() {
        let windows = itertools::iproduct!([-1, 0, 1, 3, 9], [-1, 0, 2, 9]).map(|(left, right)| Some([left, right]));
        let options = itertools::iproduct!(windows.chain([None]), [0, 1, 3, 100]).map(|(window, chunk)| CallOptions {
            window,
            chunk,
            ..CallOptions::default()
        });
        for (options, causal, (queries, keys)) in itertools::iproduct!(options, [false, true], [(4, 4), (3, 8), (9, 4), (2, 0)]) {
            let mask = Mask::new(causal, queries, keys).with(options);
            for row in 0..queries {
                let expected: Vec<_> = (0..keys).filter(|&key| sees(causal, options, mask.position(row), key as i64)).collect();
                assert_eq!(mask.keys(row).collect::<Vec<_>>(), expected, "{mask:?}, row {row}");
            }
        }
    }
}
