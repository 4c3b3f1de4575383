//! `kgen report`: what the rows say is on the page and in its pictures, and nothing that they say becomes markup.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use quick_xml::{Reader, events::Event};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::PathBuf};
use tempfile::TempDir;

const HOSTILE: &str = "<script>alert('x')</script>\"&|`[a](b)\u{1b}\u{202e}";

/// A row of `contender`, kgen or a peer, at a length.
fn row(run: &str, contender: &str, length: u64, microseconds: f64) -> Value {
    let own = contender == "kgen";
    let kernel = json!({
        "name": "flash_fwd_hdim128_bf16_sm90", "kind": "fwd", "registers": 168, "spill_bytes": 0, "object_bytes": 91_392,
        "sass": run, "nvcc": "13.0.88 (Build x)", "compiled_for": "sm90",
    });
    let mut row = json!({
        "format": 1, "bench": "dense forward", "case": format!("d128 s{length}"), "contender": contender, "own": own,
        "shape": { "batch": 2, "heads": 16, "heads_k": 16, "seqlen_q": length, "seqlen_k": length, "head_dim": 128, "causal": false },
        "dtype": "bf16", "layout": "bshd", "status": "ok", "message": "",
        "numbers": {
            "microseconds": { "median": microseconds, "mad": 0.5, "interval": [0.98 * microseconds, 1.03 * microseconds], "n": 20 },
            "tflops": 4e4 / microseconds, "bytes": 1e7, "repeated": "launch", "l2": "warm",
        },
        "card": {}, "details": {},
        "run": { "id": run, "date": format!("2026-11-2{}T00:00:00Z", run.len()), "gpu": { "name": "NVIDIA H200" },
            "driver": "580.1", "kgen": "0.1.0",
            "ceiling": { "tflops_16_bit": 1000.0, "tflops_fp8": 2000.0, "memory_gbs": 4800.0 } },
    });
    if own {
        row["kernel"] = kernel;
    }
    row
}

fn failure(message: &str) -> Value {
    let mut failed = row("a", "fa2", 512, 1.0);
    failed["status"] = "refused".into();
    failed["message"] = message.into();
    failed["numbers"] = Value::Null;
    failed
}

/// Three lengths of kgen and of a peer.
fn rows() -> Vec<Value> {
    let lengths = [(512, 100.0, 120.0), (1024, 150.0, 140.0), (2048, 200.0, 250.0)];
    lengths.iter().flat_map(|(length, own, peer)| [row("a", "kgen", *length, *own), row("a", "fa3", *length, *peer)]).collect()
}

struct Reports(TempDir);

impl Reports {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, rows: &[Value]) {
        fs::write(self.path(name), rows.iter().map(|row| row.to_string() + "\n").collect::<String>()).expect("written");
    }

    /// `kgen report`; `store.db` is the user's store.
    fn report(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.arg("report").args(arguments).current_dir(self.0.path()).env("KGEN_DB", self.path("store.db"));
        command
    }

    /// The page of these rows.
    fn page(&self, rows: &[Value]) -> String {
        self.write("rows.jsonl", rows);
        self.report(&["--rows", "rows.jsonl", "--out", "page.html"]).assert().success();
        fs::read_to_string(self.path("page.html")).expect("written")
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The pictures of a page, by what their title is named.
fn pictures(page: &str) -> BTreeMap<String, String> {
    let parts = page.split("<svg ").skip(1).map(|part| format!("<svg {}</svg>", part.split("</svg>").next().unwrap_or_default()));
    let id = |svg: &str| svg.split("<title id=\"").nth(1).and_then(|rest| rest.split("-t\"").next()).expect("a title").to_owned();
    parts.map(|svg| (id(&svg), svg)).collect()
}

/// Asserts that a text is well-formed XML, and returns the number of elements whose class has this word.
fn elements(xml: &str, class: &str) -> usize {
    let mut reader = Reader::from_str(xml);
    let (mut found, mut depth) = (0, 0_i32);
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error} in {xml}"));
        let start = match &event {
            Event::Eof => break,
            Event::Start(start) => {
                depth += 1;
                start
            }
            Event::Empty(start) => start,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            _ => continue,
        };
        for attribute in start.attributes() {
            let attribute = attribute.unwrap_or_else(|error| panic!("{error} in {xml}"));
            let value = String::from_utf8_lossy(&attribute.value).into_owned();
            found += usize::from(attribute.key.as_ref() == b"class" && value.split(' ').any(|word| word == class));
        }
    }
    assert_eq!(depth, 0, "every element ends");
    found
}

/// The lines of a table written by `--as csv`.
fn table(reports: &Reports, name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(reports.path(name)).expect("written");
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn every_row_is_a_mark_and_every_number_is_in_a_table() {
    let reports = Reports::new();
    let page = reports.page(&rows());
    let pictures = pictures(&page);
    let marks = |id: &str| elements(&pictures[id], "mark") - elements(&pictures[id], "key");
    assert_eq!(pictures.keys().collect::<Vec<_>>(), ["heat-1", "kernels-1", "lengths-1", "roofline-1"]);
    assert_eq!((marks("roofline-1"), marks("lengths-1"), elements(&pictures["lengths-1"], "range")), (6, 6, 6));
    assert_eq!((elements(&pictures["heat-1"], "cell"), marks("kernels-1")), (3, 1));
    for svg in pictures.values() {
        assert!(svg.contains("<title id=") && svg.contains("<desc id=") && svg.contains("role=\"img\""), "{svg}");
    }
    reports.report(&["--rows", "rows.jsonl", "--as", "csv", "--out", "tables"]).assert().success();
    let lengths = table(&reports, "tables/lengths-1.csv");
    let own: Vec<&[String]> = lengths.iter().filter(|cells| cells[0].starts_with("flash")).map(|cells| &cells[1..8]).collect();
    // 40000 / 100 TFLOP/s between 100 / 1.03 and 100 / 0.98 of it, and 40 % of the peak.
    assert_eq!(own[0], ["512", "2", "512", "400.0", "388.3 to 408.2", "100.0", "40.0"]);
    assert_eq!((lengths.len(), own.len()), (6, 3));
    let heat = table(&reports, "tables/heat-1.csv");
    let ratios: Vec<&str> = heat.iter().map(|cells| cells[2].as_str()).collect();
    assert_eq!(ratios, ["1.200", "0.9333", "1.250"], "the peer's time by kgen's");
    let roofline = table(&reports, "tables/roofline-1.csv");
    // 400 TFLOP/s for 100 µs are 4e10 operations, of 1e7 bytes: the tensor cores limit it.
    assert!(roofline.iter().any(|cells| cells[3..] == ["4000", "400.0", "40.0"]), "{roofline:?}");
    let kernels = table(&reports, "tables/kernels-1.csv");
    assert_eq!(kernels[0][..6], ["flash_fwd_hdim128_bf16_sm90", "sm90", "168", "", "0", "91392"]);
    for cells in lengths.iter().chain(&heat).chain(&roofline).flatten() {
        assert!(page.contains(&format!(">{cells}</td>")), "`{cells}` is not on the page");
    }
}

#[test]
fn two_runs_show_noise_and_changes() {
    let reports = Reports::new();
    let mut both = rows();
    both.extend(rows().into_iter().map(|mut row| {
        row["run"]["id"] = "bb".into();
        row["run"]["date"] = "2026-11-22T00:00:00Z".into();
        if row["own"] == true {
            row["kernel"]["sass"] = "bb".into();
            row["numbers"]["microseconds"]["median"] =
                (1.2 * row["numbers"]["microseconds"]["median"].as_f64().expect("a time")).into();
            row["numbers"]["microseconds"]["interval"] = json!([1000.0, 1001.0]);
        }
        row
    }));
    // Two processes of one run.
    let mut again = both[6].clone();
    again["numbers"]["microseconds"]["median"] = 126.0.into();
    both.push(again);
    let page = reports.page(&both);
    let pictures = pictures(&page);
    let marks = |id: &str| elements(&pictures[id], "mark") - elements(&pictures[id], "key");
    assert_eq!(marks("changes-1"), 6);
    assert!(pictures["changes-1"].contains("6 cases: 3 slower, 0 faster, 3 within the noise"), "{}", pictures["changes-1"]);
    // Peers twice, and one kernel twice: each with its floor and what its rounds claim.
    assert_eq!(marks("noise-1"), 8);
    assert_eq!(marks("lengths-1"), 6, "the latest run, with all its processes");
    reports.report(&["--rows", "rows.jsonl", "--as", "csv", "--out", "t"]).assert().success();
    let own = table(&reports, "t/lengths-1.csv").into_iter().find(|cells| cells[0].starts_with("flash")).expect("a kernel");
    assert_eq!((own[6].as_str(), own[8].as_str()), ("123.0", "2"), "between 120 and 126");
    assert_eq!(table(&reports, "t/changes-1.csv")[0][4..], ["1.230", "slower"]);
}

#[test]
fn what_rows_say_is_never_markup() {
    let reports = Reports::new();
    let mut hostile = rows();
    for row in &mut hostile {
        row["case"] = HOSTILE.into();
        row["run"]["gpu"]["name"] = HOSTILE.into();
        row["shape"]["causal"] = HOSTILE.into();
        if row["own"] == true {
            row["kernel"]["name"] = HOSTILE.into();
            row["kernel"]["nvcc"] = HOSTILE.into();
        } else {
            row["contender"] = HOSTILE.into();
        }
    }
    hostile.push(failure(HOSTILE));
    let page = reports.page(&hostile);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']));
    for svg in pictures(&page).values() {
        elements(svg, "mark");
    }
    let tags: std::collections::BTreeSet<&str> = page
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split([' ', '>', '\n']).next())
        .filter(|tag| !tag.starts_with('/'))
        .collect();
    let known = "!doctype html head meta title style body header h1 h2 h3 dl dt dd nav ul li a main section p code figure div svg desc \
        rect line polyline polygon circle text details summary table thead tbody tr th td";
    let known: Vec<&str> = known.split_whitespace().collect();
    assert!(tags.iter().all(|tag| known.contains(tag)), "{tags:?}");
    reports.report(&["--rows", "rows.jsonl", "--out", "page.md"]).assert().success();
    let text = fs::read_to_string(reports.path("page.md")).expect("written");
    assert!(!text.contains("<script") && text.contains("\\|\\`\\[a\\](b)"), "{text}");
}

#[test]
fn the_page_needs_nothing_else_and_is_the_same_each_time() {
    let reports = Reports::new();
    let mut all = rows();
    all.push(failure("no such head dim"));
    let page = reports.page(&all);
    for outside in ["http://", "https://", "src=", "url(", "@import", "<script", "<link"] {
        let found = page.matches(outside).count();
        let namespaces = if outside == "http://" { page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count() } else { 0 };
        assert_eq!(found, namespaces, "`{outside}`");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
    assert!(page.contains("2026-11-21T00:00:00Z") && page.contains("no such head dim"));
    all.reverse();
    all.push(all[0].clone());
    assert_eq!(reports.page(&all), page, "the order of rows and their copies do not matter");
}

#[test]
fn an_empty_store_gives_a_page_that_says_what_to_do() {
    let reports = Reports::new();
    reports.report(&[]).assert().code(2).stderr(contains("does not exist").and(contains("`kgen bench`")));
    kgen::lab::Store::open(&reports.path("store.db")).expect("a store");
    reports.report(&[]).assert().success().stdout(contains("report.html: 0 rows").and(contains("Roofline: none")));
    let page = fs::read_to_string(reports.path("report.html")).expect("written");
    for said in
        ["<code>kgen bench</code>", "<code>kgen bench --processes 5</code>", "<code>kgen db import</code>", "No row has failed."]
    {
        assert!(page.contains(said), "`{said}` is missing");
    }
    assert!(!page.contains("<svg"));
}

#[test]
fn rows_come_from_files_and_stores_and_meet_conditions() {
    let reports = Reports::new();
    reports.write("own.jsonl", &rows()[..1]);
    reports.write("peers.jsonl", &rows()[1..]);
    let mut import = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    import.args(["db", "import", "own.jsonl", "--db", "own.db"]).current_dir(reports.0.path()).assert().success();
    reports.report(&["--db", "own.db"]).assert().success().stdout(contains("report.html: 1 row, the latest of 2026-11-21"));
    let both = ["--rows", "own.jsonl", "--rows", "peers.jsonl"];
    reports.report(&both).assert().success().stdout(contains("6 rows"));
    reports.report(&["--rows", "peers.jsonl", "--db", "own.db"]).assert().success().stdout(contains("6 rows"));
    reports.report(&[&both[..], &["--contender", "fa3"]].concat()).assert().success().stdout(contains("3 rows"));
    let json = reports.report(&[&both[..], &["--format", "json"]].concat()).output().expect("it runs").stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&json["rows"], &json["sections"][0]["id"]), (&json!(6), &json!("roofline")));
    reports.report(&["--rows", "none.jsonl"]).assert().code(2).stderr(contains("cannot read `none.jsonl`"));
    reports.report(&[&both[..], &["--out", "report.pdf"]].concat()).assert().code(2).stderr(contains("names no form"));
    reports.report(&[&both[..], &["--out", "no/such/page.html"]].concat()).assert().code(2).stderr(contains("`--out`"));
}

#[test]
fn pictures_stand_alone_as_files() {
    let reports = Reports::new();
    reports.write("rows.jsonl", &rows());
    let said = contains("pictures (4 files): 6 rows");
    reports.report(&["--rows", "rows.jsonl", "--as", "svg", "--out", "pictures"]).assert().success().stdout(said);
    assert_eq!(reports.names("pictures"), ["heat-1.svg", "kernels-1.svg", "lengths-1.svg", "roofline-1.svg"]);
    // A smaller report takes the place of a larger one, and the user's own files stay.
    for name in ["heat-7.svg", "heat-7.csv", "heat-x.svg", "mine-1.svg"] {
        fs::write(reports.path("pictures").join(name), "").expect("written");
    }
    reports.write("rows.jsonl", &rows()[..1]);
    reports.report(&["--rows", "rows.jsonl", "--as", "svg", "--out", "pictures"]).assert().success();
    let own = ["heat-7.csv", "heat-x.svg", "mine-1.svg"];
    let names = reports.names("pictures");
    assert!(own.iter().all(|name| names.contains(&(*name).to_owned())) && !names.contains(&"heat-7.svg".to_owned()), "{names:?}");
    reports.write("rows.jsonl", &rows());
    reports.report(&["--rows", "rows.jsonl", "--as", "svg", "--out", "pictures"]).assert().success();
    let svg = fs::read_to_string(reports.path("pictures/roofline-1.svg")).expect("written");
    assert_eq!(elements(&svg, "mark") - elements(&svg, "key"), 6);
    assert!(svg.contains("<style>") && svg.contains("NVIDIA H200: rate against intensity</text>"), "{svg}");
}

#[test]
fn the_rows_that_the_project_publishes_make_a_report() {
    let reports = Reports::new();
    let published = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/2026-11-27-noise.jsonl");
    let published = published.to_str().expect("a path");
    reports.report(&["--rows", published, "--out", "n.html"]).assert().success().stdout(contains("36 rows"));
    let page = fs::read_to_string(reports.path("n.html")).expect("written");
    let pictures = pictures(&page);
    assert_eq!(elements(&pictures["roofline-1"], "mark"), 12 + 1, "12 cases, and the legend");
    assert_eq!(elements(&pictures["noise-1"], "mark"), 24 + 2);
    assert!(page.contains("<td class=\"n\">7.95</td>"), "the largest floor of the record");
}

#[test]
fn calls_of_known_kernels_on_known_cards_have_predictions_beside_their_times() {
    let reports = Reports::new();
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/results/2026-11-27-timings-h100.jsonl");
    let out = reports.report(&["--rows", published, "--as", "csv", "--out", "tables"]).assert().success();
    drop(out);
    let table = fs::read_to_string(reports.path("tables/predictions-1.csv")).expect("a table");
    let ratios: Vec<f64> =
        table.lines().skip(1).map(|line| line.rsplit(',').next().and_then(|cell| cell.parse().ok()).expect("a number")).collect();
    assert!(ratios.len() > 200, "{}", ratios.len());
    assert!(ratios.iter().all(|ratio| *ratio > 0.3 && *ratio < 3.0));
    // Held-out errors, so that they are not those of a fit.
    let mean = ratios.iter().map(|ratio| (ratio - 1.0).abs()).sum::<f64>() / ratios.len() as f64;
    assert!(mean > 0.03 && mean < 0.1, "{mean}");
    // A tile that is not the default has no prediction.
    let mut other = row("a", "kgen", 512, 100.0);
    other["kernel"]["tile"] = json!({ "m": 1 });
    reports.write("other.jsonl", &[other]);
    reports.report(&["--rows", "other.jsonl", "--out", "page.md"]).assert().success();
    assert!(fs::read_to_string(reports.path("page.md")).expect("a page").contains("`kgen predict` can compute"));
}
