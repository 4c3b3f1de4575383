//! Bound on the difference between an expression's fp32 and float64 values: the rounding error of every operation,
//! propagated by the derivatives of later operations.

use super::{
    At,
    tree::{Binary, Expr, Leaf, Type, Unary, Variable},
};

/// Largest relative error of one fp32 rounding: half a unit in the last place.
const ROUNDOFF: f64 = 1.0 / 16_777_216.0;

/// Error of subnormal results.
const TINY: f64 = 1e-37;

/// A value, and a first-order bound on its error in fp32.
struct Bounded {
    value: f64,
    error: f64,
}

impl Expr {
    /// Bound on the fp32 error of [`value`](Self::value), if `s` already has an error of `of_s`. Undefined if rounding
    /// decides a comparison of real numbers.
    ///
    /// # Panics
    /// Those of [`value`](Self::value).
    pub fn fp32_error(&self, at: &At<'_>, of_s: f64) -> f64 {
        bounded(self, at, of_s).error
    }
}

fn bounded(expr: &Expr, at: &At<'_>, of_s: f64) -> Bounded {
    let exact = |value| Bounded { value, error: 0.0 };
    if expr.kind() != Type::Real {
        return exact(expr.value(at));
    }
    let rounded =
        |value: f64, error: f64, roundings: f64| Bounded { value, error: error + roundings * ROUNDOFF * value.abs() + TINY };
    match expr {
        Expr::Leaf(Leaf::Variable(Variable::S)) => Bounded { value: at.s, error: of_s },
        Expr::Leaf(_) => rounded(expr.value(at), 0.0, 1.0),
        Expr::Unary(op, a) => {
            let a = bounded(a, at, of_s);
            match op {
                Unary::Negate => Bounded { value: -a.value, ..a },
                Unary::Abs => Bounded { value: a.value.abs(), ..a },
                // A 64-bit integer is made of several, each converted.
                Unary::Real => rounded(a.value, 0.0, 2.0),
                // CUDA's functions have errors of up to 2 units in the last place (Programming Guide, appendix on
                // functions).
                Unary::Exp => rounded(a.value.exp(), a.error * a.value.exp(), 4.0),
                Unary::Tanh => rounded(a.value.tanh(), a.error * (1.0 - a.value.tanh().powi(2)), 4.0),
                Unary::Log => rounded(a.value.ln(), a.error / a.value.abs() + 2.0 * ROUNDOFF, 4.0),
                Unary::Not => exact(1.0 - a.value),
            }
        }
        Expr::Binary(op, a, b) => {
            let (a, b) = (bounded(a, at, of_s), bounded(b, at, of_s));
            match op {
                Binary::Add => rounded(a.value + b.value, a.error + b.error, 1.0),
                Binary::Subtract => rounded(a.value - b.value, a.error + b.error, 1.0),
                Binary::Multiply => {
                    rounded(a.value * b.value, a.error * b.value.abs() + a.value.abs() * b.error + a.error * b.error, 1.0)
                }
                // With a precomputed reciprocal, two more roundings.
                Binary::Divide => {
                    let value = a.value / b.value;
                    rounded(value, (a.error + value.abs() * b.error) / b.value.abs(), 3.0)
                }
                Binary::Min => Bounded { value: a.value.min(b.value), error: a.error.max(b.error) },
                Binary::Max => Bounded { value: a.value.max(b.value), error: a.error.max(b.error) },
                _ => exact(expr.value(at)),
            }
        }
        Expr::Select(c, a, b) => bounded(if c.holds(at) { a } else { b }, at, of_s),
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{
        Goal,
        testing::{self, Values, expression},
    };

    #[test]
    fn fp32_stays_within_the_bound_and_the_bound_is_no_large_one() {
        let (mut random, mut compared, mut near) = (testing::random(41), 0, 0);
        for text in [
            "s - decay * abs(q - k)",
            "a * tanh(s / a)",
            "s + slope[h] * (q - k) - log(max(abs(q - k), 16) / 16.0)",
            "exp(c * s / 8) - a * s * s",
            "select(q < k, s / a, -s)",
        ] {
            let expr = expression(Goal::Score, text);
            for _ in 0..500 {
                let values = Values::random(&mut random);
                let exact = expr.value(&values.at());
                let rounded = expr.rounded(&values.at(), |value| f64::from(value as f32));
                let bound = expr.fp32_error(&values.at(), 0.0);
                assert!((rounded - exact).abs() <= bound, "`{text}` is {exact}, rounded {rounded}, bound {bound}");
                compared += 1;
                near += usize::from(bound <= 1e-5 * exact.abs().max(1.0) * 16.0);
            }
        }
        assert!(near * 10 > compared * 9, "{near} of {compared}");
    }

    #[test]
    fn what_s_is_off_by_is_carried_on_by_the_derivative() {
        let values = Values { s: 2.0, ..Values::random(&mut testing::random(5)) };
        let error = expression(Goal::Score, "s * s * 4").fp32_error(&values.at(), 1e-3);
        assert!((error - 16e-3).abs() < 1e-4, "{error}");
    }
}
