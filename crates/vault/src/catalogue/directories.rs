//! Directories without known files.

use super::{Catalogue, Result};

impl Catalogue {
    /// Removes directories without known files.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn forget_empty_directories(&self) -> Result<u64> {
        let forget = "DELETE FROM directories WHERE \
             NOT EXISTS (SELECT 1 FROM files WHERE directory = number) AND \
             NOT EXISTS (SELECT 1 FROM problems WHERE directory = number)";
        self.together(|| self.wrap(self.connection.execute(forget, [])).map(|forgotten| forgotten as u64))
    }
}
