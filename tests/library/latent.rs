//! The dispatcher's choice of kernels for queries of two parts, and its handling of calls whose V is inside K.

use super::{ROOT, names_in_place_of_kernels};
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

const KERNEL: &str = "flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90";

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let plain = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(64),
        dtype: Dtype::Bf16,
        causal: true,
        features: Features::from_iter([Feature::Paged]),
        target: Target::Sm90,
    };
    let features = Features::from_iter([Feature::Paged, Feature::Qv]);
    let latent = Point { kind: Kind::FwdSplit, head_dim: HeadDim::LATENT, features, ..plain };
    let helper = |kind| Point {
        kind,
        head_dim: HeadDim::equal(0),
        dtype: Dtype::Fp16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm80,
    };
    let kernels = [plain, latent, helper(Kind::FwdCombine), helper(Kind::PrepareScheduler)];
    let library = names_in_place_of_kernels("latent", &kernels);
    library.program(&Path::new(ROOT).join("tests/library/latent.c"), "latent", &library.dispatcher)
});

/// A bf16 call with all the workspace that it requests, on an H100.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the program's input")]
struct Ask {
    head_dims: [u32; 2],
    dtype: u32,
    inside: bool,
    as_far: bool,
    two_parts: bool,
    batch: u32,
    heads: u32,
    lengths: [u32; 2],
    splits: u32,
    workspace: bool,
    capability: u32,
}

/// A request with a separate `qv`.
const LATENT: Ask = Ask {
    head_dims: [64, 512],
    dtype: 1,
    inside: false,
    as_far: true,
    two_parts: true,
    batch: 64,
    heads: 128,
    lengths: [1, 4096],
    splits: 0,
    workspace: true,
    capability: 90,
};

/// A request whose V is inside K.
const INSIDE: Ask = Ask { head_dims: [576, 512], inside: true, two_parts: false, ..LATENT };

/// The program's output: code and message, bytes of workspace, and the call that the launcher received.
struct Answer {
    message: String,
    bytes: u64,
    given: String,
}

fn answers(asked: &[Ask]) -> Vec<Answer> {
    let lines = asked.iter().map(|ask| {
        let Ask { head_dims: [qk, v], dtype, batch, heads, lengths: [queries, keys], splits, capability, .. } = *ask;
        let [inside, as_far, two_parts, workspace] = [ask.inside, ask.as_far, ask.two_parts, ask.workspace].map(u8::from);
        format!(
            "{qk} {v} {dtype} {inside} {as_far} {two_parts} {batch} {heads} {queries} {keys} {splits} {workspace} {capability}\n"
        )
    });
    let input: String = lines.collect();
    let mut child = Command::new(&*PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("ASCII");
    let answers = text.lines().map(|line| {
        let [code, message, bytes, same, given] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(same, "same", "the workspace does not depend on addresses: {line}");
        Answer { message: format!("{code} {message}"), bytes: bytes.parse().expect("bytes"), given: given.to_owned() }
    });
    let answers: Vec<Answer> = answers.collect();
    assert_eq!(answers.len(), asked.len());
    answers
}

#[test]
fn a_cache_with_v_inside_k_is_read_as_queries_of_two_parts() {
    let [own, inside] = answers(&[LATENT, INSIDE]).try_into().unwrap_or_else(|_| panic!("two answers"));
    assert_eq!((own.message.as_str(), inside.message.as_str()), (&*format!("9 {KERNEL}"), &*format!("9 {KERNEL}")));
    // Head dim; bytes from the caller's q and k; the origin of qv; row strides of q and qv; splits.
    assert_eq!(own.given, "64 0 0 qv 73728 65536 1 whole");
    assert_eq!(inside.given, "64 1024 1024 q 73728 73728 1 whole");
}

#[test]
fn other_calls_of_these_head_dims_are_refused_by_them() {
    let elsewhere = Ask { inside: false, ..INSIDE };
    let asks = [elsewhere, Ask { as_far: false, ..INSIDE }, Ask { dtype: 2, ..INSIDE }, Ask { head_dims: [576, 576], ..INSIDE }];
    let refused = answers(&asks);
    for answer in &refused {
        assert!(answer.message.starts_with("3 kgen_fwd: no variant") && answer.bytes == 0, "{}", answer.message);
    }
    for answer in &refused[..3] {
        assert!(answer.message.contains("except where V lies inside K: v == k with equal strides"), "{}", answer.message);
    }
    let [old, fp16] =
        answers(&[Ask { capability: 80, ..INSIDE }, Ask { dtype: 0, ..LATENT }]).try_into().unwrap_or_else(|_| panic!());
    assert!(old.message.contains(&format!("{KERNEL} runs on compute capability 9.0 to 9.0")), "{}", old.message);
    assert!(fp16.message.starts_with("3 kgen_fwd: no variant"), "{}", fp16.message);
}

/// The split kernel is the only one, so it must support every request.
#[test]
fn every_call_finds_a_path() {
    let asks = [
        Ask { batch: 0, ..LATENT },
        Ask { lengths: [0, 4096], ..INSIDE },
        Ask { lengths: [1, 0], ..LATENT },
        Ask { lengths: [3, 1], ..LATENT },
        Ask { lengths: [4096, 4096], batch: 1, ..LATENT },
        Ask { splits: 1, ..LATENT },
        // Without a workspace nothing can be split.
        Ask { splits: 7, workspace: false, ..LATENT },
        Ask { batch: 1, lengths: [1, 32768], workspace: false, ..INSIDE },
    ];
    for answer in answers(&asks) {
        assert_eq!(answer.message, format!("9 {KERNEL}"));
        assert!(answer.given.ends_with(" 1 whole") || answer.given.ends_with(" 0 whole"), "{}", answer.given);
    }
}

#[test]
fn few_sequences_are_split_and_many_are_not() {
    let one = Ask { batch: 1, lengths: [1, 32768], ..INSIDE };
    let asks = [one, Ask { splits: 7, ..one }, Ask { batch: 128, ..LATENT }];
    let [few, told, many] = answers(&asks).try_into().unwrap_or_else(|_| panic!("three answers"));
    let splits = |answer: &Answer| answer.given.split(' ').nth(6).map_or(0, |number| number.parse().expect("a number"));
    assert!(splits(&few) >= 16 && few.bytes > 0 && few.given.ends_with("workspace"), "{}", few.given);
    assert!(splits(&told) == 7 && told.given.ends_with("workspace"), "{}", told.given);
    assert!(splits(&many) == 1 && many.bytes == 0, "{}", many.given);
}
