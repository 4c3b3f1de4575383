//! Simplifies nodes: constants folded, neutral elements dropped, constant choices resolved.
//!
//! Values are assumed to be finite and divisors to be nonzero: `0 * x` is 0, even if `x` would be NaN, and `c * (x /
//! c)` is `x`. Otherwise only integers are regrouped.

use super::{
    range,
    tree::{Binary, Expr, Leaf, Number, Relation, Type, Unary},
};

/// Round limit: every round shrinks the tree or moves a sign up, so few are ever needed.
const ROUNDS: usize = 16;

/// An equivalent expression with fewer operations.
pub(super) fn simplify(expr: Expr) -> Expr {
    let mut expr = expr;
    for _ in 0..ROUNDS {
        let next = rebuilt(&expr);
        if next == expr {
            break;
        }
        expr = next;
    }
    expr
}

fn rebuilt(expr: &Expr) -> Expr {
    match expr {
        Expr::Leaf(_) => expr.clone(),
        Expr::Unary(op, a) => unary(*op, rebuilt(a)),
        Expr::Binary(op, a, b) => binary(*op, rebuilt(a), rebuilt(b)),
        Expr::Select(c, a, b) => select(rebuilt(c), rebuilt(a), rebuilt(b)),
    }
}

/// The literal 0 of a numeric type.
fn zero(kind: Type) -> Expr {
    if kind == Type::Integer { Expr::integer(0) } else { Expr::real(0.0) }
}

fn is_literal(expr: &Expr, value: i32) -> bool {
    expr.as_integer() == Some(value.into()) || expr.as_real() == Some(value.into())
}

/// The magnitude of a negative literal.
fn below_zero(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Leaf(Leaf::Integer(value)) if *value < 0 => value.checked_neg().map(Expr::integer),
        Expr::Leaf(Leaf::Real(number)) if number.get() < 0.0 => real(-number.get()),
        _ => None,
    }
}

/// A real literal; `None` if it overflows fp32, or if it is not 0 and below fp32's normal numbers.
fn real(value: f64) -> Option<Expr> {
    Number::new(value).map(|number| Expr::Leaf(Leaf::Real(number)))
}

/// An operation on one value.
pub(super) fn unary(op: Unary, a: Expr) -> Expr {
    if let Some(folded) = folded_unary(op, &a) {
        return folded;
    }
    match (op, a) {
        (Unary::Negate, Expr::Unary(Unary::Negate, x)) | (Unary::Not, Expr::Unary(Unary::Not, x)) => *x,
        (Unary::Negate, Expr::Unary(Unary::Real, x)) => unary(Unary::Real, unary(Unary::Negate, *x)),
        (Unary::Negate, Expr::Binary(Binary::Subtract, x, y)) => binary(Binary::Subtract, *y, *x),
        (Unary::Abs, Expr::Unary(Unary::Negate | Unary::Abs, x)) => unary(Unary::Abs, *x),
        (Unary::Abs, a) if a.kind() == Type::Integer && range::of(&a).low >= 0 => a,
        (Unary::Not, Expr::Binary(Binary::Compare(relation), x, y)) if x.kind() == Type::Integer => {
            binary(Binary::Compare(relation.negated()), *x, *y)
        }
        (op, a) => Expr::unary_as_is(op, a),
    }
}

fn folded_unary(op: Unary, a: &Expr) -> Option<Expr> {
    match op {
        Unary::Not => a.as_boolean().map(|value| Expr::boolean(!value)),
        Unary::Real => real(a.as_integer()? as f64),
        Unary::Negate | Unary::Abs if a.kind() == Type::Integer => {
            let value = a.as_integer()?;
            Some(Expr::integer(if op == Unary::Abs { value.checked_abs()? } else { value.checked_neg()? }))
        }
        Unary::Negate => real(-a.as_real()?),
        Unary::Abs => real(a.as_real()?.abs()),
        Unary::Exp => real(a.as_real()?.exp()),
        Unary::Tanh => real(a.as_real()?.tanh()),
        Unary::Log => real(a.as_real()?.ln()),
    }
}

/// An operation on two values of one type.
pub(super) fn binary(op: Binary, a: Expr, b: Expr) -> Expr {
    if let Some(folded) = folded_integers(op, &a, &b).or_else(|| folded_reals(op, &a, &b)) {
        return folded;
    }
    match op {
        Binary::Add => sum(a, b),
        Binary::Subtract => difference(a, b),
        Binary::Multiply => product(a, b),
        Binary::Divide if is_literal(&a, 0) || is_literal(&b, 1) => a,
        Binary::Divide => signed(Binary::Divide, a, b),
        Binary::FloorDivide if is_literal(&b, 1) => a,
        Binary::Modulo if is_literal(&b, 1) => Expr::integer(0),
        Binary::Min | Binary::Max if a == b => a,
        Binary::Compare(relation) => comparison(relation, a, b),
        Binary::And | Binary::Or => junction(op, a, b),
        Binary::FloorDivide | Binary::Modulo | Binary::Min | Binary::Max => Expr::binary_as_is(op, a, b),
    }
}

fn folded_integers(op: Binary, a: &Expr, b: &Expr) -> Option<Expr> {
    let (a, b) = (a.as_integer()?, b.as_integer()?);
    let value = match op {
        Binary::Add => a.checked_add(b)?,
        Binary::Subtract => a.checked_sub(b)?,
        Binary::Multiply => a.checked_mul(b)?,
        Binary::FloorDivide => a.div_euclid(b),
        Binary::Modulo => a.rem_euclid(b),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Compare(relation) => return Some(Expr::boolean(relation.holds(&a, &b))),
        Binary::Divide | Binary::And | Binary::Or => return None,
    };
    Some(Expr::integer(value))
}

fn folded_reals(op: Binary, a: &Expr, b: &Expr) -> Option<Expr> {
    let (a, b) = (a.as_real()?, b.as_real()?);
    real(match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        // A constant such as 1 / 20 is not folded: 0.05 is a different number in fp32.
        Binary::Divide if f64::from((a / b) as f32).to_bits() == (a / b).to_bits() => a / b,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Compare(relation) => return Some(Expr::boolean(relation.holds(&a, &b))),
        Binary::Divide | Binary::FloorDivide | Binary::Modulo | Binary::And | Binary::Or => return None,
    })
}

/// True for two integer literals, which can be joined: unlike real numbers, integers may be regrouped.
fn are_literals(a: &Expr, b: &Expr) -> bool {
    a.as_integer().is_some() && b.as_integer().is_some()
}

fn sum(a: Expr, b: Expr) -> Expr {
    if is_literal(&a, 0) {
        return b;
    }
    if is_literal(&b, 0) {
        return a;
    }
    if let Some(magnitude) = below_zero(&b) {
        return difference(a, magnitude);
    }
    if a.as_integer().is_some() {
        return sum(b, a);
    }
    match (a, b) {
        (Expr::Binary(Binary::Add, x, one), other) if are_literals(&one, &other) => sum(*x, binary(Binary::Add, *one, other)),
        (Expr::Binary(Binary::Subtract, x, one), other) if are_literals(&one, &other) => {
            difference(*x, binary(Binary::Subtract, *one, other))
        }
        (a, Expr::Unary(Unary::Negate, b)) => difference(a, *b),
        (Expr::Unary(Unary::Negate, a), b) => difference(b, *a),
        (a, b) => Expr::binary_as_is(Binary::Add, a, b),
    }
}

fn difference(a: Expr, b: Expr) -> Expr {
    if a == b {
        return zero(a.kind());
    }
    if is_literal(&b, 0) {
        return a;
    }
    if is_literal(&a, 0) {
        return unary(Unary::Negate, b);
    }
    if let Some(magnitude) = below_zero(&b) {
        return sum(a, magnitude);
    }
    match (a, b) {
        (Expr::Binary(Binary::Add, x, one), other) if are_literals(&one, &other) => {
            sum(*x, binary(Binary::Subtract, *one, other))
        }
        (Expr::Binary(Binary::Subtract, x, one), other) if are_literals(&one, &other) => {
            difference(*x, binary(Binary::Add, *one, other))
        }
        (a, Expr::Unary(Unary::Negate, b)) => sum(a, *b),
        (a, b) => Expr::binary_as_is(Binary::Subtract, a, b),
    }
}

fn product(a: Expr, b: Expr) -> Expr {
    if is_literal(&a, 0) || is_literal(&b, 1) {
        return a;
    }
    if is_literal(&b, 0) || is_literal(&a, 1) {
        return b;
    }
    if is_literal(&a, -1) {
        return unary(Unary::Negate, b);
    }
    if is_literal(&b, -1) {
        return unary(Unary::Negate, a);
    }
    match (a, b) {
        (a, Expr::Unary(Unary::Negate, b)) => unary(Unary::Negate, product(a, *b)),
        (a, Expr::Binary(Binary::Divide, b, c)) if a == *c => *b,
        (a, Expr::Binary(Binary::Divide, b, c)) if is_literal(&b, 1) => binary(Binary::Divide, a, *c),
        (a, b) => signed(Binary::Multiply, a, b),
    }
}

/// A product or quotient with its sign moved to the front.
fn signed(op: Binary, a: Expr, b: Expr) -> Expr {
    match a {
        Expr::Unary(Unary::Negate, a) => unary(Unary::Negate, binary(op, *a, b)),
        a => Expr::binary_as_is(op, a, b),
    }
}

fn comparison(relation: Relation, a: Expr, b: Expr) -> Expr {
    if a.kind() == Type::Integer {
        if a == b {
            return Expr::boolean(relation.holds(&0, &0));
        }
        let (left, right) = (range::of(&a), range::of(&b));
        let (below, above) = (left.high < right.low, left.low > right.high);
        let (not_above, not_below) = (left.high <= right.low, left.low >= right.high);
        let known = match relation {
            Relation::Less => (below, not_below),
            Relation::AtMost => (not_above, above),
            Relation::Greater => (above, not_above),
            Relation::AtLeast => (not_below, below),
            Relation::Equal => (false, below || above),
            Relation::Unequal => (below || above, false),
        };
        match known {
            (true, _) => return Expr::boolean(true),
            (_, true) => return Expr::boolean(false),
            _ => {}
        }
    }
    Expr::binary_as_is(Binary::Compare(relation), a, b)
}

/// `and` and `or`, grouped from the left.
fn junction(op: Binary, a: Expr, b: Expr) -> Expr {
    // The absorbing value: false for `and`, true for `or`.
    let decisive = op == Binary::Or;
    match (a.as_boolean(), b.as_boolean()) {
        (Some(value), _) => return if value == decisive { a } else { b },
        (_, Some(value)) => return if value == decisive { b } else { a },
        _ if a == b => return a,
        _ => {}
    }
    match b {
        Expr::Binary(inner, b, c) if inner == op => junction(op, junction(op, a, *b), *c),
        b => Expr::binary_as_is(op, a, b),
    }
}

/// A choice.
pub(super) fn select(condition: Expr, a: Expr, b: Expr) -> Expr {
    if let Some(value) = condition.as_boolean() {
        return if value { a } else { b };
    }
    if a == b {
        return a;
    }
    match condition {
        Expr::Unary(Unary::Not, condition) => select(*condition, b, a),
        condition => match (a.as_boolean(), b.as_boolean()) {
            (Some(true), Some(false)) => condition,
            (Some(false), Some(true)) => unary(Unary::Not, condition),
            _ => Expr::Select(Box::new(condition), Box::new(a), Box::new(b)),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{Goal, testing::expression};

    #[track_caller]
    fn becomes(goal: Goal, text: &str, expected: &str) {
        assert_eq!(expression(goal, text).to_string(), expected, "`{text}`");
    }

    #[test]
    fn neutral_elements_and_constants_are_dropped() {
        for (text, expected) in [
            ("s * 1 + 0", "s"),
            ("0 + 1.0 * s / 1", "s"),
            ("s * 0 + 2 * 3", "6.0"),
            ("s + -2", "s - 2.0"),
            ("s - -2", "s + 2.0"),
            ("s - s", "0.0"),
            ("s + (q - 3 + 5 - 1 - k)", "s + (q + 1 - k)"),
            ("0 - s", "-s"),
            ("--s", "s"),
            ("s * -1", "-s"),
            ("-a * s", "-(a * s)"),
            ("s + -(a * q)", "s - a * q"),
            ("-(s - a)", "a - s"),
            ("abs(-s)", "abs(s)"),
            ("s + abs(k)", "s + k"),
            ("exp(0) * s", "s"),
            ("min(s, s)", "s"),
            ("q // 1 + q % 1", "q"),
            ("s + -7 // 2", "s - 4.0"),
            ("s + -7 % 4", "s + 1.0"),
            ("select(1 < 2, s, log(a))", "s"),
            ("select(not a < s, 1, 2)", "select(a < s, 2, 1)"),
            ("4 * (s / 4) + c * (s / c)", "s + s"),
        ] {
            becomes(Goal::Score, text, expected);
        }
    }

    #[test]
    fn conditions_that_are_always_the_same_go() {
        for (text, expected) in [
            ("k >= 0 and k <= q", "k <= q"),
            ("k < 0 or q < 5", "q < 5"),
            ("not k < q", "k >= q"),
            ("not (h < 2 and not k < q)", "not (h < 2 and k >= q)"),
            ("k <= q and (k > n and h < 3)", "k <= q and k > n and h < 3"),
            ("k == k", "true"),
            ("select(h < 2, true, false)", "h < 2"),
            ("k < 1000000000", "true"),
        ] {
            becomes(Goal::Mask, text, expected);
        }
    }
}
