//! The table at the end of a build. Shared by `build`, `build-all` and `wheel`.

use super::totals;
use crate::{
    build::Artifact,
    cli::{
        escape::plain,
        table::{self, Column, Row},
    },
    command::build::Outcome,
    text::size,
};
use console::style;
use itertools::Itertools;
use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

/// Columns a command adds to the table of variants.
#[derive(Default)]
pub(in crate::cli) struct Extra<'a> {
    /// The columns.
    pub columns: &'a [Column<'a>],
    /// Names of variants that need the reader's attention.
    pub notable: HashSet<&'a str>,
    /// Their cells by variant name; a missing variant gets dashes.
    pub cells: HashMap<&'a str, Vec<String>>,
}

/// Table, failures and totals, for people.
pub(in crate::cli) fn describe(built: &Outcome, extra: &Extra<'_>) -> String {
    let mut columns = vec![
        Column::text("variant").needed(),
        Column::number("registers"),
        Column::number("spills"),
        Column::number("tensor cores"),
        Column::number("shared"),
        Column::number("CPU s"),
        Column::number("peak"),
        Column::text("build").needed(),
    ];
    columns.extend(extra.columns);
    let dashes = vec!["-".to_owned(); extra.columns.len()];
    let cells = |name: &str| extra.cells.get(name).unwrap_or(&dashes).clone();
    let rows = built.kernels().map(|artifact| Row {
        cells: [row(built, artifact), cells(&artifact.name)].concat(),
        notable: artifact.spill_bytes() > 0 || artifact.stack_bytes() > 0 || extra.notable.contains(artifact.name.as_str()),
    });
    let failed = built.report.failures.iter().map(|failure| {
        let mut row = vec![failure.name.clone()];
        row.resize(7, "-".to_owned());
        row.push(style("FAILED").red().to_string());
        Row { cells: [row, cells(&failure.name)].concat(), notable: true }
    });
    let mut text = table::of_results(&columns, rows.chain(failed).collect());
    for failure in &built.report.failures {
        // Writing into a string cannot fail.
        write!(text, "\n{} `{}`: {}", style("error:").red().bold(), failure.name, plain(&failure.message)).ok();
        if let Some(log) = &failure.log {
            write!(text, "\n       log: {}", built.out_dir.join(log).display()).ok();
        }
    }
    if !built.report.failures.is_empty() {
        text.push('\n');
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text + &totals::totals(built)
}

fn row(built: &Outcome, artifact: &Artifact) -> Vec<String> {
    let shared = built.launch_shared_bytes.get(&artifact.name).unwrap_or(&0) + artifact.shared_bytes();
    let lost = match (artifact.spill_bytes(), artifact.stack_bytes()) {
        (0, 0) => "0".to_owned(),
        (0, stack) => style(format!("stack {stack} B")).yellow().to_string(),
        (spill, _) => style(format!("{spill} B")).yellow().bold().to_string(),
    };
    vec![
        artifact.name.clone(),
        artifact.registers().to_string(),
        lost,
        tensor_cores(artifact),
        format!("{:.1} KiB", f64::from(shared) / 1024.0),
        format!("{:.1}", artifact.cpu_seconds),
        size(artifact.peak_memory_bytes),
        if artifact.cached { style("cached").dim().to_string() } else { "compiled".to_owned() },
    ]
}

/// `512 HMMA`; a dash for kernels without tensor-core instructions, empty if the machine code was not inspected.
fn tensor_cores(artifact: &Artifact) -> String {
    let Some(code) = &artifact.machine_code else { return String::new() };
    let families = code.families();
    if families.is_empty() {
        return "-".to_owned();
    }
    families.iter().map(|(family, count)| format!("{count} {family}")).join(", ")
}
