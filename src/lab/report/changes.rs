//! What changed between the two latest runs that timed the same work.

use super::{
    super::{Change, Regression, Row, Side, Verdict, regress},
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Rule, Scale, Series},
    grouped,
    measured::is_timed,
    number,
};
use itertools::Itertools;
use std::collections::{BTreeMap, BTreeSet};

const WORDS: [&str; 3] = [
    "Changes between the two latest runs",
    "The new time by the old one of each case that both runs have, above 1 where the new run is slower. Cases are slower or \
     faster if they differ by more than the noise floor, or without a floor if their intervals do not overlap.",
    "No two runs timed the same work. `kgen bench` twice, before and after a change, gives them; `kgen db regress` compares \
     any two states.",
];

/// The section.
pub(super) fn section(rows: &[Row]) -> Section {
    let found = latest_two(rows).map(|[old, new]| regress(rows, &Side::Run(old.to_owned()), &Side::Run(new.to_owned())));
    Section::new("changes", WORDS, found.filter(|found| !found.changes.is_empty()).iter().map(figure).collect())
}

/// The latest run that shares a case with an earlier one, and the latest of those, older first.
fn latest_two(rows: &[Row]) -> Option<[&str; 2]> {
    let mut runs: BTreeMap<(&str, &str), BTreeSet<[String; 6]>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_timed(row)) {
        runs.entry((row.date(), row.run_id())).or_default().insert(row.key());
    }
    let newest_first = || runs.iter().rev();
    newest_first().enumerate().find_map(|(place, ((_, new), cases))| {
        let earlier = newest_first().skip(place + 1);
        let old = earlier.filter(|((_, id), _)| id != new).find(|(_, of_old)| !cases.is_disjoint(of_old));
        old.map(|((_, old), _)| [*old, *new])
    })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Tie => "tie",
        Verdict::Unchanged => "unchanged machine code",
    }
}

fn figure(found: &Regression) -> Figure {
    let mark = |change: &Change| Mark {
        x: change.old_us,
        y: change.ratio,
        range: None,
        note: format!("{}: {} to {} µs", change.case, number(change.old_us), number(change.new_us)),
    };
    let verdicts = grouped(&found.changes, |change| change.verdict);
    let series = verdicts.iter().map(|(verdict, changes)| Series {
        label: word(*verdict).to_owned(),
        solid: matches!(verdict, Verdict::Slower | Verdict::Faster),
        joined: false,
        marks: changes.iter().map(|change| mark(change)).collect(),
    });
    let ends = found.changes.iter().map(|change| change.old_us).minmax().into_option();
    let level = |label: String, ratio: f64| ends.map(|(first, last)| Rule { label, points: vec![[first, ratio], [last, ratio]] });
    let floors = found.floor.into_iter().flat_map(|floor| {
        let percents = format!("{:.2} %", 100.0 * floor);
        [level(format!("noise floor, {percents}"), 1.0 + floor), level(String::new(), 1.0 / (1.0 + floor))]
    });
    let chart = Chart {
        x: Axis { label: "old time, µs", scale: Scale::Log10 },
        y: Axis { label: "new time / old time", scale: Scale::Log10 },
        series: series.collect(),
        rules: [level("no change".to_owned(), 1.0)].into_iter().chain(floors).flatten().collect(),
    };
    let of = |verdict| verdicts.get(&verdict).map_or(0, Vec::len);
    let within = of(Verdict::Tie) + of(Verdict::Unchanged);
    let description = format!(
        "{} cases: {} slower, {} faster, {within} within the noise. The table below has the numbers.",
        found.changes.len(),
        of(Verdict::Slower),
        of(Verdict::Faster),
    );
    let columns = [
        Column::long("case"),
        Column::text("card"),
        Column::number("old µs"),
        Column::number("new µs"),
        Column::number("new / old"),
        Column::text("verdict"),
    ];
    let row = |change: &Change| {
        let [old, new] = [change.old_us, change.new_us].map(number);
        let verdict = word(change.verdict).to_owned();
        vec![change.case.clone(), change.gpu.clone(), old, new, format!("{:.3}", change.ratio), verdict]
    };
    let short = |id: &str| id.chars().take(8).collect::<String>();
    let title = format!("From run {} to run {}", short(&found.old), short(&found.new));
    let table = Table::new(columns, found.changes.iter().map(row));
    Figure::drawn("changes-1", &title, table, |names| chart.picture(names, description))
}

#[cfg(test)]
mod tests {
    use super::{super::super::row::tests::row, *};

    #[test]
    fn runs_that_share_no_case_are_passed_over() {
        let mut rows = vec![row("a", "2026-11-25", 1.0), row("b", "2026-11-26", 1.0), row("c", "2026-11-27", 1.0)];
        assert_eq!(latest_two(&rows), Some(["b", "c"]));
        rows[1].shape.clear();
        assert_eq!(latest_two(&rows), Some(["a", "c"]));
        rows[2].shape.clear();
        assert_eq!(latest_two(&rows), Some(["b", "c"]));
        assert_eq!(latest_two(&rows[2..]), None);
    }
}
