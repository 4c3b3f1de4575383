//! Evaluates an expression in float64, for the reference. Integers are exact in float64 (`range`).

use super::tree::{Binary, Expr, Leaf, List, Type, Unary, Variable};

/// The variables and passed values for one evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub struct At<'a> {
    /// The scaled product.
    pub s: f64,
    /// Position of the query, aligned to the bottom right.
    pub q: i64,
    /// Position of the key.
    pub k: i64,
    /// The query head.
    pub h: usize,
    /// The entry of the batch.
    pub b: usize,
    /// Number of queries of the batch entry.
    pub seqlen_q: usize,
    /// Number of keys of the batch entry.
    pub seqlen_k: usize,
    /// The scalars, in the order of their declaration.
    pub scalars: &'a [f64],
    /// The integers, in the order of their declaration.
    pub integers: &'a [i64],
    /// The values of the tables for this head, in the order of their declaration.
    pub tables: &'a [f64],
}

impl Expr {
    /// The value; 1 or 0 for a condition. NaN for a logarithm of a negative number or an undefined quotient that is
    /// used.
    ///
    /// # Panics
    /// If `at` lacks a declared value.
    pub fn value(&self, at: &At<'_>) -> f64 {
        self.evaluated(at, &mut |_, value| value)
    }

    /// The value with every real intermediate result rounded by `round`, for example to fp32.
    ///
    /// # Panics
    /// Those of [`Self::value`].
    pub fn rounded(&self, at: &At<'_>, round: impl Fn(f64) -> f64) -> f64 {
        self.evaluated(at, &mut |expr, value| if expr.kind() == Type::Real { round(value) } else { value })
    }

    /// The value, where `pass` receives every result that its operation may have to round, and replaces it.
    fn evaluated(&self, at: &At<'_>, pass: &mut impl FnMut(&Self, f64) -> f64) -> f64 {
        let value = match self {
            Self::Leaf(leaf) => value_of_leaf(leaf, at),
            Self::Unary(op, a) => {
                let a = a.evaluated(at, pass);
                match op {
                    Unary::Negate => return -a,
                    Unary::Abs => return a.abs(),
                    Unary::Exp => a.exp(),
                    Unary::Tanh => a.tanh(),
                    Unary::Log => a.ln(),
                    Unary::Not => return 1.0 - a,
                    Unary::Real => a,
                }
            }
            Self::Binary(op, a, b) => {
                let (a, b) = (a.evaluated(at, pass), b.evaluated(at, pass));
                match op {
                    Binary::Add => a + b,
                    Binary::Subtract => a - b,
                    // Conditions are 0 or 1.
                    Binary::Multiply | Binary::And => a * b,
                    Binary::Divide => a / b,
                    Binary::FloorDivide => return (a / b).floor(),
                    Binary::Modulo => return a - b * (a / b).floor(),
                    Binary::Min => return a.min(b),
                    Binary::Max | Binary::Or => return a.max(b),
                    Binary::Compare(relation) => return f64::from(relation.holds(&a, &b)),
                }
            }
            Self::Select(c, a, b) => {
                return if c.evaluated(at, pass) == 0.0 { b.evaluated(at, pass) } else { a.evaluated(at, pass) };
            }
        };
        pass(self, value)
    }

    /// The truth of a condition; for a number, true if it is not 0.
    ///
    /// # Panics
    /// Those of [`Self::value`].
    pub fn holds(&self, at: &At<'_>) -> bool {
        self.value(at) != 0.0
    }

    /// The value of an integer expression.
    ///
    /// # Panics
    /// Those of [`Self::value`].
    pub(super) fn whole(&self, at: &At<'_>) -> i64 {
        debug_assert_eq!(self.kind(), Type::Integer);
        self.value(at) as i64
    }
}

fn value_of_leaf(leaf: &Leaf, at: &At<'_>) -> f64 {
    match leaf {
        Leaf::Real(number) => number.get(),
        Leaf::Integer(value) => *value as f64,
        Leaf::Boolean(value) => f64::from(*value),
        Leaf::Variable(variable) => match variable {
            Variable::S => at.s,
            Variable::Q => at.q as f64,
            Variable::K => at.k as f64,
            Variable::H => at.h as f64,
            Variable::B => at.b as f64,
            Variable::SeqlenQ => at.seqlen_q as f64,
            Variable::SeqlenK => at.seqlen_k as f64,
        },
        Leaf::Named(named) => match named.list {
            List::Scalars => at.scalars[named.index],
            List::Integers => at.integers[named.index] as f64,
            List::Tables => at.tables[named.index],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Goal, testing::expression};

    fn at(tables: &[f64]) -> At<'_> {
        let (scalars, integers) = (&[2.0, 0.25], &[4, 9]);
        At { s: 0.5, q: -7, k: 3, h: 1, b: 2, seqlen_q: 20, seqlen_k: 10, scalars, integers, tables }
    }

    #[test]
    fn every_operation_has_its_value() {
        for (text, expected) in [
            ("s - a * abs(q - k)", 0.5 - 20.0),
            ("slope[h] * s", 4.0),
            ("q // n", -2.0),
            ("q % n", 1.0),
            ("q / n", -1.75),
            ("7 // 2 + 7 % 2", 4.0),
            ("exp(s) + tanh(s) + log(s)", 0.5_f64.exp() + 0.5_f64.tanh() + 0.5_f64.ln()),
            ("min(q, k) + max(s, a)", -5.0),
            ("select(q < k and not h == 2, h, b)", 1.0),
            ("select(q > k or h == 2, h, b)", 2.0),
            ("seqlen_q - seqlen_k", 10.0),
            ("-c * s", -0.125),
        ] {
            let value = expression(Goal::Score, text).value(&at(&[8.0]));
            assert!((value - expected).abs() < 1e-12, "`{text}` is {value}, not {expected}");
        }
    }

    #[test]
    fn the_branch_that_is_not_taken_does_not_count() {
        assert!(expression(Goal::Score, "log(s - 1)").value(&at(&[8.0])).is_nan());
        assert!((expression(Goal::Score, "select(s > 1, log(s - 1), s)").value(&at(&[8.0])) - 0.5).abs() < 1e-12);
    }
}
