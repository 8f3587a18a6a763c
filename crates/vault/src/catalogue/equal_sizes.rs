//! Files of equal size, and files by the id of their redundancy: queries that read the whole catalogue.

use super::{Catalogue, CatalogueError, Result, queries};
use crate::format::FileId;
use crate::tree::join;
use crate::world::Timestamp;
use rusqlite::{Row, params};
use std::collections::HashSet;

fn path(row: &Row<'_>, first: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(join(row.get_ref(first)?.as_blob()?, row.get_ref(first + 1)?.as_blob()?))
}

impl Catalogue {
    /// Visits the protected files with at least `least` bytes of redundancy each that have a size in common, if one of
    /// them was protected at or after `since`. `visit` must not change the catalogue.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `visit`.
    pub fn each_equal_size<E: From<CatalogueError>>(
        &self,
        least: u64,
        since: Timestamp,
        mut visit: impl FnMut(Vec<Vec<u8>>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut find = self.wrap(self.connection.prepare_cached(queries::EQUAL_SIZES))?;
        let mut rows = self.wrap(find.query(params![least as i64, since]))?;
        let (mut size, mut paths) = (0, Vec::new());
        while let Some(row) = self.wrap(rows.next())? {
            let (next, path) = self.wrap(row.get::<_, i64>(0).and_then(|size| Ok((size, path(row, 1)?))))?;
            if next != size && !paths.is_empty() {
                visit(std::mem::take(&mut paths))?;
            }
            size = next;
            paths.push(path);
        }
        if paths.is_empty() { Ok(()) } else { visit(paths) }
    }

    /// Names of the files whose redundancy has one of these ids.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn names_of_ids(&self, ids: &HashSet<FileId>) -> Result<Vec<(FileId, Vec<u8>)>> {
        let find = || {
            let mut find = self.connection.prepare_cached(queries::IDS)?;
            let (mut rows, mut found) = (find.query([])?, Vec::new());
            while let Some(row) = rows.next()? {
                let id = FileId(row.get(0)?);
                if ids.contains(&id) {
                    found.push((id, path(row, 1)?));
                }
            }
            Ok(found)
        };
        if ids.is_empty() { Ok(Vec::new()) } else { self.wrap(find()) }
    }
}
