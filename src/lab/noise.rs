//! The noise of measurements: how much the times of the same machine code differ between processes.

use super::Row;
use crate::bench::{median, percentile};
use itertools::Itertools;
use serde::Serialize;

/// Fraction of the pairs of processes that a floor covers.
const WITHIN: f64 = 0.95;

/// The noise of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// The kernel, or the peer.
    pub kernel: String,
    /// The case.
    pub case: String,
    /// The card.
    pub gpu: String,
    /// Number of runs that measured the case.
    pub runs: usize,
    /// Median microseconds over the runs.
    pub microseconds: f64,
    /// 95 % of the pairs of runs differ by at most this fraction.
    pub floor: f64,
    /// Median over runs of the half width of their 95 % intervals, as a fraction of the time: the noise that the rounds
    /// of one process suggest. `None` if a run has no interval.
    pub claimed: Option<f64>,
}

/// The noise of each case that at least two runs measured with the same machine code and timing plan, largest first.
/// Rows that do not state their machine code are compared if they state the same source.
pub fn noise(rows: &[Row]) -> Vec<Noise> {
    let code = |row: &Row| {
        let sass = row.kernel_fact("sass");
        if sass.is_empty() { row.kernel_fact("source").to_owned() } else { sass.to_owned() }
    };
    let measured = rows.iter().filter(|row| row.foreign.is_none() && row.median_us().is_some());
    let cases = measured.map(|row| ((row.key(), row.driver(), code(row)), row)).into_group_map();
    let of_case = |rows: Vec<&Row>| {
        let times: Vec<f64> = rows.iter().filter_map(|row| row.median_us()).sorted_by(f64::total_cmp).collect();
        let apart = times.iter().array_combinations().map(|[low, high]| (high / low).ln());
        let floor = percentile(apart, WITHIN)?.exp_m1();
        let claimed: Option<Vec<f64>> = rows
            .iter()
            .map(|row| row.interval().zip(row.median_us()).map(|([low, high], median)| (high - low) / 2.0 / median))
            .collect();
        let row = rows.first()?;
        Some(Noise {
            kernel: row.key()[0].clone(),
            case: row.with_searched_tile(&row.case),
            gpu: row.gpu().to_owned(),
            runs: rows.len(),
            microseconds: median(times)?,
            floor,
            claimed: claimed.and_then(median),
        })
    };
    let found = cases.into_values().filter_map(of_case);
    let place = |noise: &Noise| (noise.case.clone(), noise.gpu.clone(), noise.kernel.clone(), noise.runs);
    let order = |a: &Noise, b: &Noise| b.floor.total_cmp(&a.floor).then_with(|| place(a).cmp(&place(b)));
    found.sorted_by(|a, b| order(a, b).then_with(|| a.microseconds.total_cmp(&b.microseconds))).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::row::tests::{row, searched},
        *,
    };
    use serde_json::json;

    #[test]
    fn the_floor_is_what_runs_of_the_same_code_differ_by() {
        let mut rows: Vec<Row> = [100.0, 101.0, 102.0]
            .iter()
            .enumerate()
            .map(|(place, time)| row(&place.to_string(), "2026-11-27T00:00:00Z", *time))
            .collect();
        let [found] = noise(&rows).try_into().expect("one case");
        assert!((found.floor - 0.02).abs() < 1e-12 && found.runs == 3 && found.claimed == Some(0.0), "{found:?}");
        // Different machine code is a different case, and a single run has no noise.
        rows[2].kernel.as_mut().expect("a kernel").insert("sass".to_owned(), json!("other"));
        let [found] = noise(&rows).try_into().expect("one case");
        assert!((found.floor - 0.01).abs() < 1e-12 && found.runs == 2, "{found:?}");
        assert_eq!(noise(&rows[2..]), []);
        // Neither is what a search timed in turns with other tiles, though its machine code is the same.
        let alone = noise(&[rows[0].clone(), searched(&rows[1], 128, 128)]);
        assert_eq!(alone, []);
        let [found] =
            noise(&rows[..2].iter().map(|row| searched(row, 128, 64)).collect::<Vec<_>>()).try_into().expect("one case");
        assert_eq!(found.case, "flash_fwd_hdim128_bf16_sm90 batch=1, copy=tma m=128 n=64");
        // Neither is what was timed for longer a repetition.
        rows[1].run["plan"]["measure_ms"] = json!(4000.0);
        assert_eq!(noise(&rows), []);
    }
}
