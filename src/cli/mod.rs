//! The command line: arguments to requests, and outcomes to text, JSON and exit codes. One file per command. Only this
//! module prints; it computes nothing.

mod bench;
mod build;
mod build_all;
mod cache;
mod check;
mod completions;
mod config;
mod console;
mod db;
mod diff;
mod doctor;
mod emit;
mod error;
mod escape;
mod estimate;
mod explain;
mod expression;
mod fuzz;
mod generate;
mod interrupt;
mod junit;
mod list;
mod man;
mod names;
mod pack;
mod predict;
mod probe;
mod profile;
mod progress;
mod report;
mod score;
mod select;
mod table;
mod toolchain;
mod tune;
mod ui;
mod values;
mod vendor;
mod verbosity;
mod wheel;
mod worker;
mod wrap;

pub use error::report;
pub use verbosity::Color;

use self::{console::Console, error::ErrorDocument};
use crate::command::{CommandError, Context, config::Config};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::{any::TypeId, ffi::OsString, num::NonZeroUsize, path::PathBuf};

/// Environment variable with the path of the grid, if `--variants` is absent.
const VARIANTS_VARIABLE: &str = "KGEN_VARIANTS";

/// Environment variable with the path of the templates, if `--templates` is absent.
const TEMPLATES_VARIABLE: &str = "KGEN_TEMPLATES";

/// Generates, compiles and proves CUDA Flash Attention kernels.
#[derive(Debug, Parser)]
#[command(name = "kgen", version, max_term_width = 100, propagate_version = true)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Cli {
    /// Options accepted before or after any command.
    #[command(flatten)]
    pub global: Global,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line; ends the process if it cannot be parsed or requests help. An empty environment variable
    /// counts as unset. If the command line requests JSON, its error message is JSON too.
    pub fn from_environment() -> Self {
        let empty = |variable: &str| std::env::var_os(variable).is_some_and(|value| value.is_empty());
        let mut command = with_negative_numbers(Self::command());
        for (argument, variable) in
            [("variants", VARIANTS_VARIABLE), ("templates", TEMPLATES_VARIABLE), ("config", config::VARIABLE)]
        {
            if empty(variable) {
                command = command.mut_arg(argument, |argument| argument.env(None));
            }
        }
        let line: Vec<OsString> = std::env::args_os().collect();
        let (settings, left_out) = config::find(&line).unwrap_or_else(|error| {
            let format = if json_is_asked_for(line.iter().cloned()) { Format::Json } else { Format::Human };
            report(&error, format);
            std::process::exit(error::code(&error).into())
        });
        let command = settings.iter().fold(command, config::apply);
        let parsed = command.try_get_matches_from(&line).and_then(|matches| Self::from_arg_matches(&matches));
        let mut cli = parsed.unwrap_or_else(|error| {
            if error.use_stderr() && json_is_asked_for(line.into_iter()) {
                let text = error.render().to_string();
                let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
                // The message also goes to standard error.
                ui::print_json(&ErrorDocument::of(&CommandError::Usage(message))).ok();
            }
            if error.use_stderr() {
                let text = error.render();
                let text = if ::console::colors_enabled_stderr() { text.ansi().to_string() } else { text.to_string() };
                ui::tell(format_args!("{}", text.trim_end()));
                std::process::exit(error.exit_code());
            }
            error.exit()
        });
        (cli.global.settings, cli.global.left_out) = (settings, left_out);
        cli
    }
}

/// A command whose flags of numbers are given negative ones too: their parsers answer with the range, while clap would
/// take `-5` for an unknown flag.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let numbers = [TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>(), TypeId::of::<NonZeroUsize>()];
    let of_number = |argument: &clap::Arg| numbers.iter().any(|number| argument.get_value_parser().type_id() == *number);
    let taking = |argument: clap::Arg| if of_number(&argument) { argument.allow_negative_numbers(true) } else { argument };
    command.mut_args(taking).mut_subcommands(with_negative_numbers)
}

/// True if a command line that could not be parsed requests JSON.
fn json_is_asked_for(line: impl Iterator<Item = OsString>) -> bool {
    let line: Vec<OsString> = line.skip(1).take_while(|argument| argument != "--").collect();
    line.iter().any(|argument| argument == "--format=json")
        || line.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json")
}

/// Options of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Every command")]
pub struct Global {
    /// Grid to use instead of the built-in one.
    #[arg(long, global = true, value_name = "FILE", env = VARIANTS_VARIABLE)]
    pub variants: Option<PathBuf>,

    /// Folder of templates to use instead of the built-in ones.
    #[arg(long, global = true, value_name = "DIR", env = TEMPLATES_VARIABLE)]
    pub templates: Option<PathBuf>,

    /// Format of results.
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub format: Format,

    /// Print only results and errors, no progress, and no notes except on files that you edited.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Also list everything that passed.
    #[arg(long, short, global = true)]
    pub verbose: bool,

    /// When output is coloured.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    pub color: Color,

    /// Defaults of flags, instead of `kgen.toml` in the current folder or the nearest above it.
    #[arg(long, global = true, value_name = "FILE", env = config::VARIABLE)]
    #[arg(long_help = concat!("Defaults of flags, instead of `kgen.toml` in the current folder or the nearest above it; its keys: ", page!("config.md")))]
    pub config: Option<PathBuf>,

    /// Print help; `-h` prints a summary.
    // clap's own help flag would be listed before the flags of the command.
    #[arg(long, short, global = true, action = ArgAction::Help)]
    help: Option<bool>,

    /// Print version.
    #[arg(long, short = 'V', global = true, action = ArgAction::Version)]
    version: Option<bool>,

    /// The `kgen.toml` in effect.
    #[arg(skip)]
    settings: Option<Config>,

    /// A `kgen.toml` that was skipped because it belongs to another user.
    #[arg(skip)]
    left_out: Option<PathBuf>,
}

impl Global {
    /// The settings that commands share.
    fn context(&self) -> Context {
        Context {
            variants: self.variants.clone(),
            templates: self.templates.clone(),
            config: self.settings.clone(),
            ..Context::default()
        }
    }

    /// The settings of a command that handles Ctrl-C.
    fn interruptible(&self) -> Context {
        Context { cancel: interrupt::cancel_on_ctrl_c(), ..self.context() }
    }

    /// The observer that shows the progress of a command.
    fn console(&self) -> Console {
        Console::new(self.format)
    }
}

/// Prints an outcome: as JSON with [`Format::Json`], otherwise as `text`.
///
/// # Errors
/// [`CommandError::Environment`] if standard output cannot be written.
fn show(global: &Global, outcome: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CommandError> {
    match global.format {
        Format::Human => ui::print(&text()),
        Format::Json => ui::print_json(outcome),
    }
}

/// Output style of a command's result on standard output. Progress and messages go to standard error in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences.
    Human,
    /// One JSON document.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the variants of a selection, without building anything.
    List(list::Args),
    /// Render kernels to files.
    Generate(generate::Args),
    /// Render and compile kernels.
    Build(build::Args),
    /// Write the command lines of a build as a file for ninja, make or another scheduler.
    Emit(emit::Args),
    /// Render, compile, link and smoke-test the whole grid.
    BuildAll(build_all::Args),
    /// Put kernels as sources into another project, and keep them up to date there.
    Vendor(vendor::Args),
    /// Build kernels into a Python package with FlashAttention's functions.
    Wheel(wheel::Args),
    /// Run kernels against a float64 reference, on a GPU or on the emulator.
    Check(check::Args),
    /// Time kernels on the GPU of this machine.
    Bench(bench::Args),
    /// Search for the fastest tile of kernels: compile, prove and time candidates.
    Tune(tune::Args),
    /// Show where kernels lose time: bank conflicts and uncoalesced accesses by line, or counters of a GPU.
    Profile(profile::Args),
    /// Measure what the GPU of this machine gives: memories, latencies, tensor cores and other units.
    Probe(probe::Args),
    /// Query, export, merge or compare stored measurements.
    Db(db::Args),
    /// Make a page with pictures and tables of stored measurements.
    Report(report::Args),
    /// Show why a kernel is as it is: its tile with reasons, its neighbours, its limits and its measured times.
    Explain(explain::Args),
    /// Predict the time of kernels on a card, without a GPU.
    Predict(predict::Args),
    /// Show how two kernels differ: plan, source and machine code.
    Diff(diff::Args),
    /// Show the code that kgen generates for a user-defined score or mask.
    Expression(expression::Args),
    /// Install, show or remove the CUDA compiler kgen provisions for itself.
    Toolchain(toolchain::Args),
    /// Show the size of kgen's cache, or remove entries that have not been used for a while.
    Cache(cache::Args),
    /// Report the tools that kgen finds on this machine, and remedies for missing ones.
    Doctor(doctor::Args),
    /// Print a completion script for a shell.
    Completions(completions::Args),
    /// Print man pages, or write them into a folder.
    Man(man::Args),
    /// Run one check or timing in an isolated process (used by `check` and `bench`).
    #[command(name = "__worker", hide = true)]
    Worker(worker::Args),
    /// Pack a kgen binary as a wheel (used by scripts/release.sh).
    #[command(name = "__pack", hide = true)]
    Pack(pack::Args),
}

/// Runs the parsed command.
///
/// # Errors
/// [`CommandError`], which [`report`] prints.
pub fn run(cli: Cli) -> Result<(), CommandError> {
    let Cli { global, command } = cli;
    verbosity::set(global.quiet, global.verbose, global.color);
    if let Some(path) = global.left_out.as_ref().filter(|_| !matches!(command, Command::Worker(_))) {
        let path = path.display();
        ui::note(&format!("`{path}` belongs to another user and is left out; `--config` takes it all the same"));
    }
    match command {
        Command::List(args) => list::run(&global, args),
        Command::Generate(args) => generate::run(&global, args),
        Command::Build(args) => build::run(&global, args),
        Command::Emit(args) => emit::run(&global, args),
        Command::BuildAll(args) => build_all::run(&global, args),
        Command::Vendor(args) => vendor::run(&global, args),
        Command::Wheel(args) => wheel::run(&global, args),
        Command::Check(args) => check::run(&global, args),
        Command::Bench(args) => bench::run(&global, args),
        Command::Tune(args) => tune::run(&global, args),
        Command::Profile(args) => profile::run(&global, args),
        Command::Probe(args) => probe::run(&global, args),
        Command::Db(args) => db::run(&global, args),
        Command::Report(args) => report::run(&global, args),
        Command::Explain(args) => explain::run(&global, args),
        Command::Predict(args) => predict::run(&global, args),
        Command::Diff(args) => diff::run(&global, args),
        Command::Expression(args) => expression::run(&global, args),
        Command::Toolchain(args) => toolchain::run(&global, args),
        Command::Cache(args) => cache::run(&global, args),
        Command::Doctor(args) => doctor::run(&global, args),
        Command::Completions(args) => completions::run(&global, args),
        Command::Man(args) => man::run(&global, args),
        Command::Worker(args) => worker::run(&global, args),
        Command::Pack(args) => pack::run(&global, args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_read_may_ask_for_json_all_the_same() {
        let asks = |line: &[&str]| json_is_asked_for(line.iter().map(OsString::from));
        assert!(asks(&["kgen", "list", "--format", "json", "--no-such"]) && asks(&["kgen", "--format=json"]));
        assert!(
            !asks(&["kgen", "--format", "human", "json"]) && !asks(&["kgen", "--", "--format=json"]) && !asks(&["--format=json"])
        );
    }

    #[test]
    fn a_commands_own_flags_come_before_those_of_every_command() {
        let mut root = Cli::command();
        root.build();
        for command in root.get_subcommands_mut().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
            let help = command.render_help().to_string();
            let place = |heading: &str| help.find(&format!("\n{heading}:\n"));
            let of_all = place("Every command").unwrap_or_else(|| panic!("{help}"));
            for heading in ["Options", "Selection", "Build", "Check", "Arguments"] {
                assert!(place(heading).is_none_or(|own| own < of_all), "`{heading}` comes late\n{help}");
            }
            let last = ["--config", "--help", "--version"].map(|flag| help.find(flag).unwrap_or_else(|| panic!("{help}")));
            assert!(last.is_sorted() && of_all < last[0], "`-h` and `-V` come last\n{help}");
        }
    }

    #[test]
    fn no_two_flags_of_a_command_are_alike() {
        with_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn a_negative_number_is_answered_with_the_range_and_not_taken_for_a_flag() {
        let predict = ["predict", "flash_fwd_hdim128_bf16_sm90", "--gpu", "h100"];
        for line in [
            &[&predict[..], &["--seqlen", "-5"]].concat()[..],
            &["explain", "--call", "--seqlen-q", "-3"],
            &["db", "query", "--limit", "-1"],
            &["bench", "--time-limit", "-1"],
            &["bench", "--rows", "-1"],
            &["tune", "--budget", "-1"],
            &["tune", "--jobs", "-1"],
            &["check", "--fuzz", "-2"],
            &["cache", "prune", "--days", "-1"],
            &["check", "--seed", "-1"],
        ] {
            let line = [&["kgen"], line].concat();
            let error = with_negative_numbers(Cli::command()).try_get_matches_from(&line).expect_err("out of range").to_string();
            let said = ["is not in ", "from 0 on", "from 1 on"].iter().any(|said| error.contains(said));
            assert!(said && error.contains("invalid value"), "{line:?}: {error}");
        }
        // A flag behind a flag that lacks its number is none.
        let line = ["kgen", "db", "query", "--limit", "--gpu", "h100"];
        let error = with_negative_numbers(Cli::command()).try_get_matches_from(line).expect_err("no number").to_string();
        assert!(error.contains("a value is required for '--limit <N>'"), "{error}");
    }

    #[test]
    fn every_command_has_examples_that_fit_a_terminal_of_80_columns() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.starts_with("Examples:\n  kgen "), "`{}` has no examples", command.get_name());
            for line in examples.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
