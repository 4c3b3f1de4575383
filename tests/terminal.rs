//! kgen's output on a terminal: no line is wider than the terminal if it could be broken between words. In a pipe lines
//! stay whole.

use crate::support::bench::{Bench, ONE};
use std::{collections::BTreeSet, process::Command};

/// Runs a command in a pseudo-terminal of this many columns (0: size unknown), and prints its output.
const TERMINAL: &str = "\
import fcntl, os, pty, struct, sys, termios
columns, line = int(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24 if columns else 0, columns, 0, 0))
    os.execvp(line[0], line)
text = b''
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    text += piece
sys.stdout.buffer.write(text)
os.waitpid(child, 0)
";

/// Standard output and standard error of `kgen` on a terminal, without colours.
fn on_terminal(bench: &Bench, columns: usize, args: &[&str]) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL, &columns.to_string(), assert_cmd::cargo::cargo_bin!("kgen").to_str().expect("a path")]);
    python.args(args).current_dir(bench.dir.path()).envs(bench.environment()).env("NO_COLOR", "1").env_remove("COLUMNS");
    let output = python.output().expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
}

/// The lines that are too wide although a word could move to the next.
fn too_wide(text: &str, columns: usize) -> Vec<&str> {
    let could_break = |line: &&str| {
        let line = line.trim();
        let is_quoted =
            line.starts_with('|') || line.starts_with("-->") || line.split_once(" | ").is_some_and(|(n, _)| n.len() < 5);
        line.contains(' ') && !is_quoted
    };
    text.lines().filter(|line| line.chars().count() > columns).filter(could_break).collect()
}

/// Command lines whose results, notes or errors are long.
const LINES: [&[&str]; 10] = [
    &["list", "--target", "blackwell", "--head-dim", "64"],
    &["list", "--plan", "--kind", "fwd", "--head-dim", "192_128", "--target", "sm100"],
    &["list", "--plan", "--features", "window,softcap,alibi,sinks", "--target", "sm80", "--head-dim", "128"],
    &["list", "--head-dim", "64", "--target", "ampre"],
    &["list", "--filter", "hdim == 64 and dtype == bf61 and causal and target == sm80 and plain"],
    &["generate", "--filter", "hdim == 64", "--output", "my.cu"],
    &["generate", "--head-dim", "64", "--dtype", "fp16", "--target", "sm80", "--output", "my.cu"],
    &["build", "-q", ONE],
    &["doctor"],
    &["check", "--device", "emulator", "--head-dim", "64", "--case", "no-such-case-of-any-kernel"],
];

#[test]
fn nothing_is_wider_than_a_terminal_and_the_width_of_an_unknown_one_is_80() {
    let bench = Bench::new();
    for args in LINES {
        for columns in [80, 0] {
            let text = on_terminal(&bench, columns, args);
            assert!(!text.is_empty(), "{args:?} says nothing");
            let wide = too_wide(&text, 80);
            assert!(wide.is_empty(), "kgen {}: {columns} columns\n{}\n---\n{text}", args.join(" "), wide.join("\n"));
        }
    }
}

#[test]
fn in_a_pipe_lines_stay_whole_and_a_terminal_shows_the_same_words() {
    let bench = Bench::new();
    let args = ["generate", "--filter", "hdim == 64", "--output", "my.cu"];
    let output = bench.kgen(&args).output().expect("it runs");
    let piped = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(piped.lines().count() == 1 && piped.chars().count() > 80, "{piped}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let shown = on_terminal(&bench, 80, &args);
    assert!(shown.lines().count() > 1);
    assert_eq!(words(&shown), words(&piped));
    let widths: BTreeSet<bool> = shown.lines().skip(1).map(|line| line.starts_with("       ")).collect();
    assert_eq!(widths, BTreeSet::from([true]), "below the text of `error: `\n{shown}");
}
