//! `kgen profile`.

use super::{
    Global,
    db::StoreArgs,
    escape::plain,
    select::SelectionArgs,
    show,
    table::{self, Column},
    values::whole,
    verbosity,
};
use crate::{
    bench::Status,
    check::DEFAULT_SEED,
    command::{
        self, CommandError, limits,
        profile::{Compiled, Facts, Profile, Request, Shape},
    },
    device::DeviceChoice,
    family,
    profile::{Count, Counter, KernelCounters, Line, METRICS, Metric, Totals},
    text::{count, size},
};
use console::style;
use std::{fmt::Write, path::PathBuf};

/// Lines that are shown unless all are asked for.
const FEW: usize = 12;

/// Reasons for which warps wait that are shown.
const STALLS: usize = 5;

/// Characters of a line of source that are shown.
const LONGEST_TEXT: usize = 100;

const EXAMPLES: &str = "\
Examples:
  kgen profile flash_fwd_hdim128_bf16_sm80
                                      conflicts by line, with no GPU
  kgen profile --source my.cu --seqlen 512
                                      of a kernel that you edited
  kgen profile flash_bwd_hdim64_fp16_sm80 --verbose
                                      all lines with accesses
  kgen profile --device gpu flash_fwd_hdim128_bf16_sm90 --seqlen 8192
                                      counters, read by Nsight Compute
  kgen profile rmsnorm_fp16_sm80 --rows 4 --columns 4096 --format json
                                      for scripts";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Device: emulator (accesses by line of source), gpu (counters by `ncu`) or auto (the GPU if it, a library and
    /// `ncu` are there).
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// A file with one kernel of kgen's ABI, edited by hand, which runs on the emulator instead of the rendered one.
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,

    /// The library of kernels for a GPU [default: build/lib/libkgen.so].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Seed of the inputs and, on the emulator, of the thread order.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Time limit per kernel, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = whole::<u64>(limits::SECONDS))]
    time_limit: u64,

    #[command(flatten)]
    store: StoreArgs,

    /// Do not add the profiles to the store.
    #[arg(long, conflicts_with = "db")]
    no_db: bool,
}

/// The size.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Shape")]
struct ShapeArgs {
    /// Sequences [default: emulator 1, GPU as many as make 16384 tokens].
    #[arg(long, value_name = "N")]
    batch: Option<u32>,

    /// Query heads [default: emulator 1, GPU as many as make 2048 elements with the head dim].
    #[arg(long, value_name = "N")]
    heads: Option<u32>,

    /// Key heads [default: the query heads; `fwd_split`: a quarter of them or less].
    #[arg(long, value_name = "N")]
    heads_k: Option<u32>,

    /// Queries and keys of a sequence (`fwd_split`: keys) [default: emulator 256, GPU 4096].
    #[arg(long, value_name = "N")]
    seqlen: Option<u32>,

    /// Queries of a sequence [default: as many as keys; `fwd_split`: 1].
    #[arg(long, value_name = "N")]
    seqlen_q: Option<u32>,

    /// Keys of a sequence [default: as many as queries].
    #[arg(long, value_name = "N", conflicts_with = "seqlen")]
    seqlen_k: Option<u32>,

    /// Rows of a page, for kernels that read K and V from pages [default: 16; MLA: 64].
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    /// Rows of a matrix, for families other than attention [default: emulator 8, GPU the family's own].
    #[arg(long, value_name = "N")]
    rows: Option<u64>,

    /// Elements of a row, or of a vector [default: emulator 1024, GPU the family's own].
    #[arg(long, value_name = "N")]
    columns: Option<u64>,
}

impl From<ShapeArgs> for Shape {
    fn from(args: ShapeArgs) -> Self {
        let ShapeArgs { batch, heads, heads_k, seqlen, seqlen_q, seqlen_k, page_size, rows, columns } = args;
        Self { batch, heads, heads_k, seqlen, seqlen_q, seqlen_k, page_size, rows, columns }
    }
}

/// Runs the command.
///
/// # Errors
/// Those of [`command::profile::run`], and those of its verdict after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, shape, device, source, library, seed, time_limit: time_limit_s, store, no_db } = args;
    let (selection, shape, record, db) = (selection.into(), shape.into(), !no_db, store.db);
    let request = Request { selection, shape, device, seed, time_limit_s, library, source, record, db };
    let outcome = command::profile::run(&request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || outcome.profiles.iter().map(describe).collect::<Vec<_>>().join("\n"))?;
    outcome.verdict()
}

fn describe(profile: &Profile) -> String {
    let Profile { name, variant, shape, device, status, message, facts, relative_error, totals, lines, counters } = profile;
    let label = family::of(variant.kind()).label(shape);
    let mut text = format!("{name} {label}, {device}\n{}", describe_facts(facts));
    // Writing into a string cannot fail.
    if *status != Status::Ok {
        writeln!(text, "\n{}\n  {}", style(status.word()).red().bold(), plain(message)).ok();
    }
    if let Some(error) = relative_error {
        writeln!(text, "  results are right: largest relative error {error:.1e}").ok();
    }
    if let Some((totals, lines)) = totals.as_ref().zip(lines.as_ref()) {
        text = text + "\n" + &describe_totals(totals) + "\n" + &describe_lines(lines);
    }
    for launch in counters.iter().flatten() {
        text = text + "\n" + &describe_launch(launch);
    }
    text
}

fn describe_facts(facts: &Facts) -> String {
    let Facts { template, tile, threads, shared_memory_bytes, estimated_registers, occupancy, compiled } = facts;
    let (blocks, warps) = (count(occupancy.blocks_per_sm as usize, "block"), count(occupancy.warps_per_sm as usize, "warp"));
    let shared = size((*shared_memory_bytes).into());
    let limited = occupancy.limited_by;
    let mut text = format!("  templates/{template}, tile {tile}\n");
    // Writing into a string cannot fail.
    writeln!(
        text,
        "  {threads} threads, {shared} of shared memory, about {estimated_registers} registers: {blocks} ({warps}) a multiprocessor, \
         limited by {limited}"
    )
    .ok();
    let Some(Compiled { registers, spill_bytes, tensor_cores, .. }) = compiled else {
        return text + "  not compiled: `kgen build` adds registers and machine code\n";
    };
    let number = |number: &Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    write!(text, "  compiled: {} registers, {} bytes spilled", number(registers), number(spill_bytes)).ok();
    for (instruction, times) in tensor_cores.as_object().into_iter().flatten() {
        write!(text, ", {times} {instruction}").ok();
    }
    text + "\n"
}

fn describe_totals(totals: &Totals) -> String {
    let Totals { shared, global } = *totals;
    let mut text = String::new();
    for (memory, unit, count) in [("shared memory", "wavefronts", shared), ("device memory", "sectors", global)] {
        let Count { accesses, needed, ideal, excess } = count;
        if accesses == 0 {
            text = text + memory + ": no accesses\n";
            continue;
        }
        let of = ratio(count);
        // Writing into a string cannot fail.
        writeln!(text, "{memory}: {accesses} accesses by warps, {needed} {unit} of at least {ideal} ({of}), {excess} in excess")
            .ok();
    }
    text
}

fn describe_lines(lines: &[Line]) -> String {
    let measured = || lines.iter().filter(|line| line.shared.accesses + line.global.accesses > 0);
    let columns = [
        Column::text("line").needed(),
        Column::text("access").needed(),
        Column::number("shared"),
        Column::number("wavefronts").needed(),
        Column::number("of ideal"),
        Column::number("global"),
        Column::number("sectors").needed(),
        Column::number("of ideal"),
        Column::number("excess").needed(),
        Column::text("source"),
    ];
    let shown: Vec<&Line> =
        measured().enumerate().filter(|(place, _)| verbosity::verbose() || *place < FEW).map(|(_, line)| line).collect();
    let left_out = measured().count() - shown.len();
    let mut text = table::of(&columns, shown.into_iter().map(cells));
    if left_out > 0 {
        writeln!(text, "… and {left_out} more lines that waste no more; `--verbose` lists all").ok();
    }
    let unmeasured: Vec<String> = lines
        .iter()
        .filter(|line| line.unmeasured > 0)
        .map(|line| format!("{} {} ({}:{})", line.unmeasured, line.primitive, line.file, line.line))
        .collect();
    text += "\nnot counted: copies by TMA, operands of wgmma, mbarriers";
    if !unmeasured.is_empty() {
        write!(text, "; here {}", unmeasured.join(", ")).ok();
    }
    text + "\n"
}

/// `1.00x`; empty without accesses.
fn ratio(count: Count) -> String {
    if count.ideal == 0 { String::new() } else { format!("{:.2}x", count.needed as f64 / count.ideal as f64) }
}

fn cells(line: &Line) -> Vec<String> {
    let of = |count: Count| {
        let number = |number: u64| if count.accesses == 0 { String::new() } else { number.to_string() };
        [number(count.accesses), number(count.needed), ratio(count)]
    };
    let mut cells = vec![format!("{}:{}", line.file, line.line), line.primitive.clone()];
    cells.extend(of(line.shared).into_iter().chain(of(line.global)));
    cells.push((line.shared.excess + line.global.excess).to_string());
    cells.push(plain(&line.text).chars().take(LONGEST_TEXT).collect());
    cells
}

fn describe_launch(launch: &KernelCounters) -> String {
    let KernelCounters { kernel, block, grid, .. } = launch;
    let mut text = format!("{} grid {grid} block {block}\n", plain(kernel));
    let value = |Counter { unit, value, .. }: &Counter| match unit.as_str() {
        "%" => format!("{value:.1} %"),
        "ns" | "nsecond" => format!("{:.2} µs", value / 1e3),
        "byte" => size(*value as u64),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    };
    let row = |metric: &Metric| {
        let counter = launch.counters.iter().find(|counter| counter.metric == metric.name)?;
        Some(vec![metric.meaning.to_owned(), value(counter), metric.name.to_owned()])
    };
    let columns = [Column::text("counter").needed(), Column::number("value").needed(), Column::text("metric")];
    text += &table::of(&columns, METRICS.iter().filter(|metric| !metric.is_stall()).filter_map(row));
    let stalls = launch.stalls();
    if !stalls.is_empty() {
        let words: Vec<String> = stalls.iter().take(STALLS).map(|(name, warps)| format!("{name} {warps:.2}")).collect();
        // Writing into a string cannot fail.
        writeln!(text, "warps that wait at an issue: {}", words.join(", ")).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, shared: Count) -> Line {
        let (file, primitive, text) = ("k.cu".to_owned(), "load_shared".to_owned(), format!("text {number};"));
        Line { file, line: number, primitive, text, shared, ..Line::default() }
    }

    #[test]
    fn lines_have_their_counts_and_those_that_are_left_out_are_counted() {
        let count = |needed| Count { accesses: 4, needed, ideal: 4, excess: needed - 4 };
        let mut lines: Vec<Line> = (1..=20).map(|number| line(number, count(if number == 1 { 32 } else { 4 }))).collect();
        lines.push(Line { unmeasured: 7, primitive: "tma_load".to_owned(), ..line(21, Count::default()) });
        let text = describe_totals(&Totals::of(&lines)) + &describe_lines(&lines);
        assert!(
            text.starts_with("shared memory: 80 accesses by warps, 108 wavefronts of at least 80 (1.35x), 28 in excess\n"),
            "{text}"
        );
        assert!(text.contains("device memory: no accesses\n") && text.contains("8.00x") && text.contains("text 1;"), "{text}");
        assert!(text.contains("… and 8 more lines that waste no more") && !text.contains("text 20;"), "{text}");
        assert!(text.contains("here 7 tma_load (k.cu:21)"), "{text}");
    }

    #[test]
    fn counters_have_their_units_and_stalls_one_line() {
        let counter = |metric: &str, unit: &str, value| Counter { metric: metric.to_owned(), unit: unit.to_owned(), value };
        let launch = KernelCounters {
            kernel: "attention(p)".to_owned(),
            block: "(128, 1, 1)".to_owned(),
            grid: "(8, 1, 1)".to_owned(),
            counters: vec![
                counter("dram__bytes.sum", "byte", 33_554_432.0),
                counter("gpu__time_duration.sum", "ns", 12_500.0),
                counter("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", 61.26),
                counter("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "inst", 1.5),
            ],
        };
        let text = describe_launch(&launch);
        for part in ["attention(p) grid (8, 1, 1) block (128, 1, 1)\n", "12.50 µs", "61.3 %", "at an issue: wait 1.50\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(place("time of the launch") < place("bytes of device memory"), "in the order of the table: {text}");
    }
}
