//! The canonical text: no redundant brackets, one spelling of every number. Parsing it gives the same tree.

use super::tree::{Binary, Expr, Leaf, List, Type, Unary};
use std::fmt::{self, Display, Formatter};

/// Precedence of a part: a looser part within a tighter one needs brackets.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Level {
    Either,
    Both,
    Negation,
    Comparison,
    Sum,
    Product,
    Factor,
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write(without_conversion(self), Level::Either, f)
    }
}

/// The operand of an integer-to-real conversion, or the expression itself.
fn without_conversion(expr: &Expr) -> &Expr {
    if let Expr::Unary(Unary::Real, inner) = expr { inner } else { expr }
}

/// Two operands in written form: an integer is converted implicitly only beside a real number.
fn pair<'e>(a: &'e Expr, b: &'e Expr) -> (&'e Expr, &'e Expr) {
    let is_converted = |expr: &Expr| matches!(expr, Expr::Unary(Unary::Real, _));
    if is_converted(a) {
        (if is_converted(b) { a } else { without_conversion(a) }, without_conversion(b))
    } else {
        (a, without_conversion(b))
    }
}

fn level(expr: &Expr) -> Level {
    match expr {
        Expr::Leaf(Leaf::Real(number)) if number.get() < 0.0 => Level::Factor,
        Expr::Unary(Unary::Not, _) => Level::Negation,
        Expr::Binary(Binary::Or, ..) => Level::Either,
        Expr::Binary(Binary::And, ..) => Level::Both,
        Expr::Binary(Binary::Compare(_), ..) => Level::Comparison,
        Expr::Binary(Binary::Add | Binary::Subtract, ..) => Level::Sum,
        Expr::Binary(Binary::Multiply | Binary::Divide | Binary::FloorDivide | Binary::Modulo, ..) => Level::Product,
        _ => Level::Factor,
    }
}

/// Writes `expr`, with brackets if it is looser than `around`.
fn write(expr: &Expr, around: Level, f: &mut Formatter<'_>) -> fmt::Result {
    if level(expr) < around {
        f.write_str("(")?;
        plain(expr, f)?;
        return f.write_str(")");
    }
    plain(expr, f)
}

fn plain(expr: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    match expr {
        Expr::Leaf(leaf) => write_leaf(leaf, f),
        Expr::Unary(Unary::Negate, a) => {
            f.write_str("-")?;
            write(a, Level::Factor, f)
        }
        Expr::Unary(Unary::Not, a) => {
            f.write_str("not ")?;
            write(a, Level::Negation, f)
        }
        Expr::Unary(op @ (Unary::Exp | Unary::Tanh | Unary::Log), a) => call(function(*op), &[without_conversion(a)], f),
        Expr::Unary(op, a) => call(function(*op), &[a], f),
        Expr::Binary(op @ (Binary::Min | Binary::Max), a, b) => {
            let (a, b) = pair(a, b);
            call(if *op == Binary::Min { "min" } else { "max" }, &[a, b], f)
        }
        Expr::Binary(op, a, b) => {
            // The left operand may have the parent's precedence; the right one must be tighter.
            let (symbol, left, right) = match op {
                Binary::Or => ("or", Level::Either, Level::Both),
                Binary::And => ("and", Level::Both, Level::Negation),
                Binary::Compare(relation) => (relation.symbol(), Level::Sum, Level::Sum),
                Binary::Add => ("+", Level::Sum, Level::Product),
                Binary::Subtract => ("-", Level::Sum, Level::Product),
                Binary::Multiply => ("*", Level::Product, Level::Factor),
                Binary::Divide => ("/", Level::Product, Level::Factor),
                Binary::FloorDivide => ("//", Level::Product, Level::Factor),
                Binary::Modulo => ("%", Level::Product, Level::Factor),
                Binary::Min | Binary::Max => (",", Level::Either, Level::Either),
            };
            let (a, b) = if *op == Binary::Divide { (without_conversion(a), without_conversion(b)) } else { pair(a, b) };
            write(a, left, f)?;
            write!(f, " {symbol} ")?;
            write(b, right, f)
        }
        Expr::Select(c, a, b) => {
            let (a, b) = if a.kind() == Type::Boolean { (&**a, &**b) } else { pair(a, b) };
            call("select", &[c, a, b], f)
        }
    }
}

fn function(op: Unary) -> &'static str {
    match op {
        Unary::Negate => "-",
        Unary::Not => "not",
        Unary::Abs => "abs",
        Unary::Exp => "exp",
        Unary::Tanh => "tanh",
        Unary::Log => "log",
        Unary::Real => "real",
    }
}

fn call(name: &str, values: &[&Expr], f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{name}(")?;
    for (index, value) in values.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        write(value, Level::Either, f)?;
    }
    f.write_str(")")
}

fn write_leaf(leaf: &Leaf, f: &mut Formatter<'_>) -> fmt::Result {
    match leaf {
        Leaf::Real(number) => write!(f, "{number:?}"),
        Leaf::Integer(value) => write!(f, "{value}"),
        Leaf::Boolean(value) => write!(f, "{value}"),
        Leaf::Variable(variable) => f.write_str(variable.name()),
        Leaf::Named(named) if named.list == List::Tables => write!(f, "{}[h]", named.name),
        Leaf::Named(named) => f.write_str(&named.name),
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{Goal, testing::expression};

    #[test]
    fn the_text_has_the_brackets_it_needs_and_no_others() {
        for (goal, text, expected) in [
            (Goal::Score, "((s)+((a)*(abs(((q)-(k))))))", "s + a * abs(q - k)"),
            (Goal::Score, "s-(a-(s+1.50))", "s - (a - (s + 1.5))"),
            (Goal::Score, "(s-a)-s", "s - a - s"),
            (Goal::Score, "s*(a/c)*-(s+a)", "-(s * (a / c) * (s + a))"),
            (Goal::Score, "s/(a*s)", "s / (a * s)"),
            (Goal::Score, "1e-7*s", "1e-7 * s"),
            (Goal::Score, "q/k", "q / k"),
            (Goal::Score, "real(q)*k", "real(q) * k"),
            (Goal::Score, "max(q, s, 3)", "max(max(q, s), 3.0)"),
            (Goal::Score, "slope[ h ]*s", "slope[h] * s"),
            (Goal::Score, "select(k<=q and h<2,s,q)", "select(k <= q and h < 2, s, q)"),
            (Goal::Mask, "(k<=q)or((h<2)and(not(a<1.5)))", "k <= q or h < 2 and not a < 1.5"),
            (Goal::Mask, "(k<=q or h<2)and a<1.5", "(k <= q or h < 2) and a < 1.5"),
            (Goal::Mask, "not (a<1.5 and k<q)", "not (a < 1.5 and k < q)"),
        ] {
            let canonical = expression(goal, text).to_string();
            assert_eq!(canonical, expected);
            assert_eq!(expression(goal, &canonical).to_string(), expected);
        }
    }
}
