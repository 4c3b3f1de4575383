//! Batches of sequences with lengths of their own: predictions, and their errors beside measured calls.

use super::{Call, Request, call_of};
use crate::{
    bench::{Size, percentile},
    command::{CommandError, bench, bench::Shape, limits, limits::within, names, session},
    family,
    grid::Grid,
    kernel::{Card, Kind, Variant},
    lab::{
        Row, Status,
        predict::{Errors, Model},
    },
    plan::Plan,
    text::count,
};
use serde_json::Value;

/// Most sequences of a batch.
const MOST_SEQUENCES: usize = 1 << 14;

/// Queries and keys of each sequence of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lengths(Vec<[u32; 2]>);

impl Request {
    /// Refuses lengths together with what they replace.
    ///
    /// # Errors
    /// [`CommandError::Usage`].
    pub(super) fn refuse_lengths(&self) -> Result<(), CommandError> {
        let Self { lengths, lengths_q, shape, .. } = self;
        if lengths.is_empty() && lengths_q.is_empty() {
            return Ok(());
        }
        let equal = [&shape.batch, &shape.seqlen, &shape.seqlen_q, &shape.seqlen_k];
        if equal.iter().any(|list| !list.is_empty()) || self.suite.is_some() {
            let why = "`lengths` are those of all sequences of a batch; leave out `batch`, `seqlen`, `seqlen_q`, `seqlen_k` and \
                       `suite`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        if lengths.len() > MOST_SEQUENCES {
            return Err(CommandError::Usage(format!(
                "{} sequences are more than a prediction takes, {MOST_SEQUENCES}",
                lengths.len()
            )));
        }
        if !lengths_q.is_empty() && lengths_q.len() != lengths.len() {
            let [queries, keys] = [lengths_q, lengths].map(|list| count(list.len(), "sequence"));
            let why = format!("`lengths_q` has the queries of {queries}, and `lengths` the keys of {keys}; name as many");
            return Err(CommandError::Usage(why));
        }
        let named = [("lengths", lengths), ("lengths_q", lengths_q)];
        let rows = |list: &[u32]| list.iter().map(|length| u64::from(*length)).sum::<u64>();
        if let Some((name, list)) = named.iter().find(|(_, list)| rows(list) > *limits::SIZE.end()) {
            let (rows, most) = (rows(list), limits::SIZE.end());
            return Err(CommandError::Usage(format!("`{name}` has {rows} rows in all, and a batch at most {most}")));
        }
        named
            .iter()
            .try_for_each(|(name, list)| list.iter().try_for_each(|length| within(name, u64::from(*length), &limits::SIZE)))
    }

    /// The lengths for a variant, if the request has any: as many queries as keys, or one of a decoding kernel.
    pub(super) fn lengths_of(&self, variant: Variant) -> Option<Lengths> {
        let queries = |(place, keys): (usize, &u32)| match self.lengths_q.get(place) {
            Some(queries) => *queries,
            None if variant.kind() == Kind::FwdSplit => 1,
            None => *keys,
        };
        let all: Vec<[u32; 2]> = self.lengths.iter().enumerate().map(|(place, keys)| [queries((place, keys)), *keys]).collect();
        (!all.is_empty()).then_some(Lengths(all))
    }
}

impl Lengths {
    fn longest(&self, side: usize) -> u32 {
        self.0.iter().map(|length| length[side]).max().unwrap_or_default()
    }

    fn total(&self, side: usize) -> u64 {
        self.0.iter().map(|length| u64::from(length[side])).sum()
    }

    /// The sizes of a variant with the longest lengths: every combination of heads and pages of `shape`.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if no number of heads fits.
    pub(super) fn sizes(&self, variant: &Variant, shape: &Shape) -> Result<Vec<Size>, CommandError> {
        let longest = Shape {
            batch: vec![self.0.len() as u32],
            seqlen_q: vec![self.longest(0)],
            seqlen_k: vec![self.longest(1)],
            ..shape.clone()
        };
        bench::sizes(variant, &longest.wanted())
    }

    /// The predicted call of a plan; `None` if its kernel is not timed on its own.
    pub(super) fn call(&self, plan: &Plan, size: &Size, card: &Card, model: &Model) -> Option<Call> {
        let estimate = family::estimate_packed(plan, size, &self.0, card)?;
        let number = |name: &'static str| Some((name, size.get(name)?));
        let [heads, heads_k, page_size] = ["heads", "heads_k", "page_size"].map(number);
        let count = self.0.len() as u64;
        let of = |count: u64, lengths: [u64; 2], more: Vec<(&'static str, u64)>| {
            let lengths = [("seqlen_q", lengths[0]), ("seqlen_k", lengths[1])];
            let heads = [heads, heads_k].into_iter().flatten();
            Size::new([("batch", count)].into_iter().chain(heads).chain(lengths).chain(page_size).chain(more))
        };
        let totals = [0, 1].map(|side| self.total(side));
        let longest = [0, 1].map(|side| u64::from(self.longest(side)));
        let is_equal = [0, 1].iter().all(|side| totals[*side] == longest[*side] * count);
        let shown = if is_equal { Vec::new() } else { vec![("total_q", totals[0]), ("total_k", totals[1])] };
        // Corrections are those of equal sequences, as many of the longest keys as make the total: the longest take
        // most of the time, and a batch that is little more than one of them has that one's correction.
        let alike = (totals[1] as f64 / longest[1] as f64).round().max(1.0) as u64;
        let queries = (totals[0] as f64 / alike as f64).round().clamp(1.0, longest[0] as f64) as u64;
        Some(call_of(plan, of(count, longest, shown), &of(alike, [queries, longest[1]], Vec::new()), estimate, card, model))
    }
}

/// Measured calls of `benches/dispatch.py`, each the forced path of one kernel at lengths that differ, with the
/// predicted time by the measured one.
pub(super) fn errors(rows: &[Row], grid: &Grid, model: &Model) -> Vec<(String, f64)> {
    rows.iter().filter_map(|row| error(row, grid, model)).collect()
}

fn error(row: &Row, grid: &Grid, model: &Model) -> Option<(String, f64)> {
    let details = &row.details;
    let is_whole = details.get("splits").and_then(Value::as_u64).is_none_or(|splits| splits <= 1);
    let is_of_one_kernel =
        is_whole && details.get("path").and_then(Value::as_str).is_some_and(|path| ["dense", "short"].contains(&path));
    let measured = row.median_us().filter(|_| row.own && row.status == Status::Ok && is_of_one_kernel)?;
    let request = details.get("request")?;
    let [queries, keys]: [Vec<u32>; 2] = serde_json::from_value(request.get("lengths")?.clone()).ok()?;
    let lengths = Lengths(queries.iter().zip(&keys).map(|(queries, keys)| [*queries, *keys]).collect());
    let name = details.get("variant").and_then(Value::as_str)?;
    let variant = names::resolve(grid, &[name.to_owned()]).ok()?.into_iter().next()?;
    let (plan, card) = (session::plan(grid, variant).ok()?, Card::named(row.gpu())?);
    let list = |name: &str| request.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let shape = Shape { heads: vec![list("heads")?], heads_k: vec![list("heads_k")?], ..Shape::default() };
    let size = lengths.sizes(&variant, &shape).ok()?.into_iter().next()?;
    let call = lengths.call(&plan, &size, &card, model)?;
    Some((format!("{name} {} {}", call.size, card.name), call.prediction.microseconds / measured - 1.0))
}

/// The errors as a line of a table; `None` without calls.
pub(super) fn summary(errors: &[(String, f64)]) -> Option<Errors> {
    let sizes = || errors.iter().map(|(_, error)| error.abs());
    let (worst_call, worst) = errors.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    Some(Errors {
        of: "lengths that differ".to_owned(),
        calls: errors.len(),
        mean: sizes().sum::<f64>() / errors.len() as f64,
        p95: percentile(sizes(), 0.95)?,
        worst: worst.abs(),
        worst_call: worst_call.clone(),
    })
}
