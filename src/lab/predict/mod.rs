//! Prediction of times: the estimate of a plan, corrected by what was measured.
//!
//! A [`Lesson`] is a measured row with the [`Features`] of its call. A [`Model`] learns from lessons the logarithm of
//! measured over estimated time: a ridge regression, and the mean of the regression's errors over similar calls. Errors
//! of calls whose length, head dim or card the model has not seen give the [`interval`](Prediction::interval) and the
//! tables of [`validate`].

mod features;
mod lesson;
mod model;
pub(super) mod regression;
mod validate;

pub use features::{COUNT, Features};
pub use lesson::{Lesson, built_in, text_of};
pub use model::{Model, Prediction};
pub use validate::{Errors, Held, Validation, held_out, validate};
