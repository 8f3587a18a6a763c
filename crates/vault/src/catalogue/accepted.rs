//! Versions of write-once files that a person accepted.
//!
//! A worker encodes a changed write-once file only if this very version is accepted. The catalogue is a cache: if it is
//! lost, the file is reported again and has to be approved again.

use super::fact::Fact;
use super::{Catalogue, Result};
use crate::tree::Generation;
use rusqlite::params;

/// Created with `IF NOT EXISTS`, so that existing catalogues get it as well.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accepted(
        path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
        inode INTEGER NOT NULL) WITHOUT ROWID;";

impl Catalogue {
    /// Accepts a version of a write-once file in place of the protected one.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn accept(&self, path: &[u8], version: &Generation) -> Result<()> {
        self.write(&Fact::Accepted { path: path.to_vec(), version: *version })
    }

    pub(super) fn accept_row(&self, path: &[u8], version: &Generation) -> Result<()> {
        let Generation { size, mtime, ctime, inode } = *version;
        let accept = || {
            let mut accept =
                self.connection.prepare_cached("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?, ?)")?;
            accept.execute(params![path, size as i64, mtime, ctime, inode as i64])
        };
        self.wrap(accept()).map(|_| ())
    }

    /// True if this version of a write-once file was accepted.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn is_accepted(&self, path: &[u8], version: &Generation) -> Result<bool> {
        let Generation { size, mtime, ctime, inode } = *version;
        let find = || {
            let mut find = self.connection.prepare_cached(
                "SELECT EXISTS(SELECT 1 FROM accepted \
                 WHERE path = ? AND size = ? AND mtime = ? AND ctime = ? AND inode = ?)",
            )?;
            find.query_row(params![path, size as i64, mtime, ctime, inode as i64], |row| row.get(0))
        };
        self.wrap(find())
    }

    /// True if a version of any file was accepted and is not protected yet.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn has_accepted(&self) -> Result<bool> {
        let find = || {
            let mut find = self.connection.prepare_cached("SELECT EXISTS(SELECT 1 FROM accepted)")?;
            find.query_row([], |row| row.get(0))
        };
        self.wrap(find())
    }

    /// Forgets what was accepted for a file: it is protected as it is, or gone.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_accepted(&self, path: &[u8]) -> Result<()> {
        self.write(&Fact::NotAccepted { path: path.to_vec() })
    }

    pub(super) fn forget_accepted_row(&self, path: &[u8]) -> Result<()> {
        let forget =
            || self.connection.prepare_cached("DELETE FROM accepted WHERE path = ?")?.execute([path]);
        self.wrap(forget()).map(|_| ())
    }
}
