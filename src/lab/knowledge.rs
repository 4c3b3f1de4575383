//! The knowledge base: what was tried in the kernels, with its measured effect, and which kernels it is part of.

use super::flat;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{str::FromStr, sync::OnceLock};

/// The records, as `scripts/knowledge.py` checks them.
const RECORDS: &str = include_str!("../../docs/knowledge/patterns.toml");

/// What was tried, and what it gained or lost.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Record {
    /// Its number: `K-007`.
    pub id: String,
    /// What it is.
    pub name: String,
    /// The outcome.
    pub status: Standing,
    /// Kinds of the kernels that it was tried in.
    pub kinds: Vec<String>,
    /// Their targets.
    pub targets: Vec<String>,
    /// Conditions on the plan of a kernel that has it; without these and without `source` no kernel is known to.
    plan: Option<Vec<Condition>>,
    /// Names in the source of a kernel that has it.
    source: Option<Vec<String>>,
    /// Where it applies.
    pub when: String,
    /// Why it has its effect.
    pub mechanism: String,
    /// The measured effect.
    pub effect: String,
}

/// The outcome of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Faster.
    #[serde(rename = "helps")]
    Helps,
    /// Within the noise.
    #[serde(rename = "no effect")]
    NoEffect,
    /// Slower.
    #[serde(rename = "hurts")]
    Hurts,
}

impl Standing {
    /// The word in the records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::NoEffect => "no effect",
            Self::Hurts => "hurts",
        }
    }
}

/// A condition on a value of a plan: `tile.m = 192`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Condition {
    key: String,
    comparison: Comparison,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    AtMost,
    AtLeast,
    In,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        let [key, comparison, value] = words[..] else { return Err(format!("`{text}` is no key, comparison and value")) };
        let comparison = match comparison {
            "=" => Comparison::Equal,
            "<=" => Comparison::AtMost,
            ">=" => Comparison::AtLeast,
            "in" => Comparison::In,
            other => return Err(format!("`{other}` is no comparison; they are `=`, `<=`, `>=` and `in`")),
        };
        let value = serde_json::from_str(value).map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self { key: key.to_owned(), comparison, value })
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Condition {
    /// True if the plan has the value.
    fn holds(&self, plan: &Map<String, Value>) -> bool {
        let Some(found) = plan.get(&self.key) else { return false };
        let ordered =
            |is: fn(&f64, &f64) -> bool| found.as_f64().zip(self.value.as_f64()).is_some_and(|(found, limit)| is(&found, &limit));
        match self.comparison {
            Comparison::Equal => *found == self.value,
            Comparison::AtMost => ordered(f64::le),
            Comparison::AtLeast => ordered(f64::ge),
            Comparison::In => self.value.as_array().is_some_and(|values| values.contains(found)),
        }
    }
}

/// The records that are part of a kernel, by its plan and its source.
pub fn records_of(plan: &Plan, source: &str) -> Vec<&'static Record> {
    let (variant, values) = (plan.variant, flat(plan));
    let code: String = source.lines().filter_map(|line| line.split("//").next()).flat_map(|code| [code, "\n"]).collect();
    let has_name = |name: &String| has_word(&code, name);
    let is_of = |record: &&Record| {
        record.is_tied()
            && record.kinds.iter().any(|kind| kind == variant.kind().name())
            && record.targets.iter().any(|target| target == variant.target().name())
            && record.plan.iter().flatten().all(|condition| condition.holds(&values))
            && record.source.iter().flatten().all(has_name)
    };
    records().iter().filter(is_of).collect()
}

impl Record {
    /// True if the record says which kernels have it.
    fn is_tied(&self) -> bool {
        self.plan.is_some() || self.source.is_some()
    }
}

/// True if the text has the name, not as a part of a longer one.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// All records, in the order of their numbers.
fn records() -> &'static [Record] {
    #[derive(Deserialize)]
    struct File {
        pattern: Vec<Record>,
    }
    static READ: OnceLock<Vec<Record>> = OnceLock::new();
    READ.get_or_init(|| toml::from_str::<File>(RECORDS).map(|file| file.pattern).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use serde_json::json;

    #[test]
    fn the_records_are_read_and_most_say_which_kernels_have_them() {
        toml::from_str::<toml::Value>(RECORDS).expect("TOML");
        assert!(records().len() > 80, "{}", records().len());
        assert!(records().iter().filter(|record| record.is_tied()).count() > 50);
    }

    #[test]
    fn conditions_are_on_values_that_plans_of_the_kernels_have() {
        let plans: Vec<(Plan, Map<String, Value>)> = Grid::builtin()
            .variants()
            .iter()
            .filter_map(|variant| Plan::new(*variant, None).ok())
            .map(|plan| {
                let values = flat(&plan);
                (plan, values)
            })
            .collect();
        for record in records() {
            let of_kinds = || plans.iter().filter(|(plan, _)| record.kinds.iter().any(|kind| kind == plan.variant.kind().name()));
            for condition in record.plan.iter().flatten() {
                let is_known = of_kinds().any(|(_, values)| values.contains_key(&condition.key));
                assert!(is_known, "{}: no plan has `{}`", record.id, condition.key);
            }
        }
    }

    #[test]
    fn conditions_compare_the_values_of_a_plan() {
        let plan = flat(&json!({ "tile": { "m": 192, "turns": "products" } }));
        let holds = |text: &str| text.parse::<Condition>().expect("a condition").holds(&plan);
        for text in ["tile.m = 192", "tile.m <= 192", "tile.m >= 64", "tile.m in [64, 192]", "tile.turns = \"products\""] {
            assert!(holds(text), "{text}");
        }
        for text in ["tile.m = 64", "tile.m <= 191", "tile.m >= 193", "tile.m in [64]", "tile.turns >= 1", "tile.n = 1"] {
            assert!(!holds(text), "{text}");
        }
        for text in ["tile.m", "tile.m = ", "tile.m ~ 1"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_a_whole_word() {
        assert!(has_word("a(); merge(b)", "merge") && !has_word("merged(); remerge()", "merge"));
    }
}
