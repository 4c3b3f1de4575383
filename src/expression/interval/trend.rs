//! Change of a bound from row to row.

use crate::expression::{
    range,
    tree::{Binary, Expr, Unary, Variable},
};
use serde::Serialize;

/// Change of an integer as `q` grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Does not change.
    Constant,
    /// Never decreases.
    Rising,
    /// Never increases.
    Falling,
    /// None of these is known.
    Mixed,
}

impl Trend {
    fn reversed(self) -> Self {
        match self {
            Self::Rising => Self::Falling,
            Self::Falling => Self::Rising,
            other => other,
        }
    }

    /// The trend of a sum, a minimum or a maximum.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Constant, trend) | (trend, Self::Constant) => trend,
            (one, other) if one == other => one,
            _ => Self::Mixed,
        }
    }
}

/// The trend of an integer expression without `k`.
pub(super) fn of(expr: &Expr) -> Trend {
    if !expr.uses(Variable::Q) {
        return Trend::Constant;
    }
    match expr {
        Expr::Leaf(_) => Trend::Rising,
        Expr::Unary(Unary::Negate, a) => of(a).reversed(),
        Expr::Binary(Binary::Add | Binary::Min | Binary::Max, a, b) => of(a).joined(of(b)),
        Expr::Binary(Binary::Subtract, a, b) => of(a).joined(of(b).reversed()),
        Expr::Binary(Binary::Multiply, a, b) => {
            // The divisor is positive, so the start of a chunk rises with its number.
            match of_chunk(a, b).or_else(|| of_chunk(b, a)) {
                Some(trend) => trend,
                None => scaled(a, b),
            }
        }
        Expr::Binary(Binary::FloorDivide, a, _) => of(a),
        _ => Trend::Mixed,
    }
}

/// `(x // c) * c`.
fn of_chunk(quotient: &Expr, factor: &Expr) -> Option<Trend> {
    matches!(quotient, Expr::Binary(Binary::FloorDivide, _, by) if **by == *factor).then(|| of(quotient))
}

/// A product with a factor that does not depend on `q` and has a known sign.
fn scaled(a: &Expr, b: &Expr) -> Trend {
    let (changing, fixed) = if b.uses(Variable::Q) { (b, a) } else { (a, b) };
    if fixed.uses(Variable::Q) {
        return Trend::Mixed;
    }
    let sign = range::of(fixed);
    match () {
        () if sign.low >= 0 => of(changing),
        () if sign.high <= 0 => of(changing).reversed(),
        () => Trend::Mixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::testing::integer;

    #[test]
    fn sums_rise_with_what_is_added_and_fall_with_what_is_taken_away() {
        for (text, expected) in [
            ("n + 3", Trend::Constant),
            ("q + 1", Trend::Rising),
            ("max(q - n, 0)", Trend::Rising),
            ("q // n * n + n", Trend::Rising),
            ("3 * q", Trend::Rising),
            ("seqlen_k - q", Trend::Falling),
            ("(n - q) // 4", Trend::Falling),
            ("(h - 3) * q", Trend::Mixed),
            ("q - (q // 2)", Trend::Mixed),
            ("abs(q)", Trend::Mixed),
            ("select(q < 3, 0, q)", Trend::Mixed),
        ] {
            assert_eq!(of(&integer(text)), expected, "`{text}`");
        }
    }
}
