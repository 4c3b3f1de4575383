//! The grid, the templates and the renderer of a command. Shared by every command that renders.

use super::{CommandError, Context, Event, Observer};
use crate::{
    grid::Grid,
    kernel::{Target, Variant},
    plan::{Plan, PlanError},
    render::{self, Edited, OutputFile, RenderError, Renderer, Templates, WriteSummary},
};
use itertools::Itertools;
use std::{collections::BTreeSet, io::ErrorKind, path::Path};

/// The grid and the templates of a caller, ready to render.
pub(super) struct Session {
    pub grid: Grid,
    pub templates: Templates,
    pub renderer: Renderer,
}

impl Session {
    /// Reads the grid and the templates of `context`.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if one of them cannot be read or its content is wrong.
    pub fn open(context: &Context) -> Result<Self, CommandError> {
        let (grid, rendering) = rayon::join(
            || context.grid(),
            || {
                let templates = context.templates()?;
                let renderer = Renderer::new(&templates)?;
                Ok::<_, CommandError>((templates, renderer))
            },
        );
        let (grid, (templates, renderer)) = (grid?, rendering?);
        Ok(Self { grid, templates, renderer })
    }

    /// Plans a variant with its tile from the grid.
    ///
    /// # Errors
    /// The sentence returned by [`plan`].
    pub fn plan(&self, variant: Variant) -> Result<Plan, String> {
        plan(&self.grid, variant)
    }

    /// Plans a variant like [`plan`](Self::plan), but compiled for another target if one is named.
    ///
    /// # Errors
    /// A sentence with the reason, for example that the kernel has no form that runs on the target.
    pub fn plan_to_run_as(&self, variant: Variant, run_as: Option<Target>) -> Result<Plan, String> {
        plan_to_run_as(&self.grid, variant, run_as)
    }

    /// Plans all variants or none.
    ///
    /// # Errors
    /// [`CommandError::Usage`] with the first refusal and the number of others.
    pub fn plan_all(&self, variants: &[Variant], run_as: Option<Target>) -> Result<Vec<Plan>, CommandError> {
        plan_all(&self.grid, variants, run_as)
    }

    /// True if `requested` is exactly the whole grid.
    pub fn is_whole_grid(&self, requested: &[Variant]) -> bool {
        requested.iter().collect::<BTreeSet<_>>() == self.grid.variants().iter().collect()
    }

    /// All files of `folder`, and the plans of all its kernels, once it contains `plans` besides the kernels it `held`;
    /// only `plans` if `requested`, their variants, are the whole grid.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if a template fails or one of its kernels can no longer be rendered.
    pub fn folder_files(
        &self,
        folder: &Path,
        requested: &[Variant],
        mut plans: Vec<Plan>,
        held: &[Variant],
    ) -> Result<(Vec<Plan>, Vec<OutputFile>), CommandError> {
        if !self.is_whole_grid(requested) {
            let requested: BTreeSet<&Variant> = requested.iter().collect();
            let others: Vec<Variant> = held.iter().filter(|v| !requested.contains(v)).copied().collect();
            plans.extend(self.plan_all(&others, None).map_err(|error| {
                let remedy = "`kgen generate --all` drops what the grid does not hold";
                CommandError::Usage(format!(
                    "`{}` holds a kernel that can no longer be made; {remedy}: {error}",
                    folder.display()
                ))
            })?);
        }
        let files = render::tree(&self.renderer, &self.templates, &plans)?;
        Ok((plans, files))
    }
}

/// Plans all variants with their tiles from `grid`, or none.
///
/// # Errors
/// [`CommandError::Usage`] with the first refusal and the number of others.
pub(super) fn plan_all(grid: &Grid, variants: &[Variant], run_as: Option<Target>) -> Result<Vec<Plan>, CommandError> {
    let planned = variants.iter().map(|variant| plan_to_run_as(grid, *variant, run_as));
    let (plans, refused): (Vec<Plan>, Vec<String>) = planned.partition_result();
    match refused.first() {
        None => Ok(plans),
        Some(first) if refused.len() == 1 => Err(CommandError::Usage(first.clone())),
        Some(first) => {
            let (count, all) = (refused.len(), variants.len());
            Err(CommandError::Usage(format!("{count} of {all} variants have no plan; the first: {first}")))
        }
    }
}

fn plan_to_run_as(grid: &Grid, variant: Variant, run_as: Option<Target>) -> Result<Plan, String> {
    let plan = plan(grid, variant)?;
    run_as.map_or(Ok(plan.clone()), |target| plan.to_run_as(target).map_err(|error| error.to_string()))
}

/// Plans `variant` with its tile from `grid`.
///
/// # Errors
/// A sentence: the reason why there is no plan, and the line of the grid if it contains an impossible tile.
pub(super) fn plan(grid: &Grid, variant: Variant) -> Result<Plan, String> {
    Plan::new(variant, grid.tile_override(&variant).as_ref()).map_err(|error| match grid.tile_place(&variant) {
        Some(place) if !matches!(error, PlanError::Unsupported { .. }) => format!("{error}; its `[[tile]]` is at {place}"),
        _ => error.to_string(),
    })
}

/// Warns of edited files of `folder` that were replaced or not removed: the user's work is in the copies.
pub(super) fn warn_of_edited(folder: &Path, summary: &WriteSummary, observer: &dyn Observer) {
    let warn = |message: String| observer.event(Event::Warning { message: &message });
    let shown = |path: &str| folder.join(path).display().to_string();
    for Edited { path, copy } in &summary.edited {
        warn(format!(
            "`{}` held a text that this kgen did not write; it is replaced, and that text kept as `{}`",
            shown(path),
            shown(copy)
        ));
    }
    for path in &summary.kept {
        warn(format!("`{}` is no longer generated but has been edited, so it stays", shown(path)));
    }
}

/// A closure for `map_err` on writes to the folder of `flag`: adds the remedy.
pub(super) fn unwritable(flag: &'static str) -> impl Fn(RenderError) -> CommandError {
    move |error| unwritable_unless(&format!("choose another place with `{flag}`"), error)
}

/// The error of a write to a folder, with the remedy; `other` is the remedy that always works, as a clause.
pub(super) fn unwritable_unless(other: &str, error: RenderError) -> CommandError {
    let RenderError::Io { action: "create" | "write" | "lock" | "remove", source, .. } = &error else {
        return error.into();
    };
    let remedy = match source.kind() {
        // A file that is not kgen's has the path of an output file; the reason already ends with the remedy.
        ErrorKind::InvalidData => return CommandError::Usage(format!("{error}, or {other}")),
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in the way of a folder: move it away",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space and run the command again",
        ErrorKind::ReadOnlyFilesystem => "it is on a file system that is mounted read-only: remount it writable",
        _ => "make it writable",
    };
    CommandError::Usage(format!("{error}; {remedy}, or {other}"))
}
