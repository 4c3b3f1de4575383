//! Predicted times beside measured ones.

use super::{
    super::Row,
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Rule, Scale, Series},
    grouped,
    measured::Measured,
    number, percent,
};

const WORDS: [&str; 3] = [
    "Predictions",
    "The predicted time of each case divided by its measured one. The cases that kgen's own model has learned from are predicted \
     by a model without their length or without their head dim, whichever is farther off.",
    "No case is of a kernel whose time `kgen predict` can compute: kernels of kgen with their default tile, on a card whose \
     numbers are known.",
];

/// Predicts the microseconds of a row's call, if its kernel and card are known.
pub type Forecast<'a> = dyn Fn(&Row) -> Option<f64> + 'a;

/// A case with both times.
struct Point<'a> {
    case: &'a Measured<'a>,
    predicted: f64,
}

impl Point<'_> {
    fn ratio(&self) -> f64 {
        self.predicted / self.case.microseconds
    }
}

/// The section: a picture for each card.
pub(super) fn section(cases: &[Measured<'_>], forecast: &Forecast<'_>) -> Section {
    let points = cases.iter().filter_map(|case| Some(Point { case, predicted: forecast(case.row)? }));
    let cards = grouped(points, |point| point.case.card());
    Section::of_groups("predictions", WORDS, &cards, |(card, points), place| figure(card, points, place))
}

fn figure(card: &str, points: &[Point<'_>], place: usize) -> Figure {
    let mark = |point: &&Point<'_>| Mark {
        x: point.case.microseconds,
        y: point.ratio(),
        range: None,
        note: format!("{}, {}: {}", point.case.name(), point.case.work(), number(point.ratio())),
    };
    let kind = |point: &&Point<'_>| point.case.row.kernel_fact("kind").to_owned();
    let series = grouped(points, kind).into_iter().map(|(kind, points)| Series {
        label: kind,
        solid: true,
        joined: false,
        marks: points.iter().map(mark).collect(),
    });
    let times = || points.iter().map(|point| point.case.microseconds);
    let ends = [times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max)];
    let chart = Chart {
        x: Axis { label: "µs, measured", scale: Scale::Log10 },
        y: Axis { label: "predicted / measured", scale: Scale::Log10 },
        series: series.collect(),
        rules: vec![Rule { label: "as measured".to_owned(), points: ends.map(|end| [end, 1.0]).to_vec() }],
    };
    let error = points.iter().map(|point| (point.ratio() - 1.0).abs()).sum::<f64>() / points.len().max(1) as f64;
    let description = format!("{} cases; their mean error is {} %. The table has the numbers.", points.len(), percent(error));
    let columns = [
        Column::text("kernel"),
        Column::long("work"),
        Column::number("µs, measured"),
        Column::number("µs, predicted"),
        Column::number("predicted / measured"),
    ];
    let row = |point: &Point<'_>| {
        let times = [point.case.microseconds, point.predicted, point.ratio()].map(number);
        [vec![point.case.name(), point.case.work()], times.to_vec()].concat()
    };
    let table = Table::new(columns, points.iter().map(row));
    let title = format!("{card}: predicted by measured time");
    Figure::drawn(&format!("predictions-{place}"), &title, table, |names| chart.picture(names, description))
}
