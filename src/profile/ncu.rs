//! Nsight Compute: where it is, which counters it knows, and what keeps it from reading them.

use super::{KernelCounters, METRICS, Metric, metrics, report};
use crate::toolchain::{
    Cancel, find_in_path,
    process::{self, Ending},
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Time limit of a question to `ncu` about its counters.
const QUERY_LIMIT: Duration = Duration::from_secs(60);

/// The word with which `ncu` reports that the driver refuses counters.
const REFUSED: &str = "ERR_NVGPUCTRPERM";

/// Reasons why there are no counters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NcuError {
    /// It is not installed.
    #[error("`ncu` (Nsight Compute) is not on PATH; the CUDA toolkit has it, often in `/usr/local/cuda/bin`")]
    Missing,
    /// The driver refuses.
    #[error(
        "the driver lets only administrators read the GPU's counters ({REFUSED}); run this as root, or load the driver with \
         the option NVreg_RestrictProfilingToAdminUsers=0"
    )]
    NotPermitted,
    /// It has profiled nothing.
    #[error("`ncu` has reported no launch{}", said(.0))]
    Nothing(String),
    /// Its report is of another form.
    #[error("{0}")]
    Unreadable(String),
}

/// `: words`, or an empty string.
fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// An installed Nsight Compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ncu {
    path: PathBuf,
}

impl Ncu {
    /// The one on `PATH`.
    ///
    /// # Errors
    /// [`NcuError::Missing`].
    pub fn find() -> Result<Self, NcuError> {
        find_in_path("ncu").map(|path| Self { path }).ok_or(NcuError::Missing)
    }

    /// The one at a path.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Names of the counters that it knows for this machine's GPUs; all of them if it does not say.
    pub(super) fn counters(&self, cancel: &Cancel) -> Vec<&'static str> {
        let known = self.known(cancel).unwrap_or_default();
        let listed: Vec<&str> = chosen(&known).collect();
        if listed.is_empty() { METRICS.iter().map(|metric| metric.name).collect() } else { listed }
    }

    /// What `ncu --query-metrics` prints.
    fn known(&self, cancel: &Cancel) -> Option<String> {
        let answer = tempfile::NamedTempFile::new().ok()?;
        let mut command = Command::new(&self.path);
        command.arg("--query-metrics").stdin(Stdio::null()).stdout(answer.reopen().ok()?).stderr(Stdio::null());
        let done = process::run(&mut command, QUERY_LIMIT, cancel).ok()?;
        if done.ending == Ending::Exited(0) { fs::read_to_string(answer.path()).ok() } else { None }
    }

    /// The command line in front of a program whose launches are profiled into the file `log`.
    pub(super) fn prefix(&self, counters: &[&str], log: &Path) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![self.path.clone().into()];
        line.extend(["--csv", "--page", "raw", "--print-units", "base", "--metrics"].map(OsString::from));
        line.extend([counters.join(",").into(), "--log-file".into(), log.into()]);
        line
    }
}

/// The counters whose names begin a line of `ncu --query-metrics`.
fn chosen(known: &str) -> impl Iterator<Item = &'static str> {
    let names: std::collections::BTreeSet<&str> = known.lines().filter_map(|line| line.split_whitespace().next()).collect();
    METRICS.iter().filter(move |metric| names.contains(metric.base())).map(|metric| metric.name)
}

/// The launches in the log of a profiled program.
///
/// # Errors
/// [`NcuError`] if there is none.
pub(super) fn launches(log: &str) -> Result<Vec<KernelCounters>, NcuError> {
    if log.contains(REFUSED) {
        return Err(NcuError::NotPermitted);
    }
    let mut launches = report::parse(log).map_err(NcuError::Unreadable)?;
    // The raw page also has attributes of the device, of the session and of the host.
    for launch in &mut launches {
        launch.counters.retain(|counter| Metric::named(&counter.metric).is_some());
    }
    if launches.iter().any(|launch| !launch.counters.is_empty()) {
        return Ok(launches);
    }
    let complaint = log.lines().rev().find_map(|line| line.strip_prefix("==ERROR== ").or(line.strip_prefix("==WARNING== ")));
    Err(NcuError::Nothing(complaint.unwrap_or_default().to_owned()))
}

impl KernelCounters {
    /// The reasons for which warps wait, the most frequent first: a short name and the number of warps.
    pub fn stalls(&self) -> Vec<(String, f64)> {
        let stall = |counter: &super::Counter| {
            Metric::named(&counter.metric).filter(|metric| metric.is_stall())?;
            let [prefix, suffix] = metrics::STALL;
            let name = counter.metric.strip_prefix(prefix)?.strip_suffix(suffix)?;
            Some((name.to_owned(), counter.value))
        };
        let mut stalls: Vec<(String, f64)> = self.counters.iter().filter_map(stall).collect();
        stalls.sort_by(|a, b| b.1.total_cmp(&a.1));
        stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Counter;

    #[test]
    fn only_counters_that_the_gpu_has_are_asked_for() {
        let known = "Device NVIDIA H100 80GB HBM3 (GH100)\n-----\nMetric Name    Metric Type    Metric Unit\n\
                     dram__bytes    Counter    byte\nsm__throughput    Throughput    %\nsm__other    Counter\n";
        let names: Vec<&str> = chosen(known).collect();
        assert_eq!(names, ["sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes.sum"]);
    }

    #[test]
    fn a_refusal_is_told_from_a_program_without_launches() {
        let refused = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n";
        assert_eq!(launches(refused), Err(NcuError::NotPermitted));
        let message = NcuError::NotPermitted.to_string();
        assert!(message.contains("root") && message.contains("NVreg_RestrictProfilingToAdminUsers=0"), "{message}");
        let nothing = launches("==PROF== Connected\n==WARNING== No kernels were profiled.\n");
        assert_eq!(nothing, Err(NcuError::Nothing("No kernels were profiled.".to_owned())));
        assert!(NcuError::Missing.to_string().contains("PATH"));
    }

    #[test]
    fn a_program_is_profiled_with_its_output_apart_from_the_report() {
        let prefix = Ncu { path: "/opt/ncu".into() }.prefix(&["a.sum", "b.pct"], Path::new("/tmp/log"));
        let words: Vec<&str> = prefix.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(words.join(" "), "/opt/ncu --csv --page raw --print-units base --metrics a.sum,b.pct --log-file /tmp/log");
    }

    #[test]
    fn stalls_are_sorted_and_named_briefly() {
        let counter = |metric: &str, value| Counter { metric: metric.to_owned(), unit: String::new(), value };
        let launch = KernelCounters {
            kernel: String::new(),
            block: String::new(),
            grid: String::new(),
            counters: vec![
                counter("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", 0.5),
                counter("dram__bytes.sum", 9.0),
                counter("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", 1.5),
            ],
        };
        assert_eq!(launch.stalls(), [("long_scoreboard".to_owned(), 1.5), ("barrier".to_owned(), 0.5)]);
    }
}
