//! Scores and masks that a user writes: `s - decay * abs(q - k)`, `k <= q and q - k < 4096`. One text gives the CUDA
//! code, the float64 reference, the derivative for the backward pass, the count of operations, and the interval of keys
//! that a row sees. docs/expressions.md describes the language.
//!
//! ```text
//! text ─▶ syntax ─▶ Expr ─▶ value, derivative, CUDA text, FLOPs, interval
//!    parse    check  simplify
//! ```
//!
//! Knows nothing of grids, plans, templates or terminals.

mod check;
mod cuda;
mod declare;
mod derivative;
mod display;
mod error;
mod evaluate;
mod interval;
mod names;
mod parse;
mod range;
mod simplify;
mod syntax;
#[cfg(test)]
mod testing;
mod tree;
mod work;

pub use check::Goal;
pub use cuda::{HELPERS, Local, Spelling, Stage, Text};
pub use declare::{UserScore, read};
pub use error::ExpressionError;
pub use evaluate::At;
pub use interval::{Interval, Trend};
pub use names::{Declared, MOST_SCALARS, MOST_TABLES, NameError};
pub use range::LARGEST;
pub use tree::{Binary, Expr, Leaf, List, Named, Number, Relation, Type, Unary, Variable};
pub use work::Work;

use crate::{files::FieldHasher, text::Finding};

impl Expr {
    /// Reads a text.
    ///
    /// # Errors
    /// [`ExpressionError`], which points at the column.
    pub fn parse(text: &str, declared: &Declared, goal: Goal) -> Result<Self, ExpressionError> {
        parsed(text, declared, goal).map_err(|finding| ExpressionError::new(text, finding))
    }

    /// The derivative of a score by `s`. At a kink it is that of one side: of `u` for `abs(u)` where `u` is 0, and of
    /// the first of two equal values for `min` and `max`.
    #[must_use]
    pub fn derivative(&self) -> Self {
        derivative::by_s(self)
    }

    /// The keys that every row of a mask sees, where they are an interval or lie in one; `None` where nothing is known.
    pub fn interval(&self) -> Option<Interval> {
        interval::of(self)
    }

    /// A hash that texts share where they differ only in spaces, brackets and the spelling of numbers: 64 hexadecimal
    /// digits.
    pub fn hash(&self) -> String {
        let mut hasher = FieldHasher::default();
        hasher.field("type", format!("{:?}", self.kind()));
        hasher.field("text", self.to_string());
        hasher.finish()
    }

    /// The declared names that it uses.
    pub fn uses_name(&self, name: &str) -> bool {
        self.any_leaf(&|leaf| matches!(leaf, Leaf::Named(named) if *named.name == *name))
    }

    /// The integers that divide in it, sorted: a call has to pass positive ones.
    pub fn divisors(&self) -> Vec<String> {
        let mut names: Vec<String> = self.parts().into_iter().flat_map(Self::divisors).collect();
        if let Self::Binary(Binary::FloorDivide | Binary::Modulo, _, by) = self
            && let Self::Leaf(Leaf::Named(named)) = &**by
        {
            names.push(named.name.to_string());
        }
        names.sort();
        names.dedup();
        names
    }
}

fn parsed(text: &str, declared: &Declared, goal: Goal) -> Result<Expr, Finding> {
    let syntax = parse::parse(text)?;
    Ok(simplify::simplify(check::check(&syntax, text, declared, goal)?))
}
