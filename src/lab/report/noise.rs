//! How much the times of the same machine code differ.

use super::{
    super::{Noise, Row, noise},
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Scale, Series},
    number, percent,
};

const WORDS: [&str; 3] = [
    "Noise",
    "The floor of a case: 95 % of the pairs of processes that ran the same machine code differ by at most this much. Beside it, \
     half the width of the interval that the rounds of one process give.",
    "No case was timed twice with the same machine code. `kgen bench --processes 5` times everything five times.",
];

/// The section.
pub(super) fn section(rows: &[Row]) -> Section {
    let cases = noise(rows);
    let figures = if cases.is_empty() { Vec::new() } else { vec![figure(&cases)] };
    Section::new("noise", WORDS, figures)
}

fn figure(cases: &[Noise]) -> Figure {
    let mark = |case: &Noise, value: f64| Mark {
        x: case.microseconds,
        y: 100.0 * value,
        range: None,
        note: format!("{}: {} %", case.case, percent(value)),
    };
    let series = |label: &str, solid, marks: Vec<Mark>| Series { label: label.to_owned(), solid, joined: false, marks };
    let claimed: Vec<Mark> = cases.iter().filter_map(|case| Some(mark(case, case.claimed?))).collect();
    let floors = series("floor between processes", true, cases.iter().map(|case| mark(case, case.floor)).collect());
    let chart = Chart {
        x: Axis { label: "µs", scale: Scale::Log10 },
        y: Axis { label: "% of the time", scale: Scale::Linear },
        series: vec![floors, series("claimed by the rounds of one process", false, claimed)],
        rules: Vec::new(),
    };
    let largest = cases.first().map_or(0.0, |case| case.floor);
    let description =
        format!("{} cases; the largest floor is {} %. The table below has the numbers.", cases.len(), percent(largest));
    let columns = [
        Column::long("case"),
        Column::text("card"),
        Column::number("runs"),
        Column::number("µs"),
        Column::number("floor %"),
        Column::number("claimed %"),
    ];
    let rows = cases.iter().map(|case| {
        let runs = case.runs.to_string();
        let [floor, claimed] =
            [Some(case.floor), case.claimed].map(|part| part.map_or_else(String::new, |part| format!("{:.2}", 100.0 * part)));
        vec![case.case.clone(), case.gpu.clone(), runs, number(case.microseconds), floor, claimed]
    });
    let table = Table::new(columns, rows);
    Figure::drawn("noise-1", "Noise floors by the time of a call", table, |names| chart.picture(names, description))
}
