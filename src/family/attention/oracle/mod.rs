//! Attention in float64 and the means to compare with it: problems drawn from a seed, their tensors in every memory
//! layout that a caller may use, forward and backward references, and the errors that arithmetic allows.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

pub(super) mod addition_gradient;
pub(super) mod append;
pub(super) mod arithmetic;
pub(super) mod backward;
pub(super) mod cache;
pub(super) mod descale;
pub(super) mod dims;
pub(super) mod gradients;
pub(super) mod memory_layout;
pub(super) mod page_descales;
pub(super) mod pages;
pub(super) mod problem;
pub(super) mod reference;
pub(super) mod rules;
pub(super) mod split;
pub(super) mod tensors;
pub(super) mod tolerance;
