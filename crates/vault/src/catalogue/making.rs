//! Validity of a catalogue: rebuilt from headers, and not damaged since.

use super::{Catalogue, CatalogueError, Reason, Result};
use crate::changelog::database;
use rusqlite::Connection;
use std::path::Path;

/// Note of a new catalogue that is not rebuilt from headers yet.
pub(super) const TO_BE_MADE: &str = "to be made from headers";

impl Catalogue {
    /// True if the catalogue is new and not rebuilt from headers yet.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn is_to_be_made(&self) -> Result<bool> {
        Ok(self.note(TO_BE_MADE)?.is_some())
    }

    /// Closes a catalogue that will be renamed: afterwards all of it is durable in one file.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn close(self) -> Result<()> {
        // In this mode there is no write-ahead log.
        self.wrap(self.connection.pragma_update(None, "synchronous", "full"))?;
        self.wrap(self.connection.pragma_update(None, "journal_mode", "delete"))?;
        let Catalogue { connection, path, .. } = self;
        connection.close().map_err(|(_, reason)| CatalogueError { path, reason: Reason::Database(reason) })
    }
}

/// True if the file is damaged, as far as SQLite can tell: it cannot be opened, or tables and indexes contradict each
/// other.
pub(crate) fn is_damaged(path: &Path) -> bool {
    let check = |connection: Connection| -> rusqlite::Result<String> {
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
    };
    path.exists()
        && (database::has_damaged_header(path)
            || !database::open_database(path).and_then(check).is_ok_and(|found| found == "ok"))
}
