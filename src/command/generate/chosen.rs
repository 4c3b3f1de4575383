//! The choice of one kernel for a single file, if a selection leaves several.

use crate::{
    command::{CommandError, Observer},
    kernel::{Coordinates, Kind, Variant},
};
use itertools::Itertools;
use std::path::Path;

/// The variant for a single file. If the flags leave a choice of kind or mask, forward attention and the full mask are
/// taken, and a note explains how to select the others. Any other choice is an error. Variants that are `named` leave
/// no choice.
pub(super) fn only_one(variants: &[Variant], file: &Path, named: bool, observer: &dyn Observer) -> Result<Variant, CommandError> {
    let prefer = |variants: Vec<Variant>, wanted: fn(&Variant) -> bool| {
        if variants.iter().any(wanted) { variants.into_iter().filter(wanted).collect() } else { variants }
    };
    let preferred = || prefer(prefer(variants.to_vec(), |v| v.kind() == Kind::ALL[0]), |v| v.causal() == Some(false));
    let left = if named { variants.to_vec() } else { preferred() };
    let file = file.display();
    if let [variant] = left[..] {
        let others = others(variant, variants);
        if !others.is_empty() {
            observer.note(&format!("`{file}` is `{variant}`; {} instead", others.join(" or ")));
        }
        return Ok(variant);
    }
    let count = left.len();
    let some = left.iter().take(3).map(|v| format!("`{v}`")).join(", ");
    let more = if count > 3 { ", …" } else { "" };
    let narrowed = narrowing(&left).filter(|_| !named).map(|flags| format!("narrow it, as with `{flags}`"));
    let remedy = narrowed.unwrap_or_else(|| "name one of them".to_owned());
    Err(CommandError::Usage(format!(
        "`--output {file}` holds one kernel and {count} are selected ({some}{more}); {remedy}, or give a folder"
    )))
}

/// The flags that select other variants than `taken`, with their meaning.
fn others(taken: Variant, variants: &[Variant]) -> Vec<String> {
    let of_taken_kind = variants.iter().filter(|v| v.kind() == taken.kind());
    let masks = of_taken_kind.map(Variant::causal).unique().count();
    let mask = (masks > 1).then(|| "`--causal` takes the causal kernel".to_owned());
    let kinds = variants.iter().map(Variant::kind).unique().filter(|kind| *kind != taken.kind()).map(|kind| format!("`{kind}`"));
    let kinds: Vec<String> = kinds.collect();
    let kind = (!kinds.is_empty()).then(|| format!("`--kind` takes {}", kinds.join(", ")));
    mask.into_iter().chain(kind).collect()
}

/// Flags that narrow `variants` to the first of them, if they differ in properties that flags can select.
fn narrowing(variants: &[Variant]) -> Option<String> {
    let places: Vec<Coordinates> = variants.iter().map(Variant::coordinates).collect();
    let first = places.first()?;
    let differ = |same: &dyn Fn(&Coordinates) -> bool| !places.iter().all(same);
    let kind = differ_in_kind(variants).then(|| Some(format!("--kind {}", variants[0].kind())));
    let head_dim = differ(&|at| at.head_dim == first.head_dim).then(|| Some(format!("--head-dim {}", first.head_dim?)));
    let dtype = differ(&|at| at.dtype == first.dtype).then(|| Some(format!("--dtype {}", first.dtype?)));
    let features = differ(&|at| at.features == first.features).then(|| Some(format!("--features {}", first.features?)));
    let target = differ(&|at| at.target == first.target).then(|| Some(format!("--target {}", first.target)));
    let flags: Vec<String> = [kind, head_dim, dtype, features, target].into_iter().flatten().flatten().collect();
    (!flags.is_empty()).then(|| flags.join(" "))
}

fn differ_in_kind(variants: &[Variant]) -> bool {
    !variants.iter().map(Variant::kind).all_equal()
}
