//! The derivative of a score with respect to `s`, for the backward pass.
//!
//! At a kink it is a one-sided derivative: `abs(u)` counts as `u` if `u` is 0, and `min` and `max` take the first of
//! equal values. Conditions are treated as constant, so the derivative ignores jumps.

use super::{
    simplify::{binary, select, simplify, unary},
    tree::{Binary, Expr, Leaf, Relation, Unary, Variable},
};

/// The derivative of a score with respect to `s`.
pub(super) fn by_s(score: &Expr) -> Expr {
    simplify(derivative(score))
}

fn derivative(expr: &Expr) -> Expr {
    if !expr.uses(Variable::S) {
        return Expr::real(0.0);
    }
    match expr {
        Expr::Leaf(Leaf::Variable(Variable::S)) => Expr::real(1.0),
        Expr::Unary(op, u) => of_unary(*op, expr, u),
        Expr::Binary(op, a, b) => of_binary(*op, expr, a, b),
        Expr::Select(c, a, b) => select((**c).clone(), derivative(a), derivative(b)),
        Expr::Leaf(_) => Expr::real(0.0),
    }
}

fn of_unary(op: Unary, whole: &Expr, u: &Expr) -> Expr {
    let inner = derivative(u);
    match op {
        Unary::Negate => unary(Unary::Negate, inner),
        Unary::Abs => {
            let below = binary(Binary::Compare(Relation::Less), u.clone(), Expr::real(0.0));
            let sign = select(below, Expr::real(-1.0), Expr::real(1.0));
            binary(Binary::Multiply, sign, inner)
        }
        Unary::Exp => binary(Binary::Multiply, whole.clone(), inner),
        // 1 - tanh(u)^2, from the value that the score computes anyway.
        Unary::Tanh => {
            let square = binary(Binary::Multiply, whole.clone(), whole.clone());
            binary(Binary::Multiply, binary(Binary::Subtract, Expr::real(1.0), square), inner)
        }
        Unary::Log => binary(Binary::Divide, inner, u.clone()),
        // Both depend on `s` only through conditions.
        Unary::Not | Unary::Real => Expr::real(0.0),
    }
}

fn of_binary(op: Binary, whole: &Expr, a: &Expr, b: &Expr) -> Expr {
    let (left, right) = (derivative(a), derivative(b));
    let compared = |relation| binary(Binary::Compare(relation), a.clone(), b.clone());
    match op {
        Binary::Add | Binary::Subtract => binary(op, left, right),
        Binary::Multiply => {
            let grows_left = binary(Binary::Multiply, left, b.clone());
            binary(Binary::Add, grows_left, binary(Binary::Multiply, a.clone(), right))
        }
        // (a / b)' = (a' - (a / b) b') / b, from the quotient that the score computes anyway.
        Binary::Divide => {
            let lost = binary(Binary::Multiply, whole.clone(), right);
            binary(Binary::Divide, binary(Binary::Subtract, left, lost), b.clone())
        }
        Binary::Min => select(compared(Relation::AtMost), left, right),
        Binary::Max => select(compared(Relation::AtLeast), left, right),
        // These do not give real numbers.
        Binary::FloorDivide | Binary::Modulo | Binary::Compare(_) | Binary::And | Binary::Or => Expr::real(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{
        At, Goal,
        testing::{self, expression},
    };

    #[test]
    fn derivatives_are_simple() {
        for (text, expected) in [
            ("s - a * abs(q - k)", "1.0"),
            ("20 * tanh(s / 20)", "1.0 - tanh(s / 20.0) * tanh(s / 20.0)"),
            ("s * s", "s + s"),
            ("abs(s)", "select(s < 0.0, -1.0, 1.0)"),
            ("max(s, a)", "select(s >= a, 1.0, 0.0)"),
            ("min(a, s)", "select(a <= s, 0.0, 1.0)"),
            ("select(k <= q, s, log(s))", "select(k <= q, 1.0, 1.0 / s)"),
            ("exp(a * s)", "exp(a * s) * a"),
            ("a / s", "-(a / s / s)"),
            ("a + k", "0.0"),
            ("select(s > 1, 2, 3)", "0.0"),
        ] {
            assert_eq!(by_s(&expression(Goal::Score, text)).to_string(), expected, "`{text}`");
        }
    }

    #[test]
    fn at_a_kink_one_side_counts() {
        for (text, s, expected) in [("abs(s)", 0.0, 1.0), ("max(s, -s)", 0.0, 1.0), ("min(s, 2 * s)", 0.0, 1.0)] {
            let slope = by_s(&expression(Goal::Score, text)).value(&At { s, ..At::default() });
            assert!((slope - expected).abs() < f64::EPSILON, "`{text}`: {slope}");
        }
    }

    #[test]
    fn nan_of_a_branch_that_is_not_taken_stays_there() {
        let slope = by_s(&expression(Goal::Score, "select(s > 1, log(s - 1), s)"));
        assert!((slope.value(&At::default()) - 1.0).abs() < f64::EPSILON);
    }

    fn is_finite(expr: &Expr, at: &At<'_>) -> bool {
        expr.value(at).is_finite() && expr.parts().into_iter().all(|part| is_finite(part, at))
    }

    #[test]
    fn random_derivatives_are_the_limits_of_differences() {
        let mut random = testing::random(11);
        let mut compared = 0;
        for _ in 0..600 {
            let score = testing::random_score(&mut random, 4);
            let slope = by_s(&score);
            let values = testing::Values::random(&mut random);
            let at = values.at();
            let difference = |step: f64| {
                let there = |s| score.value(&At { s, ..at });
                (there(at.s + step) - there(at.s - step)) / (2.0 * step)
            };
            // Near a kink, a jump or a pole the two steps disagree; the difference quotient is meaningless there.
            let (coarse, fine) = (difference(1e-4), difference(1e-5));
            let size = score.value(&at).abs().max(fine.abs()).max(1.0);
            if !(coarse - fine).is_finite() || size > 1e5 || (coarse - fine).abs() > 1e-5 * size {
                continue;
            }
            // `min` and `max` drop NaN and hide infinities, while a comparison does not.
            if !is_finite(&score, &at) {
                continue;
            }
            compared += 1;
            let slope_here = slope.value(&at);
            assert!((slope_here - fine).abs() <= 1e-4 * size, "`{score}`: {slope_here} is not {fine}\n`{slope}` at {at:?}");
        }
        assert!(compared > 400, "only {compared} were compared");
    }
}
