//! Rows added to the store while a command runs.

use super::{CommandError, Context, Observer, db};
use crate::{
    files::content_hash,
    lab::{Row, Run, Store},
};
use std::{
    fs,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

/// The store that a command adds rows to, and the run to which the rows belong.
pub(super) struct Recorder {
    pub run: Run,
    store: Mutex<Store>,
    failed: OnceLock<()>,
}

impl Recorder {
    /// Opens the store at `path`, or else the user's.
    ///
    /// # Errors
    /// [`CommandError`] if it cannot be opened, or kgen's executable not be found.
    pub fn open(path: Option<&Path>, context: &Context) -> Result<Self, CommandError> {
        let store = Store::open(&db::path(path)?)?;
        let harness = content_hash(fs::read(context.program()?).unwrap_or_default());
        let run = Run::new(std::env::args().collect(), harness);
        Ok(Self { run, store: Mutex::new(store), failed: OnceLock::new() })
    }

    /// Adds a row. The first row that cannot be added is reported as a note; the command continues, and its outcome
    /// contains all results.
    pub fn add(&self, row: &Row, observer: &dyn Observer) {
        let added = self.store.lock().unwrap_or_else(PoisonError::into_inner).add(row);
        if let Err(error) = added
            && self.failed.set(()).is_ok()
        {
            observer.note(&format!("a row is not in the store: {error}"));
        }
    }
}
