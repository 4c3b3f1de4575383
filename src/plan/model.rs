//! The resource model: shared-memory map, register estimate, occupancy, and the checks that refuse a plan.

use super::{Plan, PlanError, Tile};
use crate::grid::Variant;

/// Resolves every number of a plan from its tile and checks them against the target.
pub(super) fn resolve(_variant: Variant, _tile: Tile) -> Result<Plan, PlanError> {
    unimplemented!()
}
