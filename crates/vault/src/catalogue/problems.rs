//! Damage that was found and is not repaired yet.

use super::fact::Fact;
use super::{Catalogue, Result};
use crate::tree::{join, split};
use crate::world::Timestamp;
use rusqlite::params;
use std::ops::Range;

/// Kind of a damaged range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Piece {
    /// Data that can be reconstructed.
    Data,
    /// Data that cannot be reconstructed.
    Lost,
    /// Redundancy.
    Redundancy,
    /// A header of a redundancy file.
    Header,
    /// Data that existed before the file grew and that changed: by a program, or by corruption before it was protected.
    /// Not damage by itself.
    Changed,
}

impl Piece {
    const ALL: [Piece; 5] = [Piece::Data, Piece::Lost, Piece::Redundancy, Piece::Header, Piece::Changed];

    /// Unknown numbers are the worst.
    pub(super) fn from_number(number: usize) -> Piece {
        Piece::ALL.get(number).copied().unwrap_or(Piece::Lost)
    }

    /// Text for output.
    pub fn words(self) -> &'static str {
        match self {
            Piece::Data => "data",
            Piece::Lost => "data beyond repair",
            Piece::Redundancy => "redundancy",
            Piece::Header => "header of its redundancy",
            Piece::Changed => "data that changed when the file grew",
        }
    }
}

/// A damaged range of a file or of its redundancy file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// Kind.
    pub piece: Piece,
    /// Range of bytes.
    pub range: Range<u64>,
}

impl Catalogue {
    /// Replaces the recorded damage of a file. [`Piece::Changed`] is kept, since an examination does not find it.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_problems(&self, path: &[u8], problems: &[Problem], now: Timestamp) -> Result<()> {
        self.write(&Fact::Problems { path: path.to_vec(), problems: problems.to_vec(), found_at: now })
    }

    pub(super) fn set_problem_rows(&self, path: &[u8], problems: &[Problem], now: Timestamp) -> Result<()> {
        let (directory, name) = split(path);
        let directory = self.directory_or_new(directory)?;
        self.delete_problems(directory, name, Piece::Changed)?;
        let insert = || {
            // Facts may be applied again.
            let mut insert = self.connection.prepare_cached(
                "INSERT INTO problems SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM problems \
                 WHERE directory = ?1 AND name = ?2 AND start = ?3 AND stop = ?4 AND piece = ?5)",
            )?;
            for Problem { piece, range } in problems {
                let piece = *piece as i64;
                insert.execute(params![directory, name, range.start as i64, range.end as i64, piece, now])?;
            }
            Ok(())
        };
        self.wrap(insert())
    }

    /// Removes the recorded damage of a file.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn clear_problems(&self, path: &[u8]) -> Result<()> {
        self.write(&Fact::NoProblems { path: path.to_vec() })
    }

    pub(super) fn clear_problem_rows(&self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let clear = || {
            let mut clear = self.connection.prepare_cached(
                "DELETE FROM problems WHERE directory = (SELECT number FROM directories WHERE path = ?) AND name = ?",
            )?;
            clear.execute(params![directory, name])
        };
        self.wrap(clear()).map(|_| ())
    }

    fn delete_problems(&self, directory: i64, name: &[u8], but: Piece) -> Result<()> {
        let delete = || {
            let mut delete = self
                .connection
                .prepare_cached("DELETE FROM problems WHERE directory = ? AND name = ? AND piece IS NOT ?")?;
            delete.execute(params![directory, name, but as i64])
        };
        self.wrap(delete()).map(|_| ())
    }

    /// Files at and below a path with [`Piece::Changed`] ranges, in order of their names, with the number of ranges.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn changed_in_growth(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, u64)>> {
        let find = || {
            let mut find = self.connection.prepare_cached(
                "SELECT d.path, p.name, count(*) FROM problems p JOIN directories d ON d.number = p.directory \
                 WHERE p.piece = ? GROUP BY p.directory, p.name ORDER BY d.path, p.name",
            )?;
            let rows = find.query_map(params![Piece::Changed as i64], |row| {
                let (directory, name): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
                Ok((join(&directory, &name), row.get::<_, i64>(2)?.unsigned_abs()))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut found = self.wrap(find())?;
        found.retain(|(file, _)| crate::tree::is_below(file, path));
        Ok(found)
    }

    /// Recorded damage of a file, in order of its bytes.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn problems(&self, path: &[u8]) -> Result<Vec<Problem>> {
        let (directory, name) = split(path);
        let Some(directory) = self.directory(directory)? else { return Ok(Vec::new()) };
        let find = || {
            let mut find = self.connection.prepare_cached(
                "SELECT piece, start, stop FROM problems WHERE directory = ? AND name = ? ORDER BY piece, start",
            )?;
            let rows = find.query_map(params![directory, name], |row| {
                let piece = Piece::from_number(row.get(0)?);
                let (start, stop): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok(Problem { piece, range: start as u64..stop as u64 })
            })?;
            rows.collect()
        };
        self.wrap(find())
    }
}
