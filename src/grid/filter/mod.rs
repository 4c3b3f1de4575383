//! Filter expressions: `hdim >= 128 and dtype == bf16`. The same language selects on the command line and defines the
//! variants of an `[[exclude]]`, a `[[tile]]` or a set of `variants.toml`.

mod glob;
mod parse;
#[cfg(test)]
mod properties;

use crate::kernel::{Dtype, Feature, Features, HeadDim, Kind, Target, Variant};
use crate::{expression::KeptScore, text::Finding};
use std::{fmt, ops::Range, str::FromStr};

/// A condition on variants, parsed from text.
///
/// Fields: `kind`, `hdim` (or `head_dim`), `qk` and `v` (the head dims of Q and K, of V and O), `dtype`, `causal`
/// (alone, or `== true|false`), `full`, `mask` (`causal` or `full`), `score` (the name of a declared one, or `none`),
/// `target`, `name`; and alone, without operator, the features (`window`, `softcap`, …), `plain`, for kernels without
/// any, `scores`, for kernels that change scores before the mask (`softcap`, `alibi`, declared scores), and a head dim
/// as names spell it (`hdim64`, `hdim192_128`). Operators: `==`, `!=`, `in (…)`, `not in (…)` everywhere; `<`, `<=`,
/// `>`, `>=` on head dims and `target` (by compute capability); `~` and `!~` on `name` (`*` and `?`). Conditions are
/// joined with `and`, `or`, `not` and parentheses; `not` binds tightest, then `and`. Values accept every alias of an
/// axis.
///
/// `hdim == 64` is a kernel whose head dims are all 64; if V and O have another, `hdim == 192_128` names both, and
/// `<`, `<=`, `>`, `>=` take the larger of the two.
///
/// A test of an axis that a kernel lacks is false, and its negation true: the helpers of split-KV have no head dim,
/// dtype or mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    root: Node,
}

impl Filter {
    /// True if `variant` meets the condition.
    pub fn matches(&self, variant: &Variant) -> bool {
        self.root.matches(*variant)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        match parse::filter(text) {
            Ok(root) => Ok(Self { text: text.to_owned(), root }),
            Err(finding) => Err(FilterError { text: text.to_owned(), finding }),
        }
    }
}

impl fmt::Display for Filter {
    /// The text it was parsed from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The reason why a text is not a filter. Its `Display` is several lines: the reason, the text with a caret, and the
/// remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", finding.render("filter", text))]
pub struct FilterError {
    text: String,
    pub(super) finding: Finding,
}

impl FilterError {
    /// The part of the text that could not be parsed, in bytes; empty at its end.
    pub fn span(&self) -> Range<usize> {
        self.finding.span.clone()
    }
}

/// One node of a parsed filter.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    /// `a or b or c`.
    Any(Vec<Node>),
    /// `a and b and c`.
    All(Vec<Node>),
    /// `not a`.
    Not(Box<Node>),
    /// A condition on one field.
    Test(Test),
}

/// A condition on one field, always in its positive form.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Kind(Vec<Kind>),
    HeadDims(Vec<HeadDim>),
    HeadDimLimit(Order, u32),
    /// The head dim of Q and K.
    Qk(Check<u32>),
    /// The head dim of V and O.
    V(Check<u32>),
    Dtype(Vec<Dtype>),
    Causal(Vec<bool>),
    Feature(Feature),
    /// Names of declared scores; `none` matches a kernel without one.
    Score(Vec<String>),
    Plain,
    /// A feature, or a declared score, that changes scores before the mask.
    Scores,
    Target(Check<Target>),
    Name(Vec<String>),
    NameLike(String),
}

/// The test of a value of an ordered field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Check<T> {
    OneOf(Vec<T>),
    Compare(Order, T),
}

/// The ordering operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Node {
    fn matches(&self, variant: Variant) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.matches(variant)),
            Self::All(parts) => parts.iter().all(|part| part.matches(variant)),
            Self::Not(inner) => !inner.matches(variant),
            Self::Test(test) => test.matches(variant),
        }
    }
}

impl Test {
    fn matches(&self, variant: Variant) -> bool {
        let at = variant.coordinates();
        match self {
            Self::Kind(kinds) => kinds.contains(&variant.kind()),
            Self::HeadDims(pairs) => at.head_dim.is_some_and(|head_dim| pairs.contains(&head_dim)),
            Self::HeadDimLimit(order, limit) => at.head_dim.is_some_and(|head_dim| order.holds(head_dim.wider(), *limit)),
            Self::Qk(check) => at.head_dim.is_some_and(|head_dim| check.holds(head_dim.qk)),
            Self::V(check) => at.head_dim.is_some_and(|head_dim| check.holds(head_dim.v)),
            Self::Dtype(dtypes) => at.dtype.is_some_and(|dtype| dtypes.contains(&dtype)),
            Self::Causal(masks) => at.causal.is_some_and(|causal| masks.contains(&causal)),
            Self::Feature(feature) => at.features.is_some_and(|set| set.has(*feature)),
            Self::Score(names) => at.features.is_some_and(|set| {
                let name = set.score().map_or("none", KeptScore::name);
                names.iter().any(|given| given == name)
            }),
            Self::Plain => at.features.is_none_or(Features::is_empty),
            Self::Scores => at.features.is_some_and(Features::changes_scores),
            Self::Target(check) => check.holds(at.target),
            Self::Name(names) => names.contains(&variant.name()),
            Self::NameLike(pattern) => glob::matches(pattern, &variant.name()),
        }
    }
}

impl<T: Copy + Ord> Check<T> {
    fn holds(&self, value: T) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Compare(order, limit) => order.holds(value, *limit),
        }
    }
}

impl Order {
    fn holds<T: Copy + Ord>(self, value: T, limit: T) -> bool {
        match self {
            Self::Less => value < limit,
            Self::AtMost => value <= limit,
            Self::Greater => value > limit,
            Self::AtLeast => value >= limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{Kind, Point};
    use crate::kernel::Features;
    use std::sync::LazyLock;

    static FULL: LazyLock<Variant> = LazyLock::new(|| {
        Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(128),
            dtype: Dtype::Bf16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        }
        .into()
    });
    static CAUSAL: LazyLock<Variant> = LazyLock::new(|| {
        Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(128),
            dtype: Dtype::Bf16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm80,
        }
        .into()
    });

    #[track_caller]
    fn holds(text: &str, variant: Variant) -> bool {
        text.parse::<Filter>().unwrap_or_else(|error| panic!("{error}")).matches(&variant)
    }

    #[test]
    fn every_field_and_operator_is_understood() {
        let cases = [
            ("kind == fwd", true),
            ("kind != forward", false),
            ("kind in (bwd, fwd)", true),
            ("hdim == 128", true),
            ("head_dim <128", false),
            ("hdim<=128", true),
            ("hdim > 120", true),
            ("hdim >= 136", false),
            ("hdim in (64, 128,)", true),
            ("hdim not in (64, 128)", false),
            ("qk == 128 and v <= 128", true),
            ("v in (64, 96) or qk > 128", false),
            ("scores", false),
            ("dtype == bfloat16", true),
            ("dtype in (half, e4m3)", false),
            ("target == ampere", true),
            ("target >= hopper", false),
            ("target in (blackwell-dc, A100)", true),
            ("causal", false),
            ("full", true),
            ("not causal", true),
            ("causal == false", true),
            ("causal != false", false),
            ("mask == full", true),
            ("mask != causal", true),
            ("mask in (causal, full)", true),
            ("name == flash_fwd_hdim128_bf16_sm80", true),
            ("name ~ 'flash_fwd_*_bf16*'", true),
            ("name ~ \"*fp8*\"", false),
            ("name !~ *fp8*", true),
        ];
        for (text, expected) in cases {
            assert_eq!(holds(text, *FULL), expected, "`{text}`");
        }
    }

    #[test]
    fn and_binds_tighter_than_or_and_not_tighter_than_both() {
        assert!(holds("hdim == 128 or hdim == 64 and causal", *FULL));
        assert!(!holds("(hdim == 128 or hdim == 64) and causal", *FULL));
        assert!(holds("(hdim == 128 or hdim == 64) and causal", *CAUSAL));
        assert!(!holds("not hdim == 64 and causal", *FULL));
        assert!(holds("not (hdim == 64 and causal)", *FULL));
        assert!(holds("!causal && hdim == 128 || hdim == 8", *FULL));
        assert!(holds("NOT\n  causal\tAND full", *FULL));
    }

    #[test]
    fn a_helper_kernel_has_no_head_dim_dtype_or_mask() {
        let helper = Variant::from(Point {
            kind: Kind::FwdCombine,
            head_dim: HeadDim::equal(0),
            dtype: Dtype::Fp16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        });
        for text in ["hdim < 64", "dtype == fp16", "full", "causal == false"] {
            assert!(!holds(text, helper), "`{text}`");
            assert!(holds(&format!("not {text}"), helper), "`not {text}`");
        }
        assert!(holds("kind == combine and target == sm80 and name ~ '*combine*' and dtype != bf16", helper));
    }

    #[track_caller]
    fn refused(text: &str) -> (String, String) {
        let error = text.parse::<Filter>().expect_err("this is no filter");
        (text[error.span()].to_owned(), error.to_string())
    }

    #[test]
    fn an_error_points_at_the_column_and_says_what_was_expected() {
        let cases = [
            ("hdm >= 128", "hdm", "did you mean `hdim`?"),
            ("size == 128", "size", "`hdim`"),
            ("hdim >= many", "many", "a number"),
            ("qk == 192_128", "192_128", "a number"),
            ("scores == none", "==", "`not scores`"),
            ("hdim = 128", "=", "`==`"),
            ("hdim 128", "128", "`>=`"),
            ("hdim ~ '12*'", "~", "only `name`"),
            ("dtype < fp16", "<", "no order"),
            ("dtype == bfloat61", "bfloat61", "did you mean `bfloat16`?"),
            ("target == volta", "volta", "`sm80`"),
            ("causal == maybe", "maybe", "`true`"),
            ("mask == diagonal", "diagonal", "`full`"),
            ("full == true", "==", "`mask == full`"),
            ("hdim == 64 hdim == 128", "hdim", "`and`"),
            ("(hdim == 64", "", "`)`"),
            ("hdim == 64)", ")", "`and`"),
            ("hdim in 64, 128", "64", "`(`"),
            ("hdim in ()", ")", "a number"),
            ("hdim in (64 128)", "128", "`,`"),
            ("name ~ 'flash", "'flash", "not closed"),
            ("hdim >= 64 and", "", "a condition"),
            ("", "", "a condition"),
            ("hdim == 99999999999", "99999999999", "a number"),
        ];
        for (text, at, expected) in cases {
            let (found, message) = refused(text);
            assert_eq!(found, at, "the caret of `{text}`:\n{message}");
            assert!(message.contains(expected), "`{text}` should say {expected}:\n{message}");
            assert!(message.contains('^') && message.contains("help:"), "{message}");
        }
    }

    #[test]
    fn nesting_without_end_is_refused_instead_of_overflowing_the_stack() {
        let (_, message) = refused(&"(".repeat(100_000));
        assert!(message.contains("nested"), "{}", &message[..200]);
        let (_, message) = refused(&"not ".repeat(100_000));
        assert!(message.contains("nested"), "{}", &message[..200]);
    }
}
