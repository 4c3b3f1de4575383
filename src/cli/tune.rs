//! `kgen tune`.

use super::{
    Global,
    bench::{ShapeArgs, signed},
    db::StoreArgs,
    escape::plain,
    select::SelectionArgs,
    show,
    table::{self, Column},
    values::{at_least_one, whole},
};
use crate::{
    check::DEFAULT_SEED,
    command::{
        self, CommandError, limits,
        tune::{Ladder, Measured, Outcome, Ranked, Request, Search, Shard, Step, Tile},
    },
    family,
    lab::tune::Ratio,
    text::count,
};
use std::{fmt::Write, num::NonZeroUsize, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen tune flash_fwd_hdim128_bf16_sm90 --write tiles.toml
                                      the fastest tile of a kernel
  kgen tune --kind fwd --dtype bf16 --target sm90 --shard 2/8 --db 2.db
                                      one of eight jobs; `kgen db merge` joins
  kgen tune --kind fwd --target sm90 --gpu h200 --dry-run
                                      what the model would try first
  kgen tune flash_fwd_hdim128_bf16_sm90 --replay rows.db --quality
                                      in a store, without a GPU
  kgen tune flash_fwd_hdim128_bf16_sm90 --ladder --seqlen 2048,8192
                                      the gain of each choice of its tile";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Measure what each choice of the tile gains, in place of a search: the kernel without it, in turns with the
    /// kernel itself.
    #[arg(long, help_heading = "Search", conflicts_with_all = ["budget", "held_out", "replay", "write"])]
    ladder: bool,

    #[command(flatten)]
    timing: TimingArgs,

    #[command(flatten)]
    store: StoreArgs,
}

/// Flags of searches, which `--dry-run` has no use for.
const IGNORED_BY_DRY_RUN: [&str; 15] = [
    "replay",
    "write",
    "quality",
    "ladder",
    "held_out",
    "budget_s",
    "prove_on_emulator",
    "build_dir",
    "jobs",
    "nvcc",
    "offline",
    "rounds",
    "warm_up_ms",
    "measure_ms",
    "seed",
];

/// Limits, sources and results of the search.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Search")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct SearchArgs {
    /// Most tiles of a kernel that are compiled, with the default.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(signed(limits::CANDIDATES)))]
    budget: u32,

    /// Most seconds of a kernel's search: compiling, proving and timing.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = whole::<u64>(limits::SECONDS))]
    budget_s: u64,

    /// Compare tiles at the sizes of a suite, as `kgen bench --list-suites` lists them.
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,

    /// Lengths that confirm a winner [default: lengths between the tuned ones].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(signed(limits::SIZE)))]
    held_out: Vec<u32>,

    /// Card that times are predicted for [default: that of this machine, or of the store].
    #[arg(long, value_name = "CARD")]
    gpu: Option<String>,

    /// Print the tiles in the order of their predicted times, and measure nothing; with `--gpu`, needs no GPU.
    #[arg(long, conflicts_with_all = IGNORED_BY_DRY_RUN)]
    dry_run: bool,

    /// Read the rows of this store in place of measuring; needs no GPU and no compiler.
    #[arg(long, value_name = "FILE", conflicts_with = "db")]
    replay: Option<PathBuf>,

    /// Compare each winner with the fastest tile of the store.
    #[arg(long, requires = "replay")]
    quality: bool,

    /// Only variant I and every Nth after it, for job arrays.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Shard>,

    /// Write confirmed winners to this file, as entries of variants.toml.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Parallel compilers [default: one per core].
    #[arg(long, short, value_name = "N", value_parser = at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// nvcc to use instead of the one in `PATH` or kgen's own.
    #[arg(long, value_name = "FILE")]
    nvcc: Option<PathBuf>,

    /// Never use the network.
    #[arg(long)]
    offline: bool,

    /// Prove candidates on the emulator, which also finds races, in place of the GPU; takes longer.
    #[arg(long)]
    prove_on_emulator: bool,

    /// Folder for the candidates' libraries.
    #[arg(long, value_name = "DIR", default_value = "build/tune")]
    build_dir: PathBuf,
}

/// Duration of a measurement, which each pass repeats in a new process.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
struct TimingArgs {
    /// Rounds of a measurement.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(signed(limits::ROUNDS)))]
    rounds: u32,

    /// Milliseconds of launches before the first round.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(signed(limits::WARM_UP_MS)))]
    warm_up_ms: u32,

    /// Milliseconds of all rounds of a measurement together.
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(signed(limits::MEASURE_MS)))]
    measure_ms: u32,

    /// Seed of inputs and bootstrap samples.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,
}

/// Parses `2/8`.
fn shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((index, of)) if (1..=of).contains(&index) => Ok(Shard { index, of }),
        _ => Err("write `I/N` with I from 1 to N, such as `2/8`".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::tune::run`], and those of its verdict after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, shape, search, ladder, timing, store } = args;
    let SearchArgs {
        budget,
        budget_s,
        suite,
        held_out,
        gpu,
        dry_run,
        replay,
        quality,
        shard,
        write,
        jobs,
        nvcc,
        offline,
        prove_on_emulator,
        build_dir,
    } = search;
    let TimingArgs { rounds, warm_up_ms, measure_ms, seed } = timing;
    let (selection, shape, db) = (selection.into(), shape.into(), store.db);
    let request = Request {
        selection,
        shape,
        suite,
        held_out,
        budget,
        budget_s,
        gpu,
        replay,
        shard,
        quality,
        ladder,
        write,
        rounds,
        warm_up_ms,
        measure_ms,
        seed,
        jobs,
        nvcc,
        offline,
        prove_on_emulator,
        build_dir,
        db,
    };
    if dry_run {
        let ranking = command::tune::rank(&request, &global.interruptible(), &global.console())?;
        return show(global, &ranking, || ranking.kernels.iter().map(|kernel| of_ranked(kernel, &ranking.gpu) + "\n").collect());
    }
    let outcome = command::tune::run(&request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || describe(&outcome, request.write.is_some()))?;
    outcome.verdict()
}

/// The tiles of a kernel by their predicted times.
fn of_ranked(kernel: &Ranked, gpu: &str) -> String {
    let label = |size| family::of(kernel.variant.kind()).label(size);
    let sizes = kernel.sizes.iter().map(label).collect::<Vec<_>>().join(", ");
    let columns = [
        Column::text("tile").needed(),
        Column::number("predicted time by default's").needed(),
        Column::number("registers"),
        Column::number("shared, KiB"),
    ];
    let line = |tile: &Tile| {
        vec![
            tile.changes.clone(),
            format!("{:.3}", tile.predicted),
            tile.registers.to_string(),
            format!("{:.0}", f64::from(tile.shared_memory_bytes) / 1024.0),
        ]
    };
    let tiles = table::of(&columns, kernel.tiles.iter().map(line));
    format!("{} on {gpu}\n{tiles}{} at {sizes}\n", kernel.name, count(kernel.candidates, "tile"))
}

/// The searches, and what was written.
fn describe(outcome: &Outcome, writes: bool) -> String {
    let of_searches = outcome.searches.iter().map(|search| of_search(search, &outcome.gpu) + "\n");
    let of_ladders = outcome.ladders.iter().map(|ladder| of_ladder(ladder, &outcome.gpu) + "\n");
    let mut text: String = of_searches.chain(of_ladders).collect();
    if writes {
        // Writing into a string cannot fail.
        writeln!(text, "{} written", count(outcome.written, "tile")).ok();
    }
    text
}

fn of_search(search: &Search, gpu: &str) -> String {
    let mut text = format!("{} on {gpu}\n", search.name);
    if let Some(failure) = &search.failure {
        // Writing into a string cannot fail, here and below.
        writeln!(text, "the default tile cannot be timed: {}: {}", search.status, plain(failure)).ok();
        return text;
    }
    let columns = [
        Column::text("tile").needed(),
        Column::number("time by default's").needed(),
        Column::text("95 %"),
        Column::number("predicted"),
        Column::number("passes"),
        Column::number("registers"),
        Column::number("shared, KiB"),
        Column::text("result").needed(),
    ];
    let winner = search.winner.as_ref().map_or("", |winner| winner.changes.as_str());
    text += &table::of(&columns, search.measured.iter().map(|measured| line(measured, winner)));
    for failed in &search.failed {
        writeln!(text, "{}: {}: {}", failed.changes, failed.status, plain(&failed.message)).ok();
    }
    let label = |size| family::of(search.variant.kind()).label(size);
    let sizes = search.tuned.iter().map(label).collect::<Vec<_>>().join(", ");
    writeln!(text, "at {sizes}; ties within {:.1} %", 100.0 * search.floor).ok();
    if let Some(why) = &search.truncated {
        let what =
            if search.cut == 0 { "fewer passes".to_owned() } else { format!("{} not measured", count(search.cut, "tile")) };
        writeln!(text, "truncated: {what}, because {why}").ok();
    }
    match &search.confirmation {
        None => writeln!(text, "the default stays").ok(),
        Some(confirmation) => {
            let ratio = confirmation.ratio.map_or_else(|| "not timed".to_owned(), words);
            let sizes = search.held_out.iter().map(label).collect::<Vec<_>>().join(", ");
            let (verdict, why) = (if confirmation.confirmed { "confirmed" } else { "not confirmed" }, &confirmation.message);
            let why = if why.is_empty() { String::new() } else { format!("; {why}") };
            writeln!(text, "winner: {winner}; {verdict} at {sizes}: {ratio}{why}").ok()
        }
    };
    if let Some(quality) = &search.quality {
        let (regret, flips) = (100.0 * quality.regret, 100.0 * quality.flips);
        let top = if quality.top_1 { "the fastest itself".to_owned() } else { format!("the fastest is {}", quality.fastest) };
        writeln!(text, "regret {regret:.2} % among {} measured tiles: {top}", quality.known).ok();
        let (outside, of) = (100.0 * quality.flips_outside_ties, quality.resampled);
        writeln!(text, "another winner in {flips:.0} % of {of} searches over resampled rounds, beyond a tie in {outside:.0} %")
            .ok();
    }
    text
}

fn of_ladder(ladder: &Ladder, gpu: &str) -> String {
    let mut text = format!("{} on {gpu}\n", ladder.name);
    if let Some(failure) = &ladder.failure {
        // Writing into a string cannot fail, here and below.
        writeln!(text, "the default tile cannot be timed: {failure}").ok();
        return text;
    }
    let columns = [
        Column::text("taken back").needed(),
        Column::number("time without it").needed(),
        Column::text("95 %"),
        Column::number("predicted"),
        Column::number("passes"),
        Column::number("registers"),
        Column::number("shared, KiB"),
        Column::text("result").needed(),
    ];
    let (timed, failed): (Vec<&Step>, Vec<&Step>) = ladder.steps.iter().partition(|step| step.time.is_some());
    text += &table::of(&columns, timed.into_iter().filter_map(|step| step_line(step, ladder.floor)));
    for step in failed {
        writeln!(text, "{}: {}: {}", step.switch.change(), step.status, step.message).ok();
    }
    let sizes = ladder.sizes.iter().map(|size| family::of(ladder.variant.kind()).label(size)).collect::<Vec<_>>().join(", ");
    writeln!(text, "by the time with it, at {sizes}; ties within {:.1} %", 100.0 * ladder.floor).ok();
    if let Some(why) = &ladder.truncated {
        writeln!(text, "truncated: {why}").ok();
    }
    text
}

fn step_line(step: &Step, floor: f64) -> Option<Vec<String>> {
    let Step { switch, time, predicted, registers, shared_memory_bytes, .. } = step;
    let time = (*time)?;
    let [low, high] = time.interval;
    let result = match time.mean {
        _ if (low <= 1.0 && high >= 1.0) || time.mean.ln().abs() <= floor.ln_1p() => "tie",
        mean if mean > 1.0 => "helps",
        _ => "hurts",
    };
    Some(vec![
        switch.change(),
        format!("{:.3}", time.mean),
        format!("{low:.3} to {high:.3}"),
        predicted.map_or_else(String::new, |predicted| format!("{predicted:.3}")),
        time.passes.to_string(),
        registers.map_or_else(String::new, |registers| registers.to_string()),
        shared_memory_bytes.map_or_else(String::new, |bytes| format!("{:.0}", f64::from(bytes) / 1024.0)),
        result.to_owned(),
    ])
}

fn line(measured: &Measured, winner: &str) -> Vec<String> {
    let standing = &measured.standing;
    let result = match (measured.changes == winner, standing.tied) {
        (true, _) => "winner",
        (false, true) => "tie",
        (false, false) => "",
    };
    let [low, high] = standing.to_default.interval;
    vec![
        measured.changes.clone(),
        format!("{:.3}", standing.to_default.mean),
        format!("{low:.3} to {high:.3}"),
        format!("{:.3}", measured.predicted),
        standing.to_default.passes.to_string(),
        standing.registers.to_string(),
        format!("{:.0}", f64::from(measured.shared_memory_bytes) / 1024.0),
        result.to_owned(),
    ]
}

/// `0.912 (0.905 to 0.921) of the default's time`.
fn words(ratio: Ratio) -> String {
    let [low, high] = ratio.interval;
    format!("{:.3} ({low:.3} to {high:.3}) of the default's time", ratio.mean)
}
