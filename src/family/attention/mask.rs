//! Which keys a query sees: the one definition that the reference, the gradients, the sample check, the count of work
//! and the names of cases use.

use std::ops::Range;

/// The mask of one head of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    causal: bool,
    queries: usize,
    keys: usize,
}

impl Mask {
    /// Full, or causal and aligned to the bottom right: the last query sees every key.
    pub fn new(causal: bool, queries: usize, keys: usize) -> Self {
        Self { causal, queries, keys }
    }

    /// What names of cases and variants call it.
    pub fn word(causal: bool) -> &'static str {
        if causal { "causal" } else { "full" }
    }

    /// The keys that query `row` sees; an empty range where it sees none.
    pub fn keys(&self, row: usize) -> Range<usize> {
        let end = if self.causal { (row + 1 + self.keys).saturating_sub(self.queries).min(self.keys) } else { self.keys };
        0..end
    }

    /// Pairs of a query and a key that count as work. By convention a causal mask leaves half of them where both sides
    /// are equally long; elsewhere those that it leaves are counted.
    pub fn pairs(&self) -> f64 {
        if self.causal && self.queries == self.keys {
            return self.queries as f64 * self.keys as f64 / 2.0;
        }
        (0..self.queries).map(|row| self.keys(row).len() as f64).sum()
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
}
