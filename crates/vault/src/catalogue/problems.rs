//! Damage that scrub found and nobody repaired yet.

use super::{Catalogue, Result};
use crate::tree::split;
use crate::world::Nanos;
use rusqlite::params;
use std::ops::Range;

/// What is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Piece {
    /// Bytes of the file, which can be reconstructed.
    Data,
    /// Bytes of the file, which cannot.
    Lost,
    /// Bytes of its redundancy.
    Redundancy,
    /// A header of its redundancy.
    Header,
}

impl Piece {
    const ALL: [Piece; 4] = [Piece::Data, Piece::Lost, Piece::Redundancy, Piece::Header];

    /// The words for it.
    pub fn words(self) -> &'static str {
        match self {
            Piece::Data => "data",
            Piece::Lost => "data beyond repair",
            Piece::Redundancy => "redundancy",
            Piece::Header => "header of its redundancy",
        }
    }
}

/// A damaged range: of the file, or of its redundancy file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// What is damaged.
    pub piece: Piece,
    /// Which bytes of it.
    pub range: Range<u64>,
}

impl Catalogue {
    /// Notes damage of a file, in place of what was known before.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn set_problems(&self, path: &[u8], problems: &[Problem], now: Nanos) -> Result<()> {
        self.clear_problems(path)?;
        let (directory, name) = split(path);
        let directory = self.directory_or_new(directory)?;
        let insert = || {
            let mut insert =
                self.connection.prepare_cached("INSERT INTO problems VALUES (?, ?, ?, ?, ?, ?)")?;
            for Problem { piece, range } in problems {
                let piece = *piece as i64;
                insert.execute(params![directory, name, range.start as i64, range.end as i64, piece, now])?;
            }
            Ok(())
        };
        self.wrap(insert())
    }

    /// Forgets the damage of a file.
    ///
    /// # Errors
    /// [`CatalogueError`](super::CatalogueError).
    pub fn clear_problems(&self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let Some(directory) = self.directory(directory)? else { return Ok(()) };
        let clear = || {
            let mut clear =
                self.connection.prepare_cached("DELETE FROM problems WHERE directory = ? AND name = ?")?;
            clear.execute(params![directory, name])
        };
        self.wrap(clear()).map(|_| ())
    }

    /// The known damage of a file, in the order of its bytes.
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
                let piece = Piece::ALL.get(row.get::<_, usize>(0)?).copied().unwrap_or(Piece::Lost);
                let (start, stop): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok(Problem { piece, range: start as u64..stop as u64 })
            })?;
            rows.collect()
        };
        self.wrap(find())
    }
}
