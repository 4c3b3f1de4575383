//! `kgen bench`.

mod by_hand;

use super::{
    Global,
    db::StoreArgs,
    escape::plain,
    select::{SelectionArgs, TargetParser},
    show,
    table::{self, Column},
    values::whole,
};
use crate::{
    bench::{
        self, Measurement, Report, Status,
        turns::{PeerMeasurement, Ratio, RatioOutcome},
    },
    check::DEFAULT_SEED,
    command::{
        self, CommandError, TargetWord,
        bench::{Outcome, Request, Shape},
        limits,
        peers::Peer,
        suite::Suite,
    },
    device::{Counts, TimingPlan},
    family,
    text::count,
};
use console::style;
use std::{
    fmt::Write,
    fs,
    ops::RangeInclusive,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  kgen bench --kind fwd --head-dim 128 --dtype bf16 --target sm90
                                      at s 512 to 16384, 16384 tokens each
  kgen bench --kind bwd --seqlen 8192 --format json
                                      one length, for scripts
  kgen bench --kind fwd --head-dim 64 --batch 8 --heads 8 --seqlen 128 --graph
                                      short kernels, as CUDA graph replays
  kgen bench --kind fwd_split --batch 1 --heads 32 --heads-k 8 --seqlen-k 32768
                                      decoding: GB/s of K and V
  kgen bench --set standard-74 --out times.json
                                      with all circumstances, to keep
  kgen bench --suite models --peer sdpa-flash,fa3 --site peers
                                      in turns with other implementations
  kgen bench --list-peers --python .venv/bin/python
                                      which of them this machine has
  kgen bench --source my.cu --processes 5 --seqlen 4096
                                      an edited kernel by the generated one";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    timing: TimingArgs,

    #[command(flatten)]
    contest: ContestArgs,

    /// The library of kernels [default: build/lib/libkgen.so, or with `--run-as` the one below build/run-as-TARGET].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Time kernels built with `kgen build --run-as` for the GPUs of this target.
    #[arg(long, value_name = "TARGET", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,

    /// A file with one kernel of kgen's ABI, edited by hand: it and the kernel that kgen generates for its variant are
    /// built, each as a library of its own, and timed in turns. Its launcher names the variant, or the flags of
    /// selection do.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["library", "run_as"])]
    source: Option<PathBuf>,

    /// The nvcc that compiles for `--source` [default: that of `kgen build`].
    #[arg(long, value_name = "PATH", requires = "source")]
    nvcc: Option<PathBuf>,

    /// Never use the network: fail if nvcc would have to be installed for `--source`.
    #[arg(long, requires = "source")]
    offline: bool,

    /// Also write the JSON document to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArgs,

    /// Do not add the measurements to the store.
    #[arg(long, conflicts_with = "db")]
    no_db: bool,
}

/// The sizes; every combination of the listed values.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Shapes")]
pub(super) struct ShapeArgs {
    /// Sequences [default: as many as make 16384 tokens].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    batch: Vec<u32>,

    /// Query heads [default: as many as make 2048 elements with the head dim].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    heads: Vec<u32>,

    /// Key heads [default: the query heads; `fwd_split`: a quarter of them or less].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    heads_k: Vec<u32>,

    /// Queries and keys of a sequence (`fwd_split`: keys) [default: 512,1024,2048,4096,8192,16384].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    seqlen: Vec<u32>,

    /// Queries of a sequence [default: as many as keys; `fwd_split`: 1].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    seqlen_q: Vec<u32>,

    /// Keys of a sequence [default: as many as queries].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size(), conflicts_with = "seqlen")]
    seqlen_k: Vec<u32>,

    /// Rows of a page, for kernels that read K and V from pages [default: 16; MLA: 64].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size())]
    page_size: Vec<u32>,

    /// Rows of a matrix, for families other than attention [default: each family's own sizes].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = matrix_side())]
    rows: Vec<u64>,

    /// Elements of a row, or of a vector.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = matrix_side())]
    columns: Vec<u64>,
}

/// Suites and peers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Suites and peers")]
struct ContestArgs {
    /// Kernels, sizes and plan of a suite; the selection narrows it.
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,

    /// List the suites.
    #[arg(long, conflicts_with = "list_peers")]
    list_suites: bool,

    /// Other implementations that take turns with the kernels, round by round; `all` for all that are known.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    peer: Vec<String>,

    /// List the peers, with the reason why one is absent.
    #[arg(long)]
    list_peers: bool,

    /// Python that runs the peers, with torch for CUDA [default: python3].
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// A folder that holds libraries of peers; may be repeated.
    #[arg(long, value_name = "DIR")]
    site: Vec<PathBuf>,
}

/// Duration and repetition of a timing, and its inputs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
struct TimingArgs {
    /// Rounds; the median, its interval and the spread are taken over them [default: the suite's, or 20].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(signed(limits::ROUNDS)))]
    rounds: Option<u32>,

    /// Times that everything is measured, each time in new processes: `kgen db noise` shows how much they differ.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(signed(limits::PROCESSES)))]
    processes: u32,

    /// Milliseconds of launches before the first round [default: the suite's, or 25].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(signed(limits::WARM_UP_MS)))]
    warm_up_ms: Option<u32>,

    /// Milliseconds of all rounds together [default: the suite's, or 100].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(signed(limits::MEASURE_MS)))]
    measure_ms: Option<u32>,

    /// Exact number of calls before the first one that counts, in place of milliseconds.
    #[arg(long, value_name = "N", requires = "runs", value_parser = clap::value_parser!(u32).range(signed(limits::CALLS)))]
    #[arg(conflicts_with_all = ["warm_up_ms", "measure_ms", "graph"])]
    warm_ups: Option<u32>,

    /// Exact number of calls that count, each timed on its own.
    #[arg(long, value_name = "N", requires = "warm_ups", value_parser = clap::value_parser!(u32).range(signed(limits::CALLS)))]
    runs: Option<u32>,

    /// Replay CUDA graphs of many launches, for kernels of a few microseconds, which the host cannot launch fast
    /// enough.
    #[arg(long)]
    graph: bool,

    /// Seed of the inputs.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Time limit per variant for all its shapes, in seconds; with peers, per contender for a shape.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = whole::<u64>(limits::SECONDS))]
    time_limit: u64,
}

/// The range as `i64`, for clap's parsers of numbers below 64 bits.
pub(super) fn signed(range: RangeInclusive<u64>) -> RangeInclusive<i64> {
    let bound = |value: &u64| i64::try_from(*value).unwrap_or(i64::MAX);
    bound(range.start())..=bound(range.end())
}

/// Parser of a size.
pub(super) fn size() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(signed(limits::SIZE))
}

/// Parser of a side of a matrix.
fn matrix_side() -> impl Fn(&str) -> Result<u64, String> + Clone {
    whole(limits::MATRIX_SIDE)
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
/// The errors of [`command::bench::run`], and those of its verdict after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, shape, timing, contest, library, run_as, source, nvcc, offline, out, store, no_db } = args;
    let ContestArgs { suite, list_suites, peer: peers, list_peers, python, site: sites } = contest;
    if list_suites {
        let listing = command::suite::list()?;
        return show(global, &listing, || describe_suites(&listing));
    }
    if list_peers {
        let outcome = command::peers::run(&command::peers::Request { python, sites }, &global.interruptible())?;
        return show(global, &outcome, || describe_peers(&outcome));
    }
    let TimingArgs { rounds, processes, warm_up_ms, measure_ms, warm_ups, runs, graph, seed, time_limit: time_limit_s } = timing;
    let (selection, shape) = (selection.into(), shape.into());
    let (record, db) = (!no_db, store.db);
    let request = Request {
        selection,
        shape,
        suite,
        peers,
        python,
        sites,
        rounds,
        processes,
        warm_up_ms,
        measure_ms,
        warm_ups,
        runs,
        graph,
        seed,
        time_limit_s,
        library,
        run_as,
        source,
        nvcc,
        offline,
        record,
        db,
    };
    let outcome = command::bench::run(&request, &global.interruptible(), &global.console())?;
    if let Some(out) = &out {
        keep(&outcome, out)?;
    }
    let describe = || describe(&outcome.report) + &outcome.edited.as_ref().map_or_else(String::new, by_hand::describe);
    show(global, &outcome, describe)?;
    outcome.verdict()
}

/// Writes the document to the file of `--out`.
fn keep(outcome: &Outcome, out: &Path) -> Result<(), CommandError> {
    // Replacing the file by a rename would break a pipe, and writing into one waits for a reader; terminals and disk
    // devices are the user's choice.
    let pipe = fs::metadata(out).is_ok_and(|there| there.file_type().is_fifo());
    let text = if pipe {
        Err("it is a pipe, and no file".to_owned())
    } else {
        serde_json::to_string_pretty(outcome).map_err(|error| error.to_string())
    };
    let written = text.and_then(|text| fs::write(out, text + "\n").map_err(|error| error.to_string()));
    written.map_err(|error| {
        CommandError::Usage(format!("cannot write `{}`: {error}; choose another place with `--out`", out.display()))
    })
}

/// The size of a measurement in its family's short form.
pub(super) fn label(measurement: &Measurement) -> String {
    family::of(measurement.variant.kind()).label(&measurement.shape)
}

/// `512 TFLOP/s`, or `2617 GB/s` for decoding.
pub(super) fn rate(numbers: &bench::Numbers) -> String {
    numbers.gbs.map_or_else(|| format!("{:.0} TFLOP/s", numbers.tflops), |gbs| format!("{gbs:.0} GB/s"))
}

/// The suites, a line each.
fn describe_suites(listing: &command::suite::Listing) -> String {
    let columns = [Column::text("suite").needed(), Column::number("points").needed(), Column::text("asks")];
    let row = |suite: &Suite| vec![suite.name.clone(), suite.points.len().to_string(), suite.about.clone()];
    table::of(&columns, listing.suites.iter().map(row))
}

/// The peers, a line each.
fn describe_peers(outcome: &command::peers::Outcome) -> String {
    let mut text = String::new();
    for Peer { name, about, library, absent } in &outcome.peers {
        let found = match (library, absent) {
            (Some(library), _) => style(plain(library)).green().to_string(),
            (None, absent) => format!("{} {}", style("absent:").red(), plain(absent.as_deref().unwrap_or_default())),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n  {about}\n  {found}", style(name).bold());
    }
    text
}

/// The peers by the kernels they took turns with: what the library and the ratio are.
fn describe_turns(peers: &[PeerMeasurement]) -> String {
    let columns = [
        Column::text("peer").needed(),
        Column::text("shape").needed(),
        Column::number("µs").needed(),
        Column::number("TFLOP/s"),
        Column::number("error"),
        Column::text("kernel").needed(),
        Column::number("peer / kernel").needed(),
        Column::text("95 %"),
        Column::text("result").needed(),
    ];
    let rows = peers.iter().flat_map(|PeerMeasurement { peer, ratios, measurement, .. }| {
        let cells = measurement.numbers.as_ref().map_or_else(Default::default, |numbers| {
            let error = format!("{:.1e}", numbers.relative_error);
            [format!("{:.1}", numbers.microseconds.median), format!("{:.1}", numbers.tflops), error]
        });
        let begin: Vec<String> = [peer.clone(), label(measurement)].into_iter().chain(cells).collect();
        let failed = (ratios.is_empty()).then(|| [String::new(), String::new(), String::new(), result_cell(measurement.status)]);
        let ratio = |Ratio { to, median, interval: [low, high], verdict, .. }: &Ratio| {
            [to.clone(), format!("{median:.3}"), format!("{low:.3} to {high:.3}"), verdict_cell(*verdict)]
        };
        let ends: Vec<[String; 4]> = ratios.iter().map(ratio).chain(failed).collect();
        ends.into_iter().map(move |end| begin.iter().cloned().chain(end).collect())
    });
    table::of(&columns, rows)
}

/// What a ratio says of the kernel, coloured on a terminal.
fn verdict_cell(verdict: RatioOutcome) -> String {
    match verdict {
        RatioOutcome::Win => style(verdict.word()).green().to_string(),
        RatioOutcome::Tie => verdict.word().to_owned(),
        RatioOutcome::Loss => style(verdict.word()).red().to_string(),
    }
}

/// The table, the failures and the circumstances.
fn describe(report: &Report) -> String {
    let columns = [
        Column::text("variant").needed(),
        Column::text("shape").needed(),
        Column::number("µs").needed(),
        Column::number("±"),
        Column::number("TFLOP/s"),
        Column::text("95 %"),
        Column::number("GB/s"),
        Column::number("error"),
        Column::number("MHz"),
        Column::text("result").needed(),
    ];
    let rows = report.measurements.iter().map(|measurement| {
        let mut row = vec![by_hand::name(measurement), label(measurement)];
        row.extend(measurement.numbers.as_ref().map_or_else(Default::default, number_cells));
        row.push(measurement.card.sm_clock_mhz.map_or_else(String::new, |mhz| mhz.to_string()));
        row.push(result_cell(measurement.status));
        row
    });
    let mut text = table::of(&columns, rows);
    if !report.peers.is_empty() {
        text += "\n";
        text += &describe_turns(&report.peers);
    }
    let all = report.measurements.iter().chain(report.peers.iter().map(|peer| &peer.measurement));
    for measurement in all.filter(|measurement| measurement.status != Status::Ok) {
        let (shape, Measurement { name, status, message, .. }) = (label(measurement), measurement);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}\n  {}", style(format!("{name} {shape} {}", status.word())).red().bold(), plain(message));
    }
    let TimingPlan { warm_up_ms, measure_ms, rounds, graph, counts } = report.plan;
    let duration = match counts {
        Some(Counts { warm_ups, runs }) => format!("{runs} calls after {warm_ups}"),
        None => format!("{measure_ms} ms after {warm_up_ms} ms"),
    };
    let what = if graph { "graph replays" } else { "launches" };
    let driver = report.driver.as_ref().map_or_else(String::new, |driver| format!(", {driver}"));
    let _ = writeln!(
        text,
        "\n{}: {rounds} rounds of {what}, {duration}, seed {}; {}{driver}",
        count(report.measurements.len(), "measurement"),
        report.seed,
        report.gpu.info,
    );
    text
}

/// Time, its spread, rate, interval, bandwidth and error.
fn number_cells(numbers: &bench::Numbers) -> [String; 6] {
    let [low, high] = numbers.tflops_interval;
    [
        format!("{:.1}", numbers.microseconds.median),
        format!("{:.1}", numbers.microseconds.mad),
        format!("{:.1}", numbers.tflops),
        format!("{low:.1} to {high:.1}"),
        numbers.gbs.map_or_else(String::new, |gbs| format!("{gbs:.0}")),
        format!("{:.1e}", numbers.relative_error),
    ]
}

/// The result, coloured on a terminal.
fn result_cell(status: Status) -> String {
    match status {
        Status::Ok => style(status.word()).green().to_string(),
        _ => style(status.word()).red().bold().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::{Ceiling, Size},
        device::{CardState, GpuFacts, GpuInfo},
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target, Variant},
    };
    use itertools::Itertools;

    const POINT: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(64),
        dtype: Dtype::Bf16,
        causal: true,
        features: Features::NONE,
        target: Target::Sm80,
    };
    fn variant() -> Variant {
        POINT.into()
    }
    fn shape() -> Size {
        Size::new([("batch", 2), ("heads", 4), ("heads_k", 4), ("seqlen_q", 64), ("seqlen_k", 64)])
    }

    fn gpu() -> GpuFacts {
        let info = GpuInfo { name: "Some GPU".into(), compute_capability: 75, cuda_version: "13.0".into() };
        GpuFacts {
            info,
            multiprocessors: 40,
            sm_clock_khz: 1_590_000,
            memory_clock_khz: 0,
            memory_bus_bits: 256,
            l2_bytes: 4 << 20,
            pci_bus_id: String::new(),
        }
    }

    fn report(status: Status) -> Report {
        let mut measurement = Measurement::without(variant(), shape(), status, String::new());
        if status == Status::Ok {
            let microseconds = bench::Summary::of(&[10.0, 11.0, 12.0], 1);
            measurement.numbers = microseconds.map(|microseconds| bench::Numbers {
                microseconds,
                round_microseconds: vec![10.0, 11.0, 12.0],
                launches_a_round: 5,
                tflops: 123.4,
                tflops_interval: [110.0, 130.0],
                kv_gbs: None,
                gbs: None,
                repeated: "launch".into(),
                l2: "warm".into(),
                num_splits: None,
                flops: 1.2e12,
                passed: None,
                relative_error: 0.002,
                round_cards: Vec::new(),
                memory_bytes: Some(4096),
            });
        } else {
            measurement.message = "it faulted".to_owned();
        }
        Report {
            format: bench::FORMAT,
            kgen: "0.0.0",
            date: "2026-11-21T16:43:05Z".into(),
            library: "libkgen.so".into(),
            gpu: gpu(),
            driver: Some("580.95".into()),
            ceiling: Ceiling::of(&gpu()),
            card_before: CardState::default(),
            card_after: CardState::default(),
            plan: TimingPlan { warm_up_ms: 25.0, measure_ms: 100.0, rounds: 20, graph: false, counts: None },
            seed: 1,
            suite: None,
            missing: Vec::new(),
            measurements: vec![measurement],
            peers: Vec::new(),
        }
    }

    #[test]
    fn the_table_shows_time_rate_and_circumstances_and_why_there_are_none() {
        let text = describe(&report(Status::Ok));
        assert!(text.contains("b2 h4 s64") && text.contains("123.4") && text.contains("110.0 to 130.0"), "{text}");
        assert!(text.contains("20 rounds of launches, 100 ms after 25 ms, seed 1; Some GPU"), "{text}");
        let text = describe(&report(Status::Wrong));
        assert!(text.contains("it faulted") && text.contains("wrong"), "{text}");
        let verdict = |status| Outcome { report: report(status), edited: None, interrupted: false }.verdict();
        assert_eq!(verdict(Status::Wrong).expect_err("it failed").kind(), "failed");
        assert!(verdict(Status::Ok).is_ok());
    }

    #[test]
    fn the_document_holds_what_scripts_rely_on() {
        let json = serde_json::to_value(report(Status::Ok)).expect("plain data");
        let keys = json.as_object().expect("an object").keys().sorted().join(" ");
        let expected = "card_after card_before ceiling date driver format gpu kgen library measurements plan seed";
        assert_eq!(keys, expected);
        assert_eq!(json["gpu"]["info"]["name"], "Some GPU");
        assert!(json["ceiling"]["memory_gbs"].is_null(), "the driver does not say");
    }
}
