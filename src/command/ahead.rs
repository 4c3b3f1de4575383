//! Compiles the emulator while nvcc is installed and compiles: of one kernel, that is half of the time from nothing to
//! the end of its check.

use super::{CommandError, Context};
use crate::{device::EmulatorKit, toolchain::Cancel};
use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

/// Pause between two looks at whether it is to stop.
const POLL: Duration = Duration::from_millis(10);

/// The emulator in the making. Dropped, it is given up.
pub(super) struct Ahead {
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins, with the templates of `context`. What stops it stops the check too, which reports it.
    ///
    /// # Errors
    /// As [`Context::templates`].
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

    /// Waits until it is there, or `cancel` is requested.
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
