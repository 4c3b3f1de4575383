//! The part of a plan that is specific to the kernel's family.

use super::{Plan, Tiling};
use crate::kernel::Variant;
use serde::{Serialize, Serializer};
use std::{any::Any, fmt, sync::Arc};

/// The tile of a plan, for output and manifests.
pub trait Tile: fmt::Display + erased_serde::Serialize {}

impl<T: fmt::Display + Serialize> Tile for T {}

erased_serde::serialize_trait_object!(Tile);

/// The part of a plan that is specific to its family: the tile, and values derived from it. Templates read its fields.
pub trait Design: fmt::Debug + PartialEq + Serialize + Send + Sync + 'static {
    /// The tile.
    fn tile(&self) -> &dyn Tile;

    /// The tiling of a variant.
    fn tiling(&self, variant: &Variant) -> Tiling;
}

/// A [`Design`] with its type erased.
trait Erased: Any + fmt::Debug + Send + Sync + erased_serde::Serialize {
    fn tile(&self) -> &dyn Tile;
    fn tiling(&self, variant: &Variant) -> Tiling;
    fn equals(&self, other: &dyn Erased) -> bool;
}

erased_serde::serialize_trait_object!(Erased);

impl<D: Design> Erased for D {
    fn tile(&self) -> &dyn Tile {
        Design::tile(self)
    }

    fn tiling(&self, variant: &Variant) -> Tiling {
        Design::tiling(self, variant)
    }

    fn equals(&self, other: &dyn Erased) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }
}

/// A [`Design`] of any family.
#[derive(Clone)]
pub struct AnyDesign(Arc<dyn Erased>);

impl AnyDesign {
    pub(crate) fn new(design: impl Design) -> Self {
        Self(Arc::new(design))
    }
}

impl PartialEq for AnyDesign {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

impl fmt::Debug for AnyDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for AnyDesign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Plan {
    /// The tile.
    pub fn tile(&self) -> &dyn Tile {
        self.design.0.tile()
    }

    /// The tiling.
    pub fn tiling(&self) -> Tiling {
        self.design.0.tiling(&self.variant)
    }

    /// The design, for the family that created this plan.
    ///
    /// # Panics
    /// If the plan is of another family.
    pub fn own_design<D: Design>(&self) -> &D {
        self.design_as().unwrap_or_else(|| panic!("`{}` is planned by another family", self.variant))
    }

    /// The design, if it is of this type.
    pub fn design_as<D: Design>(&self) -> Option<&D> {
        let design: &dyn Any = &*self.design.0;
        design.downcast_ref()
    }
}
