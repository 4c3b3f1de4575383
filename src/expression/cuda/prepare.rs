//! Transformations before an expression becomes code, and the loop at which each part is known.

use crate::expression::{
    range,
    simplify::{binary, select, unary},
    tree::{Binary, Expr, Number, Unary, Variable},
    tree::{Leaf, Type},
};

/// The outermost loop within which a part has one value.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Contains neither `q`, `k` nor `s`: computed once per head.
    Block,
    /// `q` without `k` and `s`: once per row.
    Row,
    /// `k` without `q` and `s`: once per column.
    Column,
    /// Everything else.
    Element,
}

impl Stage {
    /// The stage at which `expr` is known.
    pub fn of(expr: &Expr) -> Self {
        match (expr.uses(Variable::S), expr.uses(Variable::Q), expr.uses(Variable::K)) {
            (true, ..) | (_, true, true) => Self::Element,
            (_, true, false) => Self::Row,
            (_, false, true) => Self::Column,
            (_, false, false) => Self::Block,
        }
    }
}

/// The expression in the form that is computed: a quotient whose divisor is known before its dividend becomes a product
/// with the reciprocal, and integers that may exceed 32 bits are converted before they are added or multiplied.
pub(in crate::expression) fn prepared(expr: &Expr) -> Expr {
    match expr {
        Expr::Leaf(_) => expr.clone(),
        Expr::Unary(Unary::Real, a) => converted(&prepared(a)),
        Expr::Unary(op, a) => unary(*op, prepared(a)),
        Expr::Binary(Binary::Divide, a, b) => quotient(prepared(a), prepared(b)),
        Expr::Binary(op, a, b) => Expr::binary_as_is(*op, prepared(a), prepared(b)),
        Expr::Select(c, a, b) => select(prepared(c), prepared(a), prepared(b)),
    }
}

/// An integer as a real number. 64-bit conversions are slow on a GPU, and the result is rounded to fp32 in any case.
fn converted(integer: &Expr) -> Expr {
    if !range::of(integer).is_wide() {
        return unary(Unary::Real, integer.clone());
    }
    match integer {
        Expr::Unary(op @ (Unary::Negate | Unary::Abs), a) => unary(*op, converted(a)),
        Expr::Binary(op @ (Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Min | Binary::Max), a, b) => {
            binary(*op, converted(a), converted(b))
        }
        Expr::Select(c, a, b) => select((**c).clone(), converted(a), converted(b)),
        other => unary(Unary::Real, other.clone()),
    }
}

fn quotient(a: Expr, b: Expr) -> Expr {
    if let Some(value) = b.as_real()
        && Stage::of(&a) != Stage::Block
        && let Some(reciprocal) = Number::new(1.0 / value)
    {
        return binary(Binary::Multiply, a, Expr::Leaf(Leaf::Real(reciprocal)));
    }
    let (dividend, divisor) = (Stage::of(&a), Stage::of(&b));
    let is_repeated = divisor != Stage::Element && dividend != divisor && dividend != Stage::Block;
    if is_repeated {
        let reciprocal = binary(Binary::Divide, Expr::real(1.0), b);
        return Expr::binary_as_is(Binary::Multiply, a, reciprocal);
    }
    Expr::binary_as_is(Binary::Divide, a, b)
}

/// True if an integer is computed with 64 bits: it, or one of its parts, may not fit in 32 bits.
pub(super) fn is_wide(expr: &Expr) -> bool {
    expr.kind() == Type::Integer
        && (range::of(expr).is_wide() || expr.parts().into_iter().any(|part| part.kind() == Type::Integer && is_wide(part)))
}
