//! kgen beside its best peer, or beside the card's peak, by head dim and length.

use super::{
    Column, Figure, Section, Table,
    draw::{Cell, Grid},
    grouped,
    measured::Measured,
    number,
};
use itertools::Itertools;
use std::collections::BTreeMap;

const WORDS: [&str; 3] = [
    "Head dims and lengths",
    "Each cell is the geometric mean over its cases. With peers: the time of the best peer by that of kgen's fastest kernel, \
     above 1 where kgen is faster. Without peers: the part of the card's peak.",
    "No timed case has a head dim, a length, and a peer or the card's peak. `kgen bench` times kernels with head dims; rows of \
     peers come with `kgen db import`.",
];

/// The ratio that has the full colour.
const FULL: f64 = 1.5;

/// What a cell compares.
struct Compared {
    head_dim: String,
    length: f64,
    value: f64,
}

/// The section: a picture for each card, program, element type and mask.
pub(super) fn section(cases: &[Measured<'_>]) -> Section {
    let key = |case: &&Measured| {
        let mask = case.row.shape.get("causal").and_then(serde_json::Value::as_bool);
        let mask = mask.map_or("", |causal| if causal { "causal" } else { "full" });
        (case.card().to_owned(), case.program(), case.row.dtype.clone().unwrap_or_default(), case.features(), mask)
    };
    let groups = grouped(cases, key);
    let shown = groups.iter().filter_map(|((card, program, dtype, features, mask), cases)| {
        let words = [card, program, dtype, features].into_iter().map(String::as_str).chain([*mask]);
        let name = words.filter(|word| !word.is_empty()).join(", ");
        let beside_peers: Vec<Compared> = works(cases).into_iter().filter_map(|cases| beside_best_peer(&cases)).collect();
        let has_peers = !beside_peers.is_empty();
        let compared = if has_peers { beside_peers } else { works(cases).iter().filter_map(|cases| of_peak(cases)).collect() };
        (!compared.is_empty()).then_some((name, has_peers, compared))
    });
    Section::of_groups("heat", WORDS, shown, |(name, has_peers, compared), place| figure(&name, has_peers, &compared, place))
}

/// The contenders of each work.
fn works<'a>(cases: &[&'a Measured<'a>]) -> Vec<Vec<&'a Measured<'a>>> {
    let key = |case: &&Measured| {
        let row = case.row;
        (case.work(), row.layout.clone(), row.word("repeated").to_owned(), row.word("l2").to_owned())
    };
    grouped(cases.iter().copied(), key).into_values().collect()
}

fn fastest<'a>(cases: &[&'a Measured<'a>], own: bool) -> Option<&'a Measured<'a>> {
    let of_side = cases.iter().copied().filter(|case| case.row.own == own && !case.row.is_edited());
    of_side.min_by(|a, b| a.microseconds.total_cmp(&b.microseconds))
}

fn compared(case: &Measured, value: f64) -> Option<Compared> {
    let head_dim = match case.row.shape.get("head_dim")? {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(Compared { head_dim, length: case.length()?, value })
}

fn beside_best_peer(cases: &[&Measured]) -> Option<Compared> {
    let (own, peer) = (fastest(cases, true)?, fastest(cases, false)?);
    compared(own, peer.microseconds / own.microseconds)
}

fn of_peak(cases: &[&Measured]) -> Option<Compared> {
    let own = fastest(cases, true)?;
    let rate = own.rate()?;
    compared(own, rate.value / rate.peak?)
}

fn figure(name: &str, has_peers: bool, compared: &[Compared], place: usize) -> Figure {
    // Head dims in the order of their numbers, and then of their words.
    let order = |dim: &String| (dim.split('_').next().and_then(|word| word.parse::<u64>().ok()), dim.clone());
    let dims: Vec<&String> = compared.iter().map(|one| &one.head_dim).unique().sorted_by_key(|dim| order(dim)).collect();
    let lengths: Vec<f64> = compared.iter().map(|one| one.length).sorted_by(f64::total_cmp).dedup().collect();
    let mut cells: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
    for one in compared {
        let row = dims.iter().position(|dim| **dim == one.head_dim);
        let column = lengths.iter().position(|length| length.total_cmp(&one.length).is_eq());
        if let (Some(row), Some(column)) = (row, column) {
            cells.entry([row, column]).or_default().push(one.value);
        }
    }
    let mean = |values: &[f64]| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
    let strength = |value: f64| if has_peers { value.ln() / FULL.ln() } else { value };
    let words = |value: f64| if has_peers { format!("{value:.2}") } else { format!("{:.0} %", 100.0 * value) };
    let shown = cells.iter().map(|(at, values)| {
        let value = mean(values);
        let note = format!("head dim {}, length {:.0}: {}, {} cases", dims[at[0]], lengths[at[1]], words(value), values.len());
        Cell { at: *at, words: words(value), strength: strength(value), note }
    });
    let what = if has_peers { "kgen beside the best peer" } else { "part of the card's peak" };
    let grid = Grid {
        rows_label: "head dim",
        rows: dims.iter().map(|dim| (*dim).clone()).collect(),
        columns_label: "sequence length (keys)",
        columns: lengths.iter().map(|length| format!("{length:.0}")).collect(),
        cells: shown.collect(),
        legend: if has_peers {
            "time of the best peer by kgen's: blue, above 1, kgen is faster; orange, below 1, the peer is"
        } else {
            "per cent of the card's peak; darker is nearer to it"
        },
    };
    let title = format!("{name}: {what}");
    let least_and_most = compared.iter().map(|one| one.value).minmax().into_option();
    let ends = least_and_most.map_or_else(String::new, |(low, high)| format!("from {} to {}", words(low), words(high)));
    let description = format!("{} head dims and {} lengths, {ends}. The table below has the numbers.", dims.len(), lengths.len());
    let columns = [
        Column::text("head dim"),
        Column::number("length"),
        Column::number(if has_peers { "best peer's time / kgen's" } else { "part of peak" }),
        Column::number("cases"),
    ];
    let row = |(at, values): (&[usize; 2], &Vec<f64>)| {
        vec![dims[at[0]].clone(), format!("{:.0}", lengths[at[1]]), number(mean(values)), values.len().to_string()]
    };
    let table = Table::new(columns, cells.iter().map(row));
    Figure::drawn(&format!("heat-{place}"), &title, table, |names| Some(grid.picture(names, description)))
}
