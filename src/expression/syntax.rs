//! What a text says before anything is known of types and names: a tree with the place of every part.

use super::tree::Relation;
use std::ops::Range;

/// A part of the text.
#[derive(Clone, Debug)]
pub(super) struct Syntax {
    pub node: Node,
    /// Bytes of the text.
    pub span: Range<usize>,
}

/// What the part is.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Digits without a point or an exponent.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// `decay`.
    Name(String),
    /// `slope[…]`: the name, its place, what is in the brackets.
    Index(String, Range<usize>, Box<Syntax>),
    /// `name(…)`: the name, its place, the values.
    Call(String, Range<usize>, Vec<Syntax>),
    /// `-x`.
    Negate(Box<Syntax>),
    /// `not x`.
    Not(Box<Syntax>),
    /// Two values and what joins them.
    Binary(Operator, Range<usize>, Box<Syntax>, Box<Syntax>),
}

/// What joins two values.
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
    /// Operations, names and numbers.
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
