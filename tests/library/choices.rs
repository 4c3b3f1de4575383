//! Results of `kgen_explain_choice`: `choices.c` with a library whose launchers fail with their names.

use super::{Library, ROOT, names_in_place_of_kernels};
use kgen::{
    family::attention::{Kind, Point},
    kernel::{Dtype, Feature, Features, HeadDim, Target},
};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

const CAUSAL: u32 = 1;
const WINDOW: u32 = 4;
pub const DENSE: i32 = 0;
pub const SHORT: i32 = 1;
pub const SPLIT: i32 = 2;
pub const SCHEDULED: i32 = 3;
pub const MIXED: i32 = 4;
pub const PACKED: i32 = 5;

/// An fp16 kernel without features.
pub fn point(kind: Kind, head_dim: u32, causal: bool, target: Target) -> Point {
    let head_dim = if kind.has_shape() { head_dim } else { 0 };
    Point {
        kind,
        head_dim: HeadDim::equal(head_dim),
        dtype: Dtype::Fp16,
        causal: causal && kind.has_shape(),
        features: Features::NONE,
        target,
    }
}

/// The helpers of split-KV.
pub fn helpers() -> [Point; 2] {
    [Kind::FwdCombine, Kind::PrepareScheduler].map(|kind| point(kind, 0, false, Target::Sm80))
}

/// The head dim for which the library has kernels with windows.
pub const WINDOWED: u32 = 64;

fn windowed(kind: Kind) -> Point {
    Point { features: Features::from_iter([Feature::Window]), ..point(kind, WINDOWED, false, Target::Sm80) }
}

/// The head dim for which it has kernels that pack the heads of a group.
pub const PACKED_HEADS: u32 = 128;

fn packed(causal: bool) -> Point {
    Point { features: Features::from_iter([Feature::PackGqa]), ..point(Kind::Fwd, PACKED_HEADS, causal, Target::Sm80) }
}

/// Hopper's kernels for pages of head dim 128, and a split-KV kernel.
fn paged() -> impl Iterator<Item = Point> {
    let of = |kind, target, features: &[Feature]| Point {
        features: features.iter().copied().collect(),
        ..point(kind, 128, true, target)
    };
    [
        of(Kind::Fwd, Target::Sm90, &[Feature::Paged]),
        of(Kind::Fwd, Target::Sm90, &[Feature::PackGqa, Feature::Paged]),
        of(Kind::FwdSplit, Target::Sm80, &[Feature::Paged]),
    ]
    .into_iter()
}

/// A data-centre library for two head dims: Ampere's kernels and Hopper's. Head dim 96 has neither `fwd_short` nor
/// `fwd_split`.
static KERNELS: LazyLock<Vec<Point>> = LazyLock::new(|| {
    let mut kernels = vec![windowed(Kind::Fwd), windowed(Kind::FwdSplit)];
    kernels.extend(paged());
    for causal in [false, true] {
        kernels.push(packed(causal));
        for head_dim in [64, 128] {
            kernels.extend([Target::Sm80, Target::Sm90].map(|target| point(Kind::Fwd, head_dim, causal, target)));
            kernels.push(point(Kind::FwdShort, head_dim, causal, Target::Sm90));
            kernels.push(point(Kind::FwdSplit, head_dim, causal, Target::Sm80));
        }
        kernels.push(point(Kind::Fwd, 96, causal, Target::Sm80));
    }
    kernels.extend(helpers());
    kernels
});

pub static NAMES: LazyLock<Library> = LazyLock::new(|| names_in_place_of_kernels("choices", &KERNELS));

/// The host's information on the lengths of Q or of K.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// The longest length, which bounds the grid.
    pub longest: u32,
    /// True if lengths may differ: the side has `cu_seqlens` or `seqused`.
    pub unequal: bool,
    /// Total number of rows, if the caller passes it; otherwise 0.
    pub total: u32,
}

impl Lengths {
    /// Sequences of one length.
    pub fn equal(longest: u32) -> Self {
        Self { longest, unequal: false, total: 0 }
    }
}

/// An fp16 request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub batch: u32,
    pub heads: u32,
    pub heads_k: u32,
    pub queries: Lengths,
    pub keys: Lengths,
    pub head_dim: u32,
    pub causal: bool,
    /// Maximum number of keys that one query sees, with a window.
    pub most_seen: Option<u32>,
    /// The caller's words of counters.
    pub arrivals: u64,
}

/// A request to the program, with its device and workspace.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub capability: u32,
    pub multiprocessors: u32,
    pub request: Request,
    pub flags: u32,
    pub num_splits: u32,
    pub room: u64,
    /// Rows of a page; 0 if K and V are not paged.
    pub page_size: u32,
}

pub const UNLIMITED: u64 = u64::MAX;

/// Attention on an H100 with an unlimited workspace.
pub fn ask(batch: u32, [heads, heads_k]: [u32; 2], [queries, keys]: [u32; 2], head_dim: u32) -> Ask {
    let [queries, keys] = [queries, keys].map(Lengths::equal);
    let request = Request { batch, heads, heads_k, queries, keys, head_dim, causal: false, most_seen: None, arrivals: 0 };
    Ask { capability: 90, multiprocessors: 132, request, flags: 0, num_splits: 0, room: UNLIMITED, page_size: 0 }
}

/// The program's line about a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub path: i32,
    pub splits: u32,
    pub variant: String,
    pub excluded: Option<String>,
    pub bytes: u64,
    /// Predicted, launch, tile, chain, step, memory, combine, scheduler.
    pub times: Vec<f64>,
    pub by_last_block: bool,
}

impl Told {
    /// The total of a prediction's parts: about a fifth of the work that overlaps with the longest part is not hidden.
    pub fn total_of_parts(&self) -> f64 {
        let [launch, tile, chain, step, memory, combine, scheduler] = self.times[1..] else { panic!("{self:?}") };
        let longest = chain.max(step).max(memory);
        launch + tile + longest + 0.2 * (chain + step + memory - longest) + combine + scheduler
    }
}

/// The program's answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub candidates: Vec<Told>,
    pub code: i32,
    pub chosen: Option<usize>,
    pub error: String,
    pub workspace: u64,
    pub launched: (i32, String),
}

impl Answer {
    pub fn chosen(&self) -> &Told {
        &self.candidates[self.chosen.expect("a path is chosen")]
    }

    /// The candidates that can be used.
    pub fn able(&self) -> impl Iterator<Item = &Told> {
        self.candidates.iter().filter(|told| told.excluded.is_none())
    }

    pub fn of(&self, path: i32) -> impl Iterator<Item = &Told> {
        self.candidates.iter().filter(move |told| told.path == path)
    }
}

/// The program, linked with a library of some kernels.
pub struct Choices(PathBuf);

impl Choices {
    pub fn of(library: &Library) -> Self {
        Self(library.program(&Path::new(ROOT).join("tests/library/choices.c"), "choices", &library.dispatcher))
    }

    /// The program, linked with a library of kernels that only one test uses.
    pub fn of_kernels(name: &str, kernels: &[Point]) -> Self {
        Self::of(&names_in_place_of_kernels(name, kernels))
    }

    pub fn answers(&self, asks: &[Ask]) -> Vec<Answer> {
        let lines: Vec<String> = asks
            .iter()
            .map(|ask| {
                let Ask { capability, multiprocessors, request: r, flags, num_splits, room, page_size } = ask;
                let flags = flags | if r.causal { CAUSAL } else { 0 } | if r.most_seen.is_some() { WINDOW } else { 0 };
                // A window of this many keys, including the query's own.
                let others = r.most_seen.map_or(0, |seen| seen - 1);
                let left = if r.causal { others } else { others / 2 };
                let right = others - left;
                let [unequal_q, unequal_k] = [r.queries, r.keys].map(|side| u8::from(side.unequal));
                format!(
                    "{capability} {multiprocessors} {} {} {} {} {} {} 0 {flags:x} {num_splits} {unequal_q} {unequal_k} {} {} {room} {left} {right} {} {page_size}\n",
                    r.batch, r.heads, r.heads_k, r.queries.longest, r.keys.longest, r.head_dim, r.queries.total, r.keys.total, r.arrivals,
                )
            })
            .collect();
        let mut child = Command::new(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let writer = std::thread::spawn(move || stdin.write_all(lines.concat().as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("no panic").expect("written");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("ASCII");
        let mut answers = Vec::new();
        let mut candidates = Vec::new();
        let mut chosen = (0, None, String::new());
        let mut workspace = 0;
        for line in text.lines() {
            let fields: Vec<&str> = line.split('|').collect();
            let number = |place: usize| fields[place].parse::<i64>().expect("a number");
            match fields[0] {
                "candidate" => candidates.push(Told {
                    path: number(1) as i32,
                    splits: number(2) as u32,
                    variant: fields[3].to_owned(),
                    excluded: (fields[4] != "-").then(|| fields[4].to_owned()),
                    bytes: fields[5].parse().expect("a number"),
                    times: fields[6..14].iter().map(|time| time.parse().expect("a time")).collect(),
                    by_last_block: number(14) == 1,
                }),
                "chosen" => chosen = (number(1) as i32, usize::try_from(number(2)).ok(), fields[3].to_owned()),
                "workspace" => workspace = fields[1].parse().expect("a number"),
                _ => answers.push(Answer {
                    candidates: std::mem::take(&mut candidates),
                    code: chosen.0,
                    chosen: chosen.1,
                    error: chosen.2.clone(),
                    workspace,
                    launched: (number(1) as i32, fields[2].to_owned()),
                }),
            }
        }
        assert_eq!(answers.len(), asks.len());
        answers
    }

    pub fn answer(&self, ask: Ask) -> Answer {
        self.answers(&[ask]).remove(0)
    }
}
