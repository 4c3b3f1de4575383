//! Timing of attention: sizes, tensors, the work of a call, and a float64 check of single output rows.
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod declared;
mod sample;
mod shape;
mod trial;
mod work;

pub(super) use shape::{Shape, shapes};
pub(super) use trial::{AttentionTrial, splits};
pub(super) use work::{flops, key_value_bytes};
