//! One CUDA graph supports changing lengths: launches and their workspace depend only on shapes.

use super::{Library, ROOT, run, variant};
use kgen::{
    family::attention::{Kind, Point},
    kernel::{Dtype, Feature, Features},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Kernels for an engine's decoding: those that read pages, and those that split.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let paged = |kind| Point { features: Features::from_iter([Feature::Paged]), ..variant(kind, 64, Dtype::Bf16, true) };
    let helpers = [Kind::FwdCombine, Kind::PrepareScheduler].map(|kind| variant(kind, 0, Dtype::Fp16, false));
    let library = Library::new("graph_library", &[&[paged(Kind::Fwd), paged(Kind::FwdSplit)], &helpers[..]].concat());
    let undefined = run(Command::new("nm").arg("-u").arg(&library.kernels[0]));
    let start = undefined.split_whitespace().find(|name| name.contains("8emulator3run")).expect("kernels start grids");
    library.program_with(
        &Path::new(ROOT).join("tests/library/graph.c"),
        "graph",
        &library.dispatcher,
        &[format!("-DCOUNT_LAUNCHES=__wrap_{start}"), format!("-DSTART=__real_{start}")],
        &[format!("-Wl,--wrap={start}")],
    )
});

/// Runs the program; returns for each set of lengths its name, the launches with their workspace, and the counts.
/// Asserts that each verdict is "right".
fn contents(arguments: &[&str]) -> Vec<[String; 3]> {
    let said = run(Command::new(&*PROGRAM).args(arguments));
    let lines = said.lines().map(|line| {
        let (name, rest) = line.split_once(": ").expect("a name");
        let (launches, counts) = rest.split_once(", counts ").expect("counts");
        let (counts, verdict) = counts.split_once(", ").expect("a verdict");
        assert_eq!(verdict, "right", "{line}");
        [name, launches, counts].map(str::to_owned)
    });
    lines.collect()
}

#[test]
fn launches_and_workspace_hang_on_no_length_in_memory() {
    for (arguments, lines) in [
        (&["1", "32"][..], 6),
        (&["1", "0"], 6),
        (&["24", "32"], 9),
        (&["24", "0"], 9),
        (&["24", "1"], 9),
        (&["24", "32", "mixed"], 9),
        (&["24", "1", "mixed"], 9),
    ] {
        let all = contents(arguments);
        assert_eq!(all.len(), lines, "{all:?}");
        assert!(all.iter().all(|[_, launches, _]| *launches == all[0][1]), "{arguments:?}: {all:?}");
    }
}

#[test]
fn with_counts_no_scheduler_is_launched_and_empty_sequences_have_no_splits() {
    let all = contents(&["1", "32"]);
    // Blocks: one row tile of 16 for each sequence and key head, plus those that fill the multiprocessors. Workspace: 6
    // rows of 4 heads and 32 splits, 64 + 1 numbers for each.
    assert_eq!(all[0][1], "prepare:1 split:20 combine:24, 199680 bytes");
    let of = |name: &str| &all.iter().find(|[other, ..]| other == name).expect("there is one")[2];
    assert_eq!(
        (of("captured"), of("padded"), of("nothing")),
        (&"1 1 1 1 1 1".into(), &"2 1 1 0 0 0".into(), &"0 0 0 0 0 0".into())
    );
}

/// On the mixed path, sequences with many queries go to `fwd`, and no grid of splits includes them.
#[test]
fn a_graph_of_the_mixed_path_divides_sequences_between_two_kernels() {
    let all = contents(&["24", "32", "mixed"]);
    assert_eq!(all[0][1], "prepare:1 split:20 combine:32 fwd:24, 798720 bytes");
}

#[test]
fn grids_that_would_be_nearly_empty_are_left_out() {
    let said = run(Command::new(&*PROGRAM).arg("explain"));
    let of = |path: &str| said.lines().find_map(|line| line.strip_prefix(path)).expect("the path is weighed");
    assert_eq!(of("2 of 32 splits: "), "seqlen_q makes most of its blocks empty");
    assert_eq!(of("4 of 32 splits: "), "chosen");
}
