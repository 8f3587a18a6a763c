//! The file of what is pending, and every statement on it.
//!
//! `pending` has one row per path. `claims` has the live claims, which are locks on paths and outlive the row they
//! were made for. `counters` has one row.

use crate::change::is_plain;
use crate::embedded::codec::{put_state, read_state};
use crate::embedded::database::{Database, Schema};
use crate::embedded::state::{Slot, State};
use crate::entry::{Kind, Sequence, Summary};
use crate::error::Result;
use gabion_platform::world::Timestamp;
use rusqlite::params;

pub(super) const SCHEMA: Schema = Schema {
    version: 4,
    former: 2,
    tables: "
        CREATE TABLE counters (
            identity BLOB, folded INTEGER NOT NULL, token INTEGER NOT NULL, newest_stamp INTEGER NOT NULL);
        INSERT INTO counters VALUES (NULL, 0, 0, -9223372036854775808);
        CREATE TABLE pending (
            id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, kind INTEGER NOT NULL, first INTEGER NOT NULL,
            stamp INTEGER NOT NULL, due INTEGER NOT NULL, priority INTEGER NOT NULL, sequence INTEGER NOT NULL,
            token INTEGER NOT NULL, attempts INTEGER NOT NULL, state BLOB NOT NULL, newer BLOB);
        CREATE INDEX waiting ON pending (priority, due, sequence) WHERE token = 0;
        CREATE TABLE claims (
            token INTEGER PRIMARY KEY, path BLOB NOT NULL, origin BLOB, kind INTEGER NOT NULL,
            worker TEXT NOT NULL, granted INTEGER NOT NULL, expires INTEGER NOT NULL);",
};

/// The file with what is pending.
#[derive(Clone, Copy)]
pub(super) struct Store<'a>(pub(super) Database<'a>);

/// What `pending` has for a path.
pub(super) struct Row {
    id: Option<i64>,
    pub(super) slot: Option<Slot>,
}

/// A live claim as stored.
pub(super) struct Lock {
    pub(super) token: u64,
    pub(super) path: Vec<u8>,
    pub(super) origin: Option<Vec<u8>>,
    pub(super) kind: Kind,
    pub(super) worker: String,
    pub(super) granted: Timestamp,
    pub(super) expires: Timestamp,
}

/// Rows as [`Store::decode`] reads them.
macro_rules! select {
    ($condition:literal) => {
        concat!("SELECT id, path, sequence, token, attempts, state, newer FROM pending ", $condition)
    };
}

impl Store<'_> {
    /// Room for the pages that one fold touches, so that each is written once.
    pub(super) fn enlarge_cache(self) -> Result<()> {
        let kibibytes = "PRAGMA cache_size = -24576";
        self.0.execute(kibibytes, []).map(drop)
    }

    /// Which log was folded into it; none at first.
    pub(super) fn identity(self) -> Result<Option<Vec<u8>>> {
        self.0.value("SELECT identity FROM counters", [])
    }

    pub(super) fn set_identity(self, identity: &[u8]) -> Result<()> {
        self.0.execute("UPDATE counters SET identity = ?1", [identity]).map(drop)
    }

    /// The last change that was folded.
    pub(super) fn folded(self) -> Result<Sequence> {
        self.0.value("SELECT folded FROM counters", [])
    }

    pub(super) fn set_folded(self, last: Sequence) -> Result<()> {
        self.0.execute("UPDATE counters SET folded = ?1", [last]).map(drop)
    }

    /// Remembers that some entry has this stamp: without it, a clock set back would go unnoticed.
    pub(super) fn note_stamp(self, stamp: Timestamp) -> Result<()> {
        let sql = "UPDATE counters SET newest_stamp = ?1 WHERE newest_stamp < ?1";
        self.0.execute(sql, [stamp]).map(drop)
    }

    /// The row of a path.
    pub(super) fn row(self, path: &[u8]) -> Result<Row> {
        let mut found = Row { id: None, slot: None };
        self.0.each(select!("WHERE path = ?1"), [path], |row| {
            found = self.decode(row)?.1;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Every row beneath a path.
    pub(super) fn beneath(self, path: &[u8]) -> Result<Vec<(Vec<u8>, Row)>> {
        let mut rows = Vec::new();
        let keep = |row: &rusqlite::Row<'_>| {
            rows.push(self.decode(row)?);
            Ok(true)
        };
        if path.is_empty() {
            self.0.each(select!("WHERE path > x''"), [], keep)?;
        } else {
            // '0' follows '/' in ASCII.
            let bounds = [[path, b"/"].concat(), [path, b"0"].concat()];
            self.0.each(select!("WHERE path > ?1 AND path < ?2"), bounds, keep)?;
        }
        Ok(rows)
    }

    /// Rows in the order of their paths.
    pub(super) fn page(self, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Vec<u8>, Slot)>> {
        let mut rows = Vec::new();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = match after {
            None => select!("WHERE path >= ?1 ORDER BY path LIMIT ?2"),
            Some(_) => select!("WHERE path > ?1 ORDER BY path LIMIT ?2"),
        };
        self.0.each(sql, params![after.unwrap_or_default(), limit], |row| {
            let (path, row) = self.decode(row)?;
            rows.extend(row.slot.map(|slot| (path, slot)));
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Rows that are due and not claimed, in the order of claims, until `each` has enough.
    pub(super) fn due(
        self,
        now: Timestamp,
        mut each: impl FnMut(Vec<u8>, &Row) -> Result<bool>,
    ) -> Result<()> {
        let mut priority = i64::MAX;
        let mut more = true;
        // One after the other, so that what is not yet due of a high priority costs nothing.
        let next = "SELECT max(priority) FROM pending WHERE token = 0 AND priority < ?1";
        let sql = select!("WHERE token = 0 AND priority = ?1 AND due <= ?2 ORDER BY due, sequence, path");
        while more && let Some(lower) = self.0.value::<Option<i64>>(next, [priority])? {
            priority = lower;
            self.0.each(sql, params![priority, now], |row| {
                let (path, row) = self.decode(row)?;
                more = each(path, &row)?;
                Ok(more)
            })?;
        }
        Ok(())
    }

    /// Number of rows that are due and not claimed, up to `most`.
    pub(super) fn count_due(self, now: Timestamp, most: u64) -> Result<u64> {
        let (mut priority, mut count) = (i64::MAX, 0);
        let next = "SELECT max(priority) FROM pending WHERE token = 0 AND priority < ?1";
        let sql = "SELECT count(*) FROM (SELECT 1 FROM pending \
                   WHERE token = 0 AND priority = ?1 AND due <= ?2 LIMIT ?3)";
        while count < most
            && let Some(lower) = self.0.value::<Option<i64>>(next, [priority])?
        {
            priority = lower;
            count += self.0.value::<u64>(sql, params![priority, now, most - count])?;
        }
        Ok(count)
    }

    /// Rows whose time was set later than `time`, and that nobody works on.
    pub(super) fn stamped_after(self, time: Timestamp) -> Result<Vec<(Vec<u8>, Row)>> {
        let newest: Timestamp = self.0.value("SELECT newest_stamp FROM counters", [])?;
        let mut rows = Vec::new();
        if newest > time {
            self.0.each(select!("WHERE token = 0 AND stamp > ?1"), [time], |row| {
                rows.push(self.decode(row)?);
                Ok(true)
            })?;
            let sql = "UPDATE counters SET newest_stamp = \
                       max(?1, (SELECT coalesce(max(stamp), ?1) FROM pending WHERE token <> 0))";
            self.0.execute(sql, [time])?;
        }
        Ok(rows)
    }

    fn decode(self, row: &rusqlite::Row<'_>) -> Result<(Vec<u8>, Row)> {
        let state: Vec<u8> = self.0.column(row, 5)?;
        let newer: Option<Vec<u8>> = self.0.column(row, 6)?;
        let sequence: Sequence = self.0.column(row, 2)?;
        let read = |bytes: &[u8]| -> Result<State> {
            let unreadable = || self.0.damaged(format!("the entry of change {sequence} cannot be read"));
            read_state(bytes).ok_or_else(unreadable)
        };
        let slot = Slot {
            state: read(&state)?,
            newer: newer.as_deref().map(read).transpose()?,
            sequence,
            token: self.0.column(row, 3)?,
            attempts: self.0.column(row, 4)?,
        };
        Ok((self.path(row, 1)?, Row { id: Some(self.0.column(row, 0)?), slot: Some(slot) }))
    }

    /// A path that leads nowhere but into the tree, whatever the file holds.
    fn path(self, row: &rusqlite::Row<'_>, column: usize) -> Result<Vec<u8>> {
        self.plain(self.0.column(row, column)?)
    }

    fn plain(self, path: Vec<u8>) -> Result<Vec<u8>> {
        is_plain(&path).then_some(path).ok_or_else(|| self.0.damaged("a path that leads out of the tree"))
    }

    /// Writes a row as it is to be.
    pub(super) fn write(self, path: &[u8], row: &Row) -> Result<()> {
        match (row.id, &row.slot) {
            (None, None) => {}
            (Some(id), None) => {
                self.0.execute("DELETE FROM pending WHERE id = ?1", [id])?;
            }
            (id, Some(Slot { state, newer, sequence, token, attempts })) => {
                let newer = newer.as_ref().map(put_state);
                let (kind, bytes) = (state.kind as u8, put_state(state));
                let State { first, stamp, due, priority, .. } = *state;
                // The path never changes in a row, so the index on it is left alone.
                let sql = if id.is_some() {
                    "UPDATE pending SET kind = ?3, first = ?4, stamp = ?5, due = ?6, priority = ?7, \
                     sequence = ?8, token = ?9, attempts = ?10, state = ?11, newer = ?12 \
                     WHERE id = ?1 AND ?2 IS NOT NULL"
                } else {
                    "INSERT INTO pending (id, path, kind, first, stamp, due, priority, sequence, token, \
                     attempts, state, newer) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                };
                self.0.execute(
                    sql,
                    params![
                        id, path, kind, first, stamp, due, priority, sequence, token, attempts, bytes, newer
                    ],
                )?;
            }
        }
        Ok(())
    }

    /// Counts everything; reads every row.
    pub(super) fn summary(self) -> Result<Summary> {
        let mut summary = Summary::default();
        let sql = "SELECT kind, count(*), min(first), sum(token <> 0) FROM pending GROUP BY kind";
        self.0.each(sql, [], |row| {
            let kind: usize = self.0.column(row, 0)?;
            let Some(count) = summary.by_kind.get_mut(kind) else {
                return Err(self.0.damaged(format!("an entry of kind {kind}")));
            };
            *count = self.0.column(row, 1)?;
            let first: Timestamp = self.0.column(row, 2)?;
            summary.oldest = Some(summary.oldest.map_or(first, |oldest| oldest.min(first)));
            summary.claimed += self.0.column::<u64>(row, 3)?;
            Ok(true)
        })?;
        Ok(summary)
    }

    /// Whether there is a claim, also of something that is not pending any more.
    pub(super) fn has_claims(self) -> Result<bool> {
        self.0.value("SELECT EXISTS(SELECT 1 FROM claims)", [])
    }

    /// A fencing number higher than all before.
    pub(super) fn next_token(self) -> Result<u64> {
        self.0.value("UPDATE counters SET token = token + 1 RETURNING token", [])
    }

    pub(super) fn locks(self) -> Result<Vec<Lock>> {
        let mut locks = Vec::new();
        self.0.each("SELECT token, path, origin, kind, worker, granted, expires FROM claims", [], |row| {
            let kind: u8 = self.0.column(row, 3)?;
            locks.push(Lock {
                token: self.0.column(row, 0)?,
                path: self.path(row, 1)?,
                origin: self.0.column::<Option<Vec<u8>>>(row, 2)?.map(|path| self.plain(path)).transpose()?,
                kind: Kind::from_number(kind)
                    .ok_or_else(|| self.0.damaged(format!("a claim of kind {kind}")))?,
                worker: self.0.column(row, 4)?,
                granted: self.0.column(row, 5)?,
                expires: self.0.column(row, 6)?,
            });
            Ok(true)
        })?;
        Ok(locks)
    }

    pub(super) fn put_lock(self, lock: &Lock) -> Result<()> {
        let Lock { token, path, origin, kind, worker, granted, expires } = lock;
        let sql = "INSERT OR REPLACE INTO claims (token, path, origin, kind, worker, granted, expires) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        self.0.execute(sql, params![token, path, origin, *kind as u8, worker, granted, expires]).map(drop)
    }

    /// Sets the lease of a claim; false if there is no such claim.
    pub(super) fn lease(self, token: u64, granted: Timestamp, expires: Timestamp) -> Result<bool> {
        let sql = "UPDATE claims SET granted = ?2, expires = ?3 WHERE token = ?1";
        Ok(self.0.execute(sql, params![token, granted, expires])? > 0)
    }

    /// Ends a claim; false if there was no such claim.
    pub(super) fn unlock(self, token: u64) -> Result<bool> {
        Ok(self.0.execute("DELETE FROM claims WHERE token = ?1", [token])? > 0)
    }

    pub(super) fn is_locked(self, token: u64) -> Result<bool> {
        let found: i64 = self.0.value("SELECT count(*) FROM claims WHERE token = ?1", [token])?;
        Ok(found > 0)
    }
}
