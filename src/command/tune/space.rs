//! Tiles that may be measured of a kernel, with predicted times, and the sizes to measure them at.

use crate::{
    bench::Size,
    command::{
        CommandError,
        bench::Shape,
        predict::{AllPlans, lesson},
        session::Session,
    },
    family::{self, Rung},
    kernel::{Card, Variant},
    lab::{
        Row,
        ladder::Switch,
        predict::{self, Features, Lesson, Model},
        tune::{Candidate, TUNE},
    },
    plan::Plan,
};
use itertools::Itertools;
use serde_json::{Map, Value};

/// Lengths of the tuned sizes, if none are requested.
const LENGTHS: [u32; 3] = [1024, 4096, 16_384];

/// Lengths between the tuned ones are multiples of this.
const GRAIN: u32 = 16;

/// A kernel's candidates.
pub(super) struct Space {
    pub variant: Variant,
    /// The plan of each candidate.
    pub plans: Vec<Plan>,
    /// The candidates, the default first.
    pub candidates: Vec<Candidate>,
    /// Sizes that tiles are compared at.
    pub tuned: Vec<Size>,
    /// Sizes that confirm the winner.
    pub held_out: Vec<Size>,
}

/// The choices of a kernel's tile.
#[derive(Debug, Default)]
pub(super) struct Rungs {
    /// Those that are taken back, in the order of the candidates after the first.
    pub timed: Vec<Switch>,
    /// Those that cannot be, with the tile that would lack them and the reason.
    pub refused: Vec<(Switch, Map<String, Value>, String)>,
}

impl Space {
    /// The candidates of a variant on a card, with times predicted from the project's lessons and `lessons`. `None` if
    /// the kernel has one tile only, or is not timed by itself.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if the variant has no plan.
    pub fn new(
        variant: Variant,
        session: &Session,
        card: &Card,
        lessons: &[Lesson],
        [tuned, held_out]: [Vec<Size>; 2],
    ) -> Result<Option<Self>, CommandError> {
        let default = session.plan(variant).map_err(CommandError::Usage)?;
        let near = family::candidates(variant).map_err(|error| CommandError::Usage(error.to_string()))?;
        let tile = tile(&default);
        let plans: Vec<Plan> = std::iter::once(default).chain(near.filter(|plan| self::tile(plan) != tile)).collect();
        Ok(Self::of(plans, variant, card, lessons, [tuned, held_out]))
    }

    /// The kernel of a variant and, as candidates, the kernels that lack one of its choices each; and the choices that
    /// cannot be taken back. `None` as of [`new`](Self::new).
    ///
    /// # Errors
    /// [`CommandError`] if the variant has no plan or a kernel cannot be rendered.
    pub fn of_rungs(
        variant: Variant,
        session: &Session,
        card: &Card,
        lessons: &[Lesson],
        sizes: [Vec<Size>; 2],
    ) -> Result<Option<(Self, Rungs)>, CommandError> {
        let default = session.plan(variant).map_err(CommandError::Usage)?;
        let text_of = |plan: &Plan| session.renderer.kernel(plan).map(|source| source.hash);
        let mut texts = vec![text_of(&default)?];
        let (mut plans, mut rungs) = (vec![default], Rungs::default());
        for Rung { switch, from, to, tile, plan } in family::rungs(&plans[0]) {
            let switch = Switch { switch: switch.to_owned(), from, to };
            match plan {
                Err(reason) => rungs.refused.push((switch, tile, reason)),
                Ok(plan) => {
                    let text = text_of(&plan)?;
                    if texts.contains(&text) {
                        rungs.refused.push((switch, tile, "the kernel's text does not depend on it".to_owned()));
                        continue;
                    }
                    texts.push(text);
                    plans.push(plan);
                    rungs.timed.push(switch);
                }
            }
        }
        Ok(Self::of(plans, variant, card, lessons, sizes).map(|space| (space, rungs)))
    }

    /// The candidates with these plans, the first of which is the default's.
    fn of(
        plans: Vec<Plan>,
        variant: Variant,
        card: &Card,
        lessons: &[Lesson],
        [tuned, held_out]: [Vec<Size>; 2],
    ) -> Option<Self> {
        let model = Model::learn(predict::built_in().iter().chain(lessons));
        let candidate = |plan: &Plan| {
            let logarithms: Option<Vec<f64>> = tuned.iter().map(|size| predicted(plan, size, card, &model)).collect();
            let logarithms = logarithms.filter(|all| !all.is_empty())?;
            Some(Candidate {
                tile: self::tile(plan),
                predicted: (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp(),
                registers: plan.registers.total,
                shared_memory_bytes: plan.shared_memory_bytes,
            })
        };
        let candidates: Option<Vec<Candidate>> = plans.iter().map(candidate).collect();
        let candidates = candidates.filter(|candidates| candidates.len() > 1);
        candidates.map(|candidates| Self { variant, plans, candidates, tuned, held_out })
    }

    /// Without the candidates that `keep` is false for; the default stays.
    pub fn retain(&mut self, keep: impl Fn(&Candidate) -> bool) {
        let kept: Vec<bool> =
            self.candidates.iter().enumerate().map(|(place, candidate)| place == 0 || keep(candidate)).collect();
        let mut of_plans = kept.iter();
        self.plans.retain(|_| of_plans.next() == Some(&true));
        let mut of_candidates = kept.iter();
        self.candidates.retain(|_| of_candidates.next() == Some(&true));
    }

    /// The plan of a candidate.
    pub fn plan(&self, candidate: &Candidate) -> Option<&Plan> {
        self.candidates.iter().position(|other| other.tile == candidate.tile).map(|place| &self.plans[place])
    }
}

/// Logarithm of the predicted time of a plan at a size.
fn predicted(plan: &Plan, size: &Size, card: &Card, model: &Model) -> Option<f64> {
    let estimate = family::estimate(plan, size, card)?;
    let features = Features::of(plan, size, &estimate, card);
    Some(model.predict(&features, estimate.microseconds, estimate.floor_microseconds).microseconds.ln())
}

/// The keys of a plan's tile.
pub(super) fn tile(plan: &Plan) -> Map<String, Value> {
    match serde_json::to_value(plan.tile()) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

/// What rows teach of a card's kernels other than `variant`: those of `kgen bench`, and those of searches that lie
/// before the first row of the variant's own, so that a search and its continuation learn the same. Rows of variants
/// that are `tuned` by the same command teach only through its searches.
pub(super) fn lessons(rows: &[Row], card: &Card, variant: Variant, tuned: &[Variant], session: &Session) -> Vec<Lesson> {
    let own = variant.name();
    let first = rows.iter().position(|row| row.bench == TUNE && row.kernel_name() == own).unwrap_or(rows.len());
    let teaches = |(place, row): &(usize, &Row)| {
        let is_of_card = Card::named(row.gpu()).is_some_and(|of_row| of_row.name == card.name);
        let is_known = match row.bench.as_str() {
            "kgen bench" => row.variant().is_some_and(|of_row| !tuned.contains(&of_row)),
            TUNE => *place < first && row.variant().is_some_and(|of_row| of_row != variant),
            _ => false,
        };
        is_of_card && is_known
    };
    let plans = AllPlans::new(|variant| session.plan(variant).ok());
    let taught = rows.iter().enumerate().filter(teaches);
    taught.filter_map(|(_, row)| lesson(row, |variant, tile| plans.with_tile(variant, tile))).collect()
}

/// The tuned sizes: those requested, with the default's lengths if no length is.
pub(super) fn tuned(shape: &Shape) -> Shape {
    let mut shape = shape.clone();
    if shape.seqlen.is_empty() && shape.seqlen_k.is_empty() {
        shape.seqlen = LENGTHS.to_vec();
    }
    shape
}

/// The sizes of a confirmation: those tuned, with the lengths `wanted`, or else lengths between the tuned ones.
pub(super) fn held_out(tuned: &Shape, wanted: &[u32]) -> Shape {
    let mut shape = tuned.clone();
    let lengths = if shape.seqlen.is_empty() { &mut shape.seqlen_k } else { &mut shape.seqlen };
    *lengths = if wanted.is_empty() { between(lengths) } else { wanted.to_vec() };
    shape
}

/// Geometric means of neighbouring lengths; three quarters of a single one.
fn between(lengths: &[u32]) -> Vec<u32> {
    let rounded = |length: f64| ((length / f64::from(GRAIN)).round() as u32 * GRAIN).max(1);
    let sorted: Vec<f64> = lengths.iter().copied().sorted_unstable().dedup().map(f64::from).collect();
    match sorted[..] {
        [only] => vec![rounded(0.75 * only)],
        _ => sorted.iter().tuple_windows().map(|(low, high)| rounded((low * high).sqrt())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_lengths_lie_between_the_tuned_ones() {
        assert_eq!(between(&[4096, 1024, 16_384]), [2048, 8192]);
        assert_eq!(between(&[512]), [384]);
        let asked = Shape { seqlen_k: vec![1024, 4096], ..Shape::default() };
        assert_eq!(held_out(&tuned(&asked), &[]), Shape { seqlen_k: vec![2048], ..asked.clone() });
        assert_eq!(held_out(&asked, &[100]).seqlen_k, [100]);
        assert_eq!(tuned(&Shape::default()).seqlen, LENGTHS);
    }
}
