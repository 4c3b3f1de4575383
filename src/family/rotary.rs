//! The rotary embedding of rows in float64, and the set of correct stored numbers.

use crate::check::Number;

/// Half the distance of 1 from the next fp32 number: largest relative error of one rounding.
const ROUNDING: f64 = 5.960_464_477_539_063e-8;

/// The rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rotary {
    /// Number of rotated columns, from the first one on.
    pub(super) dim: usize,
    /// Pairs are adjacent columns.
    pub(super) interleaved: bool,
    /// Number of positions in the tables.
    pub(super) rows: usize,
}

/// Cosines and sines, a row for each position.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) rotary: Rotary,
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
}

impl Rotary {
    /// Columns of a table of cosines or sines.
    pub(super) fn columns(self) -> usize {
        self.dim / 2
    }

    /// The columns of a pair.
    fn pair(self, number: usize) -> [usize; 2] {
        if self.interleaved { [2 * number, 2 * number + 1] } else { [number, number + self.columns()] }
    }
}

impl Tables {
    /// Angles of all magnitudes, rounded to `number`.
    pub(super) fn new(rotary: Rotary, number: Number) -> Self {
        let columns = rotary.columns();
        let table = |of: fn(f64) -> f64| {
            let angle =
                move |position: usize, pair: usize| (position as f64 + 0.25) * 100.0_f64.powf(-(pair as f64) / columns as f64);
            let row = move |position| (0..columns).map(move |pair| number.through(of(angle(position, pair)) as f32));
            (0..rotary.rows).flat_map(row).collect()
        };
        Self { rotary, cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// A row rotated to a position.
    pub(super) fn rotated(&self, row: &[f32], position: usize) -> Vec<f64> {
        let mut exact: Vec<f64> = row.iter().map(|&x| x.into()).collect();
        for pair in 0..self.rotary.columns() {
            let at = position * self.rotary.columns() + pair;
            let (cos, sin) = (f64::from(self.cos[at]), f64::from(self.sin[at]));
            let [first, second] = self.rotary.pair(pair);
            let (x, y) = (exact[first], exact[second]);
            exact[first] = x * cos - y * sin;
            exact[second] = y * cos + x * sin;
        }
        exact
    }
}

/// The correct stored number nearest to `got`. A kernel rounds `roundings` times to fp32 (products of two 16-bit
/// numbers are exact there, so that a rotation rounds once), then once to `number`: a stored value is between the
/// rounded ends of that interval, and without roundings it is the one correctly rounded number.
pub(super) fn nearest_right(number: Number, exact: f64, roundings: u32, got: f64) -> f64 {
    if roundings == 0 {
        return number.through(exact as f32).into();
    }
    // Second-order terms, and the conversion of the ends to fp32, are less than another rounding.
    let slack = exact.abs() * ROUNDING * f64::from(roundings + 1);
    let end = |value: f64, away: fn(f32) -> f32| f64::from(number.through(away(value as f32)));
    let (low, high) = (end(exact - slack, f32::next_down), end(exact + slack, f32::next_up));
    if got.is_nan() { number.through(exact as f32).into() } else { got.clamp(low, high) }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these are exact")]
mod tests {
    use super::*;

    #[test]
    fn pairs_turn_and_other_columns_stay() {
        let rotary = Rotary { dim: 4, interleaved: false, rows: 2 };
        // A quarter turn of the first pair, nothing for the second, at position 1.
        let tables = Tables { rotary, cos: vec![9.0, 9.0, 0.0, 1.0], sin: vec![9.0, 9.0, 1.0, 0.0] };
        assert_eq!(tables.rotated(&[1.0, 2.0, 3.0, 4.0, 5.0], 1), [-3.0, 2.0, 1.0, 4.0, 5.0]);
        let tables = Tables { rotary: Rotary { interleaved: true, ..rotary }, ..tables };
        assert_eq!(tables.rotated(&[1.0, 2.0, 3.0, 4.0, 5.0], 1), [-2.0, 1.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn only_neighbours_of_a_number_near_a_tie_are_right() {
        let right = |exact, got| nearest_right(Number::Bf16, exact, 1, got) == got;
        // Between 1 and its successor, 1 + 2^-7.
        let tie = 1.0 + 1.0 / 256.0;
        assert!(right(tie, 1.0) && right(tie, 1.0 + 1.0 / 128.0) && !right(tie, 1.0 - 1.0 / 256.0));
        assert!(right(tie - 1e-5, 1.0) && !right(tie - 1e-5, 1.0 + 1.0 / 128.0));
        assert!(nearest_right(Number::Bf16, 1.0, 1, f64::NAN).is_finite());
        assert!(nearest_right(Number::Bf16, 1.0, 0, 1.25) != 1.25);
        assert!((nearest_right(Number::E4m3, 1e6, 3, 448.0) - 448.0).abs() < f64::EPSILON);
    }
}
