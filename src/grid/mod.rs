//! What is asked for: the axes as types, the schema of `variants.toml`, its expansion, filters and sets.
//! Knows nothing of plans, templates, compilers or terminals.
//!
//! ```text
//! text ─▶ schema ─▶ declare ─▶ expand ─▶ select ─▶ variants
//! ```

mod axes;
mod declare;
mod error;
mod expand;
mod features;
mod filter;
mod gpus;
mod head_dim;
mod schema;
mod select;
mod tile;
mod words;

#[cfg(test)]
mod bad_input;

pub use crate::family::{Kind, Variant};
pub use crate::text::suggestion;
pub use axes::{Dtype, Target, UnknownWord};
pub use declare::Set;
pub use error::GridError;
pub use expand::{Excluded, Grid};
pub use features::{Feature, Features};
pub use filter::{Filter, FilterError};
pub use gpus::{GPUS, Gpu, capability_of, capability_text, is_gpu};
pub use head_dim::{HeadDim, HeadDimError, ReadHeadDimError};
pub use select::{SelectError, Selection};
pub use tile::{Accuracy, CopyPath, Fp8Mma, StorePath, TileOverride, Turns};
pub use words::{AxisWord, Misread, read as read_word};
