//! Measurements of an earlier call, which a search that is resumed reads again in their order.

use crate::{
    bench::{Report, Size},
    kernel::Variant,
    lab::{
        Row, Status,
        ladder::Switch,
        tune::{Failure, TUNE, size_key},
    },
};
use std::collections::{HashMap, VecDeque};

/// Rows of the tuner on one kernel, with the same card, timing plan and seed, by the hash of the kernel's text.
pub(super) struct Known<'a> {
    /// Rows with times by text and size, the oldest first.
    times: HashMap<(&'a str, String), VecDeque<&'a Row>>,
    /// Failures by text.
    failures: HashMap<&'a str, &'a Row>,
    /// Choices that the plan does not permit to take back.
    refused: Vec<Switch>,
}

impl<'a> Known<'a> {
    /// The rows of `variant` that were measured in the circumstances of `report`, by ladders or by searches.
    pub fn new(rows: &'a [Row], variant: Variant, report: &Report, of_ladders: bool) -> Self {
        let plan = serde_json::to_value(report.plan).unwrap_or_default();
        let name = variant.name();
        let is_same = |row: &&Row| {
            row.bench == TUNE
                && row.is_of_ladder() == of_ladders
                && row.kernel_name() == name
                && row.gpu() == report.gpu.info.name
                && row.run.get("plan") == Some(&plan)
                && row.run.get("seed").and_then(serde_json::Value::as_u64) == Some(report.seed)
        };
        let mut known = Self { times: HashMap::new(), failures: HashMap::new(), refused: Vec::new() };
        for row in rows.iter().filter(is_same) {
            let source = row.kernel_fact("source");
            match row.status {
                Status::Refused if source.is_empty() => known.refused.extend(Switch::of(row)),
                Status::Ok => known.times.entry((source, row.size_key())).or_default().push_back(row),
                // Errors of the machine may not happen again.
                Status::Spilled | Status::Wrong | Status::Refused => _ = known.failures.insert(source, row),
                Status::Truncated => _ = known.failures.entry(source).or_insert(row),
                Status::Error | Status::Absent | Status::Timeout | Status::Crash => {}
            }
        }
        known
    }

    /// The next pass of kernels with these texts: microseconds of each at each size. `None` if one of them has no row
    /// that was not read yet.
    pub fn pass(&mut self, sources: &[String], sizes: &[Size]) -> Option<Vec<Vec<f64>>> {
        let queue = |source: &String, size: &Size| {
            let keys = self
                .times
                .iter()
                .find(|((other, of_size), rows)| other == source && *of_size == size_key(size) && !rows.is_empty());
            keys.map(|(key, _)| key.clone())
        };
        let of_source = |source| sizes.iter().map(|size| queue(source, size)).collect::<Option<Vec<_>>>();
        let keys: Vec<Vec<_>> = sources.iter().map(of_source).collect::<Option<_>>()?;
        let mut next = |key: &(&'a str, String)| self.times.get_mut(key)?.pop_front()?.median_us();
        keys.iter().map(|keys| keys.iter().map(&mut next).collect()).collect()
    }

    /// The failure of a kernel that would fail again.
    pub fn failure(&self, source: &str) -> Option<Failure> {
        let row = self.failures.get(source).filter(|row| row.status != Status::Truncated)?;
        Some(Failure { status: row.status, message: row.message.clone() })
    }

    /// True if a row states that this choice cannot be taken back.
    pub fn is_refused(&self, switch: &Switch) -> bool {
        self.refused.contains(switch)
    }

    /// True if a row states that a search ended before this kernel.
    pub fn is_cut(&self, source: &str) -> bool {
        self.failures.get(source).is_some_and(|row| row.status == Status::Truncated)
    }
}
