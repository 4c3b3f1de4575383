//! Operations of an expression per element, after hoisting loop-invariant parts.

use super::{
    cuda::{Stage, prepared},
    tree::{Binary, Expr, Type, Unary},
};
use serde::Serialize;
use std::collections::HashSet;

/// Operations per element of the score matrix; common subexpressions count once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Work {
    /// Real arithmetic: `+ - * / min max abs exp tanh log`.
    pub flops: u32,
    /// The operations among them that take several instructions: `/ exp tanh log`.
    pub special: u32,
    /// Comparisons, `and or not`, choices, conversions and integer arithmetic.
    pub other: u32,
}

impl Work {
    /// The operations of expressions that are computed together, such as a score and its derivative.
    pub fn of(expressions: &[&Expr]) -> Self {
        let prepared: Vec<Expr> = expressions.iter().map(|expr| prepared(expr)).collect();
        let mut work = Self::default();
        let mut seen = HashSet::new();
        for expr in &prepared {
            work.count(expr, &mut seen);
        }
        work
    }

    fn count<'e>(&mut self, expr: &'e Expr, seen: &mut HashSet<&'e Expr>) {
        if matches!(expr, Expr::Leaf(_)) || Stage::of(expr) != Stage::Element || !seen.insert(expr) {
            return;
        }
        let is_arithmetic = match expr {
            Expr::Unary(Unary::Exp | Unary::Tanh | Unary::Log, _) | Expr::Binary(Binary::Divide, ..) => {
                self.special += 1;
                true
            }
            Expr::Unary(Unary::Abs, _) | Expr::Binary(..) => expr.kind() == Type::Real,
            _ => false,
        };
        // A sign costs nothing: it is part of the instruction that reads the value.
        let is_sign = matches!(expr, Expr::Unary(Unary::Negate, _));
        self.flops += u32::from(is_arithmetic);
        self.other += u32::from(!is_arithmetic && !is_sign);
        for part in expr.parts() {
            self.count(part, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Goal, testing::expression};

    #[test]
    fn what_is_known_before_the_loop_and_what_occurs_twice_count_once_or_not() {
        let work = |text: &str| Work::of(&[&expression(Goal::Score, text)]);
        // Subtraction and product; the difference of positions, its magnitude and the conversion are not flops.
        assert_eq!(work("s - decay * abs(q - k)"), Work { flops: 2, special: 0, other: 3 });
        // Two products and a function.
        assert_eq!(work("a * tanh(s / a)"), Work { flops: 3, special: 1, other: 0 });
        assert_eq!(work("s + exp(a) * real(q) + log(c) * k"), Work { flops: 2, special: 0, other: 0 });
        assert_eq!(work("s / (s + 1)"), Work { flops: 2, special: 1, other: 0 });
        let score = expression(Goal::Score, "a * tanh(s / a)");
        assert_eq!(Work::of(&[&score, &score.derivative()]).flops, work("a * tanh(s / a)").flops + 2);
        assert_eq!(Work::of(&[&expression(Goal::Mask, "k <= q and q - k < n")]), Work { flops: 0, special: 0, other: 4 });
    }
}
