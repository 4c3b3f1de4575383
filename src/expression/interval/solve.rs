//! Solves a mask for `k`. Every part gives an interval that contains all keys it shows, and a flag that it shows all
//! keys of the interval.

use super::Interval;
use crate::expression::{
    range,
    simplify::{binary, select, unary},
    tree::{Binary, Expr, Relation, Type, Unary, Variable},
};

/// Step limit: nested parts are solved several times.
const STEPS: u32 = 400;

/// Every key.
pub(super) fn all() -> Interval {
    Interval { low: Expr::integer(0), high: Expr::variable(Variable::SeqlenK), exact: true }
}

fn none() -> Interval {
    Interval { low: Expr::integer(0), high: Expr::integer(0), exact: true }
}

/// An unknown set of keys.
fn unknown() -> Interval {
    Interval { exact: false, ..all() }
}

fn add(a: Expr, b: Expr) -> Expr {
    binary(Binary::Add, a, b)
}

fn subtract(a: Expr, b: Expr) -> Expr {
    binary(Binary::Subtract, a, b)
}

fn is_free(expr: &Expr) -> bool {
    !expr.uses(Variable::K)
}

/// The interval of a mask.
pub(super) fn solve(mask: &Expr) -> Interval {
    Solver { steps: STEPS }.keys(mask, true)
}

fn intersected(a: Interval, b: Interval) -> Interval {
    let (open_low, open_high) = (Expr::integer(0), Expr::variable(Variable::SeqlenK));
    let low = match (a.low == open_low, b.low == open_low) {
        (true, _) => b.low,
        (_, true) => a.low,
        _ => binary(Binary::Max, a.low, b.low),
    };
    let high = match (a.high == open_high, b.high == open_high) {
        (true, _) => b.high,
        (_, true) => a.high,
        _ => binary(Binary::Min, a.high, b.high),
    };
    Interval { low, high, exact: a.exact && b.exact }
}

/// The smallest interval that contains both; exact if they begin or end together.
fn united(a: Interval, b: Interval) -> Interval {
    for (one, other) in [(&a, &b), (&b, &a)] {
        if *one == all() || *other == none() {
            return one.clone();
        }
    }
    let exact = a.exact && b.exact && (a.low == b.low || a.high == b.high);
    let (open_low, open_high) = (Expr::integer(0), Expr::variable(Variable::SeqlenK));
    let low = if a.low == open_low || b.low == open_low { open_low } else { binary(Binary::Min, a.low, b.low) };
    let high = if a.high == open_high || b.high == open_high { open_high } else { binary(Binary::Max, a.high, b.high) };
    Interval { low, high, exact }
}

/// One of two intervals, selected by a condition that does not depend on the key.
fn chosen(condition: &Expr, a: Interval, b: Interval) -> Interval {
    let pick = |a, b| select(condition.clone(), a, b);
    Interval { low: pick(a.low, b.low), high: pick(a.high, b.high), exact: a.exact && b.exact }
}

/// `yes` if a condition without `k` is `wanted`, otherwise `no`.
fn decided(condition: &Expr, wanted: bool, yes: Interval, no: Interval) -> Interval {
    if wanted { chosen(condition, yes, no) } else { chosen(condition, no, yes) }
}

struct Solver {
    steps: u32,
}

impl Solver {
    /// The keys for which `mask` is `wanted`.
    fn keys(&mut self, mask: &Expr, wanted: bool) -> Interval {
        let Some(left) = self.steps.checked_sub(1) else { return unknown() };
        self.steps = left;
        if is_free(mask) {
            return decided(mask, wanted, all(), none());
        }
        match mask {
            Expr::Unary(Unary::Not, inner) => self.keys(inner, !wanted),
            Expr::Binary(op @ (Binary::And | Binary::Or), a, b) => self.joined((*op == Binary::And) == wanted, wanted, a, b),
            Expr::Binary(Binary::Compare(relation), a, b) if a.kind() == Type::Integer => {
                self.relation(if wanted { *relation } else { relation.negated() }, a, b)
            }
            Expr::Select(c, a, b) if is_free(c) => chosen(c, self.keys(a, wanted), self.keys(b, wanted)),
            Expr::Select(c, a, b) => {
                let yes = intersected(self.keys(c, true), self.keys(a, wanted));
                let no = intersected(self.keys(c, false), self.keys(b, wanted));
                united(yes, no)
            }
            _ => unknown(),
        }
    }

    /// The keys for which both are `wanted`, or at least one of them.
    fn joined(&mut self, both: bool, wanted: bool, a: &Expr, b: &Expr) -> Interval {
        for (one, other) in [(a, b), (b, a)] {
            if is_free(one) {
                let other = self.keys(other, wanted);
                return if both { decided(one, wanted, other, none()) } else { decided(one, wanted, all(), other) };
            }
        }
        let (a, b) = (self.keys(a, wanted), self.keys(b, wanted));
        if both { intersected(a, b) } else { united(a, b) }
    }

    fn relation(&mut self, relation: Relation, a: &Expr, b: &Expr) -> Interval {
        let above = |by: i64| add(subtract(a.clone(), b.clone()), Expr::integer(by));
        let below = |by: i64| add(subtract(b.clone(), a.clone()), Expr::integer(by));
        match relation {
            Relation::AtMost => self.not_positive(&above(0)),
            Relation::Less => self.not_positive(&above(1)),
            Relation::AtLeast => self.not_positive(&below(0)),
            Relation::Greater => self.not_positive(&below(1)),
            Relation::Equal => intersected(self.not_positive(&above(0)), self.not_positive(&below(0))),
            // All keys except one, which is not an interval unless that key is the first or the last.
            Relation::Unequal => unknown(),
        }
    }

    /// The keys for which an integer is 0 or less.
    fn not_positive(&mut self, expr: &Expr) -> Interval {
        let Some(left) = self.steps.checked_sub(1) else { return unknown() };
        self.steps = left;
        let Some(Linear { factor, part, rest }) = Linear::of(expr) else { return unknown() };
        if factor == 0 {
            if !range::all_exact(&rest) {
                return unknown();
            }
            let holds = binary(Binary::Compare(Relation::AtMost), rest, Expr::integer(0));
            return chosen(&holds, all(), none());
        }
        let by = Expr::integer(factor.abs());
        if factor > 0 {
            // part <= floor(-rest / factor)
            self.at_most(&part, &binary(Binary::FloorDivide, unary(Unary::Negate, rest), by))
        } else {
            // part >= ceil(rest / -factor)
            let rounded_up = add(rest, Expr::integer(-factor - 1));
            self.at_least(&part, &binary(Binary::FloorDivide, rounded_up, by))
        }
    }

    /// The keys for which `part` is at most `bound`.
    fn at_most(&mut self, part: &Expr, bound: &Expr) -> Interval {
        match part {
            Expr::Leaf(_) => {
                let high = add(bound.clone(), Expr::integer(1));
                if range::all_exact(&high) { Interval { high, ..all() } } else { unknown() }
            }
            // x // c <= e is x < c * e + c
            Expr::Binary(Binary::FloorDivide, x, by) => {
                let most = subtract(add(times(bound, by), (**by).clone()), Expr::integer(1));
                self.not_positive(&subtract((**x).clone(), most))
            }
            Expr::Unary(Unary::Abs, x) => {
                let above = self.not_positive(&subtract((**x).clone(), bound.clone()));
                let below = self.not_positive(&subtract(unary(Unary::Negate, (**x).clone()), bound.clone()));
                intersected(above, below)
            }
            Expr::Binary(op @ (Binary::Min | Binary::Max), a, b) => {
                let a = self.not_positive(&subtract((**a).clone(), bound.clone()));
                let b = self.not_positive(&subtract((**b).clone(), bound.clone()));
                if *op == Binary::Max { intersected(a, b) } else { united(a, b) }
            }
            Expr::Select(c, a, b) if is_free(c) => {
                let a = self.not_positive(&subtract((**a).clone(), bound.clone()));
                chosen(c, a, self.not_positive(&subtract((**b).clone(), bound.clone())))
            }
            _ => unknown(),
        }
    }

    /// The keys for which `part` is at least `bound`.
    fn at_least(&mut self, part: &Expr, bound: &Expr) -> Interval {
        match part {
            // A bound that may be inexact is unusable.
            Expr::Leaf(_) if range::all_exact(bound) => Interval { low: bound.clone(), ..all() },
            // x // c >= e is x >= c * e
            Expr::Binary(Binary::FloorDivide, x, by) => self.not_positive(&subtract(times(bound, by), (**x).clone())),
            Expr::Unary(Unary::Abs, x) => {
                let above = self.not_positive(&subtract(bound.clone(), (**x).clone()));
                united(above, self.not_positive(&add(bound.clone(), (**x).clone())))
            }
            Expr::Binary(op @ (Binary::Min | Binary::Max), a, b) => {
                let a = self.not_positive(&subtract(bound.clone(), (**a).clone()));
                let b = self.not_positive(&subtract(bound.clone(), (**b).clone()));
                if *op == Binary::Min { intersected(a, b) } else { united(a, b) }
            }
            Expr::Select(c, a, b) if is_free(c) => {
                let a = self.not_positive(&subtract(bound.clone(), (**a).clone()));
                chosen(c, a, self.not_positive(&subtract(bound.clone(), (**b).clone())))
            }
            _ => unknown(),
        }
    }
}

fn times(a: &Expr, by: &Expr) -> Expr {
    binary(Binary::Multiply, a.clone(), by.clone())
}

/// `factor * part + rest`, where `k` occurs only in `part`. A factor of 0 means that it does not occur.
struct Linear {
    factor: i64,
    part: Expr,
    rest: Expr,
}

impl Linear {
    /// `None` if several parts depend on `k`.
    fn of(expr: &Expr) -> Option<Self> {
        if is_free(expr) {
            return Some(Self { factor: 0, part: Expr::integer(0), rest: expr.clone() });
        }
        match expr {
            Expr::Unary(Unary::Negate, a) => {
                let Self { factor, part, rest } = Self::of(a)?;
                Some(Self { factor: -factor, part, rest: unary(Unary::Negate, rest) })
            }
            Expr::Binary(Binary::Add, a, b) => Self::joined(Self::of(a)?, Self::of(b)?, 1),
            Expr::Binary(Binary::Subtract, a, b) => Self::joined(Self::of(a)?, Self::of(b)?, -1),
            Expr::Binary(Binary::Multiply, a, b) => {
                let (by, other) = if let Some(by) = a.as_integer() { (by, b) } else { (b.as_integer()?, a) };
                let Self { factor, part, rest } = Self::of(other)?;
                Some(Self { factor: factor.checked_mul(by)?, part, rest: binary(Binary::Multiply, rest, Expr::integer(by)) })
            }
            other => Some(Self { factor: 1, part: other.clone(), rest: Expr::integer(0) }),
        }
    }

    /// `a + sign * b`.
    fn joined(a: Self, b: Self, sign: i64) -> Option<Self> {
        let rest = if sign > 0 { add(a.rest, b.rest) } else { subtract(a.rest, b.rest) };
        let factor = a.factor.checked_add(sign.checked_mul(b.factor)?)?;
        match (a.factor, b.factor) {
            (0, _) => Some(Self { factor, part: b.part, rest }),
            (_, 0) => Some(Self { factor, part: a.part, rest }),
            _ if a.part == b.part => Some(Self { factor, part: a.part, rest }),
            _ => None,
        }
    }
}
