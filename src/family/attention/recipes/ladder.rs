//! The switches of a kernel's tile, each taken back by itself: the kernel that it would be without this choice.

use super::{Point, Recipe, Tile, resolve};
use crate::{
    family::{Rung, attention::tile_keys::KEYS},
    kernel::{TileOverride, TileValue},
    plan::{Plan, PlanError},
};
use serde_json::{Map, Value};

/// How a switch is taken back.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// To the largest number that is permitted and at most three quarters of the plan's: a smaller step is tuning.
    Fewer,
    /// To the smallest number that is permitted.
    Fewest,
    /// To this value.
    To(TileValue),
}

/// Keys with values.
type Values = &'static [(&'static str, TileValue)];

/// A key, how it is taken back, and what may change with it, the preferred first: rules of some kernels tie keys
/// together.
struct Switch {
    key: &'static str,
    back: Back,
    with: &'static [Values],
}

const ALONE: &[Values] = &[&[]];

const WITH_WARPS: &[Values] = &[
    &[],
    &[("warps", TileValue::Count(12))],
    &[("warps", TileValue::Count(8))],
    &[("warps", TileValue::Count(4))],
    &[("warps", TileValue::Count(2))],
    // One warpgroup has nobody to take turns with.
    &[("warps", TileValue::Count(8)), ("turns", TileValue::Word("none"))],
];

/// The next scores need a second stage.
const WITHOUT_OVERLAP: &[Values] = &[&[], &[("overlap", TileValue::Flag(false))]];

/// The switches, in the order of ladders: copies, the main loop, occupancy, sizes.
const SWITCHES: &[Switch] = &[
    Switch { key: "copy", back: Back::To(TileValue::Word("cp_async")), with: ALONE },
    Switch { key: "store", back: Back::To(TileValue::Word("direct")), with: ALONE },
    Switch { key: "cluster", back: Back::To(TileValue::Count(1)), with: ALONE },
    Switch { key: "stages", back: Back::Fewest, with: WITHOUT_OVERLAP },
    Switch { key: "persistent", back: Back::To(TileValue::Flag(false)), with: ALONE },
    Switch { key: "overlap", back: Back::To(TileValue::Flag(false)), with: ALONE },
    Switch { key: "turns", back: Back::To(TileValue::Word("none")), with: ALONE },
    Switch { key: "rescale_threshold", back: Back::To(TileValue::Count(0)), with: ALONE },
    Switch { key: "fp8_mma", back: Back::To(TileValue::Word("fp32")), with: ALONE },
    Switch { key: "q_in_registers", back: Back::To(TileValue::Flag(false)), with: ALONE },
    Switch { key: "min_blocks_per_sm", back: Back::To(TileValue::Count(1)), with: ALONE },
    Switch { key: "m", back: Back::Fewer, with: WITH_WARPS },
    Switch { key: "n", back: Back::Fewer, with: WITH_WARPS },
    Switch { key: "warps", back: Back::Fewer, with: ALONE },
];

/// The switches that `point`'s kernel with `tile` uses, each taken back.
///
/// # Errors
/// [`PlanError`] if there is no kernel for `point`.
pub(in crate::family::attention) fn rungs(point: Point, tile: Tile) -> Result<Vec<Rung>, PlanError> {
    let recipe = resolve::recipe(point)?;
    let used = SWITCHES.iter().filter(|switch| recipe.keys().contains(&switch.key));
    Ok(used.filter_map(|switch| switch.rung(point, recipe, tile)).collect())
}

impl Switch {
    /// The values that take this switch back, the preferred first; none if it is not used. And the value whose reason
    /// is given if no rule permits any.
    fn values(&self, now: &Value) -> (Vec<TileValue>, Option<TileValue>) {
        let count = now.as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
        let values: Vec<TileValue> = match self.back {
            Back::Fewer => (1..=count * 3 / 4).rev().map(TileValue::Count).collect(),
            Back::Fewest => (1..count).map(TileValue::Count).collect(),
            Back::To(value) => Some(value).filter(|value| json(*value) != *now).into_iter().collect(),
        };
        let first = values.first().copied();
        (values, if matches!(self.back, Back::Fewer) { Some(TileValue::Count(count / 2)) } else { first })
    }

    /// The first valid change that takes the switch back, or the reason why there is none; `None` if the tile does not
    /// use it.
    fn rung(&self, point: Point, recipe: &dyn Recipe, tile: Tile) -> Option<Rung> {
        let (values, usual) = self.values(&keys(tile)[self.key]);
        let mut refused = None;
        for value in values {
            for others in self.with {
                let alone = set(self.key, value);
                let change = others.iter().fold(alone, |all, (key, value)| set(key, *value).over(all));
                let other = tile.changed(&change);
                match plan(point, recipe, other) {
                    Ok(plan) => return Some(self.step(tile, other, Ok(plan))),
                    Err(reason) if Some(value) == usual => _ = refused.get_or_insert((other, reason)),
                    Err(_) => {}
                }
            }
        }
        refused.map(|(other, reason)| self.step(tile, other, Err(reason)))
    }

    fn step(&self, tile: Tile, other: Tile, plan: Result<Plan, String>) -> Rung {
        let (now, then) = (keys(tile), keys(other));
        let changed = |of: &Map<String, Value>| {
            let differs = |(key, _): &(&String, &Value)| now[*key] != then[*key];
            of.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        Rung { switch: self.key, from: changed(&now), to: changed(&then), tile: then, plan }
    }
}

fn plan(point: Point, recipe: &dyn Recipe, tile: Tile) -> Result<Plan, String> {
    match recipe.broken_rule(point, &tile) {
        Some(rule) => Err(rule),
        None => resolve::resolve(point, None, recipe, tile).map_err(|error| error.to_string()),
    }
}

/// A change of one key.
fn set(key: &str, value: TileValue) -> TileOverride {
    let key = KEYS.iter().find(|known| known.name == key);
    key.map_or_else(TileOverride::default, |key| TileOverride::default().with(key, value))
}

fn json(value: TileValue) -> Value {
    match value {
        TileValue::Count(count) => count.into(),
        TileValue::Flag(flag) => flag.into(),
        TileValue::Word(word) => word.into(),
    }
}

fn keys(tile: Tile) -> Map<String, Value> {
    match serde_json::to_value(tile) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::{self, attention::Kind},
        kernel::{Dtype, Features, HeadDim, Target},
    };

    /// A kernel of head dim 128 in bf16.
    fn point(kind: Kind, target: Target) -> Point {
        Point { kind, head_dim: HeadDim::equal(128), dtype: Dtype::Bf16, causal: false, features: Features::NONE, target }
    }

    /// The switches of a kernel as texts: what changes, or `refused`.
    fn texts(kind: Kind, target: Target) -> Vec<String> {
        let plan = Plan::new(point(kind, target), None).expect("a plan");
        let text = |values: &Map<String, Value>| values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let of = |rung: Rung| match rung.plan {
            Ok(plan) => {
                assert_eq!(keys(plan.attention().tile), rung.tile);
                format!("{}: {} -> {}", rung.switch, text(&rung.from).join(" "), text(&rung.to).join(" "))
            }
            Err(_) => format!("{}: refused at {}", rung.switch, text(&rung.to).join(" ")),
        };
        family::rungs(&plan).into_iter().map(of).collect()
    }

    #[test]
    fn each_switch_is_named_once_and_is_a_key() {
        for (place, switch) in SWITCHES.iter().enumerate() {
            assert!(SWITCHES[..place].iter().all(|earlier| earlier.key != switch.key), "{}", switch.key);
            let named =
                || std::iter::once(switch.key).chain(switch.with.iter().flat_map(|with| with.iter().map(|(key, _)| *key)));
            assert!(named().all(|key| KEYS.iter().any(|known| known.name == key)), "{}", switch.key);
        }
    }

    #[test]
    fn a_switch_is_taken_back_alone_or_with_the_keys_that_rules_tie_to_it() {
        let hopper = [
            "copy: refused at copy=\"cp_async\"",
            "stages: overlap=true stages=2 -> overlap=false stages=1",
            "persistent: persistent=true -> persistent=false",
            "overlap: overlap=true -> overlap=false",
            "turns: turns=\"products\" -> turns=\"none\"",
            "rescale_threshold: rescale_threshold=8 -> rescale_threshold=0",
            "m: m=192 warps=16 -> m=128 warps=12",
            "n: n=80 -> n=48",
            "warps: refused at warps=8",
        ];
        assert_eq!(texts(Kind::Fwd, Target::Sm90), hopper);
        let split = [
            "stages: stages=3 -> stages=2",
            "rescale_threshold: rescale_threshold=8 -> rescale_threshold=0",
            "q_in_registers: q_in_registers=true -> q_in_registers=false",
            "min_blocks_per_sm: min_blocks_per_sm=2 -> min_blocks_per_sm=1",
            "m: refused at m=8",
            "n: n=64 warps=4 -> n=32 warps=2",
            "warps: warps=4 -> warps=2",
        ];
        assert_eq!(texts(Kind::FwdSplit, Target::Sm90), split, "one stage has no room for O");
        let backward = ["stages: stages=2 -> stages=1", "m: m=64 -> m=32", "n: n=128 -> n=64", "warps: refused at warps=4"];
        assert_eq!(texts(Kind::Bwd, Target::Sm80), backward);
        let hopper_backward = [
            "copy: refused at copy=\"cp_async\"",
            "stages: stages=3 -> stages=2",
            "m: refused at m=32",
            "n: refused at n=64",
            "warps: refused at warps=6",
        ];
        assert_eq!(texts(Kind::Bwd, Target::Sm90), hopper_backward);
        assert_eq!(texts(Kind::FwdCombine, Target::Sm80), [""; 0], "helpers have no tile");
    }
}
