//! The score of a query-key product before the softmax: the single definition for the reference, the gradients and the
//! sample check.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

use super::{DeclaredRule, features::Additions};

/// Upper bound on the keys of any kernel's tile.
const WIDEST_KEY_TILE: u16 = 256;

/// The score of one head of one sequence: the product times a scale, capped, minus the distance term, and transformed
/// by a declared score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    scale: f64,
    /// 0: no bound.
    softcap: f64,
    slope: f64,
    /// Position of query row 0 among the keys.
    first_position: i64,
    additions: Option<Additions>,
    declared: Option<DeclaredRule>,
}

impl Score {
    /// The product times `scale`, which includes the FP8 factors.
    pub fn scaled(scale: f64) -> Self {
        Self { scale, softcap: 0.0, slope: 0.0, first_position: 0, additions: None, declared: None }
    }

    /// This score bounded by `softcap`, unless that is 0.
    #[must_use]
    pub fn capped(self, softcap: f64) -> Self {
        Self { softcap, ..self }
    }

    /// This score minus `slope` times the distance of query and key, with query row 0 at `first_position`.
    #[must_use]
    pub fn sloped(self, slope: f64, first_position: i64) -> Self {
        Self { slope, first_position, ..self }
    }

    /// This score with the additions of the head.
    #[must_use]
    pub fn adding(self, additions: Option<Additions>) -> Self {
        Self { additions, ..self }
    }

    /// True if it has additions.
    pub fn has_additions(&self) -> bool {
        self.additions.is_some()
    }

    fn largest_addition(&self) -> f64 {
        self.additions.map_or(0.0, |additions| additions.largest())
    }

    fn added(&self, row: usize, key: usize) -> f64 {
        self.additions.map_or(0.0, |additions| additions.value(row, key))
    }

    /// This score transformed by a declared score, and -∞ if its mask hides the key.
    #[must_use]
    pub fn declared(self, declared: Option<DeclaredRule>) -> Self {
        Self { declared, ..self }
    }

    fn position(&self, row: usize) -> i64 {
        self.first_position + row as i64
    }

    fn distance(&self, row: usize, key: usize) -> f64 {
        (self.position(row) - key as i64).abs() as f64
    }

    /// The score of product `s` after kgen's own features.
    fn own(&self, s: f64, row: usize, key: usize) -> f64 {
        let scaled = self.scale * s;
        let capped = if self.softcap > 0.0 { self.softcap * (scaled / self.softcap).tanh() } else { scaled };
        let sloped = if self.slope == 0.0 { capped } else { capped - self.slope * self.distance(row, key) };
        let added = self.added(row, key);
        // With an addition this large, the score is the sum rounded to fp32.
        if added.abs() > 2.0_f64.powi(20) { f64::from((sloped + added) as f32) } else { sloped + added }
    }

    /// The score of product `s` of query `row` and key `key`.
    pub fn of(&self, s: f64, row: usize, key: usize) -> f64 {
        let own = self.own(s, row, key);
        self.declared.map_or(own, |declared| declared.of(own, self.position(row), key))
    }

    /// [`of`](Self::of) computed in fp32, as by an unfused kernel.
    pub fn naive(&self, s: f32, row: usize, key: usize) -> f32 {
        let (scaled, softcap) = (self.scale as f32 * s, self.softcap as f32);
        let capped = if softcap > 0.0 { softcap * (scaled / softcap).tanh() } else { scaled };
        let sloped = if self.slope == 0.0 { capped } else { capped - self.slope as f32 * self.distance(row, key) as f32 };
        let own = sloped + self.added(row, key) as f32;
        self.declared.map_or(own, |declared| declared.naive(own, self.position(row), key))
    }

    /// [`of`](Self::of) computed as in a framework without a fused kernel, which rounds to 16 bits after each step:
    /// the score, and its derivative with respect to product `s`. The distance term is not rounded, nor are the steps
    /// of a declared score.
    pub fn in_16_bits(&self, s: f64, row: usize, key: usize, round: impl Fn(f32) -> f32) -> (f32, f32) {
        let (scaled, cap) = (round((self.scale * s) as f32), self.softcap as f32);
        let (capped, slope) = if cap > 0.0 {
            let tanh = round((scaled / cap).tanh());
            (round(cap * tanh), self.scale as f32 * (1.0 - tanh * tanh))
        } else {
            (scaled, self.scale as f32)
        };
        let taken = if self.slope == 0.0 { 0.0 } else { self.slope as f32 * self.distance(row, key) as f32 };
        let own = capped - taken + self.added(row, key) as f32;
        let Some(declared) = self.declared else { return (own, slope) };
        let position = self.position(row);
        (declared.naive(own, position, key), slope * declared.slope(f64::from(own), position, key) as f32)
    }

    /// True if kgen's own features leave a product of 0 as it is.
    pub fn keeps_zero(&self) -> bool {
        self.slope == 0.0 && self.additions.is_none()
    }

    /// The derivative of [`own`](Self::own) with respect to product `s`.
    fn own_slope(&self, s: f64) -> f64 {
        if self.softcap > 0.0 { self.scale * (1.0 - (self.scale * s / self.softcap).tanh().powi(2)) } else { self.scale }
    }

    /// The derivative of the score with respect to product `s`.
    pub fn slope(&self, s: f64, row: usize, key: usize) -> f64 {
        let declared = self.declared.map_or(1.0, |declared| declared.slope(self.own(s, row, key), self.position(row), key));
        self.own_slope(s) * declared
    }

    /// The largest derivative anywhere, without a declared score.
    pub fn steepest(&self) -> f64 {
        self.scale
    }

    /// True if a declared score changes it.
    pub fn is_declared(&self) -> bool {
        self.declared.is_some_and(|declared| declared.has_score())
    }

    /// Bound on a kernel's error in a score before a declared score, for products of at most `product`. `tanh` has a
    /// relative error of 2⁻¹⁰·⁹ (PTX ISA, `tanh.approx.f32`). The distance term is the rounded difference of two
    /// products of the slope and distances within a key tile, even if the tile has few keys.
    pub fn error(&self, product: f64) -> f64 {
        let capped = if self.softcap > 0.0 { (self.scale * product).min(self.softcap) * 2.0_f64.powf(-10.9) } else { 0.0 };
        capped + self.slope.abs() * f64::from(WIDEST_KEY_TILE) * 2.0_f64.powi(-24)
    }

    /// Bound on the error of the derivative at product `s`, before a declared score.
    pub fn slope_error(&self, s: f64) -> f64 {
        if self.softcap > 0.0 {
            2.0 * self.scale * (self.scale * s / self.softcap).tanh().powi(2) * 2.0_f64.powf(-10.9)
        } else {
            0.0
        }
    }

    /// Bound on the error of a declared score at product `s`, whose terms are at most `product`, due to fp32 and the
    /// GPU's `tanh`: rounding of its own steps, and propagated errors of earlier ones. 0 without a declared score.
    pub fn declared_error(&self, s: f64, product: f64, row: usize, key: usize) -> f64 {
        let of_own = self.error(s.abs()) + 2.0_f64.powi(-21) * self.own_bound(product, row, key);
        self.declared.map_or(0.0, |declared| declared.error(self.own(s, row, key), of_own, self.position(row), key))
    }

    /// Bound on the error of its derivative.
    pub fn declared_slope_error(&self, s: f64, product: f64, row: usize, key: usize) -> f64 {
        let of_own = self.error(s.abs()) + 2.0_f64.powi(-21) * self.own_bound(product, row, key);
        let Some(declared) = self.declared else { return 0.0 };
        let (own, position) = (self.own(s, row, key), self.position(row));
        self.own_slope(s) * declared.slope_error(own, of_own, position, key)
            + self.slope_error(s) * declared.slope(own, position, key).abs()
    }

    /// The largest magnitude of a term in kgen's own features, for products of at most `product`.
    fn own_bound(&self, product: f64, row: usize, key: usize) -> f64 {
        let scaled = self.scale * product;
        let capped = if self.softcap > 0.0 { scaled.min(self.softcap) } else { scaled };
        capped + self.slope.abs() * self.distance(row, key) + self.largest_addition()
    }

    /// The largest magnitude of a score over `keys` keys for products of at most `product`, without a declared score.
    pub fn bound(&self, product: f64, keys: usize) -> f64 {
        let scaled = self.scale * product;
        let capped = if self.softcap > 0.0 { scaled.min(self.softcap) } else { scaled };
        capped + self.slope.abs() * (keys as f64).max(self.first_position.abs() as f64) + self.largest_addition()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_score() {
        for score in [Score::scaled(0.125), Score::scaled(0.5).capped(2.0), Score::scaled(0.5).capped(2.0).sloped(0.25, 4)] {
            let (s, step) = (3.0, 1e-3);
            let slope = (score.of(s + step, 1, 2) - score.of(s - step, 1, 2)) / (2.0 * step);
            assert!((slope - score.slope(s, 1, 2)).abs() < 1e-6);
            assert!(score.of(-s, 0, 0).abs() <= score.bound(s, 3));
        }
    }

    #[test]
    fn rounded_scores_and_slopes_are_near_the_exact_ones() {
        let round = |value: f32| crate::check::Number::Bf16.through(value);
        for score in [Score::scaled(0.125), Score::scaled(0.5).capped(2.0), Score::scaled(0.5).capped(2.0).sloped(0.25, 4)] {
            let (rounded, slope) = score.in_16_bits(3.1, 1, 2, round);
            let (score, exact) = (score.of(3.1, 1, 2), score.slope(3.1, 1, 2));
            assert!((f64::from(rounded) - score).abs() < 0.02 && (f64::from(slope) - exact).abs() < 0.01, "{rounded} {slope}");
        }
    }

    #[test]
    fn scores_are_scaled_then_capped_then_less_by_distance() {
        let score = Score::scaled(0.5).capped(2.0).sloped(0.25, 3);
        // Row 1 is at position 4: key 6 is 2 away, and so is key 2.
        let expected = 2.0 * (0.5 * 8.0 / 2.0_f64).tanh() - 0.5;
        assert!((score.of(8.0, 1, 6) - expected).abs() < 1e-12 && (score.of(8.0, 1, 2) - expected).abs() < 1e-12);
        assert!((f64::from(score.naive(8.0, 1, 6)) - expected).abs() < 1e-6);
    }
}
