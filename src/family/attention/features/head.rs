//! Changes of scores and weights that the features of a call make, for one query head of one sequence.

use super::{AdditionGradient, FEATURES, FeatureRoom};
use crate::family::attention::{CallOptions, oracle::problem::Problem};

/// A query head of one sequence of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallHead {
    /// The options of the call.
    pub options: CallOptions,
    /// Sequence.
    pub sequence: usize,
    /// Query head.
    pub head: usize,
    /// Query heads per sequence.
    pub heads: usize,
}

/// Maximum number of features of one call that change scores in the same way, or weights.
const MOST: usize = 2;

/// The features of a call that change the scores, or the weights, of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Changes {
    of: CallHead,
    rooms: [Option<&'static dyn FeatureRoom>; MOST],
}

impl Changes {
    /// The changes of the rooms that `has` selects; `None` if it selects none.
    fn of(of: CallHead, has: impl Fn(&dyn FeatureRoom) -> bool) -> Option<Self> {
        let mut found = FEATURES.iter().copied().filter(|room| has(*room));
        let rooms = [(); MOST].map(|()| found.next());
        assert!(found.next().is_none(), "more than {MOST} features change the same");
        rooms[0].is_some().then_some(Self { of, rooms })
    }

    fn rooms(&self) -> impl Iterator<Item = &'static dyn FeatureRoom> {
        self.rooms.into_iter().flatten()
    }
}

/// Factors of the weights of a head in their product with V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors(Changes);

impl Factors {
    /// The factors of a head; `None` if no feature of the call multiplies weights.
    pub fn of(head: CallHead) -> Option<Self> {
        Changes::of(head, |room| room.largest_factor(&head.options).is_some()).map(Self)
    }

    /// The factor of the weight of a query and a key.
    pub fn value(&self, row: usize, key: usize) -> f64 {
        self.0.rooms().map(|room| room.factor(&self.0.of, row, key)).product()
    }

    /// The largest factor.
    pub fn largest(&self) -> f64 {
        largest_factor(&self.0.of.options)
    }
}

/// The largest factor of a weight in a call.
pub fn largest_factor(options: &CallOptions) -> f64 {
    FEATURES.iter().filter_map(|room| room.largest_factor(options)).product()
}

/// Additions to the scores of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Additions(Changes);

impl Additions {
    /// The additions of a head; `None` if no feature of the call adds to scores.
    pub fn of(head: CallHead) -> Option<Self> {
        Changes::of(head, |room| room.largest_addition(&head.options).is_some()).map(Self)
    }

    /// The addition to the score of a query and a key: exact in every type, or -∞.
    pub fn value(&self, row: usize, key: usize) -> f64 {
        self.0.rooms().map(|room| room.addition(&self.0.of, row, key)).sum()
    }

    /// The largest finite magnitude.
    pub fn largest(&self) -> f64 {
        self.0.rooms().filter_map(|room| room.largest_addition(&self.0.of.options)).sum()
    }

    /// True if an addition may hide a key.
    pub fn hide_keys(&self) -> bool {
        self.0.rooms().any(|room| room.hides_keys(&self.0.of.options))
    }
}

/// The gradients of the tensors that a call adds to scores.
pub fn addition_gradients(problem: &Problem) -> Vec<AdditionGradient> {
    FEATURES.iter().filter_map(|room| room.addition_gradient(problem)).collect()
}
