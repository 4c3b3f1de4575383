//! Errors in the text of an expression.

use crate::text::Finding;
use std::ops::Range;

/// The reason why a text is not a valid expression. Its `Display` is several lines: the reason, the text with a caret,
/// and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", finding.render("expression", text))]
pub struct ExpressionError {
    text: String,
    finding: Finding,
}

impl ExpressionError {
    pub(super) fn new(text: &str, finding: Finding) -> Self {
        Self { text: text.to_owned(), finding }
    }

    /// The wrong part of the text, in bytes; empty at its end.
    pub fn span(&self) -> Range<usize> {
        self.finding.span.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{Expr, Goal, testing::names};

    #[track_caller]
    fn refused(goal: Goal, text: &str) -> (String, String) {
        let error = Expr::parse(text, &names(), goal).expect_err("this is no expression");
        (text[error.span()].to_owned(), error.to_string())
    }

    #[test]
    fn an_error_points_at_the_column_and_says_what_to_do() {
        use Goal::{Mask, Score};
        let cases = [
            (Score, "", "", "a value is missing"),
            (Score, "   ", "", "a value is missing"),
            (Score, "s - dcay", "dcay", "did you mean `decay`?"),
            (Score, "s - foo", "foo", "declare it in `scalars`, `integers` or `tables`"),
            (Score, "s + kv_idx", "kv_idx", "the position of the key is `k`"),
            (Score, "where(k <= q, s, -inf)", "where", "`select(condition, a, b)`"),
            (Score, "select(k <= q, s, -inf)", "inf", "a `mask`"),
            (Score, "s - slope * k", "slope", "`slope[h]`"),
            (Score, "slope[h + 1]", "h + 1", "one value per query head"),
            (Score, "decay[h]", "decay", "without an index"),
            (Score, "q[h]", "q", "no table"),
            (Score, "s * (a + 1", "", "`)` is missing"),
            (Score, "s * (a + 1 s)", "s", "`)` is missing"),
            (Score, "slope[h", "", "`]` is missing"),
            (Score, "s)", ")", "open the bracket"),
            (Score, "s +", "", "a value is missing"),
            (Score, "* s", "*", "a value is missing"),
            (Score, "s ** 2", "**", "`x * x`"),
            (Score, "2 s", "s", "expected an operator"),
            (Score, "2s", "2s", "to multiply"),
            (Score, "1.0f", "1.0f", "is no number"),
            (Score, "0x10", "0x10", "is no number"),
            (Score, "1.2.3", "1.2.3", "is no number"),
            (Score, "s + 1e39", "1e39", "does not fit fp32"),
            (Score, "s + 1e-39", "1e-39", "does not fit fp32"),
            (Score, "s + 2147483648", "2147483648", "`2147483648.0`"),
            (Score, "k <= q", "k <= q", "not a score"),
            (Score, "s + (k <= q)", "(k <= q)", "`select(condition, a, b)`"),
            (Score, "select(k, s, 1)", "k", "a number where a condition is needed"),
            (Score, "select(k < q, s, k < q)", "k < q", "both conditions"),
            (Score, "min(s)", "min(s)", "two or more values"),
            (Score, "tanh(s, a)", "tanh(s, a)", "one value"),
            (Score, "tanh()", "tanh()", "one value"),
            (Score, "tan(s)", "tan", "`tanh`"),
            (Score, "decay(s)", "decay", "no function"),
            (Score, "tanh * s", "tanh", "`tanh(…)`"),
            (Score, "s // 2", "s", "`//` is for integers"),
            (Score, "s + q // a", "a", "`//` is for integers"),
            (Score, "s + q // k", "k", "positive for certain"),
            (Score, "s + q % 0", "0", "positive for certain"),
            (Score, "s + q % -4", "-4", "positive for certain"),
            (Score, "s = 1", "=", "`==`"),
            (Score, "s / (0.0)", "(0.0)", "division by zero"),
            (Mask, "q - k", "q - k", "compare it"),
            (Mask, "k < 8 <= q", "<=", "`a < b and b < c`"),
            (Mask, "k == q == h", "==", "chained"),
            (Mask, "s > 0", "s", "cannot be used in a mask"),
            (Mask, "a == decay", "==", "real numbers are rounded"),
            (Mask, "k <= q && h < 2", "&&", "`and`"),
            (Mask, "k <= q || h < 2", "||", "`or`"),
            (Mask, "!(k <= q)", "!", "`not`"),
            (Mask, "k < not q", "not", "brackets"),
            (Mask, "k <= q and", "", "a value is missing"),
            (Mask, "k <= q, h < 2", ",", "only in a function"),
            (Mask, "k <= 'q'", "'", "remove the quotes"),
            (Mask, "k ≤ q", "≤", "expected an operator"),
        ];
        for (goal, text, at, expected) in cases {
            let (found, message) = refused(goal, text);
            assert_eq!(found, at, "the caret of `{text}`:\n{message}");
            assert!(message.contains(expected), "`{text}` should say {expected}:\n{message}");
            assert!(message.contains('^') && message.contains("help:"), "{message}");
        }
    }

    #[test]
    fn the_column_is_shown() {
        let (_, message) = refused(Goal::Score, "s - dcay * k");
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].contains("unknown name `dcay`") && lines[1].contains("expression:1:5"), "{message}");
        let (text, caret) = (lines[3], lines[4]);
        assert_eq!(text.find("dcay"), caret.find("^^^^"), "{message}");
    }

    #[test]
    fn text_without_end_is_refused_instead_of_overflowing_the_stack() {
        for deep in ["(", "not ", "-", "abs(", "slope[", "select("] {
            for count in [65, 200, 100_000] {
                let text = deep.repeat(count);
                let error = Expr::parse(&text, &names(), Goal::Mask).expect_err("no expression");
                assert!(text.get(error.span()).is_some());
            }
        }
        let nested = |count: usize| format!("{}s{}", "(".repeat(count), ")".repeat(count));
        assert!(Expr::parse(&nested(64), &names(), Goal::Score).is_ok());
        assert!(Expr::parse(&nested(65), &names(), Goal::Score).is_err());
        let (_, message) = refused(Goal::Score, &format!("s{}", " + s".repeat(300)));
        assert!(message.contains("longer than 1000 bytes"), "{message}");
        let (_, message) = refused(Goal::Score, &format!("s{}", "+s".repeat(100)));
        assert!(message.contains("201 operations, names and numbers"), "{message}");
        assert!(Expr::parse(&format!("-s{}", "+s".repeat(99)), &names(), Goal::Score).is_ok());
    }
}
