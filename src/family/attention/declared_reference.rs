//! A declared score for the test beside a kernel: arguments of calls, and the expressions as C++.

use super::{
    DeclaredCall, Point,
    abi::{SCORE_TABLES, ScoreParams},
};
use crate::expression::Expr;
use serde::Serialize;

/// The arguments of the calls, and what they are compared with.
#[derive(Debug, Serialize)]
pub(crate) struct DeclaredReference {
    name: &'static str,
    /// Literals.
    id: String,
    scalars: Vec<String>,
    integers: Vec<i32>,
    /// Names of the tables in reports.
    tables: Vec<&'static str>,
    /// True if heads with odd numbers have negative values in them.
    has_signs: bool,
    score: Option<Text>,
    mask: Option<Text>,
}

/// An expression as it was written, and as C++.
#[derive(Debug, Serialize)]
struct Text {
    line: String,
    cpp: String,
}

impl DeclaredReference {
    /// Those of a kernel; `None` if it has no declared score. The arguments are the first set of usual ones for which
    /// the scores fit in 16 bits.
    pub fn of(point: Point) -> Option<Self> {
        let score = point.features.score()?;
        let set = DeclaredCall::sets(score).first().copied().unwrap_or_default();
        let call = DeclaredCall { set, ..DeclaredCall::usual(score) };
        let ScoreParams { id, scalars, integers } = call.params();
        let text = |expr: &Expr| Text { line: expr.to_string(), cpp: expr.reference() };
        Some(Self {
            name: score.name(),
            id: format!("0x{id:016x}"),
            scalars: scalars.iter().map(|number| format!("{number:?}f")).collect(),
            integers: integers.to_vec(),
            tables: SCORE_TABLES[..call.tables()].to_vec(),
            has_signs: call.table(0, 1) < 0.0,
            score: score.score.as_ref().map(text),
            mask: score.mask.as_ref().map(text),
        })
    }
}
