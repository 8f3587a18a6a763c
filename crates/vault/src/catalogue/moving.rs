//! Names to which redundancy is being moved.
//!
//! A move of redundancy and the update of the catalogue are two steps. The new name is recorded before the move and
//! removed after the update. If a killed process left a record, redundancy under that name may belong to a file that
//! was renamed again.

use super::{Catalogue, Result};
use rusqlite::params;

/// Created with `IF NOT EXISTS`, so that existing catalogues get it as well.
pub(super) const TABLES: &str =
    "CREATE TABLE IF NOT EXISTS moving(worker TEXT NOT NULL, path BLOB NOT NULL);";

impl Catalogue {
    /// Records that a worker is about to move redundancy to these names.
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

    /// All records: worker and name.
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

    /// Removes the records of a worker after the catalogue was updated.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn forget_moving(&self, worker: &str) -> Result<()> {
        let forget =
            || self.connection.prepare_cached("DELETE FROM moving WHERE worker = ?")?.execute([worker]);
        self.wrap(forget()).map(|_| ())
    }
}
