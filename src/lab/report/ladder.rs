//! What each choice of a kernel's tile gains.

use super::{
    super::{
        Row,
        ladder::{Measured, MeasuredRung, ladders},
    },
    Column, Figure, Section, Table,
    draw::{Cell, Grid},
    number, range,
};
use std::collections::BTreeMap;

const WORDS: [&str; 3] = [
    "Ladder",
    "Each choice of a kernel's tile is taken back by itself, and the kernel without it takes turns with the kernel itself. A cell \
     is the time without the choice by the time with it, above 1 where the choice helps.",
    "No choice of a tile was taken back. `kgen tune --ladder` measures them.",
];

/// The ratio that has the full colour.
const FULL: f64 = 1.5;

/// The column of the mean over all sizes.
const ALL: &str = "all";

/// The section: a picture for each kernel on each card.
pub(super) fn section(rows: &[Row]) -> Section {
    Section::of_groups("ladder", WORDS, &ladders(rows), figure)
}

/// The numbers of a size such as `batch=1 heads=16 seqlen_k=4096`.
fn numbers_of(size: &str) -> BTreeMap<&str, u64> {
    size.split(' ')
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

/// Short names of sizes, in the order of their lengths: the keys, with the queries if those are others, and the batch
/// if sizes differ in nothing else.
fn names(sizes: &[&str]) -> Vec<String> {
    let short = |size: &&str| {
        let of = numbers_of(size);
        let [queries, keys] = ["seqlen_q", "seqlen_k"].map(|name| of.get(name));
        match (queries, keys) {
            (Some(queries), Some(keys)) if queries == keys => keys.to_string(),
            (Some(queries), Some(keys)) => format!("{queries}x{keys}"),
            _ => (*size).to_owned(),
        }
    };
    let names: Vec<String> = sizes.iter().map(short).collect();
    let is_clear = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let batch = |size: &str| numbers_of(size).get("batch").map(ToString::to_string).unwrap_or_default();
    sizes
        .iter()
        .zip(&names)
        .map(|(size, name)| if is_clear(name) { name.clone() } else { format!("{} x {name}", batch(size)) })
        .collect()
}

fn figure(ladder: &Measured, place: usize) -> Figure {
    let mut sizes: Vec<&str> = ladder.rungs.iter().flat_map(|rung| rung.by_size.iter().map(|(size, _)| size.as_str())).collect();
    let order =
        |size: &&str| ["seqlen_k", "seqlen_q", "batch"].map(|name| numbers_of(size).get(name).copied().unwrap_or_default());
    sizes.sort_by_key(|size| (order(size), *size));
    sizes.dedup();
    let measured: Vec<&MeasuredRung> = ladder.rungs.iter().filter(|rung| rung.time.is_ok()).collect();
    let mut cells = Vec::new();
    for (row, rung) in measured.iter().enumerate() {
        let mean = rung.time.as_ref().ok().map(|time| (sizes.len(), ALL, time));
        let by_size = rung.by_size.iter().filter_map(|(size, time)| {
            let column = sizes.iter().position(|other| other == size)?;
            Some((column, size.as_str(), time))
        });
        for (column, size, time) in by_size.chain(mean) {
            cells.push(Cell {
                at: [row, column],
                words: format!("{:.2}", time.mean),
                strength: time.mean.ln() / FULL.ln(),
                note: format!("{}, {size}: {} ({})", rung.switch.change(), number(time.mean), range(Some(time.interval))),
            });
        }
    }
    let grid = Grid {
        rows_label: "taken back",
        rows: measured.iter().map(|rung| rung.switch.switch.clone()).collect(),
        columns_label: "sequence length (queries x keys where they differ)",
        columns: names(&sizes).into_iter().chain([ALL.to_owned()]).collect(),
        cells,
        legend: "time without the choice by the time with it: blue, above 1, it helps; orange, below 1, it hurts",
    };
    let most = measured
        .iter()
        .filter_map(|rung| rung.time.as_ref().ok().map(|time| (time.mean, rung)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let most = most.map_or_else(String::new, |(mean, rung)| format!("; most for {}, {}", rung.switch.change(), number(mean)));
    let description =
        format!("{} choices, {} with times{most}. The table below has the numbers.", ladder.rungs.len(), measured.len());
    let columns = [
        Column::text("taken back"),
        Column::long("size"),
        Column::number("time without / with"),
        Column::text("95 % interval"),
        Column::number("passes"),
        Column::long("reason for no time"),
    ];
    let rows = ladder.rungs.iter().flat_map(|rung| {
        let change = rung.switch.change();
        match &rung.time {
            Err((status, why)) => {
                vec![vec![change, String::new(), String::new(), String::new(), String::new(), format!("{status}: {why}")]]
            }
            Ok(mean) => {
                let times = rung.by_size.iter().map(|(size, time)| (size.as_str(), time)).chain([(ALL, mean)]);
                let cells = times.map(|(size, time)| {
                    let [ratio, interval] = [number(time.mean), range(Some(time.interval))];
                    vec![change.clone(), size.to_owned(), ratio, interval, time.passes.to_string(), String::new()]
                });
                cells.collect()
            }
        }
    });
    let table = Table::new(columns, rows);
    let title = format!("{}, {}: what the choices of the tile gain", ladder.gpu, ladder.kernel);
    let has_times = !measured.is_empty();
    Figure::drawn(&format!("ladder-{place}"), &title, table, |names| has_times.then(|| grid.picture(names, description)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::ladder::tests::{rows, rung};

    #[test]
    fn every_ratio_is_a_cell_and_a_line() {
        let section = section(&rows());
        let [figure] = &section.figures[..] else { panic!("one kernel") };
        let picture = figure.picture.as_ref().expect("times");
        assert_eq!(picture.body.matches("class=\"cell good\"").count(), 3, "512, 2048 and all");
        assert!(picture.body.contains(">1.10<") && picture.body.contains(">1.30<") && picture.body.contains(">1.20<"));
        let cells: Vec<&str> = figure.table.rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(cells, ["1.300", "1.100", "1.196"], "in the order of the sizes' texts");
        assert_eq!((figure.table.rows[0][0].as_str(), section.missing), ("stages 2 to 1", None));
    }

    #[test]
    fn a_ladder_without_times_is_a_table_of_reasons() {
        let mut rows = vec![rung(1, 512, true, 10.0), rung(1, 512, false, 11.0)];
        (rows[1].status, rows[1].numbers, rows[1].message) = (crate::lab::Status::Spilled, None, "8 bytes".to_owned());
        let section = section(&rows);
        assert!(section.figures[0].picture.is_none());
        assert_eq!(section.figures[0].table.rows[0][5], "spilled: 8 bytes");
        assert_eq!(super::section(&[]).missing, Some(WORDS[2]));
    }

    #[test]
    fn names_of_sizes_are_short_where_they_are_clear() {
        let of = |sizes: &[&str]| names(sizes);
        assert_eq!(of(&["batch=1 seqlen_k=512 seqlen_q=512", "batch=1 seqlen_k=512 seqlen_q=1"]), ["512", "1x512"]);
        assert_eq!(of(&["batch=1 seqlen_k=512 seqlen_q=1", "batch=8 seqlen_k=512 seqlen_q=1"]), ["1 x 1x512", "8 x 1x512"]);
    }
}
