//! Verbosity and colours of the whole process, as set by `--quiet`, `--verbose` and `--color`.

use clap::ValueEnum;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Use of colours in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` or `CLICOLOR` disables it.
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

/// True if only results and errors are printed.
pub(super) fn quiet() -> bool {
    QUIET.load(Ordering::SeqCst)
}

/// True if passed variants are listed too.
pub(super) fn verbose() -> bool {
    VERBOSE.load(Ordering::SeqCst)
}
