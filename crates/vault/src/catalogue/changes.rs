//! Change-set of one scan, in a temporary table, so that a million changes need little memory.

use super::{Catalogue, CatalogueError, Result, queries};
use crate::tree::join;
use crate::world::Timestamp;
use rusqlite::{OptionalExtension, params};

/// Class of a difference from the protected version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// New file.
    Added,
    /// New file that looks like a copy of a protected one: same size, and same mtime to the nanosecond.
    Copied,
    /// A protected file under another name.
    Moved,
    /// The content changed.
    Changed,
    /// Same size and mtime, but another inode: probably restored from a backup.
    Restored,
    /// Owner, permissions or attributes changed, perhaps the content.
    Touched,
    /// The policy selects another code now.
    Recoded,
    /// Deleted, or no longer to be protected.
    Removed,
}

impl Class {
    /// All classes, in the order of reports.
    pub const ALL: [Class; 8] = [
        Class::Added,
        Class::Copied,
        Class::Moved,
        Class::Changed,
        Class::Restored,
        Class::Touched,
        Class::Recoded,
        Class::Removed,
    ];

    /// The word for output.
    pub fn word(self) -> &'static str {
        match self {
            Class::Added => "added",
            Class::Copied => "copied",
            Class::Moved => "moved",
            Class::Changed => "changed",
            Class::Restored => "restored",
            Class::Touched => "touched",
            Class::Recoded => "recoded",
            Class::Removed => "removed",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Class of the change.
    pub class: Class,
    /// Path of the file.
    pub path: Vec<u8>,
    /// Former path of a moved file, or the original of a copy.
    pub from: Option<Vec<u8>>,
    /// Size in bytes; for a deleted file, the protected size.
    pub size: u64,
    /// mtime and ctime; for a deleted file, the time of its protection.
    pub times: (Timestamp, Timestamp),
    /// Redundancy columns that the policy requires.
    pub wanted: u32,
    /// Priority of the policy.
    pub priority: u8,
}

/// Files and bytes of each class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts([(u64, u64); 8]);

impl Counts {
    /// Files and bytes of one class.
    pub fn of(&self, class: Class) -> (u64, u64) {
        self.0[class as usize]
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        self.0.iter().map(|(files, _)| files).sum()
    }

    /// True if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.files() == 0
    }
}

pub(super) const TABLES: &str = "
    CREATE TEMP TABLE IF NOT EXISTS changes(
        class INTEGER NOT NULL, path BLOB NOT NULL, origin BLOB, size INTEGER NOT NULL,
        wanted INTEGER NOT NULL, priority INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS temp.changes_by_class ON changes(class, path);
    CREATE INDEX IF NOT EXISTS temp.changes_by_origin ON changes(origin) WHERE origin IS NOT NULL;";

impl Catalogue {
    /// Removes the change-set of the last scan.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn clear_changes(&self) -> Result<()> {
        self.wrap(self.connection.execute_batch("DELETE FROM temp.changes"))
    }

    /// Adds a change.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn note_change(&self, change: &Change) -> Result<()> {
        let note = || {
            let mut note =
                self.connection.prepare_cached("INSERT INTO temp.changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
            let Change { class, path, from, size, times: (mtime, ctime), wanted, priority } = change;
            note.execute(params![*class as i64, path, from, *size as i64, wanted, priority, mtime, ctime])
        };
        self.wrap(note()).map(|_| ())
    }

    /// Changes the class of a change.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn reclassify(&self, path: &[u8], from: Class, to: Class) -> Result<()> {
        let change = "UPDATE temp.changes SET class = ? WHERE class = ? AND path = ?";
        self.wrap(self.connection.execute(change, params![to as i64, from as i64, path])).map(|_| ())
    }

    /// Removes the deletions of files that were found as moved.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn settle_moves(&self) -> Result<()> {
        let settle = "DELETE FROM temp.changes WHERE class = ?1 AND path IN \
                      (SELECT origin FROM temp.changes WHERE class = ?2)";
        let classes = params![Class::Removed as i64, Class::Moved as i64];
        self.wrap(self.connection.execute(settle, classes)).map(|_| ())
    }

    /// True if the change-set has this file with this class.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn is_change(&self, class: Class, path: &[u8]) -> Result<bool> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT EXISTS(SELECT 1 FROM temp.changes WHERE class = ? AND path = ?)")?;
            find.query_row(params![class as i64, path], |row| row.get(0))
        };
        self.wrap(find())
    }

    /// Number of files with this class at and below a path.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn count_changes_beneath(&self, class: Class, path: &[u8]) -> Result<u64> {
        let count = || {
            let within = super::within(path);
            let query = format!("SELECT count(*) FROM temp.changes WHERE class = ?2 AND {within}");
            let mut query = self.connection.prepare_cached(&query)?;
            query.query_row(params![path, class as i64], |row| row.get(0))
        };
        self.wrap(count())
    }

    /// True if a move of this file is already in the change-set.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn is_moved(&self, from: &[u8]) -> Result<bool> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT EXISTS(SELECT 1 FROM temp.changes WHERE origin = ? AND class = ?)")?;
            find.query_row(params![from, Class::Moved as i64], |row| row.get(0))
        };
        self.wrap(find())
    }

    /// New path of the file that was at `from`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn moved_to(&self, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT path FROM temp.changes WHERE origin = ? AND class = ?")?;
            find.query_row(params![from, Class::Moved as i64], |row| row.get(0)).optional()
        };
        self.wrap(find())
    }

    /// Files and bytes of each class.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn count_changes(&self) -> Result<Counts> {
        let count = || {
            let mut counts = Counts::default();
            let mut query = self
                .connection
                .prepare_cached("SELECT class, count(*), total(size) FROM temp.changes GROUP BY class")?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                if let Some(slot) = counts.0.get_mut(row.get::<_, usize>(0)?) {
                    *slot = (row.get(1)?, row.get::<_, f64>(2)? as u64);
                }
            }
            Ok(counts)
        };
        self.wrap(count())
    }

    /// Visits the changes of one class in order of their paths, in pages.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `visit`.
    pub fn each_change<E: From<CatalogueError>>(
        &self,
        class: Class,
        mut visit: impl FnMut(&[Change]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut after = Vec::new();
        loop {
            let some = self.some_changes(class, &after)?;
            let Some(last) = some.last() else { return Ok(()) };
            after.clone_from(&last.path);
            visit(&some)?;
        }
    }

    fn some_changes(&self, class: Class, after: &[u8]) -> Result<Vec<Change>> {
        let find = || {
            let mut query = self.connection.prepare_cached(
                "SELECT path, origin, size, wanted, priority, mtime, ctime FROM temp.changes \
                 WHERE class = ? AND path > ? ORDER BY path LIMIT ?",
            )?;
            let rows = query.query_map(params![class as i64, after, super::PAGE as i64], |row| {
                let size: i64 = row.get(2)?;
                let (path, from) = (row.get(0)?, row.get(1)?);
                Ok(Change {
                    class,
                    path,
                    from,
                    size: size as u64,
                    wanted: row.get(3)?,
                    priority: row.get(4)?,
                    times: (row.get(5)?, row.get(6)?),
                })
            })?;
            rows.collect()
        };
        self.wrap(find())
    }

    /// A file with this size and mtime elsewhere: the original of a possible copy.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn like(&self, size: u64, mtime: Timestamp) -> Result<Option<Vec<u8>>> {
        let find = || {
            let mut find = self.connection.prepare_cached(queries::LIKE)?;
            let path = find.query_row(params![mtime, size as i64], |row| {
                Ok(join(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?))
            });
            path.optional()
        };
        self.wrap(find())
    }

    /// Files of this size, `most` at most. Reads the whole catalogue.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn of_size(&self, size: u64, most: usize) -> Result<Vec<Vec<u8>>> {
        let find = || {
            let mut find = self.connection.prepare_cached(queries::OF_SIZE)?;
            let path =
                |row: &rusqlite::Row<'_>| Ok(join(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?));
            find.query_map(params![size as i64, most as i64], path)?.collect()
        };
        self.wrap(find())
    }
}
