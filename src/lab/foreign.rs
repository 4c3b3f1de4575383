//! Traces of FlashInfer-Bench, in both directions (`flashinfer_bench/data/trace.py`, schema of 2026-04-30).
//!
//! The times of these traces are not comparable with kgen's: they are means of three medians, with the L2 flushed, at
//! another tolerance. Imported rows are marked as foreign.

use super::{FORMAT, Row, Status, row::object};
use crate::files::content_hash;
use itertools::Itertools;
use serde_json::{Map, Value, json};

/// The mark of an imported row.
const MARK: &str = "FlashInfer-Bench";

/// True for a trace: a workload of a definition, with or without the evaluation of a solution.
pub(super) fn is_trace(value: &Value) -> bool {
    value.get("definition").is_some_and(Value::is_string) && value.get("workload").is_some_and(Value::is_object)
}

/// The row of a trace; `None` for a workload without an evaluation. `file` names the run.
///
/// # Errors
/// The reason why the evaluation cannot be read.
pub(super) fn of_trace(file: &str, trace: &Value) -> Result<Option<Row>, String> {
    let Some(evaluation) = trace.get("evaluation").filter(|evaluation| evaluation.is_object()) else { return Ok(None) };
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = text(evaluation, "status");
    let latency = evaluation.pointer("/performance/latency_ms").and_then(Value::as_f64);
    let status = match (status.as_str(), latency) {
        ("PASSED", Some(_)) => Status::Ok,
        ("PASSED", None) => return Err("a trace that passed has no `performance.latency_ms`".to_owned()),
        ("INCORRECT_NUMERICAL" | "INCORRECT_SHAPE" | "INCORRECT_DTYPE", _) => Status::Wrong,
        ("RUNTIME_ERROR" | "COMPILE_ERROR", _) => Status::Error,
        ("TIMEOUT", _) => Status::Timeout,
        (other, _) => return Err(format!("`{other}` is no status of an evaluation")),
    };
    let numbers = latency.filter(|_| status == Status::Ok).map(|milliseconds| {
        let error = evaluation.pointer("/correctness/max_relative_error").and_then(Value::as_f64);
        object(&json!({ "microseconds": { "median": milliseconds * 1e3 }, "l2": "cold", "relative_error": error }))
    });
    let hardware = text(evaluation.get("environment").unwrap_or(&Value::Null), "hardware");
    let uuid = trace.pointer("/workload/uuid").and_then(Value::as_str).unwrap_or_default();
    Ok(Some(Row {
        format: FORMAT,
        bench: MARK.to_owned(),
        case: format!("{} {uuid}", text(trace, "definition")),
        contender: text(trace, "solution"),
        own: false,
        shape: trace.pointer("/workload/axes").map(object).unwrap_or_default(),
        dtype: None,
        layout: None,
        status,
        message: if status == Status::Ok { String::new() } else { text(evaluation, "log") },
        numbers,
        card: Map::new(),
        kernel: None,
        details: object(&json!({ "workload": trace.get("workload"), "correctness": evaluation.get("correctness") })),
        run: object(&json!({
            "id": format!("{MARK}:{file}"), "date": text(evaluation, "timestamp"), "gpu": { "name": hardware },
            "libraries": evaluation.pointer("/environment/libs"),
        })),
        foreign: Some(MARK.to_owned()),
    }))
}

/// The trace of a row. The definition is named after the row's bench, the kind and the features of the kernel, and the
/// parts of its shape that are not sizes. Contenders at the same work have the same workload.
pub(super) fn to_trace(row: &Row) -> Value {
    let (axes, constants): (Vec<_>, Vec<_>) = row.shape.iter().partition(|(_, value)| value.is_u64());
    let words: Vec<String> =
        constants.iter().map(|(name, value)| format!("{name}_{}", value.to_string().replace('"', ""))).collect();
    let [kind, features] = [row.kernel_fact("kind").to_owned(), row.features().replace(' ', "_")];
    let parts = [row.bench.replace(' ', "_"), kind, features, row.dtype.clone().unwrap_or_default(), words.join("_")];
    let definition = parts.into_iter().filter(|part| !part.is_empty()).join("_");
    let status = match row.status {
        Status::Ok => "PASSED",
        Status::Wrong => "INCORRECT_NUMERICAL",
        Status::Timeout => "TIMEOUT",
        Status::Refused | Status::Error | Status::Absent | Status::Crash | Status::Spilled | Status::Truncated => "RUNTIME_ERROR",
    };
    let error = row.number("relative_error");
    // The schema's word for a number that is none.
    let unknown = || json!("NaN");
    let correctness = matches!(row.status, Status::Ok | Status::Wrong)
        .then(|| json!({ "max_relative_error": error.map_or_else(unknown, Value::from), "max_absolute_error": unknown() }));
    // The reference was not timed: 0 is that schema's default.
    let performance = row
        .median_us()
        .map(|microseconds| json!({ "latency_ms": microseconds / 1e3, "reference_latency_ms": 0.0, "speedup_factor": 0.0 }));
    let axes: Map<String, Value> = axes.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let solution = if row.own { format!("kgen_{}", row.kernel_name()) } else { row.contender.clone() };
    let workload = serde_json::to_string(&(&definition, &axes)).unwrap_or_default();
    let libraries = json!({ "kgen": row.run.get("kgen"), "torch": row.run.get("torch"), "driver": row.driver() });
    json!({
        "definition": definition, "solution": solution,
        "workload": { "uuid": &content_hash(&workload)[..32], "axes": axes, "inputs": {} },
        "evaluation": {
            "status": status, "environment": { "hardware": row.gpu(), "libs": libraries }, "timestamp": row.date(),
            "log": row.message, "correctness": correctness, "performance": performance,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{super::row::tests::row, *};

    #[test]
    fn a_row_and_its_trace_have_the_same_time_and_the_trace_is_foreign() {
        let one = row("a", "2026-11-27T00:00:00Z", 8.0);
        let trace = to_trace(&one);
        assert!(is_trace(&trace), "{trace}");
        assert_eq!(trace["evaluation"]["performance"]["latency_ms"], 0.008);
        let back = of_trace("t.jsonl", &trace).expect("it reads").expect("it has an evaluation");
        assert_eq!((back.median_us(), back.gpu(), back.foreign.as_deref()), (Some(8.0), "NVIDIA H200", Some(MARK)));
        assert_eq!(back.flaw(), None);
    }

    #[test]
    fn contenders_share_a_workload_and_the_passes_of_a_peer_have_definitions_of_their_own() {
        let peer = |contender: &str, kind: &str| {
            let kernel = Some(object(&json!({ "kind": kind, "features": [] })));
            let contender = contender.to_owned();
            to_trace(&Row { own: false, contender, kernel, ..row("a", "2026-11-27T00:00:00Z", 8.0) })
        };
        let [forward, backward, other] = [peer("fa3", "fwd"), peer("fa3", "bwd"), peer("fa2", "fwd")];
        assert_ne!(forward["definition"], backward["definition"]);
        assert_ne!(forward["workload"]["uuid"], backward["workload"]["uuid"]);
        assert_eq!((&forward["definition"], &forward["workload"]), (&other["definition"], &other["workload"]));
        // No absolute error is measured.
        assert_eq!(forward["evaluation"]["correctness"]["max_absolute_error"], "NaN");
    }

    #[test]
    fn workloads_have_no_row_and_unknown_statuses_are_refused() {
        let mut trace = to_trace(&row("a", "2026-11-27T00:00:00Z", 8.0));
        trace["evaluation"]["status"] = json!("FINE");
        assert!(of_trace("t", &trace).expect_err("no status").contains("`FINE`"));
        trace["evaluation"]["status"] = json!("INCORRECT_NUMERICAL");
        let wrong = of_trace("t", &trace).expect("it reads").expect("a row");
        assert_eq!((wrong.status, wrong.numbers), (Status::Wrong, None));
        trace["evaluation"] = Value::Null;
        assert_eq!(of_trace("t", &trace), Ok(None));
    }
}
