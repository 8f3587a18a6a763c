//! Whether a catalogue is one: made from headers, and not damaged since.

use super::{Catalogue, CatalogueError, Result};
use crate::changelog::database;
use rusqlite::Connection;
use std::path::Path;

/// The note of a catalogue that was begun and does not know yet what the headers know.
pub(super) const TO_BE_MADE: &str = "to be made from headers";

impl Catalogue {
    /// Whether it is new, and headers of redundancy files were not asked yet what they know.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn is_to_be_made(&self) -> Result<bool> {
        Ok(self.note(TO_BE_MADE)?.is_some())
    }

    /// It knows what the headers know.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn set_made(&self) -> Result<()> {
        self.set_note(TO_BE_MADE, None)
    }

    /// Closes a catalogue that another file name is meant for: afterwards all of it is in one file, on the disk.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub(crate) fn close(self) -> Result<()> {
        // In this mode there is no second file with a part of it.
        self.wrap(self.connection.pragma_update(None, "synchronous", "full"))?;
        self.wrap(self.connection.pragma_update(None, "journal_mode", "delete"))?;
        let Catalogue { connection, path } = self;
        connection.close().map_err(|(_, reason)| CatalogueError { path, bad_header: false, reason })
    }
}

/// True if the file is damaged, as far as SQLite can tell: it cannot be opened, or tables and indexes contradict each other.
pub(crate) fn is_damaged(path: &Path) -> bool {
    let check = |connection: Connection| -> rusqlite::Result<String> {
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
    };
    path.exists()
        && (database::has_damaged_header(path)
            || !database::open_database(path).and_then(check).is_ok_and(|found| found == "ok"))
}
