//! `kgen probe`.

use super::{
    Global,
    bench::signed,
    db::StoreArgs,
    escape::plain,
    show,
    table::{self, Column},
    values::whole,
};
use crate::{
    bench::Status,
    check::DEFAULT_SEED,
    command::{
        self, CommandError, limits,
        probe::{Compared, Outcome, Request},
    },
};
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen probe --out probe.toml         constants of this machine's GPU
  kgen probe --only mma_bf16,exp2     only some of them
  kgen predict flash_fwd_hdim128_bf16_sm90 --gpu probe.toml
                                      predict with what was measured";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only these probes, by name.
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    only: Vec<String>,

    /// Write the constants to this file, which `kgen predict --gpu` takes.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Rounds of a probe, each timed separately.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(signed(limits::ROUNDS)))]
    rounds: u32,

    /// Milliseconds of launches before the first round of a probe.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(signed(limits::WARM_UP_MS)))]
    warm_up_ms: u32,

    /// Milliseconds of all rounds of a probe together.
    #[arg(long, value_name = "MS", default_value_t = 400, value_parser = clap::value_parser!(u32).range(signed(limits::MEASURE_MS)))]
    measure_ms: u32,

    /// Seed of operands and bootstrap samples.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Seconds that a probe may take.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = whole::<u64>(limits::SECONDS))]
    time_limit: u64,

    /// nvcc to use instead of the one in `PATH` or kgen's own.
    #[arg(long, value_name = "PATH")]
    nvcc: Option<PathBuf>,

    /// Never use the network.
    #[arg(long)]
    offline: bool,

    /// Do not add rows to the store.
    #[arg(long, conflicts_with = "db")]
    no_db: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::probe::run`], and [`CommandError::Failed`] after the table.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { only, out, rounds, warm_up_ms, measure_ms, seed, time_limit, nvcc, offline, no_db, store } = args;
    let (record, db, time_limit_s) = (!no_db, store.db, time_limit);
    let request = Request { only, rounds, warm_up_ms, measure_ms, seed, time_limit_s, nvcc, offline, out, record, db };
    let outcome = command::probe::run(&request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || text(&outcome))?;
    outcome.verdict()
}

fn text(outcome: &Outcome) -> String {
    let Outcome { gpu, driver, rated_by, .. } = outcome;
    let driver = driver.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
    let mut text = format!("{}{driver}, {}\n\n", plain(&gpu.info.to_string()), outcome.date);
    let columns = ["constant", "measured", "95 % interval", "unit", "rated", "measured / rated"].map(Column::text);
    text += &table::of(&columns, outcome.constants.iter().map(line));
    for probe in outcome.probes.iter().filter(|probe| probe.status != Status::Ok) {
        // Writing into a string cannot fail.
        writeln!(text, "{}: {}: {}", probe.probe, probe.status.word(), plain(&probe.message)).ok();
    }
    writeln!(text, "\nrated: clocks and bandwidths by the {rated_by}; rates of units by the programming guide").ok();
    text
}

fn line(compared: &Compared) -> Vec<String> {
    let Compared { constant, rated, ratio } = compared;
    let [low, high] = constant.summary.interval;
    vec![
        constant.name.clone(),
        digits(constant.summary.median),
        format!("{} to {}", digits(low), digits(high)),
        constant.unit.word().to_owned(),
        rated.map_or_else(String::new, digits),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
    ]
}

/// Four digits.
fn digits(number: f64) -> String {
    match number {
        n if n < 10.0 => format!("{n:.3}"),
        n if n < 100.0 => format!("{n:.2}"),
        n if n < 1000.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}
