//! How two kernels differ: plan, source, machine code.

mod by_hand;

use super::{CommandError, Context, Observer, names, session::Session};
use crate::{build::built, kernel::Variant, lab::flat, plan::Plan};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use std::path::PathBuf;

/// Lines of context of a hunk.
const CONTEXT: usize = 3;

/// Request of a comparison: of two variants, or of a variant with a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Name of the first variant. With `source`, that of the file's kernel; `None` leaves it to the launcher there.
    pub old: Option<String>,
    /// Name of the second variant; `None` with `source`.
    pub new: Option<String>,
    /// File with a kernel that a person edited, which is compared with the rendered one.
    pub source: Option<PathBuf>,
    /// Build folder whose library's manifest has registers, sizes and machine code of both. Edited kernels are compiled
    /// there.
    pub build_dir: PathBuf,
    /// The nvcc for an edited kernel; `None` for one that is installed.
    pub nvcc: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self { old: None, new: None, source: None, build_dir: "build".into(), nvcc: None }
    }
}

/// Differences of two kernels.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name of the first kernel.
    pub old: String,
    /// Name of the second one, or the file.
    pub new: String,
    /// Values of the plans that differ; for a file, the constants of the source that do.
    pub plan: Vec<Difference>,
    /// The sources as a unified diff, with the names of two variants replaced by `NAME`; empty if they are equal.
    pub source: String,
    /// Numbers of lines that only the first source has, and that only the second one has.
    pub lines: [usize; 2],
    /// Values of the compiled kernels that differ; `None` if they are not compared.
    pub compiled: Option<Vec<Difference>>,
    /// Why the compiled kernels are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncompared: Option<String>,
}

/// A value that differs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Key of the value: `tile.m`.
    pub key: String,
    /// The value in the first kernel; null if it has none.
    pub old: Value,
    /// The second kernel's.
    pub new: Value,
}

/// Compares two kernels.
///
/// # Errors
/// [`CommandError::Usage`] if a name is missing or unknown, a variant has no plan, or a file holds no kernel.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let session = Session::open(context)?;
    let (old, new) = match (&request.source, &request.old, &request.new) {
        (Some(file), _, None) => return by_hand::run(request, file, &session, context, observer),
        (None, Some(old), Some(new)) => (old, new),
        (Some(_), _, Some(_)) => {
            return Err(CommandError::Usage("`--source` is compared with one variant; leave out the second name".to_owned()));
        }
        (None, ..) => {
            return Err(CommandError::Usage("two variants are compared, or one with the file of `--source`".to_owned()));
        }
    };
    let found = |name: &String| Ok::<Variant, CommandError>(names::resolve(&session.grid, std::slice::from_ref(name))?[0]);
    let (old, new) = (found(old)?, found(new)?);
    let plan = |variant| session.plan(variant).map_err(CommandError::Usage);
    let (old_plan, new_plan) = (plan(old)?, plan(new)?);
    let source = |plan: &Plan| {
        let text = session.renderer.kernel(plan)?.text;
        Ok::<String, CommandError>(text.replace(&plan.variant.name(), "NAME"))
    };
    let (old_text, new_text) = (source(&old_plan)?, source(&new_plan)?);
    let diff = TextDiff::from_lines(&old_text, &new_text);
    let library = built(&request.build_dir.join("lib/libkgen.so"));
    let compiled = library.get(&old.name()).zip(library.get(&new.name()));
    Ok(Outcome {
        plan: differences(&flat(&old_plan), &flat(&new_plan)),
        lines: lines(&diff),
        source: diff.unified_diff().context_radius(CONTEXT).header(&old.name(), &new.name()).to_string(),
        uncompared: compiled.is_none().then(|| "the build folder does not hold both kernels".to_owned()),
        compiled: compiled.map(|(old, new)| differences(&flat(old), &flat(new))),
        old: old.name(),
        new: new.name(),
    })
}

/// Numbers of lines that only the old text has, and that only the new one has.
fn lines<'a>(diff: &TextDiff<'a, 'a, '_, str>) -> [usize; 2] {
    [ChangeTag::Delete, ChangeTag::Insert].map(|tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count())
}

/// The keys whose values differ, in the order of the first object and then of the second.
fn differences(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<Difference> {
    let only_new = new.keys().filter(|key| !old.contains_key(*key));
    let value = |of: &Map<String, Value>, key: &str| of.get(key).cloned().unwrap_or_default();
    let all = old.keys().chain(only_new).map(|key| Difference { key: key.clone(), old: value(old, key), new: value(new, key) });
    all.filter(|difference| difference.old != difference.new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_differ_are_named_by_their_place() {
        let [old, new] =
            [json!({ "a": 1, "b": { "c": 2, "d": 3 } }), json!({ "a": 1, "b": { "c": 4 }, "e": [5] })].map(|value| flat(&value));
        let difference = |key: &str, old, new| Difference { key: key.to_owned(), old, new };
        let expected = [
            difference("b.c", json!(2), json!(4)),
            difference("b.d", json!(3), Value::Null),
            difference("e", Value::Null, json!([5])),
        ];
        assert_eq!(differences(&old, &new), expected);
    }

    #[test]
    fn two_masks_of_one_kernel_differ_in_plan_and_source_and_a_kernel_not_from_itself() {
        let request = |new: &str| Request {
            old: Some("flash_fwd_hdim64_fp16_sm80".into()),
            new: Some(new.into()),
            build_dir: "none".into(),
            ..Request::default()
        };
        let run = |new| super::run(&request(new), &Context::default(), &()).expect("both are known");
        let found = run("flash_fwd_hdim64_fp16_causal_sm80");
        assert!(found.plan.iter().any(|difference| difference.key == "variant.causal") && found.compiled.is_none());
        assert!(found.lines[1] > 0 && found.source.starts_with("--- flash_fwd_hdim64_fp16_sm80\n+++ "), "{}", found.source);
        let same = run("flash_fwd_hdim64_fp16_sm80");
        assert!(same.plan.is_empty() && same.source.is_empty() && same.lines == [0, 0]);
        assert_eq!(super::run(&request("flash_fwd_hdim64"), &Context::default(), &()).expect_err("unknown").kind(), "usage");
        let refused = |request: &Request| super::run(request, &Context::default(), &()).expect_err("refused").to_string();
        assert!(refused(&Request::default()).contains("two variants are compared"));
        let both = Request { source: Some("my.cu".into()), ..request("flash_fwd_hdim64_fp16_sm80") };
        assert!(refused(&both).contains("leave out the second name"));
    }
}
