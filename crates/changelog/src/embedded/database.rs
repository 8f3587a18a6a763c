//! A file of SQLite: how it is opened, and how statements on it fail.

use crate::database::open_database;
use crate::error::{Error, Result};
use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, Params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// "GbCL" in the header of each file.
const APPLICATION: i64 = 0x4762_434c;
/// How long to wait for the lock of another process before giving up.
const BUSY_WAIT: Duration = Duration::from_secs(30);

const MODE_PAUSE: Duration = Duration::from_millis(20);

/// What a file has to be.
pub(super) struct Schema {
    /// Of the tables and of the values in them; the same number never means two things, in either file.
    pub(super) version: i64,
    /// The version before it, whose content is valid in this one.
    pub(super) former: i64,
    pub(super) tables: &'static str,
}

/// A connection to a file.
#[derive(Clone, Copy)]
pub(super) struct Database<'a> {
    pub(super) connection: &'a Connection,
    pub(super) file: &'a Path,
}

/// Opens or creates a file.
pub(super) fn open(file: &Path, schema: &Schema) -> Result<Connection> {
    let connection = open_database(file).map_err(|reason| explain("open", file, reason))?;
    let database = Database { connection: &connection, file };
    database.set_up(schema).map(|()| connection)
}

impl Database<'_> {
    fn set_up(self, schema: &Schema) -> Result<()> {
        let opened = |reason| self.refusal("open", reason);
        self.connection.busy_timeout(BUSY_WAIT).map_err(opened)?;
        self.connection.set_prepared_statement_cache_capacity(32);
        let pragma = |name| -> Result<i64> {
            self.connection.pragma_query_value(None, name, |row| row.get(0)).map_err(opened)
        };
        if pragma("application_id")? == 0 {
            self.create(schema)?;
        }
        let path = self.file.to_owned();
        match (pragma("application_id")?, pragma("user_version")?) {
            (APPLICATION, found) if found == schema.version => {}
            (APPLICATION, found) if found == schema.former => {
                self.connection.pragma_update(None, "user_version", schema.version).map_err(opened)?;
            }
            (APPLICATION, found) => return Err(Error::Version { path, found, known: schema.version }),
            (application, _) => return Err(Error::Foreign { path, application }),
        }
        // Those who change the mode at the same time do not wait for each other, as they do for a lock.
        let mut patience = BUSY_WAIT;
        let mode: String = loop {
            match self.value("PRAGMA journal_mode = WAL", []) {
                Err(Error::Busy { .. }) if !patience.is_zero() => {
                    thread::sleep(MODE_PAUSE);
                    patience = patience.saturating_sub(MODE_PAUSE);
                }
                other => break other?,
            }
        };
        if mode != "wal" {
            return Err(self.damaged(format!("its journal is in mode {mode} and cannot be changed to wal")));
        }
        // FULL: a commit returns when it is on stable storage.
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(opened)
    }

    /// Makes an empty database ours; another process may be doing the same.
    fn create(self, schema: &Schema) -> Result<()> {
        self.write_transaction("create", || {
            let tables: i64 = self.value("SELECT count(*) FROM sqlite_schema", [])?;
            if tables > 0 {
                return Ok(());
            }
            let Schema { version, tables, .. } = schema;
            let create =
                format!("{tables} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};");
            self.connection.execute_batch(&create).map_err(|reason| self.refusal("create", reason))
        })
    }

    /// All or nothing; the lock for writing is taken at the beginning, so nothing read in it can be outdated.
    pub(super) fn write_transaction<T>(
        self,
        doing: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.control(doing, "BEGIN IMMEDIATE")?;
        let result = work().and_then(|value| {
            gabion_platform::fault::point();
            self.control(doing, "COMMIT").map(|()| value)
        });
        if result.is_err() && !self.connection.is_autocommit() {
            // What went wrong first is what the caller should hear.
            let _ = self.control(doing, "ROLLBACK");
        }
        result
    }

    fn control(self, doing: &'static str, sql: &str) -> Result<()> {
        let run = || self.connection.prepare_cached(sql)?.execute([]);
        run().map(drop).map_err(|reason| self.refusal(doing, reason))
    }

    /// Runs statements without values.
    pub(super) fn run(self, statements: &str) -> Result<()> {
        self.connection.execute_batch(statements).map_err(|reason| self.refusal("write", reason))
    }

    /// Runs a statement and says how many rows it changed.
    pub(super) fn execute(self, sql: &str, values: impl Params) -> Result<usize> {
        let run = || self.connection.prepare_cached(sql)?.execute(values);
        run().map_err(|reason| self.refusal("write", reason))
    }

    pub(super) fn value<T: FromSql>(self, sql: &str, values: impl Params) -> Result<T> {
        let run = || self.connection.prepare_cached(sql)?.query_row(values, |row| row.get(0));
        run().map_err(|reason| self.refusal("read", reason))
    }

    /// Every row of a query, until `each` says that it has enough.
    pub(super) fn each(
        self,
        sql: &str,
        values: impl Params,
        mut each: impl FnMut(&rusqlite::Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let mut statement =
            self.connection.prepare_cached(sql).map_err(|reason| self.refusal("read", reason))?;
        let mut rows = statement.query(values).map_err(|reason| self.refusal("read", reason))?;
        while let Some(row) = rows.next().map_err(|reason| self.refusal("read", reason))? {
            if !each(row)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn column<T: FromSql>(self, row: &rusqlite::Row<'_>, index: usize) -> Result<T> {
        row.get(index).map_err(|reason| self.refusal("read", reason))
    }

    fn refusal(self, doing: &'static str, reason: rusqlite::Error) -> Error {
        explain(doing, self.file, reason)
    }

    pub(super) fn damaged(self, what: impl Into<String>) -> Error {
        Error::Damaged { path: self.file.to_owned(), what: what.into() }
    }
}

/// What SQLite says, in our words.
fn explain(doing: &'static str, file: &Path, reason: rusqlite::Error) -> Error {
    let path: PathBuf = file.to_owned();
    match reason.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Foreign { path, application: 0 },
        Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, what: reason.to_string() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Busy { doing, path, waited_s: BUSY_WAIT.as_secs() }
        }
        None => Error::Damaged { path, what: reason.to_string() },
        _ => Error::Database { doing, path, reason: Arc::new(reason) },
    }
}
