//! What the compiler made of each kernel: registers, shared memory, spills, size.

use super::{
    super::Row,
    Column, Figure, Section, Table,
    draw::{Axis, Chart, Mark, Scale, Series},
    measured::fact,
    number,
};
use itertools::Itertools;
use std::collections::BTreeMap;

const WORDS: [&str; 3] = [
    "Kernels",
    "What the compiler reports of each kernel, as its latest row states it. Registers are those of a thread; a kernel that \
     spills moves registers through memory.",
    "No row states what its kernel was compiled to. `kgen build`, and then `kgen bench` with the library that it linked, give \
     such rows.",
];

/// Facts of which a kernel has at least one here.
const FACTS: [&str; 3] = ["registers", "object_bytes", "spill_bytes"];

/// The section.
pub(super) fn section(rows: &[Row]) -> Section {
    let mut kernels: BTreeMap<(String, &str), &Row> = BTreeMap::new();
    let stated = |row: &&Row| FACTS.iter().any(|name| !fact(row.kernel.as_ref(), name).is_empty());
    for row in rows.iter().filter(|row| row.own && !row.kernel_name().is_empty()).filter(stated) {
        let known = kernels.entry((name(row), row.kernel_fact("compiled_for"))).or_insert(row);
        if (known.date(), known.run_id()) < (row.date(), row.run_id()) {
            *known = row;
        }
    }
    let kernels: Vec<&Row> = kernels.into_values().collect();
    Section::new("kernels", WORDS, if kernels.is_empty() { Vec::new() } else { vec![figure(&kernels)] })
}

/// The kernel, of a search with its tile.
fn name(row: &Row) -> String {
    row.with_searched_tile(row.kernel_name())
}

fn figure(kernels: &[&Row]) -> Figure {
    let size = |row: &Row, name: &str| row.kernel.as_ref()?.get(name)?.as_f64();
    let spills = |row: &Row| size(row, "spill_bytes").is_some_and(|bytes| bytes > 0.0);
    let mark = |row: &Row| {
        let (registers, bytes) = (size(row, "registers")?, size(row, "object_bytes")?);
        Some(Mark { x: registers, y: bytes / 1024.0, range: None, note: name(row) })
    };
    let series = |label: &str, spilled: bool| Series {
        label: label.to_owned(),
        solid: !spilled,
        joined: false,
        marks: kernels.iter().filter(|row| spills(row) == spilled).filter_map(|row| mark(row)).collect(),
    };
    let series = [series("no spills", false), series("spills registers", true)];
    let chart = Chart {
        x: Axis { label: "registers a thread", scale: Scale::Log10 },
        y: Axis { label: "KiB of object", scale: Scale::Log10 },
        series: series.into_iter().filter(|series| !series.marks.is_empty()).collect(),
        rules: Vec::new(),
    };
    let spilling = kernels.iter().filter(|row| spills(row)).count();
    let description = format!("{} kernels, of which {spilling} spill registers. The table below has the numbers.", kernels.len());
    let columns = [
        Column::text("kernel"),
        Column::text("compiled for"),
        Column::number("registers"),
        Column::number("shared bytes"),
        Column::number("spill bytes"),
        Column::number("object bytes"),
        Column::number("compiled in s"),
        Column::text("nvcc"),
        Column::text("date"),
    ];
    let row = |row: &&Row| {
        let stated = |name: &str| fact(row.kernel.as_ref(), name);
        let seconds = row.details.get("compile_s").and_then(serde_json::Value::as_f64);
        let mut cells = vec![name(row)];
        cells.extend(["compiled_for", "registers", "shared_memory_bytes", "spill_bytes", "object_bytes"].map(stated));
        cells.extend([number(seconds), stated("nvcc").split(' ').take(1).join(""), row.date().to_owned()]);
        cells
    };
    let table = Table::new(columns, kernels.iter().map(row));
    Figure::drawn("kernels-1", "Registers and size of each kernel", table, |names| chart.picture(names, description))
}
