//! Lists: every timed case, and every failure.

use super::{
    super::{Row, Status},
    Column, Figure, Section, Table,
    measured::Measured,
    number, percent, range,
};
use itertools::Itertools;

const CASES: [&str; 3] = [
    "Cases",
    "Every timed case as its latest run has it.",
    "Nothing was timed. `kgen bench` times kernels on this machine's GPU; `kgen db import` adds rows from files.",
];

const FAILURES: [&str; 3] = [
    "Failures",
    "Rows whose status is not ok, latest first. A failure stays listed after the case has passed.",
    "No row has failed.",
];

/// The section of the cases.
pub(super) fn cases(cases: &[Measured<'_>]) -> Section {
    let columns = [
        Column::text("kernel or peer"),
        Column::text("program"),
        Column::long("work"),
        Column::text("dtype"),
        Column::text("card"),
        Column::number("µs"),
        Column::text("95 % interval"),
        Column::number("rate"),
        Column::text("unit"),
        Column::number("% of peak"),
        Column::text("date"),
    ];
    let row = |case: &Measured| {
        let rate = case.rate();
        vec![
            case.name(),
            case.row.bench.clone(),
            case.work(),
            case.row.dtype.clone().unwrap_or_default(),
            case.card().to_owned(),
            number(case.microseconds),
            range(case.interval),
            number(rate.map(|rate| rate.value)),
            rate.map_or("", |rate| rate.unit).to_owned(),
            percent(rate.and_then(|rate| Some(rate.value / rate.peak?))),
            case.row.date().to_owned(),
        ]
    };
    Section::new("cases", CASES, alone("cases-1", "Timed cases", Table::new(columns, cases.iter().map(row))))
}

/// The section of the failures.
pub(super) fn failures(rows: &[Row]) -> Section {
    let columns = [
        Column::text("date"),
        Column::text("status"),
        Column::text("program"),
        Column::long("case"),
        Column::text("contender"),
        Column::text("card"),
        Column::long("reason"),
    ];
    let failed = rows.iter().filter(|row| row.status != Status::Ok);
    let key = |row: &&Row| (std::cmp::Reverse(row.date().to_owned()), row.bench.clone(), row.case.clone(), row.contender.clone());
    let row = |row: &Row| {
        let words = [row.date(), row.status.word(), &row.bench, &row.case, &row.contender, row.gpu(), &row.message];
        words.map(str::to_owned).to_vec()
    };
    let table = Table::new(columns, failed.sorted_by_cached_key(key).map(row));
    Section::new("failures", FAILURES, alone("failures-1", "Failed rows", table))
}

/// A table without a picture; nothing if it is empty.
fn alone(id: &str, title: &str, table: Table) -> Vec<Figure> {
    if table.rows.is_empty() {
        return Vec::new();
    }
    vec![Figure::drawn(id, title, table, |_| None)]
}
