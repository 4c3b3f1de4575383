//! `kgen generate --hashes`: which kernels a change reaches, without writing them.

use crate::{
    cli::{CliError, Format, Global, ui, workshop::Workshop},
    files::{self, path::lossy},
    kernel::Variant,
    render::{self, HashDrift, Source},
};
use itertools::Itertools;
use rayon::prelude::*;
use serde::Serialize;
use std::path::Path;

/// For `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "lossy")]
    hashes: &'a Path,
    variants: Vec<String>,
    /// Differences that `--check` found; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<&'a [HashDrift]>,
}

/// Writes or, with `check`, compares the hashes of `variants` in `file`.
///
/// # Errors
/// [`CliError::Usage`] when a variant has no plan or the file cannot be read or written, [`CliError::VariantFailed`]
/// when `check` finds a difference.
pub fn run(global: &Global, workshop: &Workshop, variants: &[Variant], file: &Path, check: bool) -> Result<(), CliError> {
    let plans = workshop.plan_all(variants, None)?;
    let sources: Vec<Source> =
        plans.par_iter().map(|plan| workshop.renderer.kernel(plan)).collect::<Result<_, render::RenderError>>()?;
    let names = variants.iter().map(Variant::name).collect();
    let kernels = ui::count(sources.len(), "kernel");
    let place = file.display();
    let unusable = |verb: &str, error: &std::io::Error| {
        CliError::Usage(format!("cannot {verb} `{place}`: {error}; choose another file with `--hashes`"))
    };
    if !check {
        let wrote = files::write_atomic(file, render::hashes(&sources).as_bytes()).map_err(|error| unusable("write", &error))?;
        return if global.format == Format::Json {
            ui::print_json(&Report { hashes: file, variants: names, drift: None })
        } else {
            ui::print(&format!("{place}: hashes of {kernels}{}\n", if wrote { "" } else { ", unchanged" }))
        };
    }
    let drift = render::hash_drift(&files::read_to_string(file).map_err(|error| unusable("read", &error))?, &sources);
    if global.format == Format::Json {
        ui::print_json(&Report { hashes: file, variants: names, drift: Some(&drift) })?;
    } else {
        let text = if drift.is_empty() { format!("{place}: {kernels} as generated") } else { drift.iter().join("\n") };
        ui::print(&format!("{text}\n"))?;
    }
    match drift.len() {
        0 => Ok(()),
        found => Err(CliError::VariantFailed(format!(
            "`{place}`: {} not as generated; run the same command without `--check` to bring it up to date",
            if found == 1 { "1 line is".to_owned() } else { format!("{found} lines are") }
        ))),
    }
}
