//! How much kgen says, and whether in colour: what `--quiet`, `--verbose` and `--color` set for the whole process.

use clap::ValueEnum;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` or `CLICOLOR` says otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Sets the verbosity and the colours of this process.
pub(super) fn set(quiet: bool, verbose: bool, color: Color) {
    QUIET.store(quiet, Ordering::SeqCst);
    VERBOSE.store(verbose, Ordering::SeqCst);
    if color != Color::Auto {
        console::set_colors_enabled(color == Color::Always);
        console::set_colors_enabled_stderr(color == Color::Always);
    }
}

/// Whether only results and errors are printed.
pub(super) fn quiet() -> bool {
    QUIET.load(Ordering::SeqCst)
}

/// Whether everything is listed that passed.
pub(super) fn verbose() -> bool {
    VERBOSE.load(Ordering::SeqCst)
}
