//! The log: groups of changes as they came, one row per commit, nothing but appended and cut off.
//!
//! A file of its own, since SQLite locks by file: recording never waits for a fold.

use crate::embedded::database::{Database, Schema};
use crate::entry::Sequence;
use crate::error::Result;
use rusqlite::params;

pub(super) const SCHEMA: Schema = Schema {
    version: 3,
    former: 1,
    tables: "
        CREATE TABLE counters (identity BLOB NOT NULL, sequence INTEGER NOT NULL);
        INSERT INTO counters VALUES (randomblob(16), 0);
        CREATE TABLE log (last INTEGER PRIMARY KEY, changes BLOB NOT NULL);",
};

/// The file with the log.
#[derive(Clone, Copy)]
pub(super) struct Log<'a>(pub(super) Database<'a>);

impl Log<'_> {
    /// Which changelog it belongs to.
    pub(super) fn identity(self) -> Result<Vec<u8>> {
        self.0.value("SELECT identity FROM counters", [])
    }

    /// The number of the last change.
    pub(super) fn sequence(self) -> Result<Sequence> {
        self.0.value("SELECT sequence FROM counters", [])
    }

    /// Appends a group of changes; the number of its last one.
    pub(super) fn append(self, changes: &[u8], count: u64) -> Result<Sequence> {
        if count == 0 {
            return self.sequence();
        }
        self.0.write_transaction("record", || {
            let counted = "UPDATE counters SET sequence = sequence + ?1 RETURNING sequence";
            let last: Sequence = self.0.value(counted, [count])?;
            self.0.execute("INSERT INTO log (last, changes) VALUES (?1, ?2)", params![last, changes])?;
            Ok(last)
        })
    }

    /// Groups after a number, in order, each with the number of its last change; at most so many bytes, or one
    /// group.
    pub(super) fn read(self, after: Sequence, most_bytes: usize) -> Result<Vec<(Sequence, Vec<u8>)>> {
        let (mut groups, mut bytes) = (Vec::new(), 0);
        self.0.each("SELECT last, changes FROM log WHERE last > ?1 ORDER BY last", [after], |row| {
            let changes: Vec<u8> = self.0.column(row, 1)?;
            bytes += changes.len();
            groups.push((self.0.column(row, 0)?, changes));
            Ok(bytes < most_bytes)
        })?;
        Ok(groups)
    }

    /// SQLite would move pages from its write-ahead log to the file within some commit, which then takes several
    /// times as long; [`checkpoint`](Log::checkpoint) does that beside the commits.
    pub(super) fn commit_only(self) -> Result<()> {
        self.0.value::<i64>("PRAGMA wal_autocheckpoint = 0", []).map(drop)
    }

    /// Moves pages to the file; others may append meanwhile.
    pub(super) fn checkpoint(self) -> Result<()> {
        self.0.value::<i64>("PRAGMA wal_checkpoint(PASSIVE)", []).map(drop)
    }

    /// For a connection that only cuts: a cut that a crash takes back does no harm, so nobody has to wait for the
    /// disk. What is appended by others is as durable as before.
    pub(super) fn cut_without_waiting(self) -> Result<()> {
        self.0.execute("PRAGMA synchronous = NORMAL", []).map(drop)
    }

    /// Forgets some groups up to a number, the oldest first; false if there are no more of them.
    pub(super) fn cut(self, last: Sequence, groups: usize) -> Result<bool> {
        self.0.write_transaction("cut the log of", || {
            let oldest = "DELETE FROM log WHERE last IN \
                          (SELECT last FROM log WHERE last <= ?1 ORDER BY last LIMIT ?2)";
            Ok(self.0.execute(oldest, params![last, groups as i64])? == groups)
        })
    }
}
