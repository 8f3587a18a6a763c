//! Protected files that recently changed or were deleted and whose redundancy was updated: the guard counts them over
//! its window.
//!
//! A file counts once, however often it changes. Changes of the present scan are in the change-set and are added here
//! when they are carried out.

use super::fact::Fact;
use super::{Catalogue, Class, Result};
use crate::world::Timestamp;
use rusqlite::{OptionalExtension, params};

/// Created with `IF NOT EXISTS`, so that existing catalogues get it as well.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS recent(
        path BLOB PRIMARY KEY, removed INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS recent_by_time ON recent(at);";

/// Numbers of recent changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    /// Deleted files.
    pub removed: u64,
    /// Changed files.
    pub changed: u64,
}

impl Catalogue {
    /// Records that a protected file changed or was deleted.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn note_recent(&self, path: &[u8], removed: bool, at: Timestamp) -> Result<()> {
        self.write(&Fact::Recent { path: path.to_vec(), removed, at })
    }

    pub(super) fn note_recent_row(&self, path: &[u8], removed: bool, at: Timestamp) -> Result<()> {
        let note = || {
            let mut note =
                self.connection.prepare_cached("INSERT OR REPLACE INTO recent VALUES (?, ?, ?)")?;
            note.execute(params![path, removed, at])
        };
        self.wrap(note()).map(|_| ())
    }

    /// True if a file changed or was deleted since a time.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn is_recent(&self, path: &[u8], since: Timestamp) -> Result<bool> {
        let find = || {
            let mut find = self.connection.prepare_cached("SELECT at FROM recent WHERE path = ?")?;
            find.query_row([path], |row| row.get::<_, Timestamp>(0)).optional()
        };
        Ok(self.wrap(find())?.is_some_and(|at| at >= since))
    }

    /// Files that changed or were deleted since a time, without those in the change-set, which are counted there. Times
    /// in the future count, so that a clock that was set back hides nothing.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn recent(&self, since: Timestamp) -> Result<Recent> {
        let beside = "NOT EXISTS (SELECT 1 FROM temp.changes WHERE class IN (?2, ?3) AND path = recent.path)";
        self.count_recent(since, beside)
    }

    /// Files that changed or were deleted since a time, including those of the last scan's change-set.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn recent_with_changes(&self, since: Timestamp) -> Result<Recent> {
        self.count_recent(since, "?2 <> ?3")
    }

    fn count_recent(&self, since: Timestamp, condition: &str) -> Result<Recent> {
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

    /// Removes records older than a time.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_recent(&self, before: Timestamp) -> Result<()> {
        self.write(&Fact::NotRecent { before })
    }

    pub(super) fn forget_recent_rows(&self, before: Timestamp) -> Result<()> {
        self.wrap(self.connection.execute("DELETE FROM recent WHERE at < ?", [before])).map(|_| ())
    }
}
