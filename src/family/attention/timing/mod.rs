//! Attention as it is timed: its sizes, its tensors, the work of a call, and float64 for single rows of what it leaves.
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod declared;
mod sample;
mod shape;
mod trial;
mod work;

pub(super) use shape::{Shape, shapes};
pub(super) use trial::{AttentionTrial, splits};
