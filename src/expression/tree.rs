//! The tree of a checked expression. Every node has the operands its operation needs, and a type that follows from
//! them.

use std::{fmt, sync::Arc};

/// Type of a value.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Type {
    /// A condition.
    Boolean,
    /// A whole number, exact.
    Integer,
    /// fp32 in the kernel, float64 in the reference.
    Real,
}

/// A well-typed expression.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Expr {
    /// A value.
    Leaf(Leaf),
    /// An operation on one value.
    Unary(Unary, Box<Expr>),
    /// An operation on two values of one type.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// The second if the first holds, otherwise the third; only the selected one is evaluated.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// A value without operands.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Leaf {
    /// A real literal.
    Real(Number),
    /// An integer literal.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// A variable of the element's position.
    Variable(Variable),
    /// A value that the caller passes.
    Named(Named),
}

/// A finite number; never a negative zero.
#[derive(Clone, Copy, PartialEq)]
pub struct Number(f64);

// Finite: reflexive, and equal numbers have equal bits.
impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Number {
    /// `value`, if it is within fp32's range.
    pub fn new(value: f64) -> Option<Self> {
        let held = (value as f32).is_finite() && (value == 0.0 || (value as f32).is_normal());
        // Adding zero makes a negative zero positive.
        held.then_some(Self(value + 0.0))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A variable that the kernel provides.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Variable {
    /// The scaled product of query and key.
    S,
    /// Position of the query, aligned to the bottom right: `i + seqlen_k - seqlen_q` for query `i`. May be negative.
    Q,
    /// Position of the key, from 0 on.
    K,
    /// The query head.
    H,
    /// The entry of the batch.
    B,
    /// Number of queries of the batch entry.
    SeqlenQ,
    /// Number of keys of the batch entry.
    SeqlenK,
}

impl Variable {
    /// All variables.
    pub const ALL: [Self; 7] = [Self::S, Self::Q, Self::K, Self::H, Self::B, Self::SeqlenQ, Self::SeqlenK];

    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Q => "q",
            Self::K => "k",
            Self::H => "h",
            Self::B => "b",
            Self::SeqlenQ => "seqlen_q",
            Self::SeqlenK => "seqlen_k",
        }
    }
}

/// A value that the caller passes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Named {
    /// Kind of the value.
    pub list: List,
    /// Index among the values of the same kind.
    pub index: usize,
    /// Name of the value.
    pub name: Arc<str>,
}

/// The kinds of values that a caller passes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum List {
    /// fp32.
    Scalars,
    /// int32, from [`-LARGEST`](super::LARGEST) to [`LARGEST`](super::LARGEST).
    Integers,
    /// fp32, one value per query head.
    Tables,
}

impl List {
    /// The key that declares it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Scalars => "scalars",
            Self::Integers => "integers",
            Self::Tables => "tables",
        }
    }
}

/// Operations on one value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unary {
    /// `-x`.
    Negate,
    /// `abs(x)`.
    Abs,
    /// `exp(x)`.
    Exp,
    /// `tanh(x)`.
    Tanh,
    /// `log(x)`, the natural one.
    Log,
    /// `not x`.
    Not,
    /// Conversion of an integer to a real number.
    Real,
}

/// Operations on two values.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b` of real numbers.
    Divide,
    /// `a // b` of integers: the largest integer not above the quotient. `b` is positive.
    FloorDivide,
    /// `a % b` of integers: `a - b * (a // b)`, never negative. `b` is positive.
    Modulo,
    /// `min(a, b)`.
    Min,
    /// `max(a, b)`.
    Max,
    /// A comparison.
    Compare(Relation),
    /// `a and b`.
    And,
    /// `a or b`.
    Or,
}

/// Relations between two numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Relation {
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    Greater,
    /// `>=`.
    AtLeast,
    /// `==`.
    Equal,
    /// `!=`.
    Unequal,
}

impl Relation {
    /// The symbol, the same in the language and in C.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::Equal => "==",
            Self::Unequal => "!=",
        }
    }

    /// The negation of this relation. Not valid for real numbers: with NaN neither holds.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Less => Self::AtLeast,
            Self::AtMost => Self::Greater,
            Self::Greater => Self::AtMost,
            Self::AtLeast => Self::Less,
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
        }
    }

    /// True if the relation holds.
    pub fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::Greater => a > b,
            Self::AtLeast => a >= b,
            Self::Equal => a == b,
            Self::Unequal => a != b,
        }
    }
}

impl Leaf {
    fn kind(&self) -> Type {
        match self {
            Self::Boolean(_) => Type::Boolean,
            Self::Real(_) | Self::Variable(Variable::S) => Type::Real,
            Self::Integer(_) | Self::Variable(_) => Type::Integer,
            Self::Named(named) => {
                if named.list == List::Integers {
                    Type::Integer
                } else {
                    Type::Real
                }
            }
        }
    }
}

impl Expr {
    /// An integer literal.
    pub(super) fn integer(value: i64) -> Self {
        Self::Leaf(Leaf::Integer(value))
    }

    /// A constant condition.
    pub(super) fn boolean(value: bool) -> Self {
        Self::Leaf(Leaf::Boolean(value))
    }

    /// A variable.
    pub(super) fn variable(variable: Variable) -> Self {
        Self::Leaf(Leaf::Variable(variable))
    }

    /// A real literal that fp32 represents exactly.
    pub(super) fn real(value: f32) -> Self {
        Self::Leaf(Leaf::Real(Number(f64::from(value) + 0.0)))
    }

    /// The value of a real literal.
    pub(super) fn as_real(&self) -> Option<f64> {
        if let Self::Leaf(Leaf::Real(number)) = self { Some(number.get()) } else { None }
    }

    /// The value of an integer literal.
    pub(super) fn as_integer(&self) -> Option<i64> {
        if let Self::Leaf(Leaf::Integer(value)) = self { Some(*value) } else { None }
    }

    /// The value of a literal condition.
    pub(super) fn as_boolean(&self) -> Option<bool> {
        if let Self::Leaf(Leaf::Boolean(value)) = self { Some(*value) } else { None }
    }

    /// The node without simplification.
    pub(super) fn unary_as_is(op: Unary, a: Self) -> Self {
        Self::Unary(op, Box::new(a))
    }

    /// The node without simplification.
    pub(super) fn binary_as_is(op: Binary, a: Self, b: Self) -> Self {
        Self::Binary(op, Box::new(a), Box::new(b))
    }

    /// The type of the value.
    pub fn kind(&self) -> Type {
        match self {
            Self::Leaf(leaf) => leaf.kind(),
            Self::Unary(Unary::Not, _) | Self::Binary(Binary::Compare(_) | Binary::And | Binary::Or, ..) => Type::Boolean,
            Self::Binary(Binary::FloorDivide | Binary::Modulo, ..) => Type::Integer,
            Self::Unary(Unary::Exp | Unary::Tanh | Unary::Log | Unary::Real, _) | Self::Binary(Binary::Divide, ..) => Type::Real,
            Self::Unary(Unary::Negate | Unary::Abs, a) | Self::Binary(_, a, _) | Self::Select(_, a, _) => a.kind(),
        }
    }

    /// The operands.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Leaf(_) => Vec::new(),
            Self::Unary(_, a) => vec![a],
            Self::Binary(_, a, b) => vec![a, b],
            Self::Select(c, a, b) => vec![c, a, b],
        }
    }

    /// True if `wanted` accepts some leaf.
    pub(super) fn any_leaf(&self, wanted: &impl Fn(&Leaf) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => wanted(leaf),
            _ => self.parts().iter().any(|part| part.any_leaf(wanted)),
        }
    }

    /// True if it depends on `variable`.
    pub fn uses(&self, variable: Variable) -> bool {
        self.any_leaf(&|leaf| *leaf == Leaf::Variable(variable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_that_fp32_holds_and_zero_has_no_sign() {
        for wrong in [f64::NAN, f64::INFINITY, 1e39, -1e39, 1e-39, 1e-300] {
            assert!(Number::new(wrong).is_none(), "{wrong}");
        }
        assert_eq!(Number::new(-0.0).map(|zero| zero.get().to_bits()), Some(0));
        assert_eq!(Number::new(0.1).map(Number::get), Some(0.1));
    }

    #[test]
    fn a_relation_or_its_negation_holds() {
        for relation in
            [Relation::Less, Relation::AtMost, Relation::Greater, Relation::AtLeast, Relation::Equal, Relation::Unequal]
        {
            for (a, b) in [(1, 2), (2, 2), (3, 2)] {
                assert_ne!(relation.holds(&a, &b), relation.negated().holds(&a, &b), "{a} {} {b}", relation.symbol());
            }
        }
    }
}
