//! The syntax tree of a text, before types and names are resolved: every part has its position.

use super::tree::Relation;
use std::ops::Range;

/// A part of the text.
#[derive(Clone, Debug)]
pub(super) struct Syntax {
    pub node: Node,
    /// Bytes of the text.
    pub span: Range<usize>,
}

/// Kinds of nodes of the syntax tree, with their operands.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Digits without a point or an exponent.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// `decay`.
    Name(String),
    /// `slope[…]`: the name, its position, the index.
    Index(String, Range<usize>, Box<Syntax>),
    /// `name(…)`: the name, its position, the arguments.
    Call(String, Range<usize>, Vec<Syntax>),
    /// `-x`.
    Negate(Box<Syntax>),
    /// `not x`.
    Not(Box<Syntax>),
    /// Two operands and their operator.
    Binary(Operator, Range<usize>, Box<Syntax>, Box<Syntax>),
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operator {
    Or,
    And,
    Compare(Relation),
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
}

impl Syntax {
    /// Number of operations, names and numbers.
    pub fn parts(&self) -> usize {
        let inner = match &self.node {
            Node::Integer(_) | Node::Real(_) | Node::Name(_) | Node::Index(..) => 0,
            Node::Call(_, _, values) => values.iter().map(Self::parts).sum(),
            Node::Negate(a) | Node::Not(a) => a.parts(),
            Node::Binary(_, _, a, b) => a.parts() + b.parts(),
        };
        1 + inner
    }
}
