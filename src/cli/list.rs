//! `kgen list`.

use super::{
    CliError, Format, Global,
    select::{SelectionArgs, load_grid},
};
use crate::{
    grid::{Dtype, Grid, Kind, Target, Variant},
    plan::{Plan, PlanError},
};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

const EXAMPLES: &str = "\
Examples:
  kgen list                                                the whole grid
  kgen list --dtype bf16 --causal --target ampere          a slice of it
  kgen list --head-dim 72 --plan                           a head dim outside the grid, with its plan
  kgen list --filter 'hdim >= 128 and dtype == bf16'       a condition
  kgen list --set standard-74 --format json                a named set, for scripts
  kgen --variants my.toml list                             another grid";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Add how each variant would be done: tile, shared memory, registers, blocks per multiprocessor.
    #[arg(long)]
    plan: bool,
}

/// One line of the list. The first six keys of its JSON are what scripts rely on.
#[derive(Serialize)]
struct Entry {
    name: String,
    kind: Kind,
    /// Null, as `dtype` and `causal`, for the helper kernels that have none.
    head_dim: Option<u32>,
    dtype: Option<Dtype>,
    causal: Option<bool>,
    target: Target,
    /// With `--plan`; null where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Option<Plan>>,
    /// With `--plan`: why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] where nothing is selected, [`CliError::VariantFailed`] where `--plan` finds a variant without one.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let grid = load_grid(global)?;
    let variants = args.selection.resolve(&grid)?;
    let entries: Vec<Entry> =
        variants.iter().map(|variant| Entry::new(variant, args.plan.then(|| plan(&grid, variant)))).collect();
    let text = match global.format {
        Format::Human => table(&entries, args.plan),
        Format::Json => json(&entries)?,
    };
    print(text.as_bytes())?;
    if let Some(note) = args.selection.note(&grid) {
        eprintln!("note: {note}");
    }
    let unplanned: Vec<&str> = entries.iter().filter_map(|entry| entry.plan_error.as_deref()).collect();
    if let Some(first) = unplanned.first() {
        let count = format!("{} of {}", unplanned.len(), entries.len());
        return Err(CliError::VariantFailed(format!("{count} variants have no plan; the first: {first}")));
    }
    Ok(())
}

fn plan(grid: &Grid, variant: &Variant) -> Result<Plan, PlanError> {
    Plan::new(*variant, grid.tile_override(variant).as_ref())
}

impl Entry {
    fn new(variant: &Variant, plan: Option<Result<Plan, PlanError>>) -> Self {
        let shape = variant.kind.has_shape();
        let plan_error = plan.as_ref().and_then(|plan| plan.as_ref().err()).map(ToString::to_string);
        Self {
            name: variant.name(),
            kind: variant.kind,
            head_dim: shape.then_some(variant.head_dim),
            dtype: shape.then_some(variant.dtype),
            causal: shape.then_some(variant.causal),
            target: variant.target,
            plan: plan.map(Result::ok),
            plan_error,
        }
    }

    fn cells(&self) -> Vec<String> {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let mask = self.causal.map(|causal| if causal { "causal" } else { "full" }.to_owned());
        let mut cells = vec![
            self.name.clone(),
            self.kind.to_string(),
            or_dash(self.head_dim.map(|head_dim| head_dim.to_string())),
            or_dash(self.dtype.map(|dtype| dtype.to_string())),
            or_dash(mask),
            self.target.to_string(),
        ];
        if let Some(plan) = &self.plan {
            let of = |cell: &dyn Fn(&Plan) -> String| or_dash(plan.as_ref().map(cell));
            cells.push(of(&|plan| format!("{}×{}, {} warps", plan.tile.m, plan.tile.n, plan.tile.warps)));
            cells.push(of(&|plan| plan.shared_memory_bytes.to_string()));
            cells.push(of(&|plan| plan.registers.total.to_string()));
            cells.push(of(&|plan| plan.occupancy.blocks_per_sm.to_string()));
        }
        cells
    }
}

fn table(entries: &[Entry], with_plan: bool) -> String {
    let mut header = vec!["name", "kind", "head dim", "dtype", "mask", "target"];
    let mut numbers = vec![2];
    if with_plan {
        header.extend(["tile", "smem (B)", "regs", "blocks/SM"]);
        numbers.extend([7, 8, 9]);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header).add_rows(entries.iter().map(Entry::cells));
    for column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let plural = if entries.len() == 1 { "" } else { "s" };
    format!("{}\n\n{} variant{plural}\n", table.trim_fmt(), entries.len())
}

fn json(entries: &[Entry]) -> Result<String, CliError> {
    let text =
        serde_json::to_string_pretty(entries).map_err(|error| CliError::VariantFailed(format!("cannot write JSON: {error}")))?;
    Ok(text + "\n")
}

/// Writes a command's result to standard output. A reader that has seen enough (`kgen list | head -1`) is no error.
///
/// # Errors
/// [`CliError::Environment`] where standard output cannot be written for another reason.
pub(super) fn print(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
