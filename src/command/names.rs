//! Selection by name: `kgen build flash_fwd_hdim128_bf16_causal_sm80`.

use super::CommandError;
use crate::{
    grid::{Grid, Selection},
    kernel::{HeadDim, Variant},
    text::suggestion,
};
use std::collections::BTreeSet;

/// The variants of `names`, in the grid or, as with `--head-dim`, of another head dim; sorted, none twice.
///
/// # Errors
/// [`CommandError::Usage`] with the unknown name and the closest known one.
pub(super) fn resolve(grid: &Grid, names: &[String]) -> Result<Vec<Variant>, CommandError> {
    names.iter().map(|name| find(grid, name)).collect::<Result<BTreeSet<_>, _>>().map(|found| found.into_iter().collect())
}

fn find(grid: &Grid, name: &str) -> Result<Variant, CommandError> {
    let of_name = |variants: &[Variant]| variants.iter().find(|variant| variant.name() == name).copied();
    if let Some(variant) = of_name(grid.variants()) {
        return Ok(variant);
    }
    let elsewhere = match head_dim(name) {
        None => Vec::new(),
        Some(head_dim) => {
            let selection = Selection { head_dims: vec![head_dim], ..Selection::default() };
            grid.select(&selection).map_err(|error| CommandError::Usage(format!("no variant `{name}`: {error}")))?
        }
    };
    of_name(&elsewhere).ok_or_else(|| {
        let known: Vec<String> = elsewhere.iter().chain(grid.variants()).map(Variant::name).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let help = suggestion(name, &known).unwrap_or_else(|| "`kgen list` shows the names of the grid".to_owned());
        CommandError::Usage(format!("no variant `{name}` in the grid\nhelp: {help}"))
    })
}

/// The head dim in a name, not necessarily a valid one: 72 in `flash_fwd_hdim72_fp16_sm80`, `192_128` in
/// `flash_fwd_hdim192_128_fp16_sm80`.
fn head_dim(name: &str) -> Option<HeadDim> {
    let (_, rest) = name.split_once("_hdim")?;
    let mut words = rest.split('_').map(str::parse);
    let qk = words.next()?.ok()?;
    Some(HeadDim { qk, v: words.next().and_then(Result::ok).unwrap_or(qk) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(requested: &[&str]) -> Result<Vec<String>, String> {
        let requested: Vec<String> = requested.iter().map(ToString::to_string).collect();
        let found = resolve(&Grid::builtin(), &requested).map_err(|error| error.to_string())?;
        Ok(found.iter().map(Variant::name).collect())
    }

    #[test]
    fn names_are_found_in_the_grid_and_beside_it() {
        let (inside, outside, helper) =
            ("flash_fwd_hdim128_bf16_causal_sm80", "flash_fwd_hdim72_fp16_sm80", "flash_fwd_combine_sm80");
        assert_eq!(names(&[inside, outside, helper, inside]), Ok([outside, inside, helper].map(str::to_owned).into()));
    }

    #[test]
    fn a_name_of_no_kernel_is_answered_with_the_one_meant() {
        let error = names(&["flash_fwd_hdim128_bf16_casual_sm80"]).expect_err("misspelt");
        assert!(error.contains("did you mean `flash_fwd_hdim128_bf16_causal_sm80`?"), "{error}");
        let error = names(&["flash_fwd_hdim100_bf16_sm80"]).expect_err("no such head dim");
        assert!(error.contains("100"), "{error}");
        let error = names(&["gemm"]).expect_err("of no kernel");
        assert!(error.contains("`kgen list` shows the names"), "{error}");
    }
}
