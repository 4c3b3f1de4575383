//! The store: an SQLite file of rows. Several processes may write to it at the same time. A row that was added is not
//! lost when the process ends.

use super::{Condition, Row};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// Steps from an empty file to the current schema; `user_version` counts the steps applied. A step never changes once
/// released.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE row (
        number INTEGER PRIMARY KEY,     -- order of arrival
        id TEXT NOT NULL UNIQUE,        -- BLAKE3 of the document
        run TEXT NOT NULL,
        date TEXT NOT NULL,             -- UTC, ISO 8601: order of text is order of time
        bench TEXT NOT NULL,
        contender TEXT NOT NULL,
        kernel TEXT NOT NULL,           -- '' for a peer
        gpu TEXT NOT NULL,              -- '' if no card took part
        status TEXT NOT NULL,
        document TEXT NOT NULL          -- the row as JSON; the other columns are copies out of it
    ) STRICT;
    CREATE INDEX row_by_kernel ON row (kernel, date);
    CREATE INDEX row_by_run ON row (run);
    CREATE INDEX row_by_date ON row (date);
"];

/// Time to wait for another process that is writing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reasons why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not a store.
    #[error("`{}` is no store of measurements; name another file{how}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
    },
    /// The path is that of a folder.
    #[error("`{}` is a folder, and a store is a file; name a file{how}, such as `{}`", path.display(), path.join("rows.db").display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
    },
    /// A newer kgen wrote the file.
    #[error("`{}` was written by a newer kgen (schema {found}, and this one knows {known}); use that kgen, or name another file{how}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
        /// Schema of the file.
        found: u32,
        /// The newest schema of this kgen.
        known: u32,
    },
    /// The file to read does not exist.
    #[error("`{}` does not exist: `kgen bench` adds rows to a store, and `kgen db import` those of files; or name another file{how}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
    },
    /// The file was a store, and part of it is overwritten or cut off.
    #[error("`{}` is damaged: {reason}; put a copy in its place, or move it away and `kgen db import` an export, or name another file{how}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
        /// What was found.
        reason: String,
    },
    /// SQLite reports an error.
    #[error("cannot {what} `{}`: {reason}; see to its permissions and the space on its disk, or name another file{how}", path.display())]
    Sqlite {
        /// The verb for the failed operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// How another file is named.
        how: &'static str,
        /// SQLite's reason.
        reason: String,
        /// True if the file, or another that SQLite keeps beside it, may not be written or read.
        denied: bool,
    },
    /// A row contradicts itself.
    #[error("a row of `{bench}` cannot be kept: {flaw}")]
    Flaw {
        /// The program that wrote the row.
        bench: String,
        /// What is wrong.
        flaw: String,
    },
}

/// How a store is named by those commands whose store it is.
const BY_FLAG: &str = " with `--db` or `KGEN_DB`";

impl StoreError {
    /// The file, and how another is named; `None` if the reason is not the file.
    fn file(&mut self) -> Option<(&mut PathBuf, &mut &'static str)> {
        match self {
            Self::Foreign { path, how }
            | Self::Folder { path, how }
            | Self::Newer { path, how, .. }
            | Self::Missing { path, how }
            | Self::Damaged { path, how, .. }
            | Self::Sqlite { path, how, .. } => Some((path, how)),
            Self::Flaw { .. } => None,
        }
    }

    /// The same reason for another file.
    fn of_file(mut self, file: &Path) -> Self {
        if let Some((path, _)) = self.file() {
            file.clone_into(path);
        }
        self
    }

    /// The same reason for a file that is not named by `--db`: `flag` is a clause such as " with `--replay`", or empty
    /// for an argument without a flag.
    #[must_use]
    pub fn named(mut self, flag: &'static str) -> Self {
        if let Some((_, how)) = self.file() {
            *how = flag;
        }
        self
    }
}

/// Numbers of rows that were added, and that the store already had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Number of new rows.
    pub added: usize,
    /// Number of rows that the store already had.
    pub known: usize,
}

/// What a file must hold that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A store.
    Store,
    /// A store; or nothing, of which one is made.
    StoreOrNothing,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// The folder of the copy that is read instead of a file that cannot be opened. It is removed after `connection` is
    /// closed.
    _copy: Option<TempDir>,
}

impl Store {
    /// Opens the file for writing, and creates it, its folder and its tables if they are absent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // What is missing is made, and SQLite says what else it cannot open.
        if let Err(refused @ StoreError::Folder { .. }) = exists(path) {
            return Err(refused);
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let failed = |error: std::io::Error| sqlite("make the folder of", path, error.to_string());
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        Self::with(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE, Wanted::StoreOrNothing)
    }

    /// Opens an existing file for writing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        exists(path)?;
        Self::with(path, OpenFlags::SQLITE_OPEN_READ_WRITE, Wanted::Store)
    }

    /// Opens an existing file for reading, which may be one that this user cannot write, in a folder that this user
    /// cannot write.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        exists(path)?;
        match Self::open_existing(path) {
            Err(StoreError::Sqlite { denied: true, .. }) => Self::copy_of(path),
            opened => opened,
        }
    }

    /// Opens a copy. SQLite cannot read a file in WAL mode where it cannot make the file's index, which exists while
    /// anybody has the store open: nobody writes to a file that is copied here.
    fn copy_of(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| sqlite("read", path, error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        let copy = folder.path().join("rows.db");
        let copied = |suffix: &str| {
            let [from, to] = [path, &copy].map(|path| {
                let mut name = path.as_os_str().to_owned();
                name.push(suffix);
                PathBuf::from(name)
            });
            // The contents alone: the copy can be written whatever the permissions of the original are.
            fs::File::open(from).and_then(|mut from| io::copy(&mut from, &mut fs::File::create(to)?))
        };
        copied("").map_err(failed)?;
        match copied("-wal") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let store = Self::with(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE, Wanted::Store).map_err(|error| error.of_file(path))?;
        Ok(Self { path: path.to_owned(), _copy: Some(folder), ..store })
    }

    fn with(path: &Path, flags: OpenFlags, wanted: Wanted) -> Result<Self, StoreError> {
        let opened = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let connection = opened.map_err(|error| of("open", path, &error))?;
        let mut store = Self { connection, path: path.to_owned(), _copy: None };
        store.prepare(wanted).map_err(|error| store.error("open", &error))??;
        Ok(store)
    }

    /// Sets the journal mode and applies the missing migrations. A database that is not what is wanted stays as it is.
    fn prepare(&mut self, wanted: Wanted) -> rusqlite::Result<Result<(), StoreError>> {
        self.connection.busy_timeout(PATIENCE)?;
        // One statement, which another process that makes the store cannot come between.
        let both = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version";
        let found = self.connection.query_row(both, [], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?)))?;
        if matches!((found, wanted), ((0, 0), Wanted::Store) | ((0, 1..), _)) {
            return Ok(Err(foreign(&self.path)));
        }
        // A row that was added is not lost when the process ends, but the last rows may be lost in a power failure.
        self.connection.pragma_update(None, "journal_mode", "wal")?;
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let version = |connection: &Connection| connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0));
        let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
        if version(&self.connection)? < known {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have applied them first.
            let taken = version(&transaction)?;
            for (version, step) in (1_u32..).zip(MIGRATIONS).skip(taken as usize) {
                transaction.execute_batch(step)?;
                transaction.pragma_update(None, "user_version", version)?;
            }
            transaction.commit()?;
        }
        let found = version(&self.connection)?;
        let (path, how) = (self.path.clone(), BY_FLAG);
        Ok(if found > known { Err(StoreError::Newer { path, how, found, known }) } else { Ok(()) })
    }

    /// Adds a row, which is kept even if the process ends right after the call.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        self.add_all([row]).map(drop)
    }

    /// Adds rows: all of them, or none if there is an error.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_all<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>) -> Result<Merged, StoreError> {
        let path = self.path.clone();
        let failed = |error| of("write", &path, &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut merged = Merged::default();
        for row in rows {
            if let Some(flaw) = row.flaw() {
                return Err(StoreError::Flaw { bench: row.bench.clone(), flaw });
            }
            match insert(&transaction, row).map_err(failed)? {
                0 => merged.known += 1,
                _ => merged.added += 1,
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(merged)
    }

    /// Adds the rows of another store: all of them, or none if there is an error.
    ///
    /// # Errors
    /// [`StoreError`] of either.
    pub fn merge(&mut self, other: &Path) -> Result<Merged, StoreError> {
        let rows = Self::open_to_read(other).and_then(|other| other.rows(&Condition::default()));
        self.add_all(&rows.map_err(|error| error.named(""))?)
    }

    /// The rows that meet a condition, by date and then in the order of measurement.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn rows(&self, condition: &Condition) -> Result<Vec<Row>, StoreError> {
        let failed = |error| self.error("read", &error);
        let (sql, values) = condition.sql();
        let text = format!("SELECT document FROM row WHERE {sql} ORDER BY date, run, number");
        let mut statement = self.connection.prepare(&text).map_err(failed)?;
        let documents = statement.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(0)).map_err(failed)?;
        let mut rows = Vec::new();
        for document in documents {
            let document = document.map_err(failed)?;
            let row: Row = serde_json::from_str(&document).map_err(|error| StoreError::Damaged {
                path: self.path.clone(),
                how: BY_FLAG,
                reason: format!("a row of it is none: {error}"),
            })?;
            if condition.holds(&row) {
                rows.push(row);
            }
        }
        Ok(condition.last(rows))
    }

    /// Number of rows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn count(&self) -> Result<usize, StoreError> {
        let count = self.connection.query_row("SELECT count(*) FROM row", [], |row| row.get::<_, i64>(0));
        count.map(|count| usize::try_from(count).unwrap_or_default()).map_err(|error| self.error("read", &error))
    }

    /// Removes the given rows: all of them, or none if there is an error. Returns the number of rows removed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remove<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>) -> Result<usize, StoreError> {
        let path = self.path.clone();
        let failed = |error| of("write", &path, &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut removed = 0;
        for row in rows {
            removed += transaction.execute("DELETE FROM row WHERE id = ?1", [row.id()]).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(removed)
    }

    fn error(&self, what: &'static str, error: &rusqlite::Error) -> StoreError {
        of(what, &self.path, error)
    }
}

const INSERT: &str = "INSERT OR IGNORE INTO row (id, run, date, bench, contender, kernel, gpu, status, document)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Adds one row unless it exists; returns the number of rows added.
fn insert(transaction: &Transaction<'_>, row: &Row) -> rusqlite::Result<usize> {
    let mut statement = transaction.prepare_cached(INSERT)?;
    let document = serde_json::to_string(row).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    statement.execute(params![
        row.id(),
        row.run_id(),
        row.date(),
        row.bench,
        row.contender,
        row.kernel_name(),
        row.gpu(),
        row.status.word(),
        document
    ])
}

fn of(what: &'static str, path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, how, reason) = (path.to_owned(), BY_FLAG, error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::Foreign { path, how },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, how, reason },
        code => {
            let denied = matches!(code, Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied));
            StoreError::Sqlite { what, path, how, reason, denied }
        }
    }
}

fn sqlite(what: &'static str, path: &Path, reason: String) -> StoreError {
    StoreError::Sqlite { what, path: path.to_owned(), how: BY_FLAG, reason, denied: false }
}

fn foreign(path: &Path) -> StoreError {
    StoreError::Foreign { path: path.to_owned(), how: BY_FLAG }
}

/// Refuses a folder, and a file that does not exist or that this user may not look for, and a pipe or a device, which
/// SQLite would wait for.
fn exists(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(StoreError::Folder { path: path.to_owned(), how: BY_FLAG }),
        Ok(found) if !found.is_file() => Err(foreign(path)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { path: path.to_owned(), how: BY_FLAG }),
        Err(error) => Err(sqlite("read", path, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::row::tests::row, *};
    use crate::lab::Status;
    use std::{fs, thread};

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn rows_come_back_as_they_were_in_the_order_of_their_dates() {
        let folder = folder();
        let path = folder.path().join("new/folder/rows.db");
        let mut store = Store::open(&path).expect("a store");
        let (late, early) = (row("b", "2026-11-28T00:00:00Z", 9.0), row("a", "2026-11-27T00:00:00Z", 8.0));
        assert_eq!(store.add_all([&late, &early, &late]).expect("added"), Merged { added: 2, known: 1 });
        drop(store);
        let store = Store::open_existing(&path).expect("it is there");
        assert_eq!(store.rows(&Condition::default()).expect("read"), [early, late]);
        assert_eq!(store.count().expect("read"), 2);
    }

    #[test]
    fn a_failure_is_a_row_and_a_contradiction_is_none() {
        let folder = folder();
        let mut store = Store::open(&folder.path().join("rows.db")).expect("a store");
        let mut failed = row("a", "2026-11-27T00:00:00Z", 8.0);
        (failed.status, failed.numbers, failed.message) = (Status::Wrong, None, "elements are wrong".to_owned());
        store.add(&failed).expect("a failure is data");
        failed.status = Status::Ok;
        let good = row("b", "2026-11-27T00:00:00Z", 8.0);
        let error = store.add_all([&good, &failed]).expect_err("no numbers").to_string();
        assert!(error.contains("`numbers` belong to the status `ok`"), "{error}");
        assert_eq!(store.count().expect("read"), 1, "all or none");
    }

    #[test]
    fn files_that_are_no_stores_are_refused_and_stay_as_they_are() {
        let folder = folder();
        let text = folder.path().join("text");
        fs::write(&text, "a text that is longer than the header of a database, so that SQLite reads it\n".repeat(9))
            .expect("written");
        assert!(matches!(Store::open(&text), Err(StoreError::Foreign { .. })));
        assert!(fs::read_to_string(&text).expect("read").starts_with("a text"));
        let other = folder.path().join("other.db");
        let connection = Connection::open(&other).expect("a database");
        connection.execute_batch("CREATE TABLE mine (a)").expect("a table");
        let before = fs::read(&other).expect("read");
        assert!(matches!(Store::open(&other), Err(StoreError::Foreign { .. })));
        assert!(fs::read(&other).expect("read") == before, "not even its journal is another");
        // A database without tables becomes a store only by what writes rows.
        let blank = folder.path().join("blank.db");
        Connection::open(&blank).expect("a database").execute_batch("VACUUM").expect("a header");
        for path in [&blank, &folder.path().join("empty.db")] {
            fs::OpenOptions::new().create(true).append(true).open(path).expect("it is there");
            let before = fs::read(path).expect("read");
            assert!(matches!(Store::open_to_read(path), Err(StoreError::Foreign { .. })), "{}", path.display());
            assert!(fs::read(path).expect("read") == before, "reading makes no database");
        }
        assert!(matches!(Store::open_to_read(Path::new("/dev/null")), Err(StoreError::Foreign { .. })));
        Store::open(&blank).expect("a store");
        assert!(matches!(Store::open_existing(&folder.path().join("none.db")), Err(StoreError::Missing { .. })));
        let newer = folder.path().join("newer.db");
        drop(Store::open(&newer).expect("a store"));
        Connection::open(&newer).expect("it is there").pragma_update(None, "user_version", 1000).expect("set");
        assert!(matches!(Store::open(&newer), Err(StoreError::Newer { found: 1000, .. })));
    }

    #[test]
    fn a_damaged_file_and_a_folder_are_named_with_the_remedy() {
        let folder = folder();
        let path = folder.path().join("rows.db");
        let rows: Vec<Row> = (0..200).map(|place| row(&format!("{place}"), "2026-11-27T00:00:00Z", 1.0)).collect();
        Store::open(&path).expect("a store").add_all(&rows).expect("added");
        let whole = fs::read(&path).expect("read");
        let mut overwritten = whole.clone();
        overwritten[200..whole.len() - 200].fill(0xa5);
        for damaged in [&overwritten[..], &whole[..whole.len() / 2]] {
            fs::write(&path, damaged).expect("written");
            let error = Store::open_to_read(&path).and_then(|store| store.rows(&Condition::default())).expect_err("damaged");
            let said = error.to_string();
            assert!(matches!(error, StoreError::Damaged { .. }), "{said}");
            assert!(["is damaged", "`kgen db import`", "`--db`"].iter().all(|part| said.contains(part)), "{said}");
        }
        for opened in [Store::open(folder.path()), Store::open_to_read(folder.path()), Store::open_existing(folder.path())] {
            let error = opened.expect_err("a folder");
            assert!(matches!(error, StoreError::Folder { .. }) && error.to_string().contains("is a folder"), "{error}");
            let by_another = error.named(" with `--replay`").to_string();
            assert!(by_another.contains("`--replay`") && !by_another.contains("`--db`"), "{by_another}");
        }
    }

    #[test]
    fn processes_may_write_at_once() {
        let folder = folder();
        let path = folder.path().join("rows.db");
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let mut store = Store::open(path).expect("a store");
                    for place in 0..50 {
                        store.add(&row(&format!("{writer}-{place}"), "2026-11-27T00:00:00Z", 1.0)).expect("added");
                    }
                });
            }
        });
        assert_eq!(Store::open(&path).expect("a store").count().expect("read"), 200);
    }

    #[test]
    fn stores_are_merged_without_doubles_and_pruned() {
        let folder = folder();
        let paths = ["a.db", "b.db"].map(|name| folder.path().join(name));
        let rows =
            [row("a", "2026-11-27T00:00:00Z", 1.0), row("b", "2026-11-28T00:00:00Z", 2.0), row("c", "2026-11-29T00:00:00Z", 3.0)];
        let mut first = Store::open(&paths[0]).expect("a store");
        first.add_all(&rows[..2]).expect("added");
        Store::open(&paths[1]).expect("a store").add_all(&rows[1..]).expect("added");
        assert_eq!(first.merge(&paths[1]).expect("merged"), Merged { added: 1, known: 1 });
        assert_eq!(first.remove(&rows[..1]).expect("removed"), 1);
        assert_eq!(first.rows(&Condition::default()).expect("read"), rows[1..]);
    }
}
