//! Cases as their latest runs measured them: what the pictures show.

use super::super::Row;
use crate::bench::median;
use itertools::Itertools;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A case of one contender, from all processes of the latest run that timed it.
#[derive(Debug, Clone)]
pub(super) struct Measured<'a> {
    /// One of its rows.
    pub row: &'a Row,
    /// Number of rows: processes that timed it.
    pub rows: usize,
    /// Median over the processes of their median microseconds.
    pub microseconds: f64,
    /// The smallest range that holds the 95 % intervals of all processes.
    pub interval: Option<[f64; 2]>,
}

/// A rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// At the median time.
    pub value: f64,
    /// At the ends of the interval, lower first.
    pub interval: Option<[f64; 2]>,
    /// `TFLOP/s` or `GB/s`.
    pub unit: &'static str,
    /// The card's peak in this unit.
    pub peak: Option<f64>,
}

/// What the points of a picture have in common: the card, the program, the element type, the unit, the features and the
/// work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setting {
    card: String,
    program: String,
    dtype: String,
    pub unit: &'static str,
    features: String,
    work: String,
}

impl Setting {
    /// The picture's title.
    pub fn title(&self) -> String {
        let Self { card, program, dtype, features, work, .. } = self;
        [card, program, dtype, features, work].into_iter().filter(|word| !word.is_empty()).join(", ")
    }

    /// The label of an axis of rates.
    pub fn axis(&self) -> &'static str {
        if self.unit == "GB/s" { "GB/s" } else { "TFLOP/s" }
    }
}

/// Sizes along which pictures go: they do not separate one picture from another.
pub(super) const LENGTHS: [&str; 3] = ["batch", "seqlen_q", "seqlen_k"];

/// True for a row with a time that may be compared with others.
pub(super) fn is_timed(row: &Row) -> bool {
    row.foreign.is_none() && !row.is_rung() && row.median_us().is_some_and(|time| time > 0.0)
}

/// Every case, sorted by what identifies it.
pub(super) fn latest(rows: &[Row]) -> Vec<Measured<'_>> {
    let mut cases: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_timed(row)) {
        let [kernel, work, gpu, repeated, l2, _] = row.key();
        let more = [row.bench.clone(), row.contender.clone()];
        cases.entry((gpu, more, kernel, work, repeated, l2)).or_default().push(row);
    }
    cases.into_values().filter_map(Measured::of).collect()
}

impl<'a> Measured<'a> {
    fn of(mut rows: Vec<&'a Row>) -> Option<Self> {
        let last = *rows.iter().max_by_key(|row| (row.date(), row.run_id()))?;
        rows.retain(|row| row.run_id() == last.run_id());
        let microseconds = median(rows.iter().filter_map(|row| row.median_us()))?;
        let interval = rows.iter().filter_map(|row| row.interval()).reduce(|[low, high], [l, h]| [low.min(l), high.max(h)]);
        Some(Self { row: last, rows: rows.len(), microseconds, interval })
    }

    /// The setting of a picture whose points differ in the sizes `along` alone.
    pub fn setting(&self, unit: &'static str, along: &[&str]) -> Setting {
        let (card, dtype) = (self.card().to_owned(), self.row.dtype.clone().unwrap_or_default());
        Setting { card, program: self.program(), dtype, unit, features: self.features(), work: self.work_without(along) }
    }

    /// The rate that the case is about: of memory for memory-bound kernels, else of tensor cores.
    pub fn rate(&self) -> Option<Rate> {
        let unit = match self.row.word("unit") {
            "GB/s" => "gbs",
            "TFLOP/s" => "tflops",
            _ if self.row.number("gbs").is_some() => "gbs",
            _ => "tflops",
        };
        let value = self.row.number(unit).filter(|rate| *rate > 0.0)? * self.row.median_us()? / self.microseconds;
        let at = |time: f64| value * self.microseconds / time;
        let interval = self.interval.filter(|ends| ends[0] > 0.0).map(|[low, high]| [at(high), at(low)]);
        let (unit, peak) = if unit == "gbs" { ("GB/s", "memory_gbs") } else { ("TFLOP/s", self.tensor_cores()) };
        Some(Rate { value, interval, unit, peak: self.ceiling(peak) })
    }

    /// The name of the ceiling of the tensor cores that it uses.
    pub fn tensor_cores(&self) -> &'static str {
        if self.row.dtype.as_deref() == Some("fp8") { "tflops_fp8" } else { "tflops_16_bit" }
    }

    /// A ceiling of the card.
    pub fn ceiling(&self, name: &str) -> Option<f64> {
        self.row.run.get("ceiling")?.get(name)?.as_f64().filter(|rate| *rate > 0.0)
    }

    /// TFLOP/s, and operations for each byte that has to be moved.
    pub fn roofline(&self) -> Option<[f64; 2]> {
        let tflops = self.row.number("tflops").filter(|rate| *rate > 0.0)? * self.row.median_us()? / self.microseconds;
        let moved = || self.row.number("gbs").map(|rate| rate * 1e3 * self.row.median_us().unwrap_or_default());
        let bytes = self.row.number("bytes").or_else(moved).or_else(|| self.attention_bytes()).filter(|bytes| *bytes > 0.0)?;
        Some([tflops * 1e6 * self.microseconds / bytes, tflops])
    }

    /// The bytes of all tensors of a call of attention; backward has twice as many.
    fn attention_bytes(&self) -> Option<f64> {
        let size = |name: &str| self.row.shape.get(name)?.as_f64();
        let [dim, dim_v] = self.head_dims()?;
        let element = match self.row.dtype.as_deref()? {
            "fp8" => 1.0,
            "fp32" => 4.0,
            _ => 2.0,
        };
        let (queries, keys) = (size("seqlen_q")? * size("heads")?, size("seqlen_k")? * size("heads_k")?);
        let times = if self.program().contains("bwd") || self.program().contains("backward") { 2.0 } else { 1.0 };
        Some(times * size("batch")? * (queries + keys) * (dim + dim_v) * element)
    }

    /// Head dims of Q and K, and of V.
    fn head_dims(&self) -> Option<[f64; 2]> {
        let stated = self.row.shape.get("head_dim")?;
        let of = |name: &str| self.row.kernel.as_ref().and_then(|kernel| kernel.get(name)?.as_f64());
        if let Some(dim) = stated.as_f64() {
            return Some([dim, of("head_dim_v").unwrap_or(dim)]);
        }
        let (dim, dim_v) = stated.as_str()?.split_once('_')?;
        Some([dim.parse().ok()?, dim_v.parse().ok()?])
    }

    /// The card.
    pub fn card(&self) -> &str {
        if self.row.gpu().is_empty() { "no card" } else { self.row.gpu() }
    }

    /// The program, with the kind of kernel where one program times several.
    pub fn program(&self) -> String {
        [self.row.bench.as_str(), self.row.kernel_fact("kind")]
            .into_iter()
            .filter(|word| !word.is_empty())
            .take(self.words())
            .join(" ")
    }

    /// Programs that compare contenders have one kind of work, and peers state no kind.
    fn words(&self) -> usize {
        if self.row.bench == "kgen bench" { 2 } else { 1 }
    }

    /// Features of the kernel, where they are not the program's.
    pub fn features(&self) -> String {
        let stated = self.row.kernel.as_ref().filter(|_| self.words() == 2).and_then(|kernel| kernel.get("features")?.as_array());
        stated.map_or_else(String::new, |words| words.iter().filter_map(Value::as_str).join(","))
    }

    /// The contender, with the kernel if it is kgen's; of a peer whose program states it, with the kind of the work.
    pub fn name(&self) -> String {
        match self.row.kernel_name() {
            kernel if self.row.own && !kernel.is_empty() && self.row.contender == "kgen" => self.row.with_searched_tile(kernel),
            kernel if (self.row.own || self.row.is_edited()) && !kernel.is_empty() => format!("{}: {kernel}", self.row.contender),
            _ => [&self.row.contender, self.row.kernel_fact("kind")].iter().filter(|word| !word.is_empty()).join(" "),
        }
    }

    /// Its length: keys, or queries if it has no keys.
    pub fn length(&self) -> Option<f64> {
        let size = |name: &str| self.row.shape.get(name)?.as_f64().filter(|length| *length > 0.0);
        size("seqlen_k").or_else(|| size("seqlen_q"))
    }

    /// The work without `left_out`, as text.
    pub fn work_without(&self, left_out: &[&str]) -> String {
        words(self.row.shape.iter().filter(|(name, _)| !left_out.contains(&name.as_str())))
    }

    /// The whole work.
    pub fn work(&self) -> String {
        self.work_without(&[])
    }
}

fn words<'a>(sizes: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    sizes.map(word).join(" ")
}

/// The text of a fact of a kernel, whatever its type; empty if it is missing.
pub(super) fn fact(kernel: Option<&Map<String, Value>>, name: &str) -> String {
    match kernel.and_then(|kernel| kernel.get(name)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::row::tests::{row, searched},
        *,
    };
    use serde_json::json;

    #[test]
    fn the_latest_run_counts_with_all_its_processes() {
        let mut rows: Vec<Row> = [("a", "2026-11-26", 90.0), ("b", "2026-11-27", 100.0), ("b", "2026-11-27", 104.0)]
            .map(|(r, d, t)| row(r, d, t))
            .into();
        rows.push(Row { foreign: Some("other".to_owned()), ..row("c", "2026-11-28", 1.0) });
        let [found] = latest(&rows).try_into().expect("one case");
        assert_eq!((found.rows, found.microseconds, found.interval), (2, 102.0, Some([100.0, 104.0])));
        let rate = found.rate().expect("a rate");
        // 500 TFLOP/s is stated for the time of each row.
        let stated = found.row.median_us().expect("a time");
        assert!((rate.value - 500.0 * stated / 102.0).abs() < 1e-9 && rate.unit == "TFLOP/s" && rate.peak.is_none());
    }

    #[test]
    fn each_tile_of_a_search_is_a_case_beside_that_of_the_kernel() {
        let own = row("a", "2026-11-27", 100.0);
        let rows = [searched(&row("b", "2026-11-28", 50.0), 128, 64), searched(&row("b", "2026-11-28", 90.0), 128, 128), own];
        let name = "flash_fwd_hdim128_bf16_sm90";
        let found: Vec<_> = latest(&rows).iter().map(|case| (case.name(), case.microseconds)).collect();
        let tile = |n: u32, time: f64| (format!("{name}, copy=tma m=128 n={n}"), time);
        assert_eq!(found, [(name.to_owned(), 100.0), tile(128, 90.0), tile(64, 50.0)]);
    }

    #[test]
    fn intensity_comes_from_bytes_or_rates_or_tensors() {
        let mut one = row("a", "2026-11-27", 100.0);
        one.shape.insert("head_dim".to_owned(), json!(128));
        let of = |row: &Row| latest(std::slice::from_ref(row))[0].roofline().expect("a point")[0];
        let flops = 500.0 * 1e6 * 100.0;
        // Q, K, V and O: 16 heads of 1000 rows of 128 elements of 2 bytes.
        assert!((of(&one) - flops / (4.0 * 16.0 * 1000.0 * 128.0 * 2.0)).abs() < 1e-9);
        let numbers = one.numbers.as_mut().expect("numbers");
        numbers.insert("gbs".to_owned(), json!(50.0));
        assert!((of(&one) - 500.0 * 1e3 / 50.0).abs() < 1e-9);
        one.numbers.as_mut().expect("numbers").insert("bytes".to_owned(), json!(1e6));
        assert!((of(&one) - flops / 1e6).abs() < 1e-9);
    }

    #[test]
    fn a_case_is_named_by_its_kernel_or_peer() {
        let own = row("a", "2026-11-27", 1.0);
        let peer = Row { own: false, contender: "fa3".to_owned(), kernel: None, ..own.clone() };
        let named = |row: &Row| latest(std::slice::from_ref(row))[0].name();
        assert_eq!((named(&own), named(&peer)), ("flash_fwd_hdim128_bf16_sm90".to_owned(), "fa3".to_owned()));
        assert_eq!(latest(&[own])[0].program(), "kgen bench fwd");
        assert_eq!(latest(&[peer])[0].work_without(&LENGTHS), "heads=16 heads_k=16");
    }
}
