//! Rate against arithmetic intensity, below the ceilings of the card.

use super::{
    super::{Row, row::PROBE},
    Column, Figure, MOST_PICTURES, Section, Table,
    draw::{Axis, Chart, Mark, Rule, Scale, Series},
    grouped,
    measured::Measured,
    number, percent,
};
use itertools::Itertools;

const WORDS: [&str; 3] = [
    "Roofline",
    "Rate against arithmetic intensity: operations for each byte that a call has to move at least (of attention, all tensors \
     once). No kernel can lie above the lines of its element type: on the left the memory limits it, on the right the tensor \
     cores.",
    "No timed case states a rate and the bytes that it moves. `kgen bench` times kernels on this machine's GPU and keeps the \
     rows in the store.",
];

/// A point of the picture.
struct Point<'a> {
    case: &'a Measured<'a>,
    intensity: f64,
    tflops: f64,
    roof: Option<f64>,
}

/// The section: a picture for each card.
pub(super) fn section(cases: &[Measured<'_>], rows: &[Row]) -> Section {
    let point = |case| {
        let [intensity, tflops] = Measured::roofline(case)?;
        let memory = case.ceiling("memory_gbs").map(|rate| intensity * rate / 1e3);
        let roof = case.ceiling(case.tensor_cores()).into_iter().chain(memory).min_by(f64::total_cmp);
        Some(Point { case, intensity, tflops, roof })
    };
    let points: Vec<Point> = cases.iter().filter_map(point).collect();
    let left_out = cases.len() - points.len();
    let cards = grouped(points, |point| point.case.card());
    let figures = cards
        .iter()
        .take(MOST_PICTURES)
        .zip(1..)
        .map(|((card, points), place)| figure(card, points, &Probed::of(card, rows), place));
    let figures = figures.collect();
    let mut section = Section::new("roofline", WORDS, figures);
    if left_out > 0 && section.missing.is_none() {
        section.notes.push(format!("{left_out} of {} cases state no operations or no bytes and are not shown.", cases.len()));
    }
    section
}

fn figure(card: &str, points: &[Point], probed: &Probed, place: usize) -> Figure {
    let label = |point: &Point| {
        if point.case.row.own {
            let program = point.case.program();
            format!("{}, {}", point.case.row.contender, program.strip_prefix("kgen bench ").unwrap_or(&program))
        } else {
            point.case.row.contender.clone()
        }
    };
    let named = grouped(points, |point| (!point.case.row.own, label(point)));
    let mark = |point: &&Point| Mark {
        x: point.intensity,
        y: point.tflops,
        range: None,
        note: format!("{}, {}: {} TFLOP/s", point.case.name(), point.case.work(), number(point.tflops)),
    };
    let series = named.iter().map(|((peer, label), points)| Series {
        label: label.clone(),
        solid: !peer,
        joined: false,
        marks: points.iter().map(mark).collect(),
    });
    let chart = Chart {
        x: Axis { label: "operations a byte", scale: Scale::Log10 },
        y: Axis { label: "TFLOP/s", scale: Scale::Log10 },
        series: series.collect(),
        rules: rules(points).into_iter().chain(probed.rules(points)).collect(),
    };
    let title = format!("{card}: rate against intensity");
    let best = points.iter().filter_map(|point| Some(point.tflops / point.roof?)).max_by(f64::total_cmp);
    let best = best.map_or_else(String::new, |best| format!(" The nearest to its ceiling reaches {} %.", percent(best)));
    let description = format!("{} cases on {card}.{best} The table below the picture has the numbers.", points.len());
    let columns = [
        Column::text("kernel or peer"),
        Column::long("work"),
        Column::text("dtype"),
        Column::number("operations a byte"),
        Column::number("TFLOP/s"),
        Column::number("% of ceiling"),
    ];
    let row = |point: &Point| {
        vec![
            point.case.name(),
            point.case.work(),
            point.case.row.dtype.clone().unwrap_or_default(),
            number(point.intensity),
            number(point.tflops),
            percent(point.roof.map(|roof| point.tflops / roof)),
        ]
    };
    let table = Table::new(columns, points.iter().map(row));
    Figure::drawn(&format!("roofline-{place}"), &title, table, |names| chart.picture(names, description))
}

/// What `kgen probe` measured on a card.
#[derive(Debug, Default, PartialEq)]
struct Probed {
    /// Reads of device memory, GB/s.
    memory_gbs: Option<f64>,
    /// Products of tensor cores with 16-bit elements, TFLOP/s.
    tflops_16_bit: Option<f64>,
    /// The same with FP8.
    tflops_fp8: Option<f64>,
}

impl Probed {
    /// By the latest rows of a card.
    fn of(card: &str, rows: &[Row]) -> Self {
        let latest = |probe: &str, constant: &str| {
            let of_probe = rows.iter().filter(|row| row.bench == PROBE && row.case == probe && row.gpu() == card);
            let last = of_probe.filter(|row| row.numbers.is_some()).max_by_key(|row| (row.date(), row.run_id()))?;
            last.numbers.as_ref()?.get(constant)?.get("median")?.as_f64()
        };
        // By the fastest instructions of the card.
        let tensor = |wgmma: &str, mma: &str| {
            let of = |probe: &str| latest(probe, &format!("{probe}_tflops"));
            of(wgmma).or_else(|| of(mma))
        };
        Self {
            memory_gbs: latest("dram_read", "dram_read_gbs"),
            tflops_16_bit: tensor("wgmma_bf16", "mma_bf16"),
            tflops_fp8: tensor("wgmma_e4m3", "mma_e4m3"),
        }
    }

    fn rules(&self, points: &[Point]) -> Vec<Rule> {
        let peak = |name: &str| if name == "tflops_fp8" { self.tflops_fp8 } else { self.tflops_16_bit };
        let rules = rules_of(points, self.memory_gbs, &peak);
        rules.into_iter().map(|rule| Rule { label: format!("{}, measured", rule.label), ..rule }).collect()
    }
}

/// The ceilings that the rows of a card state: those of the tensor cores in use, and the memory's up to them.
fn rules(points: &[Point]) -> Vec<Rule> {
    let most = |name: &str| points.iter().filter_map(|point| point.case.ceiling(name)).max_by(f64::total_cmp);
    rules_of(points, most("memory_gbs"), &most)
}

/// The lines of these ceilings: of memory, and of the tensor cores by their name.
fn rules_of(points: &[Point], memory: Option<f64>, most: &dyn Fn(&str) -> Option<f64>) -> Vec<Rule> {
    let ends = points.iter().map(|point| point.intensity).minmax().into_option();
    let Some((first, last)) = ends else { return Vec::new() };
    let used = points.iter().map(|point| point.case.tensor_cores()).unique().sorted();
    let flat: Vec<(&str, f64)> = used.filter_map(|name| Some((name, most(name)?))).collect();
    let meet = |peak: f64| memory.map_or(first, |memory| peak * 1e3 / memory);
    let top = flat.iter().map(|(_, peak)| *peak).max_by(f64::total_cmp);
    let mut rules = Vec::new();
    if let Some(memory) = memory {
        let end = top.map_or(last, |top| top * 1e3 / memory);
        let start = first.min(end / 4.0);
        let at = |x: f64| [x, x * memory / 1e3];
        rules.push(Rule { label: format!("memory, {} GB/s", number(memory)), points: vec![at(start), at(end)] });
    }
    for (name, peak) in flat {
        let what = if name == "tflops_fp8" { "FP8" } else { "16 bit" };
        let start = meet(peak);
        let points = vec![[start, peak], [last.max(start * 2.0), peak]];
        rules.push(Rule { label: format!("tensor cores, {what}, {} TFLOP/s", number(peak)), points });
    }
    rules
}
