//! `kgen explain --call`: the answers of its program are those of a library.

use super::{
    choices::{Answer, Ask, DENSE, Lengths, SCHEDULED, SHORT, SPLIT, ask},
    predictions::CHOICES,
};
use kgen::command::{
    Context,
    call::{Outcome, Request, Weighed, run},
};
use serde_json::{Value, json};

/// The kernels of [`CHOICES`] at one head dim.
const FILTER: &str = "plain and ((kind == fwd_split and target == sm80) or (kind != fwd_split and target == sm90))";

const PATHS: [&str; 4] = ["dense", "short", "split", "scheduled"];

fn explained(cache: &tempfile::TempDir, ask: &Ask) -> Outcome {
    let total = |side: Lengths| side.unequal.then_some(side.total);
    let request = &ask.request;
    let asked: Value = json!({
        "selection": {
            "head_dims": [request.head_dim], "dtypes": ["fp16"], "causal": request.causal, "filter": FILTER,
        },
        "gpu": "h100", "batch": request.batch, "heads": request.heads, "heads_k": request.heads_k,
        "seqlen_q": request.queries.longest, "seqlen_k": request.keys.longest, "total_q": total(request.queries),
        "total_k": total(request.keys), "num_splits": ask.num_splits, "db": null,
    });
    let asked: Request = serde_json::from_value(asked).expect("a request");
    let program = Some(assert_cmd::cargo::cargo_bin!("kgen").to_owned());
    let context = Context { cache_dir: Some(cache.path().to_owned()), program, ..Context::default() };
    run(&asked, &context, &()).unwrap_or_else(|error| panic!("{ask:?}: {error}"))
}

fn assert_equal(ask: &Ask, outcome: &Outcome, answer: &Answer) {
    assert_eq!((outcome.candidates.len(), Some(outcome.chosen)), (answer.candidates.len(), answer.chosen), "{ask:?}");
    for (weighed, told) in outcome.candidates.iter().zip(&answer.candidates) {
        let Weighed { path, num_splits, kernel, excluded, workspace_bytes, microseconds, by_last_block, .. } = weighed;
        assert_eq!((*path, *num_splits), (PATHS[told.path as usize], told.splits), "{ask:?}");
        assert_eq!((kernel.as_deref().unwrap_or("-"), excluded), (told.variant.as_str(), &told.excluded), "{ask:?}");
        assert_eq!((*workspace_bytes, *by_last_block), (told.bytes, told.by_last_block), "{ask:?}");
        let times = microseconds.map_or([0.0; 8], |times| {
            [times.predicted, times.launch, times.tile, times.chain, times.step, times.memory, times.combine, times.scheduler]
        });
        for (time, expected) in times.iter().zip(&told.times) {
            assert!((time - expected / 1e3).abs() <= 1e-9 * time.abs(), "{ask:?} {weighed:?} {told:?}");
        }
    }
}

#[test]
fn a_described_card_gets_the_answers_of_a_library() {
    let cache = tempfile::tempdir().expect("a folder");
    let unequal = |longest, total| Lengths { longest, unequal: true, total };
    let decoding = ask(1, [32, 8], [1, 32768], 128);
    let small = ask(1, [8, 8], [512, 512], 64);
    let mut causal = ask(4, [16, 16], [8192, 8192], 128);
    causal.request.causal = true;
    let mut one_long = ask(32, [32, 8], [1, 65536], 128);
    one_long.request.keys = unequal(65536, 65536 + 31 * 1952);
    let mut packed = ask(8, [16, 16], [700, 700], 64);
    (packed.request.queries, packed.request.keys) = (unequal(700, 0), unequal(700, 0));
    let forced = Ask { num_splits: 4, ..decoding };
    let paths = [(decoding, SPLIT), (small, SHORT), (causal, DENSE), (one_long, SCHEDULED)];
    for (ask, path) in paths {
        let outcome = explained(&cache, &ask);
        assert_equal(&ask, &outcome, &CHOICES.answer(ask));
        assert_eq!(outcome.candidates[outcome.chosen].path, PATHS[path as usize], "{ask:?}");
    }
    for ask in [packed, forced] {
        assert_equal(&ask, &explained(&cache, &ask), &CHOICES.answer(ask));
    }
}
