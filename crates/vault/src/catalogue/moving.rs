//! Names that redundancy is being moved to.
//!
//! A move of redundancy and the row of the catalogue that follows it cannot happen at once. The new name is noted here before, and the note goes after the
//! row was written. Where a killed process left one, redundancy at that name may be of a file that has a third name by now.

use super::{Catalogue, Result};
use rusqlite::params;

/// Beside the tables of the catalogue, so that one that was made before gets it too.
pub(super) const TABLES: &str =
    "CREATE TABLE IF NOT EXISTS moving(worker TEXT NOT NULL, path BLOB NOT NULL);";

impl Catalogue {
    /// Notes that a worker is about to move redundancy to these names.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn note_moving<'p>(
        &self,
        worker: &str,
        paths: impl Iterator<Item = &'p Vec<u8>>,
    ) -> Result<()> {
        let mut paths = paths.peekable();
        if paths.peek().is_none() {
            return Ok(());
        }
        self.together(|| {
            paths.try_for_each(|path| {
                let note = || {
                    let mut note = self.connection.prepare_cached("INSERT INTO moving VALUES (?, ?)")?;
                    note.execute(params![worker, path])
                };
                self.wrap(note()).map(|_| ())
            })
        })
    }

    /// All that is noted: workers and names.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn moving(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let list = || {
            let mut list = self.connection.prepare_cached("SELECT worker, path FROM moving")?;
            let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        self.wrap(list())
    }

    /// The catalogue follows what a worker moved.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn forget_moving(&self, worker: &str) -> Result<()> {
        let forget =
            || self.connection.prepare_cached("DELETE FROM moving WHERE worker = ?")?.execute([worker]);
        self.wrap(forget()).map(|_| ())
    }
}
