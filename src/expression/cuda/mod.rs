//! An expression as CUDA text: fp32, the exact functions (`expf`, `tanhf`, `logf`), and loop-invariant parts computed
//! before the loop. Contraction to `fmaf` is left to nvcc.

mod prepare;
#[cfg(test)]
mod tests;
mod write;

pub use prepare::Stage;
pub(super) use prepare::prepared;

use super::Expr;
use serde::Serialize;

/// Device functions called by texts with [`Text::helpers`]. A divisor is positive.
pub const HELPERS: &str = "\
// The largest integer not above a / b; b is positive.
template <typename T>
__device__ __forceinline__ T floor_div(T a, T b) {
    return a >= 0 ? a / b : ~(~a / b);
}

// a - b * floor_div(a, b): from 0 to b - 1; b is positive.
template <typename T>
__device__ __forceinline__ T floor_mod(T a, T b) {
    const T rest = a % b;
    return rest < 0 ? rest + b : rest;
}
";

/// The kernel's names for the variables of an expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spelling {
    /// The scaled product, a `float`.
    pub s: String,
    /// Position of the query, an `int` like the following.
    pub q: String,
    /// Position of the key.
    pub k: String,
    /// The query head.
    pub h: String,
    /// The entry of the batch.
    pub b: String,
    /// Number of queries of the batch entry.
    pub seqlen_q: String,
    /// Number of keys of the batch entry.
    pub seqlen_k: String,
    /// Prefix of the names of scalars (`float`), integers (`int`) and tables (`const float*`), for example `user.`.
    pub named: String,
    /// Prefix of the names of [`Local`]s.
    pub local: String,
    /// True if the name of a table is its value for the head, so that it takes no index.
    pub tables_of_head: bool,
}

impl Default for Spelling {
    /// The language's own names.
    fn default() -> Self {
        let of = str::to_owned;
        Self {
            s: of("s"),
            q: of("q"),
            k: of("k"),
            h: of("h"),
            b: of("b"),
            seqlen_q: of("seqlen_q"),
            seqlen_k: of("seqlen_k"),
            named: String::new(),
            local: String::new(),
            tables_of_head: false,
        }
    }
}

/// Expressions as code: locals, each of which uses only earlier ones, and the results.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Text {
    /// Values that are computed once and used in several places, or known before the innermost loop.
    pub locals: Vec<Local>,
    /// One C++ expression for each requested expression; it needs brackets inside another one.
    pub results: Vec<String>,
    /// True if [`HELPERS`] are called.
    pub helpers: bool,
}

impl Text {
    /// The code of several expressions that are computed together per element, such as a score and its derivative.
    pub fn of(expressions: &[&Expr], spelling: &Spelling) -> Self {
        Self::within(expressions, Stage::Element, spelling)
    }

    /// The code of expressions without `k` and `s` that are computed per row, such as the bounds of an interval.
    pub fn per_row(expressions: &[&Expr], spelling: &Spelling) -> Self {
        Self::within(expressions, Stage::Row, spelling)
    }

    fn within(expressions: &[&Expr], stage: Stage, spelling: &Spelling) -> Self {
        let prepared: Vec<Expr> = expressions.iter().map(|expr| prepared(expr)).collect();
        write::text(&prepared, stage, spelling)
    }

    /// The locals that are known at `stage`, in order. A template that does not keep values of a column puts the locals
    /// of [`Stage::Column`] before those of [`Stage::Element`].
    pub fn at(&self, stage: Stage) -> impl Iterator<Item = &Local> {
        self.locals.iter().filter(move |local| local.stage == stage)
    }
}

/// A named value.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Local {
    /// The stage at which the value is known.
    pub stage: Stage,
    /// `float`, `int`, `int64_t` or `bool`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name of the value.
    pub name: String,
    /// C++ expression of the value.
    pub value: String,
    /// True if it depends on the head: with packed heads it is known per row at the earliest.
    pub per_head: bool,
}

impl Local {
    /// `const float row0 = …;`.
    pub fn declaration(&self) -> String {
        format!("const {} {} = {};", self.kind, self.name, self.value)
    }
}
