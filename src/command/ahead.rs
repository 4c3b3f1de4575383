//! Compiles the emulator in the background while nvcc is installed and runs: for one kernel, this halves the time from
//! a clean machine to the end of its check.

use super::{CommandError, Context};
use crate::{device::EmulatorKit, toolchain::Cancel};
use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

/// Polling interval for cancellation.
const POLL: Duration = Duration::from_millis(10);

/// The background compilation of the emulator; dropping it cancels the compilation.
pub(super) struct Ahead {
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts the compilation with the templates of `context`. Its errors also stop the check, which reports them.
    ///
    /// # Errors
    /// The errors of [`Context::templates`].
    pub fn start(context: &Context) -> Result<Self, CommandError> {
        let templates = context.templates()?;
        let cancel = Cancel::default();
        let context = Context { cancel: cancel.clone(), ..context.clone() };
        let make = move || {
            let (Ok(host), Ok(cache)) = (context.host_compiler(), context.cache_dir()) else { return };
            let (include, emulator) = (templates.include_files(), templates.emulator_files());
            EmulatorKit::new(&cache, include, emulator, &host, &context.cancel).ok();
        };
        Ok(Self { cancel, thread: Some(thread::spawn(make)) })
    }

    /// Waits until the emulator is compiled, or `cancel` is requested.
    pub fn finish(mut self, cancel: &Cancel) {
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && !cancel.requested() {
            thread::sleep(POLL);
        }
        if !cancel.requested() {
            self.join();
        }
    }

    fn join(&mut self) {
        // A panic of the thread shows up in the check.
        self.thread.take().map(JoinHandle::join).transpose().ok();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.cancel.request();
        self.join();
    }
}
