//! Held change-sets: the version of each file when a person could first have reviewed it.
//!
//! A file that differs from one scan to the next is *restless*: it is written continuously, for example a log, and no
//! approval could name its future version.

use super::{Catalogue, Class, Result};
use rusqlite::params;

/// Created with `IF NOT EXISTS`, so that existing catalogues get it as well.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS held(
        path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
        restless INTEGER NOT NULL) WITHOUT ROWID;";

impl Catalogue {
    /// Records the versions of the last scan's changed files. Files with an earlier record of another version become
    /// restless.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn note_held(&self) -> Result<()> {
        let note = || {
            self.connection.execute(
                "DELETE FROM held WHERE NOT EXISTS \
                 (SELECT 1 FROM temp.changes WHERE class = ? AND path = held.path)",
                [Class::Changed as i64],
            )?;
            self.connection.execute(
                "INSERT INTO held SELECT path, size, mtime, ctime, 0 FROM temp.changes WHERE class = ? \
                 ON CONFLICT(path) DO UPDATE SET \
                 restless = restless OR (size, mtime, ctime) != (excluded.size, excluded.mtime, excluded.ctime), \
                 size = excluded.size, mtime = excluded.mtime, ctime = excluded.ctime",
                [Class::Changed as i64],
            )
        };
        self.together(|| self.wrap(note()).map(|_| ()))
    }

    /// True if a file had another version at each of the last scans.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn is_restless(&self, path: &[u8]) -> Result<bool> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT EXISTS(SELECT 1 FROM held WHERE path = ? AND restless)")?;
            find.query_row(params![path], |row| row.get(0))
        };
        self.wrap(find())
    }

    /// Number of restless files in the last scan.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn count_restless(&self) -> Result<u64> {
        let count = "SELECT count(*) FROM temp.changes JOIN held USING (path) WHERE class = ? AND restless";
        self.wrap(self.connection.query_row(count, [Class::Changed as i64], |row| row.get(0)))
    }

    /// Removes all records.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_held(&self) -> Result<()> {
        self.wrap(self.connection.execute("DELETE FROM held", [])).map(|_| ())
    }
}
