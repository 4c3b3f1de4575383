//! Compiles the emulator while nvcc is installed and compiles: of one kernel, that is half of the time from nothing to
//! the end of its check.

use crate::{
    device::EmulatorKit,
    render::Templates,
    toolchain::{Cancel, cache_dir, host_compiler},
};
use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often it is looked whether somebody has asked to stop.
const POLL: Duration = Duration::from_millis(10);

/// The emulator in the making. Dropped, it is given up.
pub(super) struct Ahead {
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins, with the emulator of these templates. What stops it stops the check too, which says so.
    pub fn start(templates: Templates) -> Self {
        let cancel = Cancel::default();
        let shared = cancel.clone();
        let make = move || {
            let (Ok(host), Ok(cache)) = (host_compiler(&shared), cache_dir()) else { return };
            let (include, emulator) = (templates.include_files(), templates.emulator_files());
            EmulatorKit::new(&cache, include, emulator, &host, &shared).ok();
        };
        Self { cancel, thread: Some(thread::spawn(make)) }
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
        // A panic of the thread is the check's to meet.
        self.thread.take().map(JoinHandle::join).transpose().ok();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.cancel.request();
        self.join();
    }
}
