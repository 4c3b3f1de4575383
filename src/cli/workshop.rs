//! What turns variants into files: the grid for their tiles, the templates, the renderer. Shared by every command that
//! renders.

use super::{
    CliError, Global,
    select::{self, load_grid},
};
use crate::{
    grid::Grid,
    kernel::{Target, Variant},
    plan::Plan,
    render::{self, Edited, OutputFile, RenderError, Renderer, Templates, WriteSummary},
};
use itertools::Itertools;
use std::{collections::BTreeSet, io::ErrorKind, path::Path};

/// The grid and the templates a command was given, ready to render.
pub(super) struct Workshop {
    pub grid: Grid,
    pub templates: Templates,
    pub renderer: Renderer,
}

/// The templates of `--templates`, or the built-in ones.
///
/// # Errors
/// [`CliError::Usage`] where the folder cannot be read or does not hold.
pub(super) fn templates(global: &Global) -> Result<Templates, CliError> {
    Ok(match &global.templates {
        None => Templates::embedded(),
        Some(folder) => Templates::from_dir(folder)?,
    })
}

impl Workshop {
    /// Takes the grid of `--variants` and the templates of `--templates`, or the built-in ones.
    ///
    /// # Errors
    /// [`CliError::Usage`] where one of them cannot be read or does not hold.
    pub fn new(global: &Global) -> Result<Self, CliError> {
        let grid = load_grid(global)?;
        let templates = templates(global)?;
        let renderer = Renderer::new(&templates)?;
        Ok(Self { grid, templates, renderer })
    }

    /// Plans a variant with the tile the grid holds for it.
    ///
    /// # Errors
    /// A sentence, as [`select::plan`] gives it.
    pub fn plan(&self, variant: Variant) -> Result<Plan, String> {
        select::plan(&self.grid, variant)
    }

    /// As [`plan`](Self::plan), compiled for another target where one is named.
    ///
    /// # Errors
    /// A sentence, also where the kernel has no form that runs there.
    pub fn plan_to_run_as(&self, variant: Variant, run_as: Option<Target>) -> Result<Plan, String> {
        let plan = self.plan(variant)?;
        run_as.map_or(Ok(plan.clone()), |target| plan.to_run_as(target).map_err(|error| error.to_string()))
    }

    /// Plans all variants or none.
    ///
    /// # Errors
    /// [`CliError::Usage`] with the first refusal and the number of others.
    pub fn plan_all(&self, variants: &[Variant], run_as: Option<Target>) -> Result<Vec<Plan>, CliError> {
        let (plans, refused): (Vec<Plan>, Vec<String>) =
            variants.iter().map(|v| self.plan_to_run_as(*v, run_as)).partition_result();
        match refused.first() {
            None => Ok(plans),
            Some(first) if refused.len() == 1 => Err(CliError::Usage(first.clone())),
            Some(first) => {
                let (count, all) = (refused.len(), variants.len());
                Err(CliError::Usage(format!("{count} of {all} variants have no plan; the first: {first}")))
            }
        }
    }

    /// Whether `asked` is the whole grid, no more and no less.
    pub fn is_whole_grid(&self, asked: &[Variant]) -> bool {
        asked.iter().collect::<BTreeSet<_>>() == self.grid.variants().iter().collect()
    }

    /// All files of `folder`, and the plans of all its kernels, once it holds `plans` beside the kernels it `held`; or
    /// these alone where `asked`, the variants the plans were made for, are the whole grid.
    ///
    /// # Errors
    /// [`CliError::Usage`] where a template fails or a kernel it held can no longer be made.
    pub fn folder_files(
        &self,
        folder: &Path,
        asked: &[Variant],
        mut plans: Vec<Plan>,
        held: &[Variant],
    ) -> Result<(Vec<Plan>, Vec<OutputFile>), CliError> {
        if !self.is_whole_grid(asked) {
            let asked: BTreeSet<&Variant> = asked.iter().collect();
            let others: Vec<Variant> = held.iter().filter(|v| !asked.contains(v)).copied().collect();
            plans.extend(self.plan_all(&others, None).map_err(|error| {
                let remedy = "`kgen generate --all` drops what the grid does not hold";
                CliError::Usage(format!("`{}` holds a kernel that can no longer be made; {remedy}: {error}", folder.display()))
            })?);
        }
        let files = render::tree(&self.renderer, &self.templates, &plans)?;
        Ok((plans, files))
    }
}

/// Templates and folders are the user's to name, and so to mend.
impl From<RenderError> for CliError {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::Interrupted => Self::INTERRUPTED,
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Says which edited files of `folder` were replaced or not removed; `note` receives each sentence, and prints it also
/// with `--quiet`: a person's work is in the copies.
pub(super) fn tell_edited(folder: &Path, summary: &WriteSummary, note: &dyn Fn(&str)) {
    let shown = |path: &str| folder.join(path).display().to_string();
    for Edited { path, copy } in &summary.edited {
        note(&format!(
            "`{}` held a text that this kgen did not write; it is replaced, and that text kept as `{}`",
            shown(path),
            shown(copy)
        ));
    }
    for path in &summary.kept {
        note(&format!("`{}` is no longer generated but has been edited, so it stays", shown(path)));
    }
}

/// For `map_err` where the folder that `flag` names is written: says what to do where it cannot be.
pub(super) fn unwritable(flag: &'static str) -> impl Fn(RenderError) -> CliError {
    move |error| unwritable_unless(&format!("choose another place with `{flag}`"), error)
}

/// The error of a folder that is written, with what to do; `other` is what always helps, as a clause.
pub(super) fn unwritable_unless(other: &str, error: RenderError) -> CliError {
    let RenderError::Io { action: "create" | "write" | "lock" | "remove", source, .. } = &error else {
        return error.into();
    };
    let remedy = match source.kind() {
        // What is not kgen's stands in the way: the reason ends with what to do.
        ErrorKind::InvalidData => return CliError::Usage(format!("{error}, or {other}")),
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in the way of a folder: move it away",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space and run the command again",
        ErrorKind::ReadOnlyFilesystem => "it lies on a file system that is mounted read-only: mount it anew",
        _ => "make it writable",
    };
    CliError::Usage(format!("{error}; {remedy}, or {other}"))
}
