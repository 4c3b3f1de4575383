//! One measurement with everything that determines it, in the form of its JSON.

use crate::{
    bench::{Made, Measurement, Report, Status as BenchStatus, turns::PeerMeasurement},
    check::{Status as CheckStatus, Verdict},
    files::FieldHasher,
    kernel::Variant,
};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt};

/// Version of the format: raised if a reader of the old one would misread the new one.
pub const FORMAT: u32 = 1;

/// The longest time of a call that is taken for one, in microseconds: a day.
const LONGEST_US: f64 = 86.4e9;

/// The program whose rows have times.
const BENCH: &str = "kgen bench";

/// The program whose rows have counts of cases instead of times.
const CHECK: &str = "kgen check";

/// The program whose rows have counts of accesses and counters instead of times.
pub(super) const PROFILE: &str = "kgen profile";

/// The program whose rows have constants of a card instead of times.
pub(super) const PROBE: &str = "kgen probe";

/// The contender of kernels that a person edited.
const EDITED: &str = "edited";

/// Outcome of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// There are numbers.
    Ok,
    /// The contender computes wrong results.
    Wrong,
    /// The contender refuses the call, or its rate exceeds the card's peak.
    Refused,
    /// The machine or the library could not run it.
    Error,
    /// The contender is not installed.
    Absent,
    /// Not finished within the time limit.
    Timeout,
    /// The process died.
    Crash,
    /// The compiler spilled registers, and the candidate was not timed.
    Spilled,
    /// The search ended before this candidate was measured in full.
    Truncated,
}

impl Status {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrong => "wrong",
            Self::Refused => "refused",
            Self::Error => "error",
            Self::Absent => "absent",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
            Self::Spilled => "spilled",
            Self::Truncated => "truncated",
        }
    }

    /// All statuses.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::Wrong,
        Self::Refused,
        Self::Error,
        Self::Absent,
        Self::Timeout,
        Self::Crash,
        Self::Spilled,
        Self::Truncated,
    ];
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl From<BenchStatus> for Status {
    fn from(status: BenchStatus) -> Self {
        match status {
            BenchStatus::Ok => Self::Ok,
            BenchStatus::Wrong => Self::Wrong,
            BenchStatus::Refused => Self::Refused,
            BenchStatus::Error => Self::Error,
            BenchStatus::Absent => Self::Absent,
            BenchStatus::Timeout => Self::Timeout,
            BenchStatus::Crash => Self::Crash,
        }
    }
}

/// One contender's measurement in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// [`FORMAT`].
    pub format: u32,
    /// The program that measured the row: `kgen bench`, or a file of `benches/`.
    pub bench: String,
    /// Name of the case in that program.
    pub case: String,
    /// Name of the implementation: `kgen`, `fa3`, `sdpa`, …, or `edited` for a kernel that a person edited.
    pub contender: String,
    /// True for a kernel of kgen, as kgen rendered it.
    pub own: bool,
    /// Named sizes, and other parameters that select the work: `batch`, `heads`, `seqlen_k`, `causal`, …
    pub shape: Map<String, Value>,
    /// Element type of the inputs.
    pub dtype: Option<String>,
    /// Layout of the tensors: `bshd`, `packed`, `paged`, `row-major`.
    pub layout: Option<String>,
    /// The outcome.
    pub status: Status,
    /// The reason for missing numbers.
    pub message: String,
    /// Times, rates, errors; `null` unless the status is `ok`.
    pub numbers: Option<Map<String, Value>>,
    /// Clock, temperature and power of the card after the last round.
    pub card: Map<String, Value>,
    /// The kernel of kgen that ran: variant, tile, hashes of source and machine code, registers, compiler. Of a peer
    /// that took turns with one: kind and features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Map<String, Value>>,
    /// Facts that only one program reports.
    pub details: Map<String, Value>,
    /// Circumstances that all rows of a run share: `id`, `date`, `command`, `kgen`, `gpu`, `driver`, …
    pub run: Map<String, Value>,
    /// Source of the row, if another project's program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

/// Circumstances of a run of `kgen bench`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Unique id of the run.
    pub id: String,
    /// The command line.
    pub command: Vec<String>,
    /// Id of the process that timed the kernels.
    pub process: u32,
    /// BLAKE3 of the program that measured.
    pub harness: String,
}

impl Run {
    /// A new run of this process.
    pub fn new(command: Vec<String>, harness: String) -> Self {
        let id = format!("{:032x}", rand::random::<u128>());
        Self { id, command, process: std::process::id(), harness }
    }

    /// The circumstances of the run as a row states them, with further ones.
    pub(super) fn with(&self, circumstances: &Value) -> Map<String, Value> {
        let Self { id, command, process, harness } = self;
        let mut run = object(&json!({ "id": id, "command": command, "process": process, "harness": harness }));
        run.extend(object(circumstances));
        run
    }
}

impl Row {
    /// The row of one measurement of `kgen bench`. Of the report, only the circumstances are read. `built` is the
    /// library's manifest entry for the variant, empty if there is none.
    pub fn of_measurement(measurement: &Measurement, report: &Report, run: &Run, built: &Map<String, Value>) -> Self {
        let Measurement { name, variant, made, shape, status, message, numbers, card } = measurement;
        let mut sizes = object(shape);
        sizes.extend(of_variant(variant));
        Self {
            format: FORMAT,
            bench: BENCH.to_owned(),
            case: format!("{name} {shape}"),
            contender: contender(made).to_owned(),
            own: made.edited.is_none(),
            shape: sizes,
            dtype: variant.dtype().map(|dtype| dtype.to_string()),
            layout: None,
            status: (*status).into(),
            message: message.clone(),
            numbers: numbers.as_ref().map(object),
            card: object(card),
            kernel: Some(kernel(name, *variant, made, built)),
            details: Map::new(),
            run: run.with(&circumstances(report)),
            foreign: None,
        }
    }

    /// The row of a peer that took turns with kernels of kgen.
    pub fn of_peer(peer: &PeerMeasurement, report: &Report, run: &Run) -> Self {
        let PeerMeasurement { peer: name, library, ratios, measurement } = peer;
        let own = Self::of_measurement(measurement, report, run, &Map::new());
        let coordinates = measurement.variant.coordinates();
        let kernel = object(&json!({ "kind": measurement.variant.kind(), "features": coordinates.features }));
        let numbers = own.numbers.map(|numbers| {
            let ratios = json!({ "ratios": ratios });
            numbers.into_iter().chain(object(&ratios)).collect()
        });
        Self {
            case: format!("{name} {} {}", measurement.variant, measurement.shape),
            contender: name.clone(),
            own: false,
            numbers,
            kernel: Some(kernel),
            details: object(&json!({ "library": library })),
            ..own
        }
    }

    /// The row of a verdict of `kgen check`, with the numbers of its cases. `None` if nothing ran: the verdict is that
    /// of an earlier run or of another kernel that is the same program, or the check was interrupted.
    pub fn of_verdict(
        verdict: &Verdict,
        variant: Variant,
        made: &Made,
        built: &Map<String, Value>,
        run: &Run,
        date: &str,
    ) -> Option<Self> {
        let status = match verdict.status {
            CheckStatus::Interrupted => return None,
            _ if verdict.cached || verdict.same_as.is_some() => return None,
            CheckStatus::Pass => Status::Ok,
            CheckStatus::Fail => Status::Wrong,
            CheckStatus::Error => Status::Error,
            CheckStatus::Timeout => Status::Timeout,
            CheckStatus::Crash => Status::Crash,
        };
        let numbers = json!({ "cases": verdict.cases_run, "worst": verdict.worst, "seconds": verdict.seconds });
        let circumstances = json!({
            "date": date, "kgen": env!("CARGO_PKG_VERSION"), "gpu": { "name": verdict.device }, "seed": verdict.seed,
        });
        Some(Self {
            format: FORMAT,
            bench: CHECK.to_owned(),
            case: format!("{} {}", verdict.name, verdict.level.word()),
            contender: contender(made).to_owned(),
            own: made.edited.is_none(),
            shape: of_variant(&variant),
            dtype: variant.dtype().map(|dtype| dtype.to_string()),
            layout: None,
            status,
            message: verdict.message.clone(),
            numbers: (status == Status::Ok).then(|| object(&numbers)),
            card: Map::new(),
            kernel: Some(kernel(&verdict.name, variant, made, built)),
            details: object(&json!({ "level": verdict.level, "device": verdict.kind })),
            run: run.with(&circumstances),
            foreign: None,
        })
    }

    /// BLAKE3 of the row, which identifies it in every store.
    pub fn id(&self) -> String {
        let mut hasher = FieldHasher::default();
        hasher.field("row", serde_json::to_string(self).unwrap_or_default());
        hasher.finish()[..32].to_owned()
    }

    /// The reason why this is not a valid row, if its parts contradict each other.
    pub fn flaw(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("`format` is {}, and this kgen reads {FORMAT}", self.format));
        }
        if (self.status == Status::Ok) != self.numbers.is_some() {
            return Some("`numbers` belong to the status `ok` and to no other".to_owned());
        }
        // Programs of `benches/` also compare results without timing them.
        let has_times = self.numbers.as_ref().is_some_and(|numbers| numbers.contains_key("microseconds"));
        let is_timed = has_times || [BENCH, super::tune::TUNE].contains(&self.bench.as_str());
        if self.status == Status::Ok
            && is_timed
            && self.foreign.is_none()
            && !self.median_us().is_some_and(|time| time.is_finite() && time > 0.0)
        {
            return Some("`numbers` have no finite `microseconds.median` above 0".to_owned());
        }
        if self.run_id().is_empty() || self.date().is_empty() {
            return Some("`run` has no `id` or no `date`".to_owned());
        }
        if !is_moment(self.date()) {
            let why = "is no moment of the calendar, such as `2026-11-27T18:00:00Z`";
            return Some(format!("`run.date` is `{}`, which {why}", self.date()));
        }
        self.impossible_time()
    }

    /// The first of the row's times that no call can take.
    fn impossible_time(&self) -> Option<String> {
        let numbers = self.numbers.as_ref()?;
        let rounds = numbers.get("round_microseconds").map(|value| ("round_microseconds".to_owned(), value));
        let statistics = numbers.get("microseconds").and_then(Value::as_object).into_iter().flatten();
        let statistics = statistics.map(|(name, value)| (format!("microseconds.{name}"), value));
        let each = |(name, value): (String, &Value)| {
            let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            let wrong = values.into_iter().find(|value| !is_possible(value))?;
            Some(format!("`numbers.{name}` is {wrong}, and a time is a number from 0 to {LONGEST_US} (a day of microseconds)"))
        };
        statistics.chain(rounds).find_map(each)
    }

    /// Id of the run.
    pub fn run_id(&self) -> &str {
        text(&self.run, "id")
    }

    /// Start of the run, UTC: `2026-11-21T16:43:05Z`.
    pub fn date(&self) -> &str {
        text(&self.run, "date")
    }

    /// Name of the card; empty if no card was used.
    pub fn gpu(&self) -> &str {
        let Some(gpu) = self.run.get("gpu") else { return "" };
        let stated = gpu.get("name").or_else(|| gpu.get("info")?.get("name"));
        stated.and_then(Value::as_str).unwrap_or_default()
    }

    /// Version of the GPU driver; empty if it is unknown.
    pub fn driver(&self) -> &str {
        text(&self.run, "driver")
    }

    /// True if the kernel was edited by a person: its variant names the interface, not the text.
    pub fn is_edited(&self) -> bool {
        !self.kernel_fact("edited").is_empty()
    }

    /// Name of the kernel that ran; empty for a peer.
    pub fn kernel_name(&self) -> &str {
        let stated = self.kernel.as_ref().map_or("", |kernel| text(kernel, "name"));
        if stated.is_empty() { text(&self.details, "kernel") } else { stated }
    }

    /// A fact about the kernel as text; empty if it is unknown.
    pub fn kernel_fact(&self, name: &str) -> &str {
        self.kernel.as_ref().map_or("", |kernel| text(kernel, name))
    }

    /// The variant that ran, if the row states it.
    pub fn variant(&self) -> Option<Variant> {
        serde_json::from_value(Value::Object(self.kernel.clone()?)).ok()
    }

    /// Median time of a call in microseconds.
    pub fn median_us(&self) -> Option<f64> {
        self.statistic("median")
    }

    /// A statistic of the microseconds of a call: `median`, `mad`, `mean`, `p95`, …
    pub fn statistic(&self, name: &str) -> Option<f64> {
        self.numbers.as_ref()?.get("microseconds")?.get(name)?.as_f64()
    }

    /// 95 % interval of the median time, in microseconds.
    pub fn interval(&self) -> Option<[f64; 2]> {
        let interval = self.numbers.as_ref()?.get("microseconds")?.get("interval")?;
        Some([interval.get(0)?.as_f64()?, interval.get(1)?.as_f64()?])
    }

    /// The sizes of the work as text: `batch=8 heads=16`.
    pub fn size(&self) -> String {
        let sizes = self.shape.iter().filter(|(_, value)| value.is_u64() || value.is_i64());
        sizes.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// The properties that make two measurements comparable, whichever tile the kernel had, as one text.
    pub fn comparable(&self) -> String {
        self.parts(None).join(" ")
    }

    /// What was measured, whichever tile the kernel had, as one text: the parts of [`comparable`](Self::comparable)
    /// without how long it was timed.
    pub fn subject(&self) -> String {
        let [kernel, work, gpu, repeated, l2, _] = self.parts(None);
        [kernel, work, gpu, repeated, l2].join(" ")
    }

    /// The tile of a row of `kgen tune`, which times a kernel with many of them. `None` for rows of other programs:
    /// they time the kernel itself, and a default tile that has changed is a change of the kernel.
    pub fn searched_tile(&self) -> Option<String> {
        let tile = super::tune::tile_of(self).filter(|_| self.bench == super::tune::TUNE)?;
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words: BTreeMap<&String, String> = tile.iter().map(|(key, value)| (key, word(value))).collect();
        Some(words.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "))
    }

    /// `name` of the kernel or the case, with the tile that tells rows of a search apart.
    pub(super) fn with_searched_tile(&self, name: &str) -> String {
        self.searched_tile().map_or_else(|| name.to_owned(), |tile| format!("{name}, {tile}"))
    }

    /// The properties that make two measurements comparable: kernel or peer, work, card, the unit that was repeated,
    /// state of the L2, timing plan. Of a search, the kernel has its tile.
    pub(super) fn key(&self) -> [String; 6] {
        self.parts(self.searched_tile())
    }

    /// The parts of [`key`](Self::key), with `tile` as the kernel's.
    fn parts(&self, tile: Option<String>) -> [String; 6] {
        // A peer that took turns with kernels has their kind and features, and no name of its own.
        let of_peer = [&self.contender, self.kernel_fact("kind"), &self.features()].join(" ");
        let kernel = match self.kernel_name() {
            "" => of_peer.trim().to_owned(),
            name if self.is_edited() => format!("{EDITED} {name}"),
            name => name.to_owned(),
        };
        let kernel = tile.map_or_else(|| kernel.clone(), |tile| format!("{kernel}, {tile}"));
        // A kernel's name has its dtype, and a peer's has not.
        let work = serde_json::to_string(&(&self.shape, &self.dtype, &self.layout)).unwrap_or_default();
        // Longer warm-ups and more rounds give other times: caches and clocks have settled further.
        let plan = self.run.get("plan").map(ToString::to_string).unwrap_or_default();
        [kernel, work, self.gpu().to_owned(), self.word("repeated").to_owned(), self.word("l2").to_owned(), plan]
    }

    /// The features of the kernel as text; empty if it has none.
    pub(super) fn features(&self) -> String {
        let stated = self.kernel.as_ref().and_then(|kernel| kernel.get("features")?.as_array());
        stated.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    }

    /// One of the row's numbers: `tflops`, `gbs`, `relative_error`, …
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.as_ref()?.get(name)?.as_f64()
    }

    /// A text among the row's numbers, such as `repeated` or `l2`.
    pub fn word(&self, name: &str) -> &str {
        self.numbers.as_ref().map_or("", |numbers| text(numbers, name))
    }
}

/// True for a time or a number of them; a statistic that is not known is null.
fn is_possible(time: &Value) -> bool {
    time.is_null() || time.as_f64().is_some_and(|time| (0.0..=LONGEST_US).contains(&time))
}

/// True for a date of the calendar, alone or with a time, which is in UTC unless an offset follows.
fn is_moment(text: &str) -> bool {
    DateTime::parse_from_rfc3339(text).is_ok() || text.parse::<NaiveDateTime>().is_ok() || text.parse::<NaiveDate>().is_ok()
}

/// What all rows of a report share.
fn circumstances(report: &Report) -> Value {
    json!({
        "date": report.date, "kgen": report.kgen, "gpu": report.gpu, "driver": report.driver, "ceiling": report.ceiling,
        "card_before": report.card_before, "plan": report.plan, "seed": report.seed, "libraries": [report.library],
    })
}

/// The contender of a row of kgen's own programs.
pub(super) fn contender(made: &Made) -> &'static str {
    if made.edited.is_some() { EDITED } else { "kgen" }
}

/// The facts about a kernel: its variant, tile and text, and the library's manifest entry.
pub(super) fn kernel(name: &str, variant: Variant, made: &Made, built: &Map<String, Value>) -> Map<String, Value> {
    let mut kernel = object(&variant);
    kernel.extend(object(made));
    kernel.insert("name".to_owned(), json!(name));
    kernel.extend(built.clone());
    kernel
}

/// The parameters that select the work of a variant besides its sizes: head dim and mask.
pub(super) fn of_variant(variant: &Variant) -> Map<String, Value> {
    let all = object(variant);
    ["head_dim", "causal"].into_iter().filter_map(|name| Some((name.to_owned(), all.get(name)?.clone()))).collect()
}

/// A value that is an object in JSON.
pub(super) fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// A text of a map; empty if there is none.
pub(super) fn text<'a>(map: &'a Map<String, Value>, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row of a kernel that takes `microseconds`, measured in the run `run` that began at `date`.
    pub fn row(run: &str, date: &str, microseconds: f64) -> Row {
        let kernel = json!({
            "name": "flash_fwd_hdim128_bf16_sm90", "kind": "fwd", "head_dim": 128, "dtype": "bf16", "causal": false,
            "target": "sm90", "source": "aa", "sass": "bb", "nvcc": "13.0.88",
        });
        let rounds = [microseconds; 3];
        let numbers = json!({
            "microseconds": { "median": microseconds, "mad": 0.1, "interval": [microseconds, microseconds], "n": 3 },
            "round_microseconds": rounds, "tflops": 500.0, "repeated": "launch", "l2": "warm",
        });
        let circumstances = json!({ "id": run, "date": date, "gpu": { "name": "NVIDIA H200" }, "driver": "580.1", "kgen": "0.1.0",
                    "plan": { "warm_up_ms": 10.0, "measure_ms": 40.0, "rounds": 20, "graph": false } });
        Row {
            format: FORMAT,
            bench: "kgen bench".to_owned(),
            case: "flash_fwd_hdim128_bf16_sm90 batch=1".to_owned(),
            contender: "kgen".to_owned(),
            own: true,
            shape: object(&json!({ "batch": 1, "heads": 16, "heads_k": 16, "seqlen_q": 1000, "seqlen_k": 1000 })),
            dtype: Some("bf16".to_owned()),
            layout: None,
            status: Status::Ok,
            message: String::new(),
            numbers: Some(object(&numbers)),
            card: Map::new(),
            kernel: Some(object(&kernel)),
            details: Map::new(),
            run: object(&circumstances),
            foreign: None,
        }
    }

    /// The row as `kgen tune` writes it of a kernel with the tile `m` × `n`.
    pub fn searched(row: &Row, m: u32, n: u32) -> Row {
        let mut row = Row { bench: super::super::tune::TUNE.to_owned(), ..row.clone() };
        row.kernel.as_mut().expect("a kernel").insert("tile".to_owned(), json!({ "n": n, "m": m, "copy": "tma" }));
        row
    }

    #[test]
    fn rows_of_a_search_are_told_apart_by_their_tiles_and_others_by_their_kernels() {
        let plain = row("a", "2026-11-27T00:00:00Z", 8.0);
        let mut retuned = plain.clone();
        retuned.kernel.as_mut().expect("a kernel").insert("tile".to_owned(), json!({ "m": 64, "n": 64 }));
        assert_eq!((plain.key(), plain.searched_tile()), (retuned.key(), None), "another default is a change of the kernel");
        let [one, other] = [searched(&plain, 128, 128), searched(&plain, 128, 64)];
        assert_eq!(one.searched_tile().as_deref(), Some("copy=tma m=128 n=128"));
        assert!(one.key() != other.key() && one.key() != plain.key());
        assert_eq!((one.comparable(), one.subject()), (other.comparable(), plain.subject()));
    }

    #[test]
    fn a_row_is_what_its_json_says_and_has_one_identity() {
        let one = row("a", "2026-11-27T00:00:00Z", 8.0);
        let text = serde_json::to_string(&one).expect("JSON");
        let read: Row = serde_json::from_str(&text).expect("a row");
        assert_eq!((&read, read.id()), (&one, one.id()));
        assert_ne!(one.id(), row("a", "2026-11-27T00:00:00Z", 8.5).id());
        assert_eq!((one.gpu(), one.driver(), one.kernel_name()), ("NVIDIA H200", "580.1", "flash_fwd_hdim128_bf16_sm90"));
        assert_eq!((one.median_us(), one.number("tflops"), one.word("l2")), (Some(8.0), Some(500.0), "warm"));
        assert_eq!(one.variant().map(|variant| variant.name()).as_deref(), Some("flash_fwd_hdim128_bf16_sm90"));
    }

    #[test]
    fn what_contradicts_itself_is_named() {
        let good = row("a", "2026-11-27T00:00:00Z", 8.0);
        assert_eq!(good.flaw(), None);
        let mut newer = good.clone();
        newer.format = FORMAT + 1;
        let mut endless = good.clone();
        endless.numbers = Some(object(&json!({ "microseconds": { "median": null } })));
        let mut nameless = good.clone();
        nameless.run.remove("id");
        let dated = |date: &str| row("a", date, 8.0);
        let timed = |name: &str, time: Value| {
            let mut row = good.clone();
            let numbers = row.numbers.as_mut().expect("numbers");
            if name == "round_microseconds" {
                numbers.insert(name.to_owned(), time);
            } else {
                numbers["microseconds"][name] = time;
            }
            row
        };
        assert_eq!(dated("2026-11-27T00:00:00.125+01:00").flaw(), None, "another program's clock");
        assert_eq!(dated("2026-11-27").flaw(), None);
        assert_eq!(timed("mean", Value::Null).flaw(), None, "not known");
        for (row, part) in [
            (newer, "`format`"),
            (endless, "`microseconds.median`"),
            (nameless, "`id`"),
            (dated("2026-13-45T00:00:00Z"), "`2026-13-45T00:00:00Z`"),
            (dated("yesterday"), "`run.date`"),
            (timed("median", json!(1e308)), "`numbers.microseconds.median` is 1e+308"),
            (timed("mean", json!(-3)), "`numbers.microseconds.mean` is -3"),
            (timed("interval", json!([1.0, "NaN"])), "`numbers.microseconds.interval` is \"NaN\""),
            (timed("round_microseconds", json!([8.0, -8.0])), "`numbers.round_microseconds` is -8.0"),
        ] {
            assert!(row.flaw().is_some_and(|flaw| flaw.contains(part)), "{part}");
        }
    }
}
