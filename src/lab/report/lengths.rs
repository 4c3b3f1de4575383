//! Rate by sequence length, with intervals, of kgen's kernels and their peers.

use super::{
    Column, Figure, MOST_PICTURES, Section, Table,
    draw::{Axis, Chart, Mark, Rule, Scale, Series},
    grouped,
    measured::{LENGTHS, Measured, Rate, fact},
    number, percent, range,
};
use itertools::Itertools;

const WORDS: [&str; 3] = [
    "Rate by sequence length",
    "Bars are 95 % intervals of the median time, over all processes of the latest run. Filled marks with solid lines are \
     kgen's kernels, hollow marks with dashed lines are peers.",
    "No timed case has a sequence length. `kgen bench --seqlen 512,2048,8192` times kernels at these lengths; rows of peers \
     come with `kgen db import`.",
];

/// A case with its length and rate.
struct Point<'a> {
    case: &'a Measured<'a>,
    length: f64,
    rate: Rate,
}

/// The section: a picture for each card, program, element type and work, whose lengths alone differ.
pub(super) fn section(cases: &[Measured<'_>]) -> Section {
    let point = |case| Some(Point { case, length: Measured::length(case)?, rate: case.rate()? });
    let points = cases.iter().filter_map(point).sorted_by(|a, b| a.length.total_cmp(&b.length));
    let key = |Point { case, rate, .. }: &Point| {
        let dtype = case.row.dtype.clone().unwrap_or_default();
        (case.card().to_owned(), case.program(), dtype, rate.unit, case.features(), case.work_without(&LENGTHS))
    };
    let groups = grouped(points, key);
    let left_out = groups.len().saturating_sub(MOST_PICTURES);
    let figures = groups.iter().take(MOST_PICTURES).zip(1..).map(|((key, points), place)| {
        let (card, program, dtype, unit, features, work) = key;
        let words = [card, program, dtype, features, work].into_iter().filter(|word| !word.is_empty());
        figure(&words.map(String::as_str).join(", "), unit, points, place)
    });
    let mut section = Section::new("lengths", WORDS, figures.collect());
    if left_out > 0 {
        section.notes.push(format!(
            "{left_out} further pictures are left out, and their cases are in the list of cases; conditions such as \
             `--kernel` choose others."
        ));
    }
    section
}

fn figure(title: &str, unit: &'static str, points: &[Point], place: usize) -> Figure {
    let named = grouped(points, |point| (!point.case.row.own, point.case.name()));
    let series = named.iter().flat_map(|((peer, label), points)| series(label, !peer, points));
    let peak = points.iter().filter_map(|point| point.rate.peak).max_by(f64::total_cmp);
    let ends = points.iter().map(|point| point.length).minmax().into_option();
    let rules = peak.zip(ends).map(|(peak, (first, last))| Rule {
        label: format!("the card's peak, {} {unit}", number(peak)),
        points: vec![[first, peak], [last, peak]],
    });
    let label = if unit == "GB/s" { "GB/s" } else { "TFLOP/s" };
    let chart = Chart {
        x: Axis { label: "sequence length (keys)", scale: Scale::Log2 },
        y: Axis { label, scale: Scale::Linear },
        series: series.collect(),
        rules: rules.into_iter().collect(),
    };
    let rates = points.iter().map(|point| point.rate.value).minmax().into_option();
    let rates = rates.map_or_else(String::new, |(low, high)| format!("{} to {} {unit}", number(low), number(high)));
    let contenders = points.iter().map(|point| &point.case.row.contender).unique().join(", ");
    let description = format!("{} cases of {contenders}, from {rates}. The table below has the numbers.", points.len());
    let columns = [
        Column::text("kernel or peer"),
        Column::number("length"),
        Column::number("batch"),
        Column::number("queries"),
        Column::number(label),
        Column::text("95 % interval"),
        Column::number("µs"),
        Column::number("% of peak"),
        Column::number("processes"),
    ];
    let rows = named.values().flatten().map(|Point { case, length, rate }| {
        vec![
            case.name(),
            format!("{length:.0}"),
            fact(Some(&case.row.shape), "batch"),
            fact(Some(&case.row.shape), "seqlen_q"),
            number(rate.value),
            range(rate.interval),
            number(case.microseconds),
            percent(rate.peak.map(|peak| rate.value / peak)),
            case.rows.to_string(),
        ]
    });
    let table = Table::new(columns, rows);
    Figure::drawn(&format!("lengths-{place}"), title, table, |names| chart.picture(names, description))
}

/// The series of one contender: one for each batch if its lengths alone do not tell its cases apart.
fn series(label: &str, solid: bool, points: &[&Point]) -> Vec<Series> {
    let of = |label: String, points: &[&Point]| {
        let mark = |point: &&Point| Mark {
            x: point.length,
            y: point.rate.value,
            range: point.rate.interval,
            note: format!("{}, {}: {} {}", point.case.name(), point.case.work(), number(point.rate.value), point.rate.unit),
        };
        Series { label, solid, joined: true, marks: points.iter().map(mark).collect() }
    };
    if points.iter().map(|point| point.length.to_bits()).all_unique() {
        return vec![of(label.to_owned(), points)];
    }
    let others = |point: &&Point| {
        let mut sizes =
            ["batch", "seqlen_q"].into_iter().filter_map(|name| Some(format!("{name}={}", point.case.row.shape.get(name)?)));
        sizes.join(" ")
    };
    let batches = grouped(points.iter().copied(), others);
    batches.iter().map(|(batch, points)| of(format!("{label}, {batch}"), points)).collect()
}
