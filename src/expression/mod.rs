//! Scores and masks that a user writes: `s - decay * abs(q - k)`, `k <= q and q - k < 4096`. One text gives the CUDA
//! code, the float64 reference, the derivative for the backward pass, the count of operations, and the interval of keys
//! that a row sees. docs/expressions.md describes the language.
//!
//! ```text
//! text ─▶ syntax ─▶ Expr ─▶ value, derivative, CUDA text, FLOPs, interval
//!    parse    check  simplify
//! ```
//!
//! Independent of grids, plans, templates and terminals.

mod check;
mod cuda;
mod declare;
mod derivative;
mod display;
mod error;
mod evaluate;
mod interned;
mod interval;
mod names;
mod parse;
mod range;
mod reference;
mod rounding;
mod simplify;
mod syntax;
#[cfg(test)]
mod testing;
mod tree;
mod work;

pub use check::Goal;
pub use cuda::{HELPERS, Local, Spelling, Stage, Text};
pub(crate) use declare::{Entry, declare};
pub use declare::{UserScore, read};
pub use error::ExpressionError;
pub use evaluate::At;
pub use interned::KeptScore;
pub use interval::{Interval, Trend};
pub use names::{Declared, MOST_SCALARS, MOST_TABLES, NameError};
pub use range::LARGEST;
pub use tree::{Binary, Expr, Leaf, List, Named, Number, Relation, Type, Unary, Variable};
pub use work::Work;

use crate::{files::FieldHasher, text::Finding};

impl Expr {
    /// Parses a text.
    ///
    /// # Errors
    /// [`ExpressionError`], which points at the column.
    pub fn parse(text: &str, declared: &Declared, goal: Goal) -> Result<Self, ExpressionError> {
        parsed(text, declared, goal).map_err(|finding| ExpressionError::new(text, finding))
    }

    /// The derivative of a score with respect to `s`. At a kink it is one-sided: `abs(u)` counts as `u` if `u` is 0,
    /// and `min` and `max` take the first of equal values.
    #[must_use]
    pub fn derivative(&self) -> Self {
        derivative::by_s(self)
    }

    /// The keys that every row of a mask sees, if they are an interval or contained in one; `None` if nothing is known.
    pub fn interval(&self) -> Option<Interval> {
        interval::of(self)
    }

    /// A hash that is equal for texts that differ only in spaces, brackets and the spelling of numbers: 64 hexadecimal
    /// digits.
    pub fn hash(&self) -> String {
        let mut hasher = FieldHasher::default();
        hasher.field("type", format!("{:?}", self.kind()));
        hasher.field("text", self.to_string());
        hasher.finish()
    }

    /// True if it uses the declared name.
    pub fn uses_name(&self, name: &str) -> bool {
        self.any_leaf(&|leaf| matches!(leaf, Leaf::Named(named) if *named.name == *name))
    }

    /// The integers used as divisors, sorted: a call must pass positive ones.
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

#[cfg(test)]
mod tests {
    use super::{
        Expr, Goal,
        testing::{self, Values, expression, names},
    };
    use rand::{RngExt, seq::IndexedRandom};

    #[test]
    fn the_canonical_text_is_read_back_as_the_same_tree() {
        let mut random = testing::random(1);
        for index in 0..2000 {
            let (expr, goal) = if index % 2 == 0 {
                (testing::random_score(&mut random, 4), Goal::Score)
            } else {
                (testing::random_mask(&mut random, 4), Goal::Mask)
            };
            let text = expr.to_string();
            if text.len() > 1000 {
                continue;
            }
            let again = expression(goal, &text);
            assert_eq!(again, expr, "`{text}`\n`{again}`");
            assert_eq!(again.hash(), expr.hash());
        }
    }

    #[test]
    fn what_is_simpler_has_the_same_value() {
        let mut random = testing::random(2);
        let mut compared = 0;
        for index in 0..2000 {
            let goal = if index % 2 == 0 { Goal::Score } else { Goal::Mask };
            let text =
                if goal == Goal::Score { testing::real(&mut random, 4) } else { testing::condition(&mut random, 4, false) };
            let Ok(syntax) = super::parse::parse(&text) else { continue };
            let written = super::check::check(&syntax, &text, &names(), goal).unwrap_or_else(|finding| panic!("{finding:?}"));
            let simple = super::simplify::simplify(written.clone());
            for _ in 0..5 {
                let values = Values::random(&mut random);
                let (before, after) = (written.value(&values.at()), simple.value(&values.at()));
                // If a value is not finite, a dropped part may have been the cause.
                if before.is_finite() {
                    compared += 1;
                    let near = (before - after).abs() <= 1e-9 * before.abs().max(1.0);
                    assert!(near, "`{text}` is {before}, `{simple}` is {after} at {values:?}");
                }
            }
        }
        assert!(compared > 5000, "only {compared} were compared");
    }

    #[test]
    fn what_divides_is_known() {
        let divisors = |text: &str| expression(Goal::Mask, text).divisors();
        assert_eq!(divisors("q // n == k // n and k % m < 3"), ["m", "n"]);
        assert_eq!(divisors("q // 4 == k // 4 and n < k"), [""; 0]);
    }

    #[test]
    fn no_text_panics_and_every_error_points_into_it() {
        #[rustfmt::skip]
        let pieces = [
            "s", "q", "k", "h", "b", "n", "a", "slope", "[h]", "[", "]", "(", ")", ",", "+", "-", "*", "/", "//", "%", "**",
            "<", "<=", "==", "!=", "!", "=", "and", "or", "not", "min(", "max(", "abs(", "tanh(", "log(", "select(", "real(", "1",
            "0", "2.5", "1e9", "1e999", ".", "..", "99999999999999999999", "0x1", "true", "false", "&&", "é", "🙂", "\n", "\t",
            "\u{0}", "'", "\"", "seqlen_k", "?", ":", "nan", "inf",
        ];
        let mut random = testing::random(3);
        let (mut refused, mut read) = (0, 0);
        for _ in 0..30_000 {
            let text: String = (0..random.random_range(0..10))
                .map(|_| [*pieces.choose(&mut random).unwrap(), *["", " "].choose(&mut random).unwrap()].concat())
                .collect();
            for goal in [Goal::Score, Goal::Mask] {
                match Expr::parse(&text, &names(), goal) {
                    Ok(expr) => {
                        read += 1;
                        let _ = (expr.value(&Values::random(&mut random).at()), expr.derivative(), expr.interval());
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(text.get(error.span()).is_some(), "`{text}` at {:?}", error.span());
                        assert!(error.to_string().contains("help:"), "{error}");
                    }
                }
            }
        }
        assert!(refused > 10_000 && read > 300, "{refused} were refused and {read} were read");
    }
}
