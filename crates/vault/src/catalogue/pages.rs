//! Pages of files, for listings that continue where the last one ended.

use super::{COLUMNS, Catalogue, Entry, Result, State, entry, within};
use crate::tree::join;
use rusqlite::params;

/// Place in a listing: after the file with this directory number and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number of the directory.
    pub directory: i64,
    /// Name of the file in it.
    pub name: Vec<u8>,
}

/// A part of a listing.
#[derive(Debug, Clone)]
pub struct Page {
    /// Paths and entries.
    pub files: Vec<(Vec<u8>, Entry)>,
    /// Place of the last file, if there may be more.
    pub next: Option<Place>,
}

/// Which files a listing has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum States {
    /// All.
    Any,
    /// All but protected ones.
    Affected,
    /// Those in one state.
    One(State),
}

impl Catalogue {
    /// At most `limit` files at or below `path`, after a place, in the order of their directories and names. Files that
    /// change meanwhile may be missed or come twice.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn page(&self, path: &[u8], states: States, after: Option<&Place>, limit: usize) -> Result<Page> {
        let mut found = Vec::new();
        if after.is_none()
            && let Some(entry) = self.find(path)?.filter(|entry| states.has(entry.state))
        {
            found.push((path.to_vec(), entry));
        }
        let start = Place { directory: i64::MIN, name: Vec::new() };
        let after = after.unwrap_or(&start);
        // The index of states has only the affected files, which are few.
        let (index, wanted) = match states {
            States::Any => ("", "TRUE"),
            States::Affected => ("INDEXED BY files_by_state", "state != 0"),
            States::One(State::Protected) => ("", "state = 0"),
            States::One(_) => ("INDEXED BY files_by_state", "state != 0 AND state = ?5"),
        };
        let query = format!(
            "SELECT directory, name, (SELECT path FROM directories WHERE number = directory), {COLUMNS} \
             FROM files {index} WHERE (directory, name) > (?2, ?3) AND {wanted} AND ?5 = ?5 \
             AND (?1 = x'' OR directory IN (SELECT number FROM directories WHERE {})) \
             ORDER BY directory, name LIMIT ?4",
            within(path)
        );
        let state = match states {
            States::One(state) => state.number(),
            _ => 0,
        };
        let room = limit.saturating_sub(found.len());
        let find = || {
            let mut find = self.connection.prepare_cached(&query)?;
            let parameters = params![path, after.directory, after.name, room as i64, state];
            let rows = find.query_map(parameters, |row| {
                let place = Place { directory: row.get(0)?, name: row.get(1)? };
                Ok((place, row.get::<_, Vec<u8>>(2)?, entry(row, 3)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = self.wrap(find())?;
        let next = rows.last().filter(|_| rows.len() >= room).map(|(place, ..)| place.clone());
        found
            .extend(rows.into_iter().map(|(place, directory, entry)| (join(&directory, &place.name), entry)));
        Ok(Page { files: found, next })
    }
}

impl States {
    fn has(self, state: State) -> bool {
        match self {
            States::Any => true,
            States::Affected => state != State::Protected,
            States::One(one) => state == one,
        }
    }
}

impl Catalogue {
    /// Files and their bytes in each state. Reads all entries.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn totals(&self) -> Result<Vec<(State, u64, u64)>> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT state, count(*), total(size) FROM files GROUP BY state")?;
            let rows = find.query_map([], |row| {
                let (state, files, bytes): (i64, i64, f64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok((State::from_number(state), files.unsigned_abs(), bytes as u64))
            })?;
            rows.collect()
        };
        self.wrap(find())
    }
}
