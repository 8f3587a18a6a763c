//! Change-sets that are held: what each file was like when a person could first have looked at it.
//!
//! A file that differs from one look to the next is *restless*: it is written without a pause, as a log is, and no approval could ever
//! name what it will be.

use super::{Catalogue, Class, Result};
use rusqlite::params;

/// Beside the tables of the catalogue, so that one that was made before gets it too.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS held(
        path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
        restless INTEGER NOT NULL) WITHOUT ROWID;";

impl Catalogue {
    /// Notes how the changed files of the last scan are. Those that were noted before and are others now are restless from now on.
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

    /// Whether a file was another one at each of the last looks.
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

    /// How many files of the last scan are restless.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn count_restless(&self) -> Result<u64> {
        let count = "SELECT count(*) FROM temp.changes JOIN held USING (path) WHERE class = ? AND restless";
        self.wrap(self.connection.query_row(count, [Class::Changed as i64], |row| row.get(0)))
    }

    /// Forgets what was held.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_held(&self) -> Result<()> {
        self.wrap(self.connection.execute("DELETE FROM held", [])).map(|_| ())
    }
}
