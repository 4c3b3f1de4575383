//! Text of a declared score for the templates.

use super::{DeclaredParts, Kind, Point};
use crate::expression::{Expr, HELPERS, KeptScore, List, Local, Spelling, Stage, Text, Variable};
use serde::Serialize;

/// The parts of a kernel's text that depend on its declared score.
#[derive(Debug, Serialize)]
pub struct DeclaredText {
    name: &'static str,
    /// The identity that the launcher compares with calls, as in `fwd_identity`.
    #[serde(skip)]
    pub identity: String,
    /// The score and the mask in readable form.
    lines: Vec<String>,
    /// Members of `declared_values`: type, name, source.
    values: Vec<Member>,
    /// The device functions for division, if they are called.
    helpers: Option<String>,
    score: Option<Function>,
    /// The derivative together with the score.
    slope: Option<Function>,
    sees: Option<Function>,
    low: Option<Function>,
    high: Option<Function>,
}

#[derive(Debug, Serialize)]
struct Member {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    value: String,
}

/// The body of a function of the values, `s`, `q` and `k`.
#[derive(Debug, Serialize)]
struct Function {
    locals: Vec<String>,
    results: Vec<String>,
    /// True if the function uses this argument.
    s: bool,
    q: bool,
    k: bool,
}

/// Placeholder prefix of locals until their stage is known.
const LOCAL: char = '\u{1}';

impl DeclaredText {
    /// The text for a kernel; `None` if it has no declared score.
    pub fn of(point: Point) -> Option<Self> {
        let score = point.features.score()?;
        let parts = DeclaredParts::of(score, point.kind);
        let mut writer = Writer { values: named_values(score), blocks: 0, helpers: false };
        let interval = score.mask.as_ref().and_then(Expr::interval);
        let is_backward = point.kind == Kind::Bwd;
        let per_score = |writer: &mut Writer, exprs: &[&Expr]| writer.function(exprs, &Text::of(exprs, &spelling()));
        let of_score = score.score.as_ref().filter(|_| !is_backward).map(|expr| per_score(&mut writer, &[expr]));
        let slope = score.score.as_ref().zip(score.derivative()).filter(|_| is_backward);
        let slope = slope.map(|(expr, slope)| per_score(&mut writer, &[expr, slope]));
        let seen_by_element = parts.by_element || is_backward;
        let sees = score.mask.as_ref().filter(|_| seen_by_element).map(|expr| per_score(&mut writer, &[expr]));
        let mut end = |used: bool, pick: fn(&crate::expression::Interval) -> &Expr| {
            let expr = interval.as_ref().filter(|_| used).map(pick)?;
            Some(writer.function(&[expr], &Text::per_row(&[expr], &spelling())))
        };
        let (low, high) = (end(parts.low, |found| &found.low), end(parts.high, |found| &found.high));
        let lines = [("score", &score.score), ("mask", &score.mask)];
        let lines = lines.into_iter().filter_map(|(word, expr)| Some(format!("{word}: {}", expr.as_ref()?))).collect();
        Some(Self {
            name: score.name(),
            identity: identity(score),
            lines,
            values: writer.values,
            helpers: writer.helpers.then(|| HELPERS.replace("__device__ __forceinline__", "KGEN_DEVICE").trim_end().to_owned()),
            score: of_score,
            slope,
            sees,
            low,
            high,
        })
    }
}

/// `{0x1f3a…ull, 1, 0, 0, 0x0}`: id, scalars, integers, tables, and a bit for each divisor among the integers.
fn identity(score: KeptScore) -> String {
    let count = |list| score.names.names(list).len();
    let divisors: Vec<String> = score.score.iter().chain(&score.mask).flat_map(Expr::divisors).collect();
    let integers = score.names.names(List::Integers).iter().enumerate();
    let positive = integers.filter(|(_, name)| divisors.iter().any(|divisor| **divisor == ***name));
    let positive = positive.fold(0, |bits, (index, _)| bits | 1 << index);
    let [scalars, integers, tables] = [List::Scalars, List::Integers, List::Tables].map(count);
    format!("{{0x{:016x}ull, {scalars}, {integers}, {tables}, 0x{positive:x}}}", score.id())
}

/// Named values are members of `declared`.
fn spelling() -> Spelling {
    let of = |name: &str| format!("declared.{name}");
    Spelling {
        h: of("h"),
        b: of("b"),
        seqlen_q: of("seqlen_q"),
        seqlen_k: of("seqlen_k"),
        named: "declared.".to_owned(),
        local: LOCAL.to_string(),
        tables_of_head: true,
        ..Spelling::default()
    }
}

/// The values that a call passes, as members.
fn named_values(score: KeptScore) -> Vec<Member> {
    let lists = [(List::Scalars, "float"), (List::Integers, "int"), (List::Tables, "float")];
    let members = lists.into_iter().flat_map(|(list, kind)| {
        score.names.names(list).iter().enumerate().map(move |(index, name)| {
            let passed = format!("p.score.{}[{index}]", list.key());
            let value = if list == List::Tables { format!("load_global({passed} + head)") } else { passed };
            Member { kind, name: name.to_string(), value }
        })
    });
    members.collect()
}

struct Writer {
    values: Vec<Member>,
    /// Number of constants that are members so far.
    blocks: usize,
    helpers: bool,
}

impl Writer {
    /// A function for `exprs`, whose code is in `text`. Values that do not depend on the position become members.
    fn function(&mut self, exprs: &[&Expr], text: &Text) -> Function {
        self.helpers |= text.helpers;
        let before = self.blocks;
        // From the last to the first, so that no name matches as the prefix of another.
        let placed = |code: &str, count: usize| {
            let code = (0..count).rev().fold(code.to_owned(), |code, index| {
                code.replace(&format!("{LOCAL}block{index}"), &format!("declared.block{}", before + index))
            });
            code.replace(LOCAL, "")
        };
        let blocks: Vec<&Local> = text.at(Stage::Block).collect();
        for (index, local) in blocks.iter().enumerate() {
            let name = format!("block{}", before + index);
            self.values.push(Member { kind: local.kind, name, value: placed(&local.value, blocks.len()) });
        }
        self.blocks += blocks.len();
        let declaration = |local: &Local| placed(&local.declaration(), blocks.len());
        let locals = [Stage::Row, Stage::Column, Stage::Element].into_iter().flat_map(|stage| text.at(stage)).map(declaration);
        let uses = |variable| exprs.iter().any(|expr| expr.uses(variable));
        Function {
            locals: locals.collect(),
            results: text.results.iter().map(|result| placed(result, blocks.len())).collect(),
            s: uses(Variable::S),
            q: uses(Variable::Q),
            k: uses(Variable::K),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::HeadDim;
    use crate::{
        expression::read,
        kernel::{Dtype, Features, Target},
    };

    fn text(kind: Kind, toml: &str) -> DeclaredText {
        let score = KeptScore::of(read(toml, "scores.toml").expect("a declaration").remove(0));
        let features = Features::NONE.with_score(Some(score));
        let point =
            Point { kind, head_dim: HeadDim::equal(64), dtype: Dtype::Bf16, causal: false, features, target: Target::Sm80 };
        DeclaredText::of(point).expect("it has one")
    }

    #[test]
    fn what_does_not_depend_on_the_place_is_a_member_and_is_numbered_through() {
        let text = text(
            Kind::Fwd,
            "[score.both]\nscalars = [\"cap\"]\nintegers = [\"n\", \"w\"]\ntables = [\"slope\"]\n\
             score = 'cap * tanh(s / cap) - exp(slope[h]) * (q % n)'\nmask = 'q - k < w * 2 and k % 3 == 0'",
        );
        let members: Vec<(&str, &str)> = text.values.iter().map(|value| (&*value.name, &*value.value)).collect();
        assert_eq!(members[0], ("cap", "p.score.scalars[0]"));
        assert_eq!(members[3], ("slope", "load_global(p.score.tables[0] + head)"));
        assert!(members.contains(&("block0", "1.0f / declared.cap")), "{members:?}");
        let score = text.score.expect("it has a score");
        assert!(score.results[0].contains("tanhf(s * declared.block0)"), "{score:?}");
        assert!(score.s && score.q && !score.k);
        assert!(text.sees.is_some() && text.low.is_some() && text.high.is_none() == text.high.is_none());
        assert!(text.helpers.is_some_and(|helpers| helpers.contains("KGEN_DEVICE T floor_mod")));
        assert!(text.identity.ends_with("ull, 1, 2, 1, 0x1}"), "{}", text.identity);
    }

    #[test]
    fn a_backward_kernel_has_score_and_derivative_together_and_the_mask_by_element() {
        let text = text(Kind::Bwd, "[score.capped]\nscalars = [\"cap\"]\nscore = 'cap * tanh(s / cap)'\nmask = 'k <= q'");
        assert_eq!(text.slope.expect("a derivative").results.len(), 2);
        assert!(text.score.is_none() && text.sees.is_some() && text.high.is_some());
    }
}
