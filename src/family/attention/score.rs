//! What a product of a query and a key becomes before the softmax: the one definition that the reference, the gradients
//! and the sample check use.

/// The score of one head of one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    scale: f64,
}

impl Score {
    /// The product times `scale`, which holds the factors of FP8 too.
    pub fn scaled(scale: f64) -> Self {
        Self { scale }
    }

    /// Of product `s` of query `row` and key `key`.
    pub fn of(&self, s: f64, _row: usize, _key: usize) -> f64 {
        self.scale * s
    }

    /// The same in fp32, as a kernel that fuses nothing computes it.
    pub fn naive(&self, s: f32, _row: usize, _key: usize) -> f32 {
        self.scale as f32 * s
    }

    /// How fast the score grows with product `s` of query `row` and key `key`.
    pub fn slope(&self, _s: f64, _row: usize, _key: usize) -> f64 {
        self.scale
    }

    /// The largest magnitude that a score may have whose product is no larger than `product`.
    pub fn bound(&self, product: f64) -> f64 {
        self.scale * product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_score() {
        let score = Score::scaled(0.125);
        let (s, step) = (3.0, 1e-3);
        let slope = (score.of(s + step, 1, 2) - score.of(s - step, 1, 2)) / (2.0 * step);
        assert!((slope - score.slope(s, 1, 2)).abs() < 1e-9);
        assert!(score.of(-s, 0, 0).abs() <= score.bound(s));
    }
}
