//! Short fuzzers: random command lines, grids and filters never panic, and a kill at any time leaves no partial file.
//! Each test draws from a seed and runs for seconds; `KGEN_FUZZ=N` multiplies the number of inputs by N and
//! `KGEN_FUZZ_SEED` sets the seed (`scripts/fuzz.sh`).

use kgen::{
    expression::{Declared, Expr, Goal, List},
    grid::{Filter, Grid, Selection},
    kernel::Variant,
    plan::Plan,
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// `few`, times the factor in `KGEN_FUZZ`.
fn iterations(few: u64) -> u64 {
    few * setting("KGEN_FUZZ").unwrap_or(1)
}

fn random(test: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(setting("KGEN_FUZZ_SEED").unwrap_or(1).wrapping_mul(1000) + test)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// kgen isolated from this machine: no compiler, no pip, no GPU, an empty cache.
fn kgen(place: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.env_clear().env("PATH", place.join("nothing")).env("XDG_CACHE_HOME", place.join("cache")).env("HOME", place);
    command.current_dir(place).stdin(Stdio::null());
    command
}

/// Words of command lines: valid ones, invalid ones, and limits of numeric ranges.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "list", "generate", "build", "build-all", "check", "bench", "toolchain", "doctor", "expression", "completions",
    "install", "show", "--mask", "--scalars", "--integers", "--tables", "s", "k <= q", "s - a * k", "a", "--file",
    "remove", "bash", "--kind", "--head-dim", "--hdim", "--dtype", "--causal", "--full", "--target", "--set", "--filter",
    "--all", "--plan", "--output", "-o", "--check", "--format", "--variants", "--templates", "-j", "--jobs", "--device",
    "--thorough", "--case", "--seed", "--fuzz", "--fuzz-case", "--seconds", "--time-limit", "--fresh", "--library", "--run-as", "--nvcc", "--offline",
    "--launcher", "--no-ptx", "--memory", "--build-dir", "--generated", "--batch", "--heads", "--heads-k", "--seqlen",
    "--rounds", "--graph", "--out", "--help", "-h", "--version", "--", "-", "", "fwd", "bwd", "fwd,bwd", "fwd_combine",
    "64", "72", "64,128", "0", "-1", "1", "256", "257", "4294967296", "18446744073709551615", "18446744073709551616",
    "1e9", "0x40", "NaN", "bf16", "fp8", "fp16,bf16", "sm80", "hopper", "sm90,sm120", "sm999", "standard-74", "json",
    "human", "gpu", "emulator", "auto", "out", "one.cu", "no/such/place", "/dev/null", "8G", "0.5K", "-8G",
    "hdim >= 128 and dtype == bf16", "((((causal", "name ~ '*_causal_*'", "hdim in (64, 128)", "not not full", "é",
    "\u{1b}[2J", "a b", "--format=json", "--head-dim=64", "--dtype=bf16", "--target=sm80", "--kind=fwd", "--causal=1",
];

#[test]
fn random_command_lines_end_with_a_documented_exit_code() {
    let place = folder();
    let mut random = random(1);
    for _ in 0..iterations(150) {
        let mut line: Vec<&str> = Vec::new();
        if random.random_bool(0.8) {
            line.push(WORDS[..10].choose(&mut random).expect("not empty"));
        }
        // Most lines select little; otherwise writing the whole grid would take most of the time.
        if random.random_bool(0.7) {
            line.extend(["--head-dim=64", "--dtype=bf16", "--target=sm80"]);
        }
        line.extend((0..random.random_range(0..7)).map(|_| WORDS.choose(&mut random).expect("not empty")));
        let output = kgen(place.path()).args(&line).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=3)), "{line:?}: {}\n{said}", output.status);
        assert!(!said.contains("panicked"), "{line:?}\n{said}");
        if output.status.code() != Some(0) && line.contains(&"--format=json") && !line.contains(&"--") {
            assert!(!output.stdout.is_empty(), "no JSON: {line:?}\n{said}");
        }
    }
}

/// Changes a text at a random position: a byte, a line or a word is removed, repeated or replaced.
fn mutated(text: &str, random: &mut ChaCha8Rng) -> String {
    #[rustfmt::skip]
    const BITS: &[&str] = &[
        "=", "[", "]", "[[", "\"", "'", "\n", "#", ",", "-1", "64", "1e400", "99999999999999999999", "true", "\u{feff}",
        "\0", "é",
    ];
    let mut text = text.to_owned();
    for _ in 0..random.random_range(1..4) {
        let mut lines: Vec<&str> = text.lines().collect();
        let line = random.random_range(0..lines.len().max(1));
        let boundary = |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (from, to) = (random.random_range(0..=text.len()), random.random_range(0..12));
        let (from, to) = (boundary(from), boundary((from + to).min(text.len())));
        let bit = BITS.choose(random).expect("not empty");
        text = match random.random_range(0..6) {
            0 => format!("{}{}", &text[..from], &text[to.max(from)..]),
            1 => format!("{}{bit}{}", &text[..from], &text[from..]),
            2 => format!("{}{bit}{}", &text[..from], &text[to.max(from)..]),
            3 if !lines.is_empty() => {
                lines.remove(line);
                lines.join("\n")
            }
            4 if !lines.is_empty() => {
                lines.insert(random.random_range(0..lines.len()), lines[line]);
                lines.join("\n")
            }
            _ => text[..from].to_owned(),
        };
    }
    text
}

#[test]
fn mutated_grids_are_read_or_refused() {
    let builtin = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("variants.toml")).expect("the grid");
    // The first lines of every kind of table: most mutations of the whole file would hit one of its many tiles.
    let small = "version = 1\n[targets.sm80]\ndescription = 'A100'\n[targets.sm90]\ndescription = 'H100'\n[[family]]\nkind = ['fwd', 'bwd']\n\
                 head_dim = [64, 128]\ndtype = ['fp16', 'bf16']\nmask = ['full', 'causal']\ntarget = ['sm80', 'sm90']\n[[exclude]]\n\
                 when = 'hdim == 128 and causal'\nreason = 'none'\n[[tile]]\nwhen = 'hdim == 64'\nmeasured = 'run 1'\nn = 64\nm = 128\n\
                 [sets.some]\ndescription = 'some'\nfilter = 'full'\nsize = 10\n";
    let mut random = random(2);
    let mut read = 0;
    for round in 0..iterations(2000) {
        let text = mutated(if round % 20 == 0 { &builtin } else { small }, &mut random);
        let Ok(grid) = Grid::parse(&text, "mutated.toml") else { continue };
        read += 1;
        let Ok(variants) = grid.select(&Selection::default()) else { continue };
        for variant in variants.iter().take(16) {
            // Any result is fine: a plan or a refusal.
            let _ = Plan::new(*variant, grid.tile_override(variant).as_ref());
        }
    }
    assert!(read > 0, "every mutation was refused: they are too wild to reach anything");
}

#[test]
fn random_filters_are_read_or_refused() {
    #[rustfmt::skip]
    const TOKENS: &[&str] = &[
        "hdim", "dtype", "kind", "target", "name", "mask", "causal", "full", "==", "!=", "<", "<=", ">", ">=", "~", "in",
        "not", "and", "or", "(", ")", ",", "64", "128", "-1", "1e9", "bf16", "'x'", "\"y", "'*_causal_*'", "sm80",
        "hopper", "é", "\u{0}", "99999999999999999999", " ",
    ];
    let mut random = random(3);
    let grid = Grid::builtin();
    let sample: Vec<&Variant> = grid.variants().iter().step_by(37).collect();
    let mut read = 0;
    for _ in 0..iterations(20_000) {
        let tokens: Vec<&str> =
            (0..random.random_range(0..12)).map(|_| *TOKENS.choose(&mut random).expect("not empty")).collect();
        if let Ok(filter) = tokens.join(if random.random_bool(0.9) { " " } else { "" }).parse::<Filter>() {
            read += 1;
            let _ = sample.iter().filter(|variant| filter.matches(variant)).count();
        }
    }
    // Depth tests a recursive parser.
    for deep in ["(".repeat(100_000), "not ".repeat(100_000), format!("{}causal{}", "(".repeat(100_000), ")".repeat(100_000))] {
        let _ = deep.parse::<Filter>();
    }
    assert!(read > 0, "no filter was right");
}

#[test]
fn random_expressions_are_read_or_refused_at_a_place_of_their_text() {
    #[rustfmt::skip]
    const TOKENS: &[&str] = &[
        "s", "q", "k", "h", "b", "a", "n", "slope", "slope[h]", "seqlen_k", "+", "-", "*", "/", "//", "%", "(", ")", "[", "]", ",",
        "<", "<=", "==", "!=", "=", "!", "and", "or", "not", "min(", "abs(", "tanh(", "log(", "select(", "real(", "true", "0", "1", "64",
        "0.5", "1e38", "1e-38", "1e9999", "2147483648", "1.", ".", "é", "\u{0}", "'", "\n",
    ];
    let mut names = Declared::default();
    for (list, name) in [(List::Scalars, "a"), (List::Integers, "n"), (List::Tables, "slope")] {
        names.declare(list, name).expect("a name");
    }
    let check = |text: &str| {
        let mut read = 0;
        for goal in [Goal::Score, Goal::Mask] {
            match Expr::parse(text, &names, goal) {
                Err(error) => assert!(text.get(error.span()).is_some(), "{text:?} at {:?}", error.span()),
                Ok(expr) => {
                    read += 1;
                    let _ = (expr.derivative(), expr.interval(), expr.hash());
                    assert_eq!(Expr::parse(&expr.to_string(), &names, goal).as_ref(), Ok(&expr), "{text:?}");
                }
            }
        }
        read
    };
    let mut random = random(5);
    let mut read = 0;
    for round in 0..iterations(20_000) {
        let text = if round % 4 == 0 {
            mutated("select(k <= q and q // n == k // 64, a * tanh(s / a) - slope[h] * abs(q - k), log(s))", &mut random)
        } else {
            let tokens: Vec<&str> =
                (0..random.random_range(0..12)).map(|_| *TOKENS.choose(&mut random).expect("not empty")).collect();
            tokens.join(if random.random_bool(0.9) { " " } else { "" })
        };
        read += check(&text);
    }
    for deep in ["(", "-", "not ", "abs(", "slope[", "s + ", "s * ", "k<", "1,"] {
        check(&deep.repeat(100_000));
        check(&format!("{}s{}", deep.repeat(60), ")".repeat(60)));
    }
    assert!(read > 0, "no expression was right");
}

/// Every file of a folder with its content, except those whose names begin with a dot.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, into);
            } else {
                let name = path.strip_prefix(root).expect("below it").display().to_string();
                into.insert(name, fs::read(&path).expect("readable"));
            }
        }
    }
    let mut files = BTreeMap::new();
    walk(folder, folder, &mut files);
    files
}

#[test]
fn a_kill_at_any_moment_leaves_whole_files_or_none_and_the_next_run_completes_them() {
    let place = folder();
    let generate = |output: &str| {
        let mut command = kgen(place.path());
        command.args(["generate", "--dtype", "bf16", "--target", "sm80,sm90", "--output", output]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let begun = std::time::Instant::now();
    assert!(generate("whole").status().expect("it starts").success());
    let takes = begun.elapsed();
    let whole = contents(&place.path().join("whole"));
    let mut random = random(4);
    let mut killed = 0;
    for round in 0..iterations(8) {
        let output = format!("out{round}");
        let mut child = generate(&output).spawn().expect("it starts");
        thread::sleep(takes.mul_f64(random.random_range(0.0..1.1)));
        child.kill().expect("it was started");
        killed += u64::from(child.wait().expect("a child").signal() == Some(9));
        for (name, text) in contents(&place.path().join(&output)) {
            assert!(whole.get(&name) == Some(&text), "`{name}` is not what it is to be, round {round}");
        }
        assert!(generate(&output).status().expect("it starts").success());
        assert!(contents(&place.path().join(&output)) == whole, "round {round}");
        let hidden = fs::read_dir(place.path().join(&output)).expect("readable").flatten();
        let hidden: Vec<_> =
            hidden.map(|entry| entry.file_name()).filter(|name| name.as_encoded_bytes().starts_with(b".")).collect();
        assert!(hidden.is_empty(), "{hidden:?} stayed, round {round}");
    }
    // If every process ended before the signal, or none had begun, the rounds would prove nothing.
    assert!(killed > 0 || takes < Duration::from_millis(5), "none was killed");
}
