//! Whether a catalogue is one: made from headers, and not damaged since.

use super::{Catalogue, Result};

/// The note of a catalogue that was begun and does not know yet what the headers know.
pub(super) const TO_BE_MADE: &str = "to be made from headers";

impl Catalogue {
    /// Whether it is new, and headers of redundancy files were not asked yet what they know.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn is_to_be_made(&self) -> Result<bool> {
        Ok(self.note(TO_BE_MADE)?.is_some())
    }

    /// It knows what the headers know.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_made(&self) -> Result<()> {
        self.set_note(TO_BE_MADE, None)
    }

    /// Reads all of it and finds out whether it is damaged.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError); see [`is_damage`](super::CatalogueError::is_damage).
    pub fn check(&self) -> Result<()> {
        let found = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        self.wrap(found.and_then(|found| match found.as_str() {
            "ok" => Ok(()),
            _ => Err(rusqlite::Error::SqliteFailure(corrupt, Some(found))),
        }))
    }
}
