//! Names to which redundancy is being moved.
//!
//! A move of redundancy and the update of the catalogue are two steps. The new name is recorded before the move and
//! removed after the update. If a killed process left a record, redundancy under that name may belong to a file that
//! was renamed again.

use super::fact::Fact;
use super::{Catalogue, Result};
use crate::tree::Generation;
use rusqlite::params;

/// Created with `IF NOT EXISTS`, so that existing catalogues get it as well.
pub(super) const TABLES: &str =
    "CREATE TABLE IF NOT EXISTS moving(worker TEXT NOT NULL, path BLOB NOT NULL);";

/// Names under which the redundancy of a file may lie.
#[derive(Debug, Clone, Default)]
pub struct PossibleNames {
    /// Names to which redundancy of any files is being moved.
    pub moving: Vec<Vec<u8>>,
    /// Names by which the catalogue knows the inode, size and mtime of the file.
    pub known: Vec<Vec<u8>>,
}

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
                self.write(&Fact::Moving { worker: worker.to_owned(), path: path.clone() })
            })
        })
    }

    pub(super) fn note_moving_row(&self, worker: &str, path: &[u8]) -> Result<()> {
        let note = || {
            let mut note = self.connection.prepare_cached(
                "INSERT INTO moving SELECT ?1, ?2 WHERE NOT EXISTS \
                 (SELECT 1 FROM moving WHERE worker = ?1 AND path = ?2)",
            )?;
            note.execute(params![worker, path])
        };
        self.wrap(note()).map(|_| ())
    }

    /// Names under which the redundancy of a file may lie. Redundancy that was moved before this call is at one of
    /// them.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn possible_names(&self, version: &Generation) -> Result<PossibleNames> {
        // In this order: a record is removed after the catalogue has the new name.
        let moving = self.moving()?.into_iter().map(|(_, path)| path).collect();
        Ok(PossibleNames { moving, known: self.by_inode(version)? })
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
        self.write(&Fact::NotMoving { worker: worker.to_owned() })
    }

    pub(super) fn forget_moving_rows(&self, worker: &str) -> Result<()> {
        let forget =
            || self.connection.prepare_cached("DELETE FROM moving WHERE worker = ?")?.execute([worker]);
        self.wrap(forget()).map(|_| ())
    }
}
