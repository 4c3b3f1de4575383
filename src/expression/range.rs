//! The possible values of an integer expression, which determine whether it is exact and whether it needs more than 32
//! bits.

use super::tree::{Binary, Expr, Leaf, List, Type, Unary, Variable};

/// Largest position, length and magnitude of a passed integer. Sums of a few of them fit in 32 bits, and 2^28 keys of
/// one head fill a GPU.
pub const LARGEST: i64 = 1 << 28;

/// Largest head and batch index: fp32 represents all of them exactly.
const LARGEST_INDEX: i64 = 1 << 24;

/// Largest magnitude of an integer expression: float64 represents all of them exactly.
const EXACT: i128 = 1 << 53;

/// A range of values, ends included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub low: i128,
    pub high: i128,
}

impl Span {
    fn new(low: i64, high: i64) -> Self {
        Self { low: low.into(), high: high.into() }
    }

    /// True if every value is exact in float64.
    pub fn is_exact(self) -> bool {
        self.low >= -EXACT && self.high <= EXACT
    }

    /// True if some value does not fit in 32 bits.
    pub fn is_wide(self) -> bool {
        self.low < i32::MIN.into() || self.high > i32::MAX.into()
    }

    fn of_corners(a: Self, b: Self, op: fn(i128, i128) -> i128) -> Self {
        let corners = [op(a.low, b.low), op(a.low, b.high), op(a.high, b.low), op(a.high, b.high)];
        let (mut low, mut high) = (corners[0], corners[0]);
        for corner in corners {
            (low, high) = (low.min(corner), high.max(corner));
        }
        Self { low, high }
    }

    fn united(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The possible values of an integer expression.
pub(super) fn of(expr: &Expr) -> Span {
    match expr {
        Expr::Leaf(leaf) => of_leaf(leaf),
        Expr::Unary(Unary::Negate, a) => {
            let a = of(a);
            Span { low: -a.high, high: -a.low }
        }
        Expr::Unary(Unary::Abs, a) => {
            let a = of(a);
            let high = a.high.max(-a.low);
            Span { low: a.low.max(-a.high).max(0), high }
        }
        Expr::Binary(op, a, b) => of_binary(*op, a, b),
        Expr::Select(_, a, b) => of(a).united(of(b)),
        // Expressions of other types than integer.
        Expr::Unary(..) => Span { low: i128::from(i64::MIN), high: i128::from(i64::MAX) },
    }
}

fn of_leaf(leaf: &Leaf) -> Span {
    match leaf {
        Leaf::Integer(value) => Span::new(*value, *value),
        Leaf::Variable(Variable::Q) => Span::new(-LARGEST, LARGEST),
        Leaf::Variable(Variable::H | Variable::B) => Span::new(0, LARGEST_INDEX),
        Leaf::Variable(Variable::K | Variable::SeqlenQ | Variable::SeqlenK) => Span::new(0, LARGEST),
        Leaf::Named(named) if named.list == List::Integers => Span::new(-LARGEST, LARGEST),
        // Not integers.
        _ => Span::new(i64::MIN, i64::MAX),
    }
}

fn of_binary(op: Binary, a: &Expr, b: &Expr) -> Span {
    if op == Binary::Multiply
        && let Some(rounded) = of_rounded(a, b).or_else(|| of_rounded(b, a))
    {
        return rounded;
    }
    let left = of(a);
    match op {
        Binary::Add => Span::of_corners(left, of(b), i128::saturating_add),
        Binary::Subtract => Span::of_corners(left, of(b), i128::saturating_sub),
        Binary::Multiply => Span::of_corners(left, of(b), i128::saturating_mul),
        Binary::Min => Span::of_corners(left, of(b), Ord::min),
        Binary::Max => Span::of_corners(left, of(b), Ord::max),
        Binary::FloorDivide => Span::of_corners(left, divisor(b), i128::div_euclid),
        Binary::Modulo => Span { low: 0, high: divisor(b).high - 1 },
        // Not integers.
        _ => Span::new(i64::MIN, i64::MAX),
    }
}

/// `(x // c) * c` is `x` rounded down, which exceeds the magnitude of `x` by less than `c`.
fn of_rounded(quotient: &Expr, factor: &Expr) -> Option<Span> {
    let Expr::Binary(Binary::FloorDivide, x, by) = quotient else { return None };
    (**by == *factor).then(|| {
        let x = of(x);
        Span { low: if x.low < 0 { x.low - divisor(by).high + 1 } else { 0 }, high: if x.high < 0 { -1 } else { x.high } }
    })
}

/// The values of a divisor: a positive literal, or a passed integer that must be positive.
fn divisor(expr: &Expr) -> Span {
    let span = of(expr);
    Span { low: span.low.max(1), high: span.high.max(1) }
}

/// True if every integer in an expression is exact.
pub(super) fn all_exact(expr: &Expr) -> bool {
    (expr.kind() != Type::Integer || of(expr).is_exact()) && expr.parts().into_iter().all(all_exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::testing::integer;

    #[test]
    fn the_span_holds_what_positions_can_make() {
        let span = |text: &str| {
            let span = of(&integer(text));
            (i64::try_from(span.low).unwrap(), i64::try_from(span.high).unwrap())
        };
        assert_eq!(span("k + 1"), (1, LARGEST + 1));
        assert_eq!(span("q - k"), (-2 * LARGEST, LARGEST));
        assert_eq!(span("abs(q - k)"), (0, 2 * LARGEST));
        assert_eq!(span("-(k // 4)"), (-LARGEST / 4, 0));
        assert_eq!(span("q // n"), (-LARGEST, LARGEST));
        assert_eq!(span("k % 7"), (0, 6));
        assert_eq!(span("min(k, 5) - 8"), (-8, -3));
        assert_eq!(span("select(h < 2, 3, k)"), (0, LARGEST));
        assert_eq!(span("n * (k // n)"), (0, LARGEST));
        assert_eq!(span("k // n * 3"), (0, 3 * LARGEST));
    }

    #[test]
    fn sums_of_positions_fit_32_bits_and_products_may_not() {
        assert!(!of(&integer("q - k - n + 5")).is_wide());
        assert!(of(&integer("k * 16")).is_wide() && of(&integer("k * 16")).is_exact());
    }
}
