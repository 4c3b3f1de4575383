//! Attention as it is timed: its sizes, its tensors, the work of a call, and float64 for single rows of what it leaves.

mod declared;
mod sample;
mod shape;
mod trial;
mod work;

pub(super) use shape::{Shape, shapes};
pub(super) use trial::{AttentionTrial, splits};
