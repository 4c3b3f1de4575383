//! The rows that a command applies to.

use super::{Row, Status};
use crate::grid::Filter;
use rusqlite::types::Value;

/// A condition on rows. The default is true for every row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Condition {
    /// Names of kernels, with `*` and `?`; empty for all rows.
    pub kernels: Vec<String>,
    /// Programs that measured the rows; empty for all.
    pub benches: Vec<String>,
    /// Implementations; empty for all.
    pub contenders: Vec<String>,
    /// Ids of runs, or their prefixes; empty for all.
    pub runs: Vec<String>,
    /// Outcomes; empty for all.
    pub statuses: Vec<Status>,
    /// Part of the card's name; case is ignored.
    pub gpu: Option<String>,
    /// Rows of this date and later, UTC: `2026-11-27`, or with the time.
    pub since: Option<String>,
    /// Rows before this date.
    pub before: Option<String>,
    /// Condition on the variant; false for a row without a variant.
    pub filter: Option<Filter>,
    /// Maximum number of rows; the last ones are taken.
    pub limit: Option<usize>,
}

impl Condition {
    /// The part that SQLite evaluates, and its arguments.
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let (mut terms, mut values) = (vec!["1".to_owned()], Vec::new());
        let mut any = |term: &str, texts: &mut dyn Iterator<Item = String>| {
            let each: Vec<String> = texts
                .map(|text| {
                    values.push(Value::from(text));
                    term.replace('?', &format!("?{}", values.len()))
                })
                .collect();
            if !each.is_empty() {
                terms.push(format!("({})", each.join(" OR ")));
            }
        };
        // `[` begins a set in GLOB, and does not occur in names.
        any("kernel GLOB ?", &mut self.kernels.iter().map(|name| name.replace('[', "[[]")));
        any("bench = ?", &mut self.benches.iter().cloned());
        any("contender = ?", &mut self.contenders.iter().cloned());
        any("substr(run, 1, length(?)) = ?", &mut self.runs.iter().cloned());
        any("status = ?", &mut self.statuses.iter().map(|status| status.word().to_owned()));
        any("instr(lower(gpu), lower(?)) > 0", &mut self.gpu.iter().cloned());
        any("date >= ?", &mut self.since.iter().cloned());
        any("date < ?", &mut self.before.iter().cloned());
        (terms.join(" AND "), values)
    }

    /// The part that is tested on the row itself.
    pub(super) fn holds(&self, row: &Row) -> bool {
        self.filter.as_ref().is_none_or(|filter| row.variant().is_some_and(|variant| filter.matches(&variant)))
    }

    /// The rows within the limit.
    pub(super) fn last(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let left_out = self.limit.map_or(0, |limit| rows.len().saturating_sub(limit));
        rows.drain(..left_out);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::{super::row::tests::row, *};
    use crate::lab::Store;

    #[test]
    fn each_part_selects() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(&folder.path().join("rows.db")).expect("a store");
        let mut peer = row("p-1", "2026-11-29T00:00:00Z", 3.0);
        (peer.contender, peer.own, peer.kernel, peer.bench) = ("fa3".to_owned(), false, None, "forward".to_owned());
        let mut wrong = row("q-1", "2026-11-30T00:00:00Z", 4.0);
        (wrong.status, wrong.numbers) = (Status::Wrong, None);
        let rows = [row("a-1", "2026-11-27T12:00:00Z", 1.0), row("a-2", "2026-11-28T00:00:00Z", 2.0), peer, wrong];
        store.add_all(&rows).expect("added");
        let all = Condition::default;
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let filter = |text: &str| Some(text.parse::<Filter>().expect("a filter"));
        for (condition, expected) in [
            (all(), vec![0, 1, 2, 3]),
            (Condition { kernels: texts(&["flash_fwd_*"]), ..all() }, vec![0, 1, 3]),
            (Condition { kernels: texts(&["flash_fwd_hdim1?8_bf16_sm90", "x"]), ..all() }, vec![0, 1, 3]),
            (Condition { kernels: texts(&["[f]lash*"]), ..all() }, vec![]),
            (Condition { benches: texts(&["forward"]), ..all() }, vec![2]),
            (Condition { contenders: texts(&["fa3", "fa2"]), ..all() }, vec![2]),
            (Condition { runs: texts(&["a"]), ..all() }, vec![0, 1]),
            (Condition { runs: texts(&["a-2", "p"]), ..all() }, vec![1, 2]),
            (Condition { statuses: vec![Status::Wrong], ..all() }, vec![3]),
            (Condition { gpu: Some("h200".to_owned()), ..all() }, vec![0, 1, 2, 3]),
            (Condition { gpu: Some("H100".to_owned()), ..all() }, vec![]),
            (Condition { since: Some("2026-11-28".to_owned()), ..all() }, vec![1, 2, 3]),
            (Condition { before: Some("2026-11-28".to_owned()), ..all() }, vec![0]),
            (Condition { filter: filter("hdim == 128"), ..all() }, vec![0, 1, 3]),
            (Condition { filter: filter("causal"), ..all() }, vec![]),
            (Condition { limit: Some(3), ..all() }, vec![1, 2, 3]),
        ] {
            let found = store.rows(&condition).expect("read");
            assert_eq!(found, expected.iter().map(|&place| rows[place].clone()).collect::<Vec<_>>(), "{condition:?}");
        }
    }
}
