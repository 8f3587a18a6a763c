//! Protected files that changed or vanished of late, and whose redundancy followed them: what guards count over a time.
//!
//! A file counts once, however often it changes. What a scan finds now is in the change-set, and is not here before it has
//! been carried out.

use super::{Catalogue, Class, Result};
use crate::world::Nanos;
use rusqlite::{OptionalExtension, params};

/// Beside the tables of the catalogue, so that one that was made before gets it too.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS recent(
        path BLOB PRIMARY KEY, removed INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS recent_by_time ON recent(at);";

/// How many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    /// That vanished.
    pub removed: u64,
    /// That changed.
    pub changed: u64,
}

impl Catalogue {
    /// Notes that a protected file vanished or changed.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn note_recent(&self, path: &[u8], removed: bool, at: Nanos) -> Result<()> {
        let note = || {
            let mut note =
                self.connection.prepare_cached("INSERT OR REPLACE INTO recent VALUES (?, ?, ?)")?;
            note.execute(params![path, removed, at])
        };
        self.wrap(note()).map(|_| ())
    }

    /// Whether a file changed or vanished since a time.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn is_recent(&self, path: &[u8], since: Nanos) -> Result<bool> {
        let find = || {
            let mut find = self.connection.prepare_cached("SELECT at FROM recent WHERE path = ?")?;
            find.query_row([path], |row| row.get::<_, Nanos>(0)).optional()
        };
        Ok(self.wrap(find())?.is_some_and(|at| at >= since))
    }

    /// Files that vanished or changed since a time. Those of the change-set are left out: they are counted there. Times to come
    /// count: a clock that was set back must not make anything forgotten.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn recent(&self, since: Nanos) -> Result<Recent> {
        let beside = "NOT EXISTS (SELECT 1 FROM temp.changes WHERE class IN (?2, ?3) AND path = recent.path)";
        self.count_recent(since, beside)
    }

    /// Files that vanished or changed since a time, those of the last scan's change-set as well.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn recent_with_changes(&self, since: Nanos) -> Result<Recent> {
        self.count_recent(since, "?2 <> ?3")
    }

    fn count_recent(&self, since: Nanos, condition: &str) -> Result<Recent> {
        let count = || {
            let mut found = Recent::default();
            let query = format!(
                "SELECT removed, count(*) FROM recent WHERE at >= ?1 AND {condition} GROUP BY removed"
            );
            let mut query = self.connection.prepare_cached(&query)?;
            let mut rows = query.query(params![since, Class::Changed as i64, Class::Removed as i64])?;
            while let Some(row) = rows.next()? {
                let place = if row.get(0)? { &mut found.removed } else { &mut found.changed };
                *place = row.get(1)?;
            }
            Ok(found)
        };
        self.wrap(count())
    }

    /// Forgets what is older than a time.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_recent(&self, before: Nanos) -> Result<()> {
        self.wrap(self.connection.execute("DELETE FROM recent WHERE at < ?", [before])).map(|_| ())
    }
}
