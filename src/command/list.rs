//! Lists the variants of a selection without building anything.

mod compiled;

use super::{CommandError, Context, Observer, SelectionRequest, session};
use crate::{
    kernel::{Dtype, Features, Kind, Target, Variant},
    plan::{self, Plan},
};
use compiled::Compiled;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Request of a list. The default is the whole grid without plans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// Add the plan of each variant: tile, shared memory, registers, blocks per multiprocessor.
    pub plan: bool,
    /// Build folder with the report on registers of compiled kernels; read only with `plan`.
    pub build_dir: PathBuf,
}

impl Default for Request {
    fn default() -> Self {
        Self { selection: SelectionRequest::default(), plan: false, build_dir: "build".into() }
    }
}

/// The list.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// An entry for each variant, in their order.
    pub entries: Vec<Entry>,
    /// Sentences on the selection, for people.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A variant. Scripts rely on the first six keys of its JSON.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Name of the kernel.
    pub name: String,
    /// Kind of the kernel.
    pub kind: Kind,
    /// Head dim of Q and K, in elements; null, as `dtype` and `causal`, for the helper kernels that have none.
    pub head_dim: Option<u32>,
    /// Head dim of V and O, in elements.
    pub head_dim_v: Option<u32>,
    /// Element type.
    pub dtype: Option<Dtype>,
    /// True for a causal mask.
    pub causal: Option<bool>,
    /// Features that a call may request; null if `dtype` is.
    pub features: Option<Features>,
    /// GPU architecture that it is compiled for.
    pub target: Target,
    /// Compute capabilities that run its machine code.
    pub runs_on: Vec<String>,
    /// True if newer GPUs run it by compiling its PTX.
    pub newer_by_ptx: bool,
    /// The plan, if requested and available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The reason for a missing plan, if plans were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_error: Option<String>,
    /// Registers per thread reported by the compiler, if the last build compiled the same source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled_registers: Option<u32>,
}

/// Lists the variants.
///
/// # Errors
/// [`CommandError::Usage`] if nothing is selected.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let grid = context.grid()?;
    let Request { selection, plan: with_plan, build_dir } = request;
    let variants = selection.resolve(context, &grid, observer)?;
    let mut entries: Vec<Entry> =
        variants.iter().map(|variant| Entry::new(*variant, with_plan.then(|| session::plan(&grid, *variant)))).collect();
    if *with_plan && let Some(compiled) = Compiled::read(context, build_dir)? {
        entries
            .par_iter_mut()
            .for_each(|entry| entry.compiled_registers = entry.plan.as_ref().and_then(|p| compiled.registers(p)));
    }
    Ok(Outcome { notes: selection.notes(context, &grid, &variants), entries })
}

impl Outcome {
    /// Fails if plans were requested and a variant has none.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the first reason.
    pub fn verdict(&self) -> Result<(), CommandError> {
        let mut unplanned = self.entries.iter().filter_map(|entry| entry.plan_error.as_deref());
        let Some(first) = unplanned.next() else { return Ok(()) };
        Err(CommandError::Failed(match self.entries.len() {
            1 => format!("no plan: {first}"),
            all => format!("{} of {all} variants have no plan; the first: {first}", 1 + unplanned.count()),
        }))
    }
}

impl Entry {
    pub(crate) fn new(variant: Variant, plan: Option<Result<Plan, String>>) -> Self {
        let at = variant.coordinates();
        let (plan, plan_error) = match plan {
            None => (None, None),
            Some(Ok(plan)) => (Some(plan), None),
            Some(Err(error)) => (None, Some(error)),
        };
        Self {
            name: variant.name(),
            kind: variant.kind(),
            head_dim: at.head_dim.map(|head_dim| head_dim.qk),
            head_dim_v: at.head_dim.map(|head_dim| head_dim.v),
            dtype: at.dtype,
            causal: at.causal,
            features: at.features,
            target: at.target,
            runs_on: plan::capabilities_of_machine_code(at.target),
            newer_by_ptx: at.target.carries_ptx(),
            plan,
            plan_error,
            compiled_registers: None,
        }
    }
}
