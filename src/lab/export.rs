//! Rows in the formats that other programs read.

use super::{Row, Status, flat, foreign};
use itertools::Itertools;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON Lines of whole rows, which `kgen db import` reads back.
    Jsonl,
    /// A table with a line per row; nested fields are columns with dots in their names.
    Csv,
    /// Results of a tuner, T4 schema 1.0.0 (Kernel Tuner and others).
    T4,
    /// Traces of FlashInfer-Bench, as JSON Lines.
    Traces,
}

/// The largest number of columns of a table: spreadsheets read no more.
const MOST_COLUMNS: usize = 16_384;

/// The reason why a form cannot express rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// A table would have too many columns.
    #[error(
        "the table would have more than {MOST_COLUMNS} columns, and spreadsheets read no more; the rows from run `{run}` of \
         `{bench}` on are too many, or have too many fields: select others, or take `--as jsonl`, which has all fields"
    )]
    Columns {
        /// The program of the first row that is too much.
        bench: String,
        /// Its run.
        run: String,
    },
    /// A row without a time, in a form of times.
    #[error(
        "a row of `{bench}` (run `{run}`) has results but no time, and `--as {form}` has times; leave such rows out, for \
         example by `--bench 'kgen bench'`, or take `--as jsonl`"
    )]
    Untimed {
        /// The program of the row.
        bench: String,
        /// Its run.
        run: String,
        /// The form.
        form: &'static str,
    },
}

/// The rows as the text of one file.
///
/// # Errors
/// [`ExportError`] if the form cannot express a row.
pub fn export(rows: &[Row], form: Form) -> Result<String, ExportError> {
    Ok(match form {
        Form::Jsonl => rows.iter().map(|row| serde_json::to_string(row).unwrap_or_default() + "\n").collect(),
        Form::Csv => csv(rows)?,
        Form::T4 => {
            timed(rows, "t4")?;
            format!("{:#}\n", json!({ "schema_version": "1.0.0", "results": rows.iter().map(t4).collect_vec() }))
        }
        Form::Traces => {
            timed(rows, "traces")?;
            rows.iter().map(|row| foreign::to_trace(row).to_string() + "\n").collect()
        }
    })
}

/// Refuses rows of profiles and checks, which have results without times.
fn timed(rows: &[Row], form: &'static str) -> Result<(), ExportError> {
    let untimed = rows.iter().find(|row| row.status == Status::Ok && row.median_us().is_none());
    untimed.map_or(Ok(()), |row| Err(ExportError::Untimed { bench: row.bench.clone(), run: row.run_id().to_owned(), form }))
}

/// All columns that any row has, in the order of their first appearance.
fn csv(rows: &[Row]) -> Result<String, ExportError> {
    let flat: Vec<Map<String, Value>> = rows.iter().map(flat).collect();
    let mut known = HashSet::new();
    let mut columns: Vec<&String> = Vec::new();
    for (row, fields) in rows.iter().zip(&flat) {
        columns.extend(fields.keys().filter(|&field| known.insert(field)));
        if columns.len() > MOST_COLUMNS {
            return Err(ExportError::Columns { bench: row.bench.clone(), run: row.run_id().to_owned() });
        }
    }
    let line = |cells: &mut dyn Iterator<Item = String>| cells.map(|cell| quoted(&cell)).join(",") + "\r\n";
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let head = line(&mut columns.iter().map(|&column| column.clone()));
    Ok(head + &flat.iter().map(|row| line(&mut columns.iter().map(|&column| cell(row.get(column))))).join(""))
}

/// A cell as RFC 4180 specifies: quoted if it contains a separator.
pub(super) fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// A result in T4. Programs write `compilation` and `benchmark` where the schema says `compilation_time` and
/// `runtimes`: both are written, in seconds.
fn t4(row: &Row) -> Value {
    let compilation = row.details.get("compile_s").and_then(Value::as_f64).unwrap_or_default();
    let rounds: Vec<f64> =
        row.numbers.as_ref().and_then(|numbers| numbers.get("round_microseconds")?.as_array()).map_or_else(Vec::new, |rounds| {
            rounds.iter().filter_map(Value::as_f64).map(|microseconds| microseconds / 1e6).collect()
        });
    let mut configuration = row.shape.clone();
    configuration.insert("contender".to_owned(), json!(row.contender));
    if let Some(kernel) = &row.kernel {
        // A peer has no kernel of kgen's name, but does the work of one.
        let [name, kind] = [row.kernel_name(), row.kernel_fact("kind")];
        let known = [("kernel", json!(name)), ("kind", json!(kind)), ("features", json!(row.features()))];
        configuration.extend(known.map(|(key, value)| (key.to_owned(), value)));
        configuration.extend(kernel.get("tile").and_then(Value::as_object).cloned().unwrap_or_default());
    }
    let invalidity = match row.status {
        Status::Ok => "correct",
        Status::Wrong => "correctness",
        Status::Timeout => "timeout",
        Status::Error if compilation > 0.0 => "compile",
        Status::Refused | Status::Spilled | Status::Absent => "constraints",
        Status::Error | Status::Crash | Status::Truncated => "runtime",
    };
    let measurements: Vec<Value> =
        [("time", row.median_us(), "us"), ("TFLOP/s", row.number("tflops"), "TFLOP/s"), ("GB/s", row.number("gbs"), "GB/s")]
            .into_iter()
            .filter_map(|(name, value, unit)| Some(json!({ "name": name, "value": value?, "unit": unit })))
            .collect();
    json!({
        "timestamp": row.date(), "configuration": configuration, "objectives": ["time"], "invalidity": invalidity,
        "correctness": u8::from(row.status == Status::Ok), "measurements": measurements,
        "times": {
            "compilation_time": compilation, "compilation": compilation, "runtimes": rounds, "benchmark": rounds.iter().fold(0.0, |sum, round| sum + round),
            "framework": 0.0, "search_algorithm": 0.0, "validation": 0.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{super::row::tests::row, *};
    use crate::lab::parse;

    fn rows() -> Vec<Row> {
        let mut wrong = row("b", "2026-11-28T00:00:00Z", 2.0);
        (wrong.status, wrong.numbers, wrong.message) = (Status::Wrong, None, "O is \"wrong\", LSE too".to_owned());
        vec![row("a", "2026-11-27T00:00:00Z", 8.0), wrong]
    }

    fn text(rows: &[Row], form: Form) -> String {
        export(rows, form).expect("the form has these rows")
    }

    #[test]
    fn a_table_has_a_bounded_number_of_columns() {
        let mut wide = row("wide", "2026-11-28T00:00:00Z", 2.0);
        wide.details = (0..MOST_COLUMNS).map(|place| (format!("k{place}"), json!(1))).collect();
        let all = [row("a", "2026-11-27T00:00:00Z", 8.0), wide];
        let refused = ExportError::Columns { bench: "kgen bench".to_owned(), run: "wide".to_owned() };
        assert_eq!(export(&all, Form::Csv), Err(refused));
        assert_eq!(text(&all, Form::Jsonl).lines().count(), 2);
    }

    #[test]
    fn results_without_times_are_no_traces() {
        let mut profile = row("p", "2026-11-28T00:00:00Z", 2.0);
        (profile.bench, profile.numbers) = ("kgen profile".to_owned(), Some(Map::new()));
        assert_eq!(profile.flaw(), None);
        for (form, word) in [(Form::T4, "t4"), (Form::Traces, "traces")] {
            let refused = export(&[profile.clone()], form).expect_err("no time").to_string();
            assert!(refused.contains("`kgen profile` (run `p`)") && refused.contains(&format!("`--as {word}`")), "{refused}");
        }
        assert_eq!(parse("x", &text(&[profile.clone()], Form::Jsonl)).expect("rows").rows, [profile]);
    }

    #[test]
    fn json_lines_are_read_back() {
        assert_eq!(parse("x", &text(&rows(), Form::Jsonl)).expect("rows").rows, rows());
        assert_eq!(text(&[], Form::Jsonl), "");
    }

    #[test]
    fn a_table_has_every_field_and_quotes_what_has_commas() {
        let table = text(&rows(), Form::Csv);
        let lines: Vec<&str> = table.split("\r\n").collect();
        assert_eq!(lines.len(), 4, "a head, two rows and the end");
        assert!(lines[0].contains("numbers.microseconds.median") && lines[0].contains("run.gpu.name"), "{table}");
        assert!(lines[2].contains("\"O is \"\"wrong\"\", LSE too\""), "{table}");
    }

    #[test]
    fn t4_says_why_a_result_is_invalid() {
        let document: Value = serde_json::from_str(&text(&rows(), Form::T4)).expect("JSON");
        let results = document["results"].as_array().expect("a list");
        assert_eq!((&results[0]["invalidity"], &results[1]["invalidity"]), (&json!("correct"), &json!("correctness")));
        assert_eq!(results[0]["times"]["runtimes"], json!([8e-6, 8e-6, 8e-6]));
        assert_eq!(results[0]["measurements"][0], json!({ "name": "time", "value": 8.0, "unit": "us" }));
    }
}
