//! The report of a check as JUnit XML, for continuous integration.

use super::escape::plain;
use crate::{
    check::{Status, Verdict},
    command::CommandError,
    files::write_atomic,
};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::{path::Path, time::Duration};

/// Writes `verdicts` to `file`: a test case for each variant.
///
/// # Errors
/// [`CommandError::Usage`] if the file cannot be written.
pub(super) fn write(file: &Path, verdicts: &[Verdict]) -> Result<(), CommandError> {
    let failed = |reason: String| {
        CommandError::Usage(format!("cannot write `{}`: {reason}; choose another file with `--junit`", file.display()))
    };
    let text = report(verdicts).to_string().map_err(|error| failed(error.to_string()))?;
    write_atomic(file, text.as_bytes()).map(drop).map_err(|error| failed(error.to_string()))
}

fn report(verdicts: &[Verdict]) -> Report {
    let mut suite = TestSuite::new("kgen check");
    for verdict in verdicts {
        let mut case = TestCase::new(verdict.name.as_str(), status(verdict));
        case.set_classname(format!("{}.{}", verdict.kind, verdict.level.word()));
        case.set_time(Duration::try_from_secs_f64(verdict.seconds).unwrap_or_default());
        if let Some(worst) = &verdict.worst {
            let case_of = format!("{} of {}: {:.3e}, allowed {:.3e}", worst.output, worst.case, worst.error, worst.tolerance);
            case.set_system_out(format!(
                "{} cases on {}, seed {}; worst error {case_of}",
                verdict.cases_run, verdict.device, verdict.seed
            ));
        }
        suite.add_test_case(case);
    }
    let mut report = Report::new("kgen");
    report.add_test_suite(suite);
    report
}

fn status(verdict: &Verdict) -> TestCaseStatus {
    let kind = match verdict.status {
        Status::Pass => return TestCaseStatus::success(),
        Status::Fail => NonSuccessKind::Failure,
        Status::Error | Status::Timeout | Status::Crash | Status::Interrupted => NonSuccessKind::Error,
    };
    let message = plain(verdict.message.trim_end()).into_owned();
    let mut status = TestCaseStatus::non_success(kind);
    status
        .set_type(verdict.status.word())
        .set_message(message.lines().next().unwrap_or_default().to_owned())
        .set_description(message);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check::Level, device::DeviceKind};

    #[test]
    fn a_failure_a_crash_and_a_pass_are_three_test_cases() {
        let verdict = |name: &str, status, message: &str| Verdict {
            name: name.to_owned(),
            device: "emulator".to_owned(),
            kind: DeviceKind::Emulator,
            level: Level::Smoke,
            seed: 1,
            status,
            cases_run: 7,
            worst: None,
            seconds: 1.5,
            message: message.to_owned(),
            cached: false,
            same_as: None,
        };
        let verdicts = [
            verdict("good", Status::Pass, ""),
            verdict("bad", Status::Fail, "O is <wrong>\nat row 3\u{1b}[2J"),
            verdict("dead", Status::Crash, "signal 11"),
        ];
        let text = report(&verdicts).to_string().expect("it serialises");
        assert!(text.contains("tests=\"3\" skipped=\"0\" failures=\"1\" errors=\"1\""), "{text}");
        assert!(text.contains("<testcase name=\"good\" classname=\"emulator.smoke\" time=\"1.500\"/>"), "{text}");
        assert!(text.contains("message=\"O is &lt;wrong&gt;\" type=\"fail\"") && text.contains("at row 3"), "{text}");
        assert!(!text.contains('\u{1b}'), "XML has no escape character");
    }
}
