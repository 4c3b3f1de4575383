//! What compiling one file takes, of kgen and of peers.

use super::{
    super::Row,
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Scale, Series},
    grouped,
    measured::fact,
    number,
};
use itertools::Itertools;
use std::collections::BTreeMap;

const WORDS: [&str; 3] = [
    "Compilation",
    "CPU seconds of the compiler for one file, a kernel with one head dim, element type and mask. Filled marks with solid \
     lines are kgen's files, hollow marks with dashed lines are a peer's.",
    "No row states what compiling a file took. `benches/host.py compilation` gives such rows.",
];

/// The section: a picture for each program.
pub(super) fn section(rows: &[Row]) -> Section {
    let mut latest: BTreeMap<_, &Row> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.number("cpu_seconds").is_some()) {
        let known = latest.entry((&row.bench, &row.contender, &row.case)).or_insert(row);
        if (known.date(), known.run_id()) < (row.date(), row.run_id()) {
            *known = row;
        }
    }
    let with_dim = latest.into_values().filter_map(|row| Some((row.shape.get("head_dim")?.as_f64()?, row)));
    let programs = grouped(with_dim.sorted_by(|a, b| a.0.total_cmp(&b.0)), |(_, row)| row.bench.clone());
    Section::of_groups("costs", WORDS, programs.values(), |files, place| figure(files, place))
}

/// A contender and a pass, as the legend names them.
fn label(row: &Row) -> String {
    format!("{} {}", row.contender, fact(Some(&row.details), "kind"))
}

fn figure(files: &[(f64, &Row)], place: usize) -> Figure {
    let named = grouped(files, |(_, row)| (!row.own, label(row)));
    let mark = |(head_dim, row): &(f64, &Row)| {
        let seconds = row.number("cpu_seconds")?;
        let note = format!("{}, head dim {head_dim}: {} CPU s", label(row), number(seconds));
        Some(Mark { x: *head_dim, y: seconds, range: None, note })
    };
    let series = named.iter().map(|((peer, label), files)| Series {
        label: label.clone(),
        solid: !peer,
        joined: true,
        marks: files.iter().filter_map(|file| mark(file)).collect(),
    });
    let chart = Chart {
        x: Axis { label: "head dim", scale: Scale::Linear },
        y: Axis { label: "CPU s", scale: Scale::Log10 },
        series: series.collect(),
        rules: Vec::new(),
    };
    let description =
        format!("{} files of {}. The table below has the numbers.", files.len(), named.keys().map(|(_, label)| label).join("; "));
    let columns = [
        Column::text("files of"),
        Column::number("head dim"),
        Column::number("CPU s"),
        Column::number("s"),
        Column::number("MB"),
        Column::text("date"),
    ];
    let cells = named.values().flatten().map(|(head_dim, row)| {
        let megabytes = row.number("memory_bytes").map(|bytes| bytes / 1e6);
        let numbers = [row.number("cpu_seconds"), row.number("wall_seconds"), megabytes].map(number);
        [label(row), head_dim.to_string()].into_iter().chain(numbers).chain([row.date().to_owned()]).collect()
    });
    let table = Table::new(columns, cells);
    Figure::drawn(&format!("costs-{place}"), "What compiling one file takes", table, |names| chart.picture(names, description))
}

#[cfg(test)]
mod tests {
    use super::super::{super::row::tests::row, Report};
    use serde_json::json;

    #[test]
    fn the_latest_row_of_each_file_is_drawn_in_the_order_of_head_dims() {
        let of = |contender: &str, head_dim: u64, date: &str, seconds: f64| {
            let mut row = row(&format!("{contender}{head_dim}{date}"), date, 1.0);
            row.case = format!("fwd d{head_dim}");
            row.contender = contender.to_owned();
            row.own = contender == "kgen";
            row.shape.insert("head_dim".to_owned(), head_dim.into());
            row.details.insert("kind".to_owned(), "fwd".into());
            row.numbers = json!({ "cpu_seconds": seconds, "wall_seconds": 1.0, "memory_bytes": 2e8 }).as_object().cloned();
            row
        };
        let old = of("kgen", 128, "2026-11-27T00:00:00Z", 9.0);
        let rest = [("kgen", 128, 3.0), ("kgen", 64, 2.0), ("fa2", 64, 100.0)];
        let rest = rest.map(|(contender, dim, seconds)| of(contender, dim, "2026-11-28T00:00:00Z", seconds));
        let report = Report::of([old].into_iter().chain(rest).collect(), &|_| None);
        let section = report.sections.into_iter().find(|section| section.id == "costs").expect("a section");
        let [figure] = section.figures.try_into().expect("one picture");
        let cells: Vec<_> = figure.table.rows.iter().map(|row| row[..3].join(" ")).collect();
        assert_eq!(cells, ["kgen fwd 64 2.000", "kgen fwd 128 3.000", "fa2 fwd 64 100.0"]);
        assert_eq!(figure.table.rows[0][4], "200.0");
    }
}
