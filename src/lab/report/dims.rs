//! Rate by head dim, with intervals, of kgen's kernels and their peers.

use super::{
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Scale, Series},
    grouped,
    measured::{Measured, Rate, Setting, fact},
    number, range,
};
use itertools::Itertools;

const WORDS: [&str; 3] = [
    "Rate by head dim",
    "Bars are 95 % intervals of the median time, over all processes of the latest run. Filled marks with solid lines are \
     kgen's kernels of a target, hollow marks with dashed lines are peers.",
    "No three timed cases differ in their head dim and heads alone. `kgen bench --head-dim 64,96,128 --seqlen 8192` times \
     such; rows of peers come with `--peer`.",
];

/// What differs between the points of a picture: with the head dim also the heads, of which `kgen bench` takes fewer
/// the wider they are.
const DIMS: [&str; 3] = ["head_dim", "heads", "heads_k"];
/// Head dims that make a picture.
const FEWEST: usize = 3;

/// A case with its head dim and rate.
struct Point<'a> {
    case: &'a Measured<'a>,
    head_dim: f64,
    rate: Rate,
}

/// The section: a picture for each card, program, element type and work, of which head dims and heads alone differ.
pub(super) fn section(cases: &[Measured<'_>]) -> Section {
    let point = |case| Some(Point { case, head_dim: head_dim(case)?, rate: case.rate()? });
    let points = cases.iter().filter_map(point).sorted_by(|a, b| a.head_dim.total_cmp(&b.head_dim));
    let groups = grouped(points, |Point { case, rate, .. }| case.setting(rate.unit, &DIMS));
    let several = |points: &[Point]| points.iter().map(|point| point.head_dim.to_bits()).unique().count() >= FEWEST;
    let groups = groups.iter().filter(|(_, points)| several(points));
    Section::of_groups("dims", WORDS, groups, figure)
}

fn head_dim(case: &Measured) -> Option<f64> {
    case.row.shape.get("head_dim")?.as_f64()
}

/// A contender's name in the legend: kgen's kernels differ in their head dims, and have a target in common.
fn label(case: &Measured) -> String {
    let target = case.row.kernel_fact("target");
    if case.row.own && !target.is_empty() { format!("{}, {target}", case.row.contender) } else { case.row.contender.clone() }
}

fn figure((setting, points): (&Setting, &Vec<Point>), place: usize) -> Figure {
    let (unit, axis) = (setting.unit, setting.axis());
    let named = grouped(points, |point| (!point.case.row.own, label(point.case)));
    let series = named.iter().map(|((peer, label), points)| Series {
        label: label.clone(),
        solid: !peer,
        joined: true,
        marks: points.iter().map(|point| mark(point)).collect(),
    });
    let chart = Chart {
        x: Axis { label: "head dim", scale: Scale::Linear },
        y: Axis { label: axis, scale: Scale::Linear },
        series: series.collect(),
        rules: Vec::new(),
    };
    let rates = points.iter().map(|point| point.rate.value).minmax().into_option();
    let rates = rates.map_or_else(String::new, |(low, high)| format!("{} to {} {unit}", number(low), number(high)));
    let contenders = named.keys().map(|(_, label)| label).join("; ");
    let description = format!("{} cases of {contenders}, from {rates}. The table below has the numbers.", points.len());
    let columns = [
        Column::text("kernel or peer"),
        Column::number("head dim"),
        Column::number("heads"),
        Column::number(axis),
        Column::text("95 % interval"),
        Column::number("µs"),
    ];
    let rows = named.iter().flat_map(|((_, label), points)| points.iter().map(move |point| (label, point)));
    let rows = rows.map(|(label, Point { case, head_dim, rate })| {
        let heads = fact(Some(&case.row.shape), "heads");
        let cells = [label.clone(), head_dim.to_string(), heads, number(rate.value), range(rate.interval)];
        cells.into_iter().chain([number(case.microseconds)]).collect()
    });
    let table = Table::new(columns, rows);
    Figure::drawn(&format!("dims-{place}"), &setting.title(), table, |names| chart.picture(names, description))
}

fn mark(point: &Point) -> Mark {
    let Point { case, head_dim, rate } = point;
    Mark {
        x: *head_dim,
        y: rate.value,
        range: rate.interval,
        note: format!("{}, {}: {} {}", label(case), case.work(), number(rate.value), rate.unit),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{super::row::tests::row, Report};

    #[test]
    fn three_head_dims_make_a_picture_with_a_line_for_each_contender() {
        let of = |contender: &str, head_dim: u64, own: bool| {
            let mut row = row(&format!("{contender}{head_dim}"), "2026-11-28T00:00:00Z", 100.0);
            row.shape.insert("head_dim".to_owned(), head_dim.into());
            row.shape.insert("heads".to_owned(), (2048 / head_dim).into());
            row.shape.insert("heads_k".to_owned(), (2048 / head_dim).into());
            row.contender = contender.to_owned();
            row.own = own;
            row
        };
        let picture = |dims: &[u64]| {
            let rows = dims.iter().flat_map(|dim| [of("kgen", *dim, true), of("fa3", *dim, false)]).collect();
            let report = Report::of(rows, &|_| None);
            let section = report.sections.into_iter().find(|section| section.id == "dims").expect("a section");
            section.figures.into_iter().map(|figure| figure.table.rows).collect::<Vec<_>>()
        };
        assert!(picture(&[64, 128]).is_empty(), "two are no line");
        let [rows] = picture(&[128, 64, 256]).try_into().expect("one picture");
        let names: Vec<_> = rows.iter().map(|row| (row[0].as_str(), row[1].as_str(), row[2].as_str())).collect();
        assert_eq!(names[..3], [("kgen, sm90", "64", "32"), ("kgen, sm90", "128", "16"), ("kgen, sm90", "256", "8")]);
        assert_eq!(names[3..].iter().map(|row| row.0).collect::<Vec<_>>(), ["fa3"; 3]);
    }
}
