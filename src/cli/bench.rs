//! `kgen bench`: times of kernels on the GPU at hand.

use super::{
    CliError, Format, Global,
    build::output_folder,
    escape::plain,
    select::SelectionArgs,
    table::{self, Column},
    target::{TargetParser, TargetWord},
    ui::{self, Progress},
    workshop::Workshop,
};
use crate::{
    bench::{self, BenchOptions, BenchRequest, Ceiling, Made, Measurement, Observer, Report, Status, Wanted},
    check::DEFAULT_SEED,
    device::{DeviceError, GpuFacts, Nvml, TimingPlan, launchers_in},
    family,
    kernel::{Target, Variant},
    plan,
    toolchain::Cancel,
};
use console::style;
use itertools::Itertools;
use std::{
    fmt::Write,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
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
                                      with all circumstances, to keep";

/// Longest a variant may take, seconds, where nothing is said.
const TIME_LIMIT: u64 = 300;

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

    /// The library of kernels [default: build/lib/libkgen.so, or with `--run-as` the one below build/run-as-TARGET].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Time kernels as `kgen build --run-as` makes them for the GPUs of this target.
    #[arg(long, value_name = "TARGET", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,

    /// Also write the JSON document to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The sizes; every combination of what is listed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Shapes")]
struct ShapeArgs {
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

/// How long, how often, and of what.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
struct TimingArgs {
    /// Rounds; the median, its interval and the spread are taken over them.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Milliseconds of launches before the first round.
    #[arg(long, value_name = "MS", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    warm_up_ms: u32,

    /// Milliseconds of all rounds together.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    measure_ms: u32,

    /// Replay CUDA graphs of many launches, for kernels of a few microseconds, which the host cannot launch fast
    /// enough.
    #[arg(long)]
    graph: bool,

    /// Draws the inputs.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Time limit per variant for all its shapes, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = TIME_LIMIT, value_parser = clap::value_parser!(u64).range(1..=ui::LONGEST_LIMIT))]
    time_limit: u64,
}

/// Reads a size: what a kernel takes fits 31 bits, and what a GPU holds far fewer.
fn size() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1 << 24)
}

/// Reads a side of a matrix: a vector may have more elements than 32 bits count.
fn matrix_side() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=1 << 36)
}

impl ShapeArgs {
    fn wanted(self) -> Wanted {
        let Self { batch, heads, heads_k, seqlen, seqlen_q, seqlen_k, page_size, rows, columns } = self;
        let wide = |list: Vec<u32>| list.into_iter().map(u64::from).collect();
        Wanted::new([
            ("batch", wide(batch)),
            ("heads", wide(heads)),
            ("heads_k", wide(heads_k)),
            ("seqlen", wide(seqlen)),
            ("seqlen_q", wide(seqlen_q)),
            ("seqlen_k", wide(seqlen_k)),
            ("page_size", wide(page_size)),
            ("rows", rows),
            ("columns", columns),
        ])
    }
}

impl TimingArgs {
    fn plan(&self) -> TimingPlan {
        TimingPlan {
            warm_up_ms: self.warm_up_ms.into(),
            measure_ms: self.measure_ms.into(),
            rounds: self.rounds as usize,
            graph: self.graph,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] where a variant could not be timed, after the report; [`CliError`] for what stops all of
/// it.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, shape, timing, library, run_as, out } = args;
    let run_as = run_as.as_ref().map(TargetWord::target).transpose()?;
    let library = library.unwrap_or_else(|| output_folder(Path::new("build"), run_as).join("lib").join("libkgen.so"));
    let cancel = ui::cancel_on_ctrl_c();
    let workshop = Workshop::new(global)?;
    let variants = selection.resolve(&workshop.grid)?;
    let wanted = requests(&variants, &shape.wanted())?;
    let gpu = find_gpu()?;
    if !library.is_file() {
        let flag = run_as.map_or_else(String::new, |target| format!(" --run-as {target}"));
        let missing = format!("there is no `{}` to run on the GPU; `kgen build{flag}` makes it", library.display());
        return Err(CliError::Environment(missing));
    }
    let mut requests = runnable(wanted, &gpu, &library, run_as)?;
    for request in &mut requests {
        request.made = made(&workshop, request.variant, run_as)?;
    }
    let own = std::env::current_exe();
    let options = BenchOptions {
        library: library.clone(),
        plan: timing.plan(),
        seed: timing.seed,
        time_limit: Duration::from_secs(timing.time_limit),
        program: own.map_err(|error| CliError::Environment(format!("cannot find kgen's own executable: {error}")))?,
    };
    let nvml = Nvml::open(&gpu.pci_bus_id);
    let state = || nvml.as_ref().map(Nvml::state).unwrap_or_default();
    let (date, card_before) = (bench::now(), state());
    let progress = Progress::new(global.format, "timing");
    progress.expect(requests.iter().map(|request| request.shapes.len()).sum(), 0);
    let measurements = bench::run(&requests, &options, &Watch { progress, cancel: &cancel });
    let report = Report {
        format: bench::FORMAT,
        kgen: env!("CARGO_PKG_VERSION"),
        date,
        library: library.display().to_string(),
        driver: nvml.as_ref().and_then(Nvml::driver),
        ceiling: Ceiling::of(&gpu),
        gpu,
        card_before,
        card_after: state(),
        plan: options.plan,
        seed: options.seed,
        measurements,
    };
    if let Some(out) = &out {
        keep(&report, out)?;
    }
    match global.format {
        Format::Human => ui::print(&describe(&report))?,
        Format::Json => ui::print_json(&report)?,
    }
    if cancel.requested() {
        return Err(CliError::INTERRUPTED);
    }
    judge(&report.measurements)
}

/// The tile and the text of the kernel that the grid and the templates give for a variant.
fn made(workshop: &Workshop, variant: Variant, run_as: Option<Target>) -> Result<Made, CliError> {
    let plan = workshop.plan_to_run_as(variant, run_as).map_err(CliError::Usage)?;
    let tile = serde_json::to_value(plan.tile()).unwrap_or_default();
    Ok(Made { tile, source: workshop.renderer.kernel(&plan)?.hash })
}

/// The variants that can be timed by themselves, each with its shapes.
///
/// # Errors
/// [`CliError::Usage`] where a variant has no shape.
fn requests(variants: &[Variant], wanted: &Wanted) -> Result<Vec<BenchRequest>, CliError> {
    let timed: Vec<&Variant> = variants.iter().filter(|variant| variant.dtype().is_some()).collect();
    if timed.is_empty() {
        let why = "`fwd_combine` and `prepare_scheduler` have no shape of their own and are not timed by themselves";
        return Err(CliError::Usage(format!("{why}; select another kind with `--kind`")));
    }
    let request = |variant: &Variant| BenchRequest {
        variant: *variant,
        shapes: family::of(variant.kind()).sizes(variant, wanted),
        made: Made::default(),
    };
    let requests: Vec<BenchRequest> = timed.into_iter().map(request).collect();
    if requests.iter().any(|request| request.shapes.is_empty()) {
        let why = "no number of `--heads` is a multiple of one of `--heads-k`; give both, one a multiple of the other";
        return Err(CliError::Usage(why.to_owned()));
    }
    Ok(requests)
}

/// The GPU.
///
/// # Errors
/// [`CliError::Environment`] where there is none.
fn find_gpu() -> Result<GpuFacts, CliError> {
    GpuFacts::probe().map_err(|error| {
        CliError::Environment(match error {
            DeviceError::NoGpu(why) => format!(
                "no GPU: {why}; times are taken on one: run this on a machine with an NVIDIA GPU and its driver \
                 (`kgen check --device emulator` needs none)"
            ),
            other => other.to_string(),
        })
    })
}

/// Those that this GPU runs and the library holds; what is left out is told.
///
/// # Errors
/// [`CliError::Usage`] where nothing is left, [`CliError::Environment`] where the library does not load.
fn runnable(
    requests: Vec<BenchRequest>,
    gpu: &GpuFacts,
    library: &Path,
    run_as: Option<Target>,
) -> Result<Vec<BenchRequest>, CliError> {
    let selected = requests.len();
    let compiled_for = |variant: &Variant| run_as.unwrap_or(variant.target());
    let runs = |request: &BenchRequest| plan::runs_on(compiled_for(&request.variant), gpu.info.compute_capability, true);
    let (run, elsewhere): (Vec<_>, Vec<_>) = requests.into_iter().partition(runs);
    let run_count = run.len();
    if run.is_empty() {
        let targets = elsewhere.iter().map(|request| format!("`{}`", compiled_for(&request.variant))).unique().join(", ");
        return Err(CliError::Usage(format!(
            "{} selected, for {targets}, and none runs on {}; choose another `--target`",
            ui::count(selected, "variant"),
            gpu.info
        )));
    }
    let names: Vec<String> = run.iter().map(|request| request.variant.name()).collect();
    // Loaded by a path, never searched for by a bare name.
    let path = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
    let held =
        launchers_in(&path, &names).map_err(|error| CliError::Environment(format!("{error}; `kgen build` makes another")))?;
    let held: Vec<BenchRequest> = run.into_iter().zip(held).filter_map(|(request, held)| held.then_some(request)).collect();
    if held.is_empty() {
        return Err(CliError::Usage(format!(
            "`{}` holds none of the {} that were selected and run on this GPU, such as `{}`; `kgen build` with the same selection makes them",
            library.display(),
            ui::count(run_count, "variant"),
            names[0]
        )));
    }
    if held.len() < selected {
        let (elsewhere, missing) = (elsewhere.len(), run_count - held.len());
        ui::note(&format!(
            "of {selected} variants selected, {elsewhere} do not run on this GPU and {missing} are not in the library"
        ));
    }
    Ok(held)
}

/// Writes the document to a file of its own.
fn keep(report: &Report, out: &Path) -> Result<(), CliError> {
    // Writing into a pipe would wait for a reader; a terminal or a disc's device is the user's to choose.
    let pipe = fs::metadata(out).is_ok_and(|there| there.file_type().is_fifo());
    let text = if pipe {
        Err("it is a pipe, and no file".to_owned())
    } else {
        serde_json::to_string_pretty(report).map_err(|error| error.to_string())
    };
    let written = text.and_then(|text| fs::write(out, text + "\n").map_err(|error| error.to_string()));
    written
        .map_err(|error| CliError::Usage(format!("cannot write `{}`: {error}; choose another place with `--out`", out.display())))
}

/// Exit code 1 unless there are numbers for all.
fn judge(measurements: &[Measurement]) -> Result<(), CliError> {
    match measurements.iter().filter(|measurement| measurement.status != Status::Ok).count() {
        0 => Ok(()),
        failed => {
            let of = ui::count(measurements.len(), "measurement");
            Err(CliError::VariantFailed(format!("{failed} of {of} failed")))
        }
    }
}

/// Shows progress and hears of Ctrl-C.
struct Watch<'a> {
    progress: Progress,
    cancel: &'a Cancel,
}

impl Observer for Watch<'_> {
    fn started(&self, variant: &str) {
        self.progress.start(variant);
    }

    fn measured(&self, measurement: &Measurement) {
        let line = if let Some(numbers) = &measurement.numbers {
            format!("{} {:.1} µs, {}", label(measurement), numbers.microseconds.median, rate(numbers))
        } else {
            let first = plain(measurement.message.lines().next().unwrap_or_default());
            format!("{} {} {first}", label(measurement), style(measurement.status.word()).red().for_stderr())
        };
        self.progress.finish(&measurement.name, Some(&line), measurement.status != Status::Ok);
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

/// The size of a measurement in its family's short form.
fn label(measurement: &Measurement) -> String {
    family::of(measurement.variant.kind()).label(&measurement.shape)
}

/// `512 TFLOP/s`, or `2617 GB/s` of decoding.
fn rate(numbers: &bench::Numbers) -> String {
    numbers.gbs.map_or_else(|| format!("{:.0} TFLOP/s", numbers.tflops), |gbs| format!("{gbs:.0} GB/s"))
}

/// The table, what failed, and under what circumstances.
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
        let mut row = vec![measurement.name.clone(), label(measurement)];
        row.extend(measurement.numbers.as_ref().map_or_else(Default::default, number_cells));
        row.push(measurement.card.sm_clock_mhz.map_or_else(String::new, |mhz| mhz.to_string()));
        row.push(result_cell(measurement.status));
        row
    });
    let mut text = table::of(&columns, rows);
    let failed = report.measurements.iter().filter(|measurement| measurement.status != Status::Ok);
    for measurement in failed {
        let (shape, Measurement { name, status, message, .. }) = (label(measurement), measurement);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}\n  {}", style(format!("{name} {shape} {}", status.word())).red().bold(), plain(message));
    }
    let TimingPlan { warm_up_ms, measure_ms, rounds, graph } = report.plan;
    let what = if graph { "graph replays" } else { "launches" };
    let driver = report.driver.as_ref().map_or_else(String::new, |driver| format!(", {driver}"));
    let _ = writeln!(
        text,
        "\n{}: {rounds} rounds of {what}, {measure_ms} ms after {warm_up_ms} ms, seed {}; {}{driver}",
        ui::count(report.measurements.len(), "measurement"),
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
        bench::Size,
        device::{CardState, GpuInfo},
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim},
    };

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

    #[test]
    fn what_runs_on_another_gpu_or_is_not_in_the_library_is_bad_usage() {
        let requests = || vec![BenchRequest { variant: variant(), shapes: vec![shape()], made: Made::default() }];
        let error = runnable(requests(), &gpu(), Path::new("x.so"), None).expect_err("sm80 is newer");
        assert!(error.code() == 2 && error.to_string().contains("none runs on Some GPU (compute capability 7.5"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("empty.c"), folder.path().join("empty.so"));
        fs::write(&source, "int nothing;\n").expect("written");
        let status = std::process::Command::new("cc").args(["-shared", "-o"]).args([&library, &source]).status();
        assert!(status.is_ok_and(|status| status.success()));
        let mut newer = gpu();
        newer.info.compute_capability = 90;
        let error = runnable(requests(), &newer, &library, None).expect_err("an empty library");
        assert!(error.code() == 2 && error.to_string().contains("holds none of the 1 variant"), "{error}");
        let error = runnable(requests(), &newer, &source, None).expect_err("no library at all");
        assert_eq!(error.code(), 3, "{error}");
    }

    #[test]
    fn kernels_without_a_shape_are_not_timed_and_heads_that_fit_nothing_are_refused() {
        let helper = Variant::from(Point { kind: Kind::FwdCombine, head_dim: HeadDim::equal(0), causal: false, ..POINT });
        assert_eq!(requests(&[helper], &Wanted::default()).expect_err("nothing").code(), 2);
        assert_eq!(requests(&[helper, variant()], &Wanted::default()).expect("one").len(), 1);
        let uneven = Wanted::new([("heads", vec![8]), ("heads_k", vec![3])]);
        assert_eq!(requests(&[variant()], &uneven).expect_err("8 / 3").code(), 2);
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
            plan: TimingPlan { warm_up_ms: 25.0, measure_ms: 100.0, rounds: 20, graph: false },
            seed: 1,
            measurements: vec![measurement],
        }
    }

    #[test]
    fn the_table_shows_time_rate_and_circumstances_and_why_there_are_none() {
        let text = describe(&report(Status::Ok));
        assert!(text.contains("b2 h4 s64") && text.contains("123.4") && text.contains("110.0 to 130.0"), "{text}");
        assert!(text.contains("20 rounds of launches, 100 ms after 25 ms, seed 1; Some GPU"), "{text}");
        let text = describe(&report(Status::Wrong));
        assert!(text.contains("it faulted") && text.contains("wrong"), "{text}");
        assert_eq!(judge(&report(Status::Wrong).measurements).expect_err("it failed").code(), 1);
        assert!(judge(&report(Status::Ok).measurements).is_ok());
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
