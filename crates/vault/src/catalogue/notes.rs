//! Notes: values by name.

use super::fact::Fact;
use super::{Catalogue, Result};
use crate::world::Timestamp;
use rusqlite::{OptionalExtension, params};

impl Catalogue {
    /// Value of a note.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn note(&self, key: &str) -> Result<Option<String>> {
        let note =
            self.connection.query_row("SELECT value FROM notes WHERE key = ?", [key], |row| row.get(0));
        self.wrap(note.optional())
    }

    /// Time in a note; none if it holds something else.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn time_note(&self, key: &str) -> Result<Option<Timestamp>> {
        Ok(self.note(key)?.and_then(|note| note.parse().ok()).map(Timestamp::from_nanoseconds))
    }

    /// Stores a time as a note.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_time_note(&self, key: &str, time: Timestamp) -> Result<()> {
        self.set_note(key, Some(&time.nanoseconds().to_string()))
    }

    /// Stores a note; none removes it.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_note(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.write(&Fact::Note { key: key.to_owned(), value: value.map(str::to_owned) })
    }

    /// Stores a note about this host alone; none removes it.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_note_here(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.set_note_row(key, value)
    }

    pub(super) fn set_note_row(&self, key: &str, value: Option<&str>) -> Result<()> {
        let set = match value {
            Some(value) => {
                self.connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", params![key, value])
            }
            None => self.connection.execute("DELETE FROM notes WHERE key = ?", [key]),
        };
        self.wrap(set).map(|_| ())
    }
}
