//! Rate by sequence length, with intervals, of kgen's kernels and their peers.

use super::{
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Rule, Scale, Series},
    grouped,
    measured::{LENGTHS, Measured, Rate, Setting, fact},
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
    let groups = grouped(points, |Point { case, rate, .. }| case.setting(rate.unit, &LENGTHS));
    Section::of_groups("lengths", WORDS, &groups, figure)
}

fn figure((setting, points): (&Setting, &Vec<Point>), place: usize) -> Figure {
    let (unit, label) = (setting.unit, setting.axis());
    let named = grouped(points, |point| (!point.case.row.own, point.case.name()));
    let series = named.iter().flat_map(|((peer, label), points)| series(label, !peer, points));
    let peak = points.iter().filter_map(|point| point.rate.peak).max_by(f64::total_cmp);
    let ends = points.iter().map(|point| point.length).minmax().into_option();
    let rules = peak.zip(ends).map(|(peak, (first, last))| Rule {
        label: format!("the card's peak, {} {unit}", number(peak)),
        points: vec![[first, peak], [last, peak]],
    });
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
    Figure::drawn(&format!("lengths-{place}"), &setting.title(), table, |names| chart.picture(names, description))
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
