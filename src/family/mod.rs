//! The table of families. A family is a struct, its folder here, its folder of templates, and a line in this table:
//! what its kernels are called, which point of the grid each is, how it is planned, what proves it, and how much it
//! does.
//!
//! The rooms that all kernels share (`grid`, `plan`, `render`, `build`, `check`, `bench`) see a kernel as a [`Variant`]
//! and a [`Plan`], and ask this table where the answer depends on the family.

pub mod append_kv;
pub mod attention;
mod kind;
pub mod reduce;
mod rotary;
pub mod transpose;
pub mod vector_add;

pub use kind::{Axis, Coordinates, Kind, KindInfo};

use crate::{
    bench::{Bench, Size, Trial, Wanted},
    check::{Case, Level, Subject, Tiling},
    grid::{Dtype, HeadDim, Target, TileOverride},
    plan::{Plan, PlanError},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What every point of the grid can say of itself, whatever its family.
pub trait Point: Copy + Into<Variant> {
    /// Which of the family's kinds, as its place in [`Family::KINDS`].
    fn place(&self) -> usize;

    /// Where it lies on the axes that the grid has; `None` on those that its kind has not.
    fn coordinates(&self) -> Coordinates;

    /// The one name of this variant: file stem, launcher symbol, cache label.
    fn name(&self) -> String;
}

/// A family of kernels: everything that is not the same for all kernels.
pub trait Family {
    /// One kernel of the family.
    type Point: Point;

    /// What its plans hold besides what all plans hold.
    type Design: Serialize;

    /// Its folder below `templates/`.
    const TEMPLATES: &'static str;

    /// What the names of its kernels begin with.
    const PREFIX: &'static str;

    /// What its kernels compute; their order is that of lists.
    const KINDS: &'static [KindInfo];

    /// The kernel of a kind at these coordinates, which hold a value for each axis of the kind.
    fn point(place: usize, at: &Coordinates) -> Self::Point;

    /// Plans a kernel with its default tile, changed by what `variants.toml` says.
    ///
    /// # Errors
    /// [`PlanError`] when the target cannot run it, a resource is exceeded, or a tile key is one that it does not read.
    fn plan(point: Self::Point, change: Option<&TileOverride>) -> Result<Plan, PlanError>;

    /// The kernel of a plan, compiled for `target` instead of the point's own.
    ///
    /// # Errors
    /// [`PlanError`] where the kernel has no such form, or does not fit there.
    fn to_run_as(point: Self::Point, design: &Self::Design, target: Target) -> Result<Plan, PlanError>;

    /// How a plan cuts its work, for cases whose sizes depend on that.
    fn tiling(point: Self::Point, design: &Self::Design) -> Tiling;

    /// The sizes that a kernel is timed at, of what a user asks for; none for one that is not timed by itself.
    fn sizes(point: Self::Point, wanted: &Wanted) -> Vec<Size>;

    /// A kernel at a size, to be timed; `None` where it is no size of the family's.
    fn trial<'a>(point: Self::Point, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>>;

    /// What proves a kernel right, in order.
    fn cases(subject: &Subject<Self::Point>, level: Level) -> Vec<Box<dyn Case>>;

    /// A random call of the family's dispatcher function, of about `size` (from 1 up), that it must serve; the same for
    /// a seed each time. `None`: the family draws none by size and seed.
    fn random_case(_point: Self::Point, _size: u32, _seed: u64) -> Option<Box<dyn Case>> {
        None
    }
}

/// A family, as the shared rooms see it.
#[derive(Debug)]
pub struct Entry {
    /// What its kernels compute.
    pub kinds: &'static [KindInfo],
    /// Its folder below `templates/`.
    pub templates: &'static str,
    /// What the names of its kernels begin with.
    pub prefix: &'static str,
}

/// Writes down the families once: the type of a variant, of a plan's design, and which family answers for them.
macro_rules! families {
    ($($(#[$doc:meta])* $name:ident: $module:ident,)+) => {
        /// One kernel: what is asked for, nothing of how it is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(untagged)]
        pub enum Variant {
            $($(#[$doc])* $name(<$module::$name as Family>::Point),)+
        }

        /// What a plan holds that only its family knows: the tile, and what follows from it.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Design {
            $($(#[$doc])* $name(<$module::$name as Family>::Design),)+
        }

        /// The tile of a plan, to be printed.
        #[derive(Clone, Copy, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Tile<'a> {
            $($(#[$doc])* $name(&'a $module::Tile),)+
        }

        $(impl From<<$module::$name as Family>::Point> for Variant {
            fn from(point: <$module::$name as Family>::Point) -> Self {
                Self::$name(point)
            }
        })+

        /// Every family, as the shared rooms see it.
        pub const TABLE: &[Entry] = &[$(Entry {
            kinds: <$module::$name as Family>::KINDS,
            templates: <$module::$name as Family>::TEMPLATES,
            prefix: <$module::$name as Family>::PREFIX,
        }),+];

        /// Places of the families in `TABLE`.
        #[derive(Clone, Copy)]
        #[repr(u8)]
        enum Row {
            $($name,)+
        }

        impl Kind {
            /// The kernel of this kind at these coordinates, which hold a value for each of its axes.
            pub fn at(self, coordinates: &Coordinates) -> Variant {
                let (row, place) = self.places();
                $(if row == Row::$name as u8 {
                    return Variant::$name($module::$name::point(place, coordinates));
                })+
                unreachable!("a kind is one of a family's")
            }
        }

        impl Variant {
            /// What it computes.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$name(point) => Kind::of(Row::$name as u8, point.place()),)+
                }
            }

            /// Where it lies on the grid's axes.
            pub fn coordinates(&self) -> Coordinates {
                match self {
                    $(Self::$name(point) => point.coordinates(),)+
                }
            }

            /// The one name of this variant: file stem, launcher symbol, cache label.
            pub fn name(&self) -> String {
                match self {
                    $(Self::$name(point) => point.name(),)+
                }
            }

            /// The cases that prove a kernel right at a level, in order.
            pub fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
                match self {
                    $(Self::$name(point) => $module::$name::cases(&subject.of(*point), level),)+
                }
            }
        }

        impl Variant {
            /// A random call of about `size` that its dispatcher function must serve, the same for a seed each time;
            /// `None` where its family draws none.
            pub fn random_case(&self, size: u32, seed: u64) -> Option<Box<dyn Case>> {
                match self {
                    $(Self::$name(point) => $module::$name::random_case(*point, size, seed),)+
                }
            }

            /// The sizes that it is timed at, of what a user asks for; none where it is not timed by itself.
            pub fn sizes(&self, wanted: &Wanted) -> Vec<Size> {
                match self {
                    $(Self::$name(point) => $module::$name::sizes(*point, wanted),)+
                }
            }

            /// The kernel at a size, to be timed; `None` where it is no size of its family's.
            pub fn trial<'a>(&self, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
                match self {
                    $(Self::$name(point) => $module::$name::trial(*point, size, bench),)+
                }
            }
        }

        impl Plan {
            /// Plans `variant` with its default tile, or with `change` where `variants.toml` holds one.
            ///
            /// # Errors
            /// [`PlanError`] when the target cannot run it, a resource is exceeded, or the change names a key that the
            /// kernel does not read.
            pub fn new(variant: impl Into<Variant>, change: Option<&TileOverride>) -> Result<Self, PlanError> {
                match variant.into() {
                    $(Variant::$name(point) => $module::$name::plan(point, change),)+
                }
            }

            /// The same kernel compiled for `target` instead of its own, as near to this plan as the instructions that
            /// both have allow.
            ///
            /// # Errors
            /// [`PlanError`] where the kernel has no such form, or does not fit there.
            pub fn to_run_as(&self, target: Target) -> Result<Self, PlanError> {
                match (self.variant, &self.design) {
                    $((Variant::$name(point), Design::$name(design)) => $module::$name::to_run_as(point, design, target),)+
                    _ => unreachable!("a plan's design is of its variant's family"),
                }
            }

            /// How it cuts its work.
            pub fn tiling(&self) -> Tiling {
                match (self.variant, &self.design) {
                    $((Variant::$name(point), Design::$name(design)) => $module::$name::tiling(point, design),)+
                    _ => unreachable!("a plan's design is of its variant's family"),
                }
            }

            /// Its tile.
            pub fn tile(&self) -> Tile<'_> {
                match &self.design {
                    $(Design::$name(design) => Tile::$name(&design.tile),)+
                }
            }
        }

        impl fmt::Display for Tile<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(tile) => tile.fmt(f),)+
                }
            }
        }
    };
}

families! {
    /// Flash Attention: forward, backward, split-KV and its helpers.
    Attention: attention,
    /// Sum of two vectors.
    VectorAdd: vector_add,
    /// Transposition of a matrix.
    Transpose: transpose,
    /// Reductions of rows to one number.
    Reduce: reduce,
    /// New rows of K and V into a KV cache, with rotary embedding.
    AppendKv: append_kv,
}

impl Kind {
    /// Whether attention kernels compute it.
    pub fn is_attention(self) -> bool {
        self.places().0 == Row::Attention as u8
    }
}

impl Variant {
    /// The attention kernel that it is, if it is one.
    pub fn attention(&self) -> Option<attention::Point> {
        if let Self::Attention(point) = self { Some(*point) } else { None }
    }

    /// The architecture it is generated for.
    pub fn target(&self) -> Target {
        self.coordinates().target
    }

    /// Element type of its inputs; `None` where one kernel serves all.
    pub fn dtype(&self) -> Option<Dtype> {
        self.coordinates().dtype
    }

    /// Elements of one head's row of each tensor; attention alone has it.
    pub fn head_dim(&self) -> Option<HeadDim> {
        self.coordinates().head_dim
    }

    /// Whether its mask is causal; attention alone has one.
    pub fn causal(&self) -> Option<bool> {
        self.coordinates().causal
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
