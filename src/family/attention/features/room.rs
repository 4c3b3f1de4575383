//! A feature's room: the trait that the rest of the family requires of each feature.

use super::{AdditionGradient, Borders, CallHead};
use crate::{
    check::{Change, Number},
    device::{Field, Image},
    family::attention::{
        CallOptions, Point, abi::AttentionFeatures, fuzz::FuzzCase, oracle::backward::BackwardProblem, oracle::problem::Problem,
        oracle::split::Listed, random::Draw,
    },
    kernel::{Feature, HeadDim},
};
use std::fmt;

/// A change that makes a call simpler.
pub type Simpler = fn(&mut CallOptions);

/// A feature of attention. The defaults of the methods do nothing.
pub trait FeatureRoom: Sync {
    /// The feature.
    fn feature(&self) -> Feature;

    /// True if a call, causal or not, needs a kernel with the feature.
    fn is_wanted(&self, _options: &CallOptions, _causal: bool) -> bool {
        false
    }

    /// The feature's words in a case's name, each after a space.
    fn words(&self, _options: &CallOptions) -> Option<String> {
        None
    }

    /// Parses a word of a case's name into the options, the reverse of `words`. `None` if it is another feature's word.
    fn read(&self, _word: &str, _options: &mut CallOptions) -> Option<Result<(), String>> {
        None
    }

    /// The feature's numbers in the structures of both passes, by their paths in C, as in a call without the feature.
    fn numbers(&self) -> &'static [(&'static str, Field)] {
        &[]
    }

    /// The numbers that only the backward pass's structure has.
    fn gradient_numbers(&self) -> &'static [(&'static str, Field)] {
        &[]
    }

    /// Writes the feature's parameters to those of both passes, for a call with `heads` query heads.
    fn enter(&self, _options: &CallOptions, _heads: usize, _params: &mut AttentionFeatures) {}

    /// Writes the parameters that depend on the problem's lengths or on the type of Q, `number`.
    fn enter_shape(&self, _problem: &Problem, _number: Number, _params: &mut AttentionFeatures) {}

    /// The tensors that the feature adds to a call of either pass, with a Q of type `number`, by their names in
    /// `kgen.h`.
    fn tensors(&self, _problem: &Problem, _number: Number) -> Vec<(&'static str, Image)> {
        Vec::new()
    }

    /// The largest factor of a weight, if the feature multiplies the weights of a call in their product with V.
    fn largest_factor(&self, _options: &CallOptions) -> Option<f64> {
        None
    }

    /// The factor of a weight, in such a call.
    fn factor(&self, _of: &CallHead, _row: usize, _key: usize) -> f64 {
        1.0
    }

    /// The largest finite magnitude of an addition to a score, if the feature adds to the scores of a call.
    fn largest_addition(&self, _options: &CallOptions) -> Option<f64> {
        None
    }

    /// The addition to a score, in such a call.
    fn addition(&self, _of: &CallHead, _row: usize, _key: usize) -> f64 {
        0.0
    }

    /// True if an addition may be -∞, which hides the key.
    fn hides_keys(&self, _options: &CallOptions) -> bool {
        false
    }

    /// The gradient of the tensor that such a call adds.
    fn addition_gradient(&self, _problem: &Problem) -> Option<AdditionGradient> {
        None
    }

    /// Changes any problem into one that a kernel with the feature supports.
    fn fit(&self, _problem: &mut Problem, _kernel: Point) {}

    /// The reason why the dispatcher would refuse the call, if it uses the feature and there is one.
    fn complaint(&self, _case: &FuzzCase) -> Option<String> {
        None
    }

    /// Adds the feature to a call, with parameters that leave most rows part of their keys. `n`: keys per tile.
    fn request(&self, _options: &mut CallOptions, _n: usize) {}

    /// The cases of a forward kernel with the feature.
    fn forward(&self, _borders: &Borders) -> Vec<Problem> {
        Vec::new()
    }

    /// The cases of a split-KV kernel that serves the feature.
    fn splits(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// Additional cases of a thorough check of such a kernel.
    fn splits_thoroughly(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// The cases of a backward kernel with the feature.
    fn backward(&self, _borders: &Borders) -> Vec<BackwardProblem> {
        Vec::new()
    }

    /// Modified calls that a kernel must refuse, or must accept, because it has the feature.
    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        Vec::new()
    }

    /// Modified calls that a kernel must refuse because it does not serve the feature.
    fn without(&self, _kernel: Point) -> &'static [Change] {
        &[]
    }

    /// The base problem for the refusals of a split-KV kernel with the feature, derived from the plain one.
    fn in_refusals(&self, plain: Problem) -> Problem {
        plain
    }

    /// Modified calls that every kernel refuses, with or without the feature.
    fn out_of_range(&self) -> &'static [Change] {
        &[]
    }

    /// Expectations for a structure of the first version passed to a forward kernel with the feature, if they differ.
    fn of_first_version(&self) -> Option<&'static [Change]> {
        None
    }

    /// True if the fuzzer uses the feature only in some calls of a kernel that has it.
    fn is_optional(&self) -> bool {
        self.feature().info().is_mask_or_score
    }

    /// Draws the feature's options of a call.
    fn draw(&self, _draw: &mut Draw<'_>, _options: &mut CallOptions) {}

    /// Changes a drawn problem that uses the feature into one that its kernels support.
    fn fit_drawn(&self, _problem: &mut Problem, _head_dim: HeadDim) {}

    /// Removes the feature from a failing call, if a kernel without it may support the rest.
    fn leave_out(&self, _options: &mut CallOptions) {}

    /// Simplifications of a failing call, one aspect each.
    fn plainer(&self) -> &'static [Simpler] {
        &[]
    }
}

impl PartialEq for dyn FeatureRoom {
    fn eq(&self, other: &Self) -> bool {
        self.feature() == other.feature()
    }
}

impl fmt::Debug for dyn FeatureRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.feature().fmt(formatter)
    }
}
