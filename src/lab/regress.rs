//! Comparison of two measurements of the same work: under another compiler, driver or kgen. Kernels whose machine code
//! did not change show the noise between the two measurements.

use super::{Row, row::text};
use crate::bench::{median, percentile};
use itertools::Itertools;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// Minimum number of cases with unchanged machine code from which a noise floor is computed.
const LEAST_UNCHANGED: usize = 8;

/// Fraction of the unchanged cases that the floor covers.
const WITHIN: f64 = 0.95;

/// Circumstances by which a side can be named instead of the id of a run.
const CIRCUMSTANCES: [&str; 5] = ["nvcc", "driver", "kgen", "commit", "date"];

/// One side of a comparison: the prefix of a run's id, or a circumstance such as `nvcc=13.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// Runs whose id begins with this.
    Run(String),
    /// Rows whose circumstance begins with this value.
    Circumstance(String, String),
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(Self::Run(text.to_owned())),
            Some((name, value)) if CIRCUMSTANCES.contains(&name) && !value.is_empty() => {
                Ok(Self::Circumstance(name.to_owned(), value.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is neither the beginning of a run's id nor one of {} with a value, such as `nvcc=13.0`",
                CIRCUMSTANCES.iter().map(|name| format!("`{name}=`")).join(", ")
            )),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(id) => f.write_str(id),
            Self::Circumstance(name, value) => write!(f, "{name}={value}"),
        }
    }
}

impl Side {
    /// True if the row belongs to this side.
    pub fn has(&self, row: &Row) -> bool {
        match self {
            Self::Run(id) => row.run_id().starts_with(id.as_str()),
            Self::Circumstance(name, value) => {
                let stated = if name == "nvcc" { row.kernel_fact(name) } else { text(&row.run, name) };
                stated.starts_with(value.as_str())
            }
        }
    }
}

/// Outcome of one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The new time is longer by more than the noise.
    Slower,
    /// The new time is shorter by more than the noise.
    Faster,
    /// The difference is within the noise.
    Tie,
    /// The machine code is the same: the difference is noise.
    Unchanged,
}

/// One case that both sides have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The kernel, or the peer.
    pub kernel: String,
    /// The case.
    pub case: String,
    /// The card.
    pub gpu: String,
    /// Median microseconds before.
    pub old_us: f64,
    /// Median microseconds after.
    pub new_us: f64,
    /// `new_us / old_us`.
    pub ratio: f64,
    /// True if the source of the kernel is the same; `None` if a side does not state it.
    pub same_source: Option<bool>,
    /// True if the machine code is the same; `None` if a side does not state it.
    pub same_code: Option<bool>,
    /// The outcome.
    pub verdict: Verdict,
}

/// Comparison of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regression {
    /// The old side as named.
    pub old: String,
    /// The new side as named.
    pub new: String,
    /// Noise floor: 95 % of the cases with unchanged machine code differ by at most this fraction. `None` if there are
    /// fewer than 8 of them; then intervals that overlap are a tie.
    pub floor: Option<f64>,
    /// Number of cases with unchanged machine code.
    pub unchanged: usize,
    /// Geometric mean of the ratios of the other cases; `None` if there are none.
    pub mean_ratio: Option<f64>,
    /// Slower cases first, and the largest differences first.
    pub changes: Vec<Change>,
    /// Cases that both sides have, but timed with other plans: another warm-up, or other rounds.
    pub other_plans: usize,
    /// Cases of the old side that the new one lacks.
    pub only_old: usize,
    /// Cases of the new side that the old one lacks.
    pub only_new: usize,
}

/// The rows of one case on one side.
#[derive(Default)]
struct Measured<'a>(Vec<&'a Row>);

impl Measured<'_> {
    /// Median over processes of their median times.
    fn median_us(&self) -> Option<f64> {
        median(self.0.iter().filter_map(|row| row.median_us()))
    }

    /// The smallest range that contains the intervals of all processes.
    fn interval(&self) -> Option<[f64; 2]> {
        self.0.iter().filter_map(|row| row.interval()).reduce(|[low, high], [l, h]| [low.min(l), high.max(h)])
    }

    /// A fact about the kernel, if all rows state the same.
    fn fact(&self, name: &str) -> Option<&str> {
        let stated = self.0.iter().map(|row| row.kernel_fact(name)).all_equal_value().ok()?;
        Some(stated).filter(|stated| !stated.is_empty())
    }
}

/// Compares the rows of two sides, case by case.
pub fn regress(rows: &[Row], old: &Side, new: &Side) -> Regression {
    let of = |side: &Side| {
        let mut cases = BTreeMap::<_, Measured>::new();
        for row in rows.iter().filter(|row| row.foreign.is_none() && !row.is_rung() && row.median_us().is_some() && side.has(row))
        {
            cases.entry(row.key()).or_default().0.push(row);
        }
        cases
    };
    let (before, after) = (of(old), of(new));
    let pairs = || before.iter().filter_map(|(key, old)| Some((key, old, after.get(key)?)));
    let same = |old: &Measured, new: &Measured, name: &str| Some(old.fact(name)? == new.fact(name)?);
    let ratio = |old: &Measured, new: &Measured| Some(new.median_us()? / old.median_us()?);
    let noise: Vec<f64> = pairs()
        .filter(|(_, old, new)| same(old, new, "sass") == Some(true))
        .filter_map(|(_, old, new)| Some(ratio(old, new)?.ln().abs()))
        .collect();
    let unchanged = noise.len();
    let floor = percentile(noise, WITHIN).filter(|_| unchanged >= LEAST_UNCHANGED).map(f64::exp_m1);
    let verdict = |old: &Measured, new: &Measured, ratio: f64| {
        if same(old, new, "sass") == Some(true) {
            return Verdict::Unchanged;
        }
        let apart = match (floor, old.interval(), new.interval()) {
            (Some(floor), ..) => ratio.ln().abs() > floor.ln_1p(),
            (None, Some(old), Some(new)) => old[1] < new[0] || new[1] < old[0],
            (None, ..) => false,
        };
        match apart {
            false => Verdict::Tie,
            true if ratio > 1.0 => Verdict::Slower,
            true => Verdict::Faster,
        }
    };
    let changes: Vec<Change> = pairs()
        .filter_map(|([kernel, _, gpu, ..], old, new)| {
            let (old_us, new_us) = (old.median_us()?, new.median_us()?);
            let ratio = new_us / old_us;
            Some(Change {
                kernel: kernel.clone(),
                case: new.0.first().map(|row| row.with_searched_tile(&row.case))?,
                gpu: gpu.clone(),
                old_us,
                new_us,
                ratio,
                same_source: same(old, new, "source"),
                same_code: same(old, new, "sass"),
                verdict: verdict(old, new, ratio),
            })
        })
        .sorted_by(|a, b| {
            a.verdict.cmp(&b.verdict).then(b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs())).then_with(|| a.case.cmp(&b.case))
        })
        .collect();
    let logarithms: Vec<f64> =
        changes.iter().filter(|change| change.verdict != Verdict::Unchanged).map(|change| change.ratio.ln()).collect();
    let mean_ratio = (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp());
    let missing = |from: &BTreeMap<_, Measured>, other: &BTreeMap<[String; 6], Measured>| {
        from.keys().filter(|&key| !other.contains_key(key)).count()
    };
    // The plan is the last part of a key.
    let subjects = |of: &BTreeMap<[String; 6], Measured>, other: &BTreeMap<[String; 6], Measured>| {
        let keys = of.keys().filter(|&key| !other.contains_key(key));
        keys.map(|key| key[..5].to_vec()).collect::<BTreeSet<_>>()
    };
    let other_plans = subjects(&before, &after).intersection(&subjects(&after, &before)).count();
    Regression {
        old: old.to_string(),
        new: new.to_string(),
        floor,
        unchanged,
        mean_ratio,
        other_plans,
        only_old: missing(&before, &after),
        only_new: missing(&after, &before),
        changes,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::row::tests::{row, searched},
        *,
    };
    use serde_json::json;

    /// A row of run `run` whose kernel is called `kernel`.
    fn measured(run: &str, kernel: &str, sass: &str, microseconds: f64) -> Row {
        let mut row = row(run, "2026-11-27T00:00:00Z", microseconds);
        let facts = row.kernel.as_mut().expect("a kernel");
        facts.insert("name".to_owned(), json!(kernel));
        facts.insert("sass".to_owned(), json!(sass));
        row
    }

    fn sides() -> [Side; 2] {
        ["a", "b"].map(|text| text.parse().expect("a run"))
    }

    #[test]
    fn kernels_that_did_not_change_give_the_floor_of_those_that_did() {
        let mut rows = Vec::new();
        for place in 0..20 {
            rows.push(measured("a", &format!("same{place:02}"), "x", 100.0));
            // Differences of 0.1 % to 2 %.
            rows.push(measured("b", &format!("same{place:02}"), "x", 100.0 + 0.1 * f64::from(place + 1)));
        }
        for (kernel, after) in [("slow", 103.0), ("fast", 97.0), ("tie", 101.0)] {
            rows.push(measured("a", kernel, "x", 100.0));
            rows.push(measured("b", kernel, "y", after));
        }
        rows.push(measured("b", "new", "y", 1.0));
        let [old, new] = sides();
        let found = regress(&rows, &old, &new);
        // The 19th of 20: 1.9 %.
        assert!((found.floor.expect("20 unchanged") - 0.019).abs() < 1e-9, "{:?}", found.floor);
        assert_eq!((found.unchanged, found.only_old, found.only_new), (20, 0, 1));
        let verdicts: Vec<_> = found.changes.iter().take(3).map(|change| (change.kernel.as_str(), change.verdict)).collect();
        assert_eq!(verdicts, [("slow", Verdict::Slower), ("fast", Verdict::Faster), ("tie", Verdict::Tie)]);
        let mean = found.mean_ratio.expect("three changed");
        assert!((mean - (1.03_f64 * 0.97 * 1.01).cbrt()).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn without_a_floor_intervals_decide_and_unknown_code_is_no_noise() {
        let mut rows = vec![measured("a", "one", "", 100.0), measured("b", "one", "", 100.5)];
        let [old, new] = sides();
        let found = regress(&rows, &old, &new);
        // These intervals are points that do not overlap.
        assert_eq!((found.floor, found.changes[0].verdict, found.changes[0].same_code), (None, Verdict::Slower, None));
        for row in &mut rows {
            let numbers = row.numbers.as_mut().expect("numbers");
            numbers["microseconds"]["interval"] = json!([99.0, 101.0]);
        }
        assert_eq!(regress(&rows, &old, &new).changes[0].verdict, Verdict::Tie);
    }

    #[test]
    fn tiles_of_a_search_are_compared_with_the_same_tile_and_not_with_the_kernel() {
        let of_run = |run: &str, factor: f64| {
            let own = measured(run, "one", "x", 100.0 * factor);
            [searched(&measured(run, "one", "y", 200.0 * factor), 128, 64), searched(&own, 128, 128), own]
        };
        let [old, new] = sides();
        let rows = [of_run("a", 1.0), of_run("b", 1.5)].concat();
        let found = regress(&rows, &old, &new);
        assert_eq!((found.changes.len(), found.only_old, found.only_new), (3, 0, 0));
        for change in &found.changes {
            assert!((change.ratio - 1.5).abs() < 1e-12, "{change:?}");
        }
        let cases: Vec<&str> = found.changes.iter().map(|change| change.case.as_str()).sorted().collect();
        let case = "flash_fwd_hdim128_bf16_sm90 batch=1";
        assert_eq!(cases, [case.to_owned(), format!("{case}, copy=tma m=128 n=128"), format!("{case}, copy=tma m=128 n=64")]);
        // The kernel was timed on one side, and another of its tiles on the other.
        let apart = regress(&[of_run("a", 1.0)[2].clone(), of_run("b", 1.0)[0].clone()], &old, &new);
        assert_eq!((apart.changes.len(), apart.only_old, apart.only_new), (0, 1, 1));
    }

    #[test]
    fn other_cards_sizes_types_layouts_caches_and_timing_plans_are_not_compared() {
        let base = measured("a", "one", "x", 100.0);
        let found = |edit: fn(&mut Row)| {
            let mut other = measured("b", "one", "x", 100.0);
            edit(&mut other);
            let [old, new] = sides();
            let found = regress(&[base.clone(), other], &old, &new);
            (found.changes.len(), found.only_old, found.only_new, found.other_plans)
        };
        for edit in [
            |row: &mut Row| row.run["gpu"] = json!({ "name": "NVIDIA H100" }),
            |row: &mut Row| row.shape["batch"] = json!(2),
            |row: &mut Row| row.dtype = Some("fp16".to_owned()),
            |row: &mut Row| row.layout = Some("packed".to_owned()),
            |row: &mut Row| row.numbers.as_mut().expect("numbers")["l2"] = json!("cold"),
        ] {
            assert_eq!(found(edit), (0, 1, 1, 0));
        }
        for edit in [
            |row: &mut Row| row.run["plan"]["warm_up_ms"] = json!(100.0),
            |row: &mut Row| row.run["plan"]["rounds"] = json!(30),
            |row: &mut Row| row.run["plan"]["graph"] = json!(true),
        ] {
            assert_eq!(found(edit), (0, 1, 1, 1));
        }
        assert_eq!(found(|_| ()), (1, 0, 0, 0));
    }

    #[test]
    fn sides_are_runs_or_circumstances() {
        let row = row("abc", "2026-11-27T00:00:00Z", 1.0);
        for (text, has) in [
            ("abc", true),
            ("ab", true),
            ("abd", false),
            ("nvcc=13.0", true),
            ("nvcc=12", false),
            ("driver=580", true),
            ("kgen=0.2", false),
        ] {
            assert_eq!(text.parse::<Side>().expect("a side").has(&row), has, "{text}");
        }
        for text in ["", "zzz", "nvcc=", "colour=red"] {
            assert!(text.parse::<Side>().is_err(), "{text}");
        }
    }
}
