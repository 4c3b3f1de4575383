//! The CSV of Nsight Compute: `ncu --csv --page raw --print-units base`. Its first row has the names of columns, its
//! second one their units, and each further row is a launch. Lines of `ncu` itself begin with `==`.

use serde::{Deserialize, Serialize};

/// A counter's value in one launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Name of the metric.
    pub metric: String,
    /// Its unit, as `ncu` writes it: `%`, `byte`, `ns`; empty for a plain number.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// The counters of one launch of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Name of the function that was launched.
    pub kernel: String,
    /// Threads of a block, `(128, 1, 1)`.
    pub block: String,
    /// Blocks, `(8, 1, 1)`.
    pub grid: String,
    /// The counters that have a value, in the order of the columns.
    pub counters: Vec<Counter>,
}

impl KernelCounters {
    /// The value of a metric.
    pub fn value(&self, metric: &str) -> Option<f64> {
        self.counters.iter().find(|counter| counter.metric == metric).map(|counter| counter.value)
    }
}

/// The launches of a report; none if `ncu` has profiled none.
///
/// # Errors
/// A sentence if a row has another number of columns than the first one, or the report has no column for the kernel.
pub fn parse(text: &str) -> Result<Vec<KernelCounters>, String> {
    let mut rows = text.lines().filter(|line| line.starts_with('"')).map(fields);
    let Some(names) = rows.next() else { return Ok(Vec::new()) };
    let place = |name: &str| {
        let found = names.iter().position(|known| known == name);
        found.ok_or_else(|| {
            format!("the report of ncu has no column `{name}`; kgen reads its raw page as CSV, which this release may print in another form")
        })
    };
    let [kernel, block, grid] = [place("Kernel Name")?, place("Block Size")?, place("Grid Size")?];
    let units = rows.next().unwrap_or_default();
    let launch = |row: Vec<String>| {
        if row.len() != names.len() || units.len() != names.len() {
            let (has, columns) = (row.len(), names.len());
            return Err(format!("a row of the report of ncu has {has} fields, and there are {columns} columns"));
        }
        let counter = |((metric, unit), value): ((&String, &String), &String)| {
            let is_metric = metric.contains("__");
            let value = is_metric.then(|| number(value)).flatten()?;
            Some(Counter { metric: metric.clone(), unit: unit.clone(), value })
        };
        let counters = names.iter().zip(&units).zip(&row).filter_map(counter).collect();
        Ok(KernelCounters { kernel: row[kernel].clone(), block: row[block].clone(), grid: row[grid].clone(), counters })
    };
    rows.map(launch).collect()
}

/// A number with or without commas between thousands; `None` for `n/a` and the like.
fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The fields of a row: quoted, with a quote in them doubled.
fn fields(row: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut rest) = (false, row.chars().peekable());
    while let Some(next) = rest.next() {
        let last = fields.len() - 1;
        match next {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                fields[last].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the documented form; the numbers are invented.
    const SAMPLE: &str = r#"==PROF== Connected to process 4242 (/usr/local/bin/kgen)
==PROF== Profiling "attention" - 0: 0%....50%....100% - 5 passes
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes.sum","gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active","sm__inst_executed_pipe_tensor.sum"
"","","","","","","","","","","","byte","ns","%","inst"
"0","4242","kgen","127.0.0.1","void kgen::attention<(int)4, 2>(kgen_fwd_params, ""x"")","1","7","(128, 1, 1)","(2048, 1, 1)","0","9.0","33,554,432","1,234,567","61.25","n/a"
"1","4242","kgen","127.0.0.1","finish(bwd_arguments)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","1024","5.5e3","0","7"
"#;

    #[test]
    fn each_launch_has_the_counters_that_have_a_value() {
        let launches = parse(SAMPLE).expect("a report");
        assert_eq!(launches.len(), 2);
        let first = &launches[0];
        assert_eq!(first.kernel, r#"void kgen::attention<(int)4, 2>(kgen_fwd_params, "x")"#);
        assert_eq!((first.block.as_str(), first.grid.as_str()), ("(128, 1, 1)", "(2048, 1, 1)"));
        assert_eq!(first.value("dram__bytes.sum"), Some(33_554_432.0));
        assert_eq!(first.value("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"), Some(61.25));
        assert_eq!(first.value("sm__inst_executed_pipe_tensor.sum"), None, "n/a is no number");
        let time = Counter { metric: "gpu__time_duration.sum".to_owned(), unit: "ns".to_owned(), value: 5500.0 };
        assert!(launches[1].counters.contains(&time), "{launches:?}");
        assert_eq!(launches[1].counters.len(), 4, "columns that describe the launch are no counters");
    }

    #[test]
    fn a_report_without_launches_is_empty_and_one_that_is_cut_off_is_refused() {
        assert_eq!(parse("==PROF== Connected\n==WARNING== No kernels were profiled.\n"), Ok(Vec::new()));
        let cut = SAMPLE.trim_end().strip_suffix(r#","0","7""#).expect("the end");
        assert!(parse(cut).is_err_and(|error| error.contains("13 fields")), "{:?}", parse(cut));
        let details = "\"ID\",\"Kernel\",\"Metric Name\"\n";
        assert!(parse(details).is_err_and(|error| error.contains("`Kernel Name`")));
    }
}
