//! Turns syntax into a tree with resolved names and matching types.
//!
//! An integer becomes a real number beside a real number, under `/`, and in `exp`, `tanh` and `log`. An integer that
//! may not be exact is a real number from the start, so integers never overflow.

use super::{
    names::{Declared, FUNCTIONS},
    range,
    syntax::{Node, Operator, Syntax},
    tree::{Binary, Expr, Leaf, List, Number, Relation, Type, Unary, Variable},
};
use crate::text::{Finding, suggestion, ticked};
use std::ops::Range;

/// Purpose of an expression.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Goal {
    /// A real number that replaces the scaled product.
    Score,
    /// A condition for the query to see the key.
    Mask,
}

/// Names from other languages, and their equivalents here.
const MEANT: [(&str, &str); 14] = [
    ("q_idx", "the position of the query is `q`"),
    ("kv_idx", "the position of the key is `k`"),
    ("score", "the scaled product is `s`"),
    ("i", "the position of the query is `q`"),
    ("j", "the position of the key is `k`"),
    ("where", "write `select(condition, a, b)`"),
    ("inf", "hide keys with a `mask` instead of an infinite score"),
    ("nan", "a score has to be a number"),
    ("ln", "the natural logarithm is `log`"),
    ("fabs", "write `abs`"),
    ("float", "write `real(x)`"),
    ("True", "write `true`"),
    ("False", "write `false`"),
    ("mod", "write `a % b`"),
];

/// Checks the syntax tree parsed from `text`.
pub(super) fn check(syntax: &Syntax, text: &str, declared: &Declared, goal: Goal) -> Result<Expr, Finding> {
    let checker = Checker { text, declared, goal };
    let root = checker.expr(syntax)?;
    match goal {
        Goal::Score => checker.real(root, &syntax.span),
        Goal::Mask => condition(root, &syntax.span),
    }
}

struct Checker<'a> {
    text: &'a str,
    declared: &'a Declared,
    goal: Goal,
}

impl Checker<'_> {
    fn expr(&self, syntax: &Syntax) -> Result<Expr, Finding> {
        let span = &syntax.span;
        match &syntax.node {
            Node::Integer(value) => Ok(Expr::integer(*value)),
            Node::Real(value) => Number::new(*value).map(|number| Expr::Leaf(Leaf::Real(number))).ok_or_else(|| {
                Finding::new("a number does not fit fp32", span.clone(), "too large or too small", "write another number")
            }),
            Node::Name(name) => self.name(name, span),
            Node::Index(name, at, index) => self.element(name, at, index),
            Node::Call(name, at, values) => self.call(name, at, values, span),
            Node::Negate(inner) => Ok(Expr::unary_as_is(Unary::Negate, self.number(inner)?)),
            Node::Not(inner) => {
                let inner = condition(self.expr(inner)?, &inner.span)?;
                Ok(Expr::unary_as_is(Unary::Not, inner))
            }
            Node::Binary(operator, at, a, b) => self.binary(*operator, at, a, b),
        }
    }

    /// A number of either type.
    fn number(&self, syntax: &Syntax) -> Result<Expr, Finding> {
        let expr = self.expr(syntax)?;
        if expr.kind() != Type::Boolean {
            return Ok(expr);
        }
        let help = "write `select(condition, a, b)` to choose between numbers";
        Err(Finding::new("a condition where a number is needed", syntax.span.clone(), "true or false", help))
    }

    fn real(&self, expr: Expr, at: &Range<usize>) -> Result<Expr, Finding> {
        match expr.kind() {
            Type::Real => Ok(expr),
            Type::Integer => Ok(converted(expr)),
            Type::Boolean => {
                let help = "write `select(condition, a, b)`; what hides keys is a `mask`";
                let title = format!("`{}` is a condition, not a score", &self.text[at.clone()]);
                Err(Finding::new(title, at.clone(), "true or false", help))
            }
        }
    }

    fn name(&self, name: &str, at: &Range<usize>) -> Result<Expr, Finding> {
        if let "true" | "false" = name {
            return Ok(Expr::boolean(name == "true"));
        }
        if let Some(variable) = Variable::ALL.into_iter().find(|variable| variable.name() == name) {
            if variable == Variable::S && self.goal == Goal::Mask {
                let help = "a mask may use `q`, `k`, `h`, `b` and declared names; use a `score` for the product";
                return Err(Finding::new("`s` cannot be used in a mask", at.clone(), "the scaled product", help));
            }
            return Ok(Expr::variable(variable));
        }
        if let Some((function, _)) = FUNCTIONS.iter().find(|(function, _)| *function == name) {
            let help = format!("write `{function}(…)`");
            return Err(Finding::new(format!("`{name}` is a function"), at.clone(), "its values are missing", help));
        }
        match self.declared.find(name) {
            Some(named) if named.list == List::Tables => {
                let help = format!("write `{name}[h]` for the value of the head");
                Err(Finding::new(format!("`{name}` is a table"), at.clone(), "its index is missing", help))
            }
            Some(named) => Ok(Expr::Leaf(Leaf::Named(named))),
            None => Err(self.unknown(name, at)),
        }
    }

    fn unknown(&self, name: &str, at: &Range<usize>) -> Finding {
        let known = self.declared.known();
        let listed = format!("names here: {}", ticked(&known));
        let meant = MEANT.iter().find(|(other, _)| *other == name).map(|(_, meaning)| (*meaning).to_owned());
        let help = meant.or_else(|| suggestion(name, &known).map(|meant| format!("{meant} {listed}")));
        let help = help.unwrap_or_else(|| format!("declare it in `scalars`, `integers` or `tables`; {listed}"));
        Finding::new(format!("unknown name `{name}`"), at.clone(), "not known", help)
    }

    fn element(&self, name: &str, at: &Range<usize>, index: &Syntax) -> Result<Expr, Finding> {
        let Some(named) = self.declared.find(name) else {
            let is_taken = self.declared.known().contains(&name);
            let help = format!("declare `{name}` in `tables`");
            let no_table = || Finding::new(format!("`{name}` is no table"), at.clone(), "not a table", help);
            return Err(if is_taken { no_table() } else { self.unknown(name, at) });
        };
        if named.list != List::Tables {
            let help = format!("write `{name}` without an index, or declare it in `tables`");
            return Err(Finding::new(format!("`{name}` is no table"), at.clone(), "one value, not one per head", help));
        }
        if !matches!(&index.node, Node::Name(name) if name == Variable::H.name()) {
            let help = format!("write `{name}[h]`: a table has one value per query head");
            return Err(Finding::new("a table is indexed by `h` alone", index.span.clone(), "not `h`", help));
        }
        Ok(Expr::Leaf(Leaf::Named(named)))
    }

    fn call(&self, name: &str, at: &Range<usize>, values: &[Syntax], whole: &Range<usize>) -> Result<Expr, Finding> {
        let Some((name, expected)) = FUNCTIONS.into_iter().find(|(function, _)| *function == name) else {
            let functions = FUNCTIONS.map(|(function, _)| function);
            let meant = MEANT.iter().find(|(other, _)| *other == name).map(|(_, meaning)| (*meaning).to_owned());
            let meant = meant.or_else(|| suggestion(name, &functions));
            let listed = format!("functions: {}", ticked(&functions));
            let help = meant.map_or(listed.clone(), |meant| format!("{meant} {listed}"));
            return Err(Finding::new(format!("`{name}` is no function"), at.clone(), "not a function", help));
        };
        let fits = expected.map_or(values.len() >= 2, |count| values.len() == count);
        if !fits {
            let (count, example) = match expected {
                Some(1) => ("one value", format!("{name}(x)")),
                Some(_) => ("three values", format!("{name}(condition, a, b)")),
                None => ("two or more values", format!("{name}(a, b)")),
            };
            let label = format!("{} given", values.len());
            let title = format!("`{name}` takes {count}");
            return Err(Finding::new(title, whole.clone(), label, format!("write `{example}`")));
        }
        match name {
            "min" | "max" => {
                let op = if name == "min" { Binary::Min } else { Binary::Max };
                let mut joined = self.number(&values[0])?;
                for value in &values[1..] {
                    joined = arithmetic(op, joined, self.number(value)?);
                }
                Ok(joined)
            }
            "select" => self.select(&values[0], &values[1], &values[2]),
            "abs" => Ok(Expr::unary_as_is(Unary::Abs, self.number(&values[0])?)),
            _ => {
                let value = as_real(self.number(&values[0])?);
                Ok(match name {
                    "exp" => Expr::unary_as_is(Unary::Exp, value),
                    "tanh" => Expr::unary_as_is(Unary::Tanh, value),
                    "log" => Expr::unary_as_is(Unary::Log, value),
                    // `real`.
                    _ => value,
                })
            }
        }
    }

    fn select(&self, test: &Syntax, a: &Syntax, b: &Syntax) -> Result<Expr, Finding> {
        let chosen = condition(self.expr(test)?, &test.span)?;
        let (left, right) = (self.expr(a)?, self.expr(b)?);
        let (left, right) = match (left.kind(), right.kind()) {
            (Type::Boolean, Type::Boolean) => (left, right),
            (Type::Boolean, _) | (_, Type::Boolean) => {
                let help = "let both be numbers, or both conditions";
                let finding =
                    Finding::new("`select` chooses between a number and a condition", b.span.clone(), "the other kind", help);
                return Err(finding.with_context(a.span.clone(), "one kind"));
            }
            _ => alike(left, right),
        };
        Ok(Expr::Select(Box::new(chosen), Box::new(left), Box::new(right)))
    }

    fn binary(&self, operator: Operator, at: &Range<usize>, a: &Syntax, b: &Syntax) -> Result<Expr, Finding> {
        match operator {
            Operator::And | Operator::Or => {
                let op = if operator == Operator::And { Binary::And } else { Binary::Or };
                let left = condition(self.expr(a)?, &a.span)?;
                Ok(Expr::binary_as_is(op, left, condition(self.expr(b)?, &b.span)?))
            }
            Operator::Compare(relation) => self.comparison(relation, at, a, b),
            Operator::FloorDivide => self.division(Binary::FloorDivide, "//", a, b),
            Operator::Modulo => self.division(Binary::Modulo, "%", a, b),
            Operator::Add => Ok(arithmetic(Binary::Add, self.number(a)?, self.number(b)?)),
            Operator::Subtract => Ok(arithmetic(Binary::Subtract, self.number(a)?, self.number(b)?)),
            Operator::Multiply => Ok(arithmetic(Binary::Multiply, self.number(a)?, self.number(b)?)),
            Operator::Divide => self.quotient(a, b),
        }
    }

    fn quotient(&self, a: &Syntax, b: &Syntax) -> Result<Expr, Finding> {
        let (left, right) = (as_real(self.number(a)?), as_real(self.number(b)?));
        if matches!(b.node, Node::Integer(0) | Node::Real(0.0)) {
            let help = "divide by another number";
            return Err(Finding::new("a division by zero", b.span.clone(), "zero", help));
        }
        Ok(Expr::binary_as_is(Binary::Divide, left, right))
    }

    fn comparison(&self, relation: Relation, at: &Range<usize>, a: &Syntax, b: &Syntax) -> Result<Expr, Finding> {
        let (left, right) = alike(self.number(a)?, self.number(b)?);
        if left.kind() == Type::Real && matches!(relation, Relation::Equal | Relation::Unequal) {
            let help = "compare with `<` or `>`; integers may be equal";
            let title = "real numbers are rounded, so being equal means nothing";
            return Err(Finding::new(title, at.clone(), "between real numbers", help));
        }
        Ok(Expr::binary_as_is(Binary::Compare(relation), left, right))
    }

    /// `//` and `%`, whose divisor must always be positive.
    fn division(&self, op: Binary, symbol: &str, a: &Syntax, b: &Syntax) -> Result<Expr, Finding> {
        let (left, right) = (self.number(a)?, self.number(b)?);
        for (operand, syntax) in [(&left, a), (&right, b)] {
            if operand.kind() != Type::Integer {
                let help = "a real number is divided with `/`; a product of positions is real, as is a name of `scalars`";
                return Err(Finding::new(format!("`{symbol}` is for integers"), syntax.span.clone(), "a real number", help));
            }
        }
        let is_name = matches!(&right, Expr::Leaf(Leaf::Named(_)));
        if is_name || right.as_integer().is_some_and(|value| value > 0) {
            return Ok(Expr::binary_as_is(op, left, right));
        }
        let title = format!("`{symbol}` needs a divisor that is positive for certain");
        let help = "divide by a positive number or a name of `integers`";
        Err(Finding::new(title, b.span.clone(), "neither a positive number nor a name", help))
    }
}

fn condition(expr: Expr, at: &Range<usize>) -> Result<Expr, Finding> {
    if expr.kind() == Type::Boolean {
        return Ok(expr);
    }
    let help = "compare it with something, for example `k <= q`";
    Err(Finding::new("a number where a condition is needed", at.clone(), "a number", help))
}

fn converted(expr: Expr) -> Expr {
    Expr::unary_as_is(Unary::Real, expr)
}

fn as_real(expr: Expr) -> Expr {
    if expr.kind() == Type::Integer { converted(expr) } else { expr }
}

/// Two numbers converted to the same type.
fn alike(a: Expr, b: Expr) -> (Expr, Expr) {
    if a.kind() == b.kind() { (a, b) } else { (as_real(a), as_real(b)) }
}

/// An arithmetic operation. It is an integer operation only if every possible value is exact.
fn arithmetic(op: Binary, a: Expr, b: Expr) -> Expr {
    let (a, b) = alike(a, b);
    let joined = Expr::binary_as_is(op, a, b);
    match joined {
        Expr::Binary(op, a, b) if a.kind() == Type::Integer && !range::of(&Expr::Binary(op, a.clone(), b.clone())).is_exact() => {
            Expr::binary_as_is(op, converted(*a), converted(*b))
        }
        joined => joined,
    }
}
