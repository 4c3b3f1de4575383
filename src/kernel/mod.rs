//! Kernels as values: the computation of a kernel and its position on the axes of the grid. The base of all other
//! modules: independent of families, plans, templates, compilers and devices.

mod axes;
mod cards;
mod features;
mod gpus;
mod head_dim;
mod kind;
mod tile;
mod variant;
mod words;

pub use axes::{Dtype, Target, UnknownWord};
pub use cards::{Card, CardConstant, DRAM_PER_MILLE, EXPONENTIALS_A_CYCLE, L2_BYTES_A_CYCLE, Measured, Source, flops_a_cycle};
pub use features::{Feature, FeatureInfo, FeatureRule, Features};
pub(crate) use features::{read_word as read_features, score_name_taken};
pub use gpus::{GPUS, Gpu, capability_of, capability_text, is_gpu};
pub use head_dim::{HeadDim, HeadDimError, ReadHeadDimError};
pub use kind::{Axis, Kind, KindInfo};
pub use tile::{TileKey, TileOverride, TileType, TileValue};
pub use variant::{Coordinates, Variant};
pub use words::{AxisWord, Misread, read as read_word};
