//! Reads rows from files: JSON Lines of rows, documents of `kgen bench`, traces of FlashInfer-Bench.

use super::{Row, foreign, row::object};
use serde_json::{Map, Value, json};

/// The reason why rows cannot be read from a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ImportError {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Rows of a file, with the name of its format.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// `rows`, `kgen bench` or `FlashInfer-Bench traces`.
    pub form: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The rows in a file's text. `name` is the name of the file, for rows that state no run.
///
/// # Errors
/// [`ImportError`] if a line is not in a known format; then no row is returned.
pub fn parse(name: &str, text: &str) -> Result<Imported, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Ok(Value::Object(document)) = serde_json::from_str(text)
        && document.contains_key("measurements")
    {
        let rows = of_document(&document).map_err(|reason| ImportError { line: 1, reason })?;
        return Ok(Imported { form: "kgen bench", rows });
    }
    let mut form = "rows";
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let failed = |reason: String| ImportError { line, reason };
        let value: Value = serde_json::from_str(text).map_err(|error| failed(format!("it is no JSON: {error}")))?;
        let row = if foreign::is_trace(&value) {
            form = "FlashInfer-Bench traces";
            foreign::of_trace(name, &value).map_err(failed)?
        } else {
            if is_record_of_targets(&value) {
                return Err(failed(RECORD_OF_TARGETS.to_owned()));
            }
            Some(serde_json::from_value::<Row>(value).map_err(|error| failed(format!("it is no row: {error}")))?)
        };
        match row.as_ref().and_then(Row::flaw) {
            Some(flaw) => return Err(failed(flaw)),
            None => rows.extend(row),
        }
    }
    Ok(Imported { form, rows })
}

/// The reason why a file of records of targets, which lies beside the project's files of rows, is refused.
const RECORD_OF_TARGETS: &str = "it is no row but a record of what is proved for a kernel, as `targets.jsonl` keeps them; \
                                 leave the file out: the project's files of rows are `2026*.jsonl`";

/// True for a line of `docs/results/targets.jsonl`.
fn is_record_of_targets(value: &Value) -> bool {
    value.get("bench").is_none() && value.get("kernel").is_some_and(Value::is_string) && value.get("runs_on").is_some()
}

/// Rows of a document of `kgen bench --format json`, whose run is identified by its content.
fn of_document(document: &Map<String, Value>) -> Result<Vec<Row>, String> {
    let measurements = document["measurements"].as_array().ok_or("`measurements` is no list")?;
    let mut run = document.clone();
    run.remove("measurements");
    let library = run.remove("library").unwrap_or_default();
    run.insert("libraries".to_owned(), json!([library]));
    let content = serde_json::to_string(document).unwrap_or_default();
    run.insert("id".to_owned(), json!(crate::files::content_hash(content.as_bytes())[..32]));
    let row = |(place, measurement): (usize, &Value)| {
        let failed = |what: &str| format!("measurement {}: {what}", place + 1);
        let part = |name: &str| measurement.get(name).cloned().unwrap_or_default();
        let name = measurement.get("name").and_then(Value::as_str).ok_or_else(|| failed("it has no `name`"))?;
        let mut kernel = object(measurement);
        for other in ["shape", "status", "message", "numbers", "card"] {
            kernel.remove(other);
        }
        let mut shape = object(&part("shape"));
        let sizes: Vec<String> = shape.iter().map(|(name, value)| format!("{name}={value}")).collect();
        shape.extend(["head_dim", "causal"].into_iter().filter_map(|key| Some((key.to_owned(), kernel.get(key)?.clone()))));
        let row = json!({
            "format": super::FORMAT, "bench": "kgen bench", "case": format!("{name} {}", sizes.join(" ")), "contender": "kgen",
            "own": true, "shape": shape, "dtype": kernel.get("dtype"), "layout": null, "status": part("status"),
            "message": part("message"), "numbers": part("numbers"), "card": part("card"), "kernel": kernel, "details": {},
            "run": run,
        });
        let row: Row = serde_json::from_value(row).map_err(|error| failed(&error.to_string()))?;
        row.flaw().map_or(Ok(row), |flaw| Err(failed(&flaw)))
    };
    measurements.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::row::tests::row, *};

    #[test]
    fn rows_and_documents_are_read_and_others_refused_with_their_line() {
        let rows = [row("a", "2026-11-27T00:00:00Z", 1.0), row("b", "2026-11-28T00:00:00Z", 2.0)];
        let lines: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).expect("JSON")).collect();
        let imported = parse("x.jsonl", &format!("{}\n\n{}\n", lines[0], lines[1])).expect("rows");
        assert_eq!((imported.form, imported.rows.as_slice()), ("rows", rows.as_slice()));
        let torn = parse("x.jsonl", &format!("{}\n{}", lines[0], &lines[1][..40])).expect_err("it is cut off");
        assert!(torn.line == 2 && torn.reason.contains("no JSON"), "{torn}");
        let marked = format!("\u{feff}{}\n", lines[0]);
        assert_eq!(parse("x.jsonl", &marked).expect("an editor's mark of UTF-8").rows, rows[..1]);
        let dated = parse("x.jsonl", &[&lines[0], lines[1].replace("2026-11-28T", "2026-13-45T").as_str()].join("\n"));
        let dated = dated.expect_err("no such date").to_string();
        assert!(dated.starts_with("line 2: `run.date` is `2026-13-45T00:00:00Z`"), "{dated}");
        let trace = json!({ "definition": "d", "workload": {}, "evaluation": { "status": "PASSED", "timestamp":
            "2026-11-27T00:00:00.5", "performance": { "latency_ms": -1.0 } } });
        let trace = parse("x.jsonl", &trace.to_string()).expect_err("no such time").to_string();
        assert!(trace.starts_with("line 1: `numbers.microseconds.median` is -1000.0"), "{trace}");
        let other = parse("x.jsonl", "{\"a\": 1}").expect_err("another form");
        assert!(other.line == 1 && other.reason.contains("no row"), "{other}");
        let record = json!({ "kernel": "k", "emulator": {}, "target": "sm80", "runs_on": ["8.0"], "newer_by_ptx": true });
        let record = parse("targets.jsonl", &record.to_string()).expect_err("no measurement").to_string();
        assert!(record.contains("what is proved for a kernel") && record.contains("2026*.jsonl"), "{record}");
    }

    #[test]
    fn a_document_of_kgen_bench_gives_the_rows_of_one_run() {
        let document = json!({
            "format": 1, "kgen": "0.1.0", "date": "2026-11-27T00:00:00Z", "library": "lib.so", "gpu": { "name": "NVIDIA H100" },
            "driver": "580", "measurements": [
                { "name": "vector_add_fp32_sm90", "kind": "vector_add", "dtype": "fp32", "target": "sm90", "tile": {}, "source": "aa",
                  "shape": { "rows": 1, "columns": 9 }, "status": "ok", "message": "", "card": {},
                  "numbers": { "microseconds": { "median": 2.5 } } },
                { "name": "vector_add_fp32_sm90", "kind": "vector_add", "dtype": "fp32", "target": "sm90", "tile": {}, "source": "aa",
                  "shape": { "rows": 1, "columns": 10 }, "status": "timeout", "message": "late", "card": {}, "numbers": null },
            ],
        });
        let imported = parse("x.json", &document.to_string()).expect("rows");
        assert_eq!(imported.form, "kgen bench");
        let [timed, late] = imported.rows.as_slice() else { panic!("two rows") };
        assert_eq!((timed.median_us(), timed.gpu(), timed.kernel_fact("source")), (Some(2.5), "NVIDIA H100", "aa"));
        assert_eq!((late.status, late.run_id()), (super::super::Status::Timeout, timed.run_id()));
        assert_eq!(parse("y.json", &document.to_string()).expect("rows").rows, imported.rows, "the same run");
    }
}
