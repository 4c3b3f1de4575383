//! The check that must reject kernels with faults. This file is part of the key of every entry of the record: it
//! determines what counts as caught.

use super::{
    hints::LastCase,
    laboratory::{Kernel, Laboratory},
    list::Fault,
};
use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel as Form, Level, Observer, Status, Verdict, run},
    plan::Plan,
};
use std::{path::PathBuf, time::Duration};

/// Options of the check by the cases whose names contain `cases`, without an emulator.
pub fn options(cases: Option<&str>) -> CheckOptions {
    CheckOptions {
        cases: kgen::family::cases,
        level: Level::Smoke,
        filter: cases.map(str::to_owned),
        seed: DEFAULT_SEED,
        schedule: None,
        jobs: 1,
        gpu_jobs: 1,
        time_limit: Duration::from_secs(300), // the machine may be busy
        fresh: false,
        cache: Laboratory::cache(),
        kit: None,
        gpu: None,
        program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
    }
}

/// The check of a text of a kernel.
pub fn request(plan: &Plan, text: String) -> CheckRequest {
    let (variant, tiling, compiled_for) = (plan.variant, plan.tiling(), plan.compiled_for());
    CheckRequest { variant, tiling, compiled_for, kernel: Form::Source(text) }
}

impl Laboratory {
    /// The verdict on a text of a kernel, from the cases whose names contain `cases`. Ends with the first failure. A
    /// pass of an earlier run counts: it is keyed by everything that it depends on.
    fn check(&self, plan: &Plan, text: String, cases: Option<&str>, observer: &dyn Observer) -> Verdict {
        let options = CheckOptions { kit: Some(self.kit()), ..options(cases) };
        run(&[request(plan, text)], &options, observer).pop().expect("one verdict")
    }

    /// Checks that a text of a kernel passes.
    ///
    /// # Errors
    /// The verdict of a kernel that does not pass.
    pub fn passes(&self, kernel: &Kernel, text: String) -> Result<(), String> {
        let verdict = self.check(&kernel.plan, text, None, &());
        if verdict.passed() { Ok(()) } else { Err(format!("{}: {:?}: {}", kernel.name(), verdict.status, verdict.message)) }
    }

    /// Checks that a text is rejected as the fault's entry specifies: by the case `hint`, or else by all cases. In the
    /// latter case it returns the case that shows the fault and the time spent on those before it.
    ///
    /// # Errors
    /// The verdict, if it differs from the expected one.
    pub fn rejected(
        &self,
        fault: &Fault,
        plan: &Plan,
        text: &str,
        hint: Option<&str>,
    ) -> Result<Option<(String, Duration)>, String> {
        let (wanted, sign) = match fault.expect.as_str() {
            "fail" => (Status::Fail, String::new()),
            "wrong numbers" => (Status::Fail, "elements are wrong".to_owned()),
            "trap" => (Status::Crash, "an index is beyond the bounds of one of the kernel's arrays".to_owned()),
            "refusal" => (Status::Fail, "the launcher must refuse this and say `".to_owned()),
            kind => (Status::Fail, format!("{kind}: ")),
        };
        let says = fault.says.as_deref().unwrap_or_default();
        let is_wanted =
            |verdict: &Verdict| verdict.status == wanted && verdict.message.contains(&sign) && verdict.message.contains(says);
        if hint.is_some() && is_wanted(&self.check(plan, text.to_owned(), hint, &())) {
            return Ok(None);
        }
        let last = LastCase::default();
        let verdict = self.check(plan, text.to_owned(), fault.cases.as_deref(), &last);
        if is_wanted(&verdict) {
            return Ok(last.take());
        }
        let Verdict { status, message, .. } = verdict;
        Err(format!("{}: {status:?}, expected {wanted:?} with `{sign}` and `{says}`: {message}", plan.variant))
    }
}
