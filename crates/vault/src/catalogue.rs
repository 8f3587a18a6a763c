//! Catalogue: what this machine knows of the protected files. A cache that can be rebuilt from headers of redundancy.
//!
//! It answers without opening a million redundancy files: which version of a file is protected, what is damaged, where
//! a moved file was before. It contains nothing that cannot be found again.

mod accepted;
mod changes;
mod copy;
mod directories;
mod equal_sizes;
mod error;
mod fact;
mod held;
mod making;
mod moving;
mod notes;
mod pages;
mod problems;
mod queries;
mod recent;

pub use changes::{Change, Class, Counts};
pub(crate) use copy::Keeping;
pub use copy::LONG_JOURNAL;
pub use error::CatalogueError;
use error::Reason;
pub(crate) use making::is_damaged;
pub use moving::PossibleNames;
pub use pages::{Page, Place, States};
pub use problems::{Piece, Problem};
pub use recent::Recent;

use crate::changelog::database;
use crate::format::FileId;
use crate::tree::{Generation, Stat, join, split};
use crate::world::Timestamp;
use copy::Copy;
use fact::Fact;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::Path;

/// State of a protected file when it was last examined. Files that changed since are pending in the changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Data and redundancy are complete.
    Protected,
    /// Redundancy or data is missing with its target; everything can be reconstructed.
    Degraded,
    /// Corrupt blocks were found; everything can be reconstructed.
    Damaged,
    /// Blocks cannot be reconstructed.
    Lost,
}

impl State {
    /// The word for output.
    pub fn word(self) -> &'static str {
        match self {
            State::Protected => "protected",
            State::Degraded => "degraded",
            State::Damaged => "damaged",
            State::Lost => "lost",
        }
    }

    fn number(self) -> i64 {
        self as i64
    }

    fn from_number(number: i64) -> State {
        match number {
            0 => State::Protected,
            1 => State::Degraded,
            2 => State::Damaged,
            _ => State::Lost,
        }
    }
}

/// Entry of a protected file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Identity of the redundancy.
    pub id: FileId,
    /// Protected version.
    pub generation: Generation,
    /// The code, in full, and what blocks have besides signatures.
    pub code: String,
    /// Redundancy columns that the code has.
    pub wanted: u32,
    /// Redundancy columns that exist.
    pub columns: u32,
    /// Bytes of its redundancy files.
    pub redundancy: u64,
    /// Time of protection.
    pub protected_at: Timestamp,
    /// Time of the last scrub.
    pub scrubbed_at: Option<Timestamp>,
    /// State.
    pub state: State,
}

/// The catalogue of one vault.
#[derive(Debug)]
pub struct Catalogue {
    connection: Connection,
    path: String,
    /// On a host that shares the catalogue with others.
    copy: Option<Copy>,
}

/// Number of files that are visited between two changes of the catalogue.
const PAGE: usize = 1024;

/// Version of the tables below. A catalogue of another version is rebuilt.
const VERSION: i64 = 1;

const TABLES: &str = "
    CREATE TABLE directories(number INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
    CREATE TABLE codes(number INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE);
    CREATE TABLE files(
        directory INTEGER NOT NULL, name BLOB NOT NULL,
        size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, inode INTEGER NOT NULL,
        id BLOB NOT NULL, code INTEGER NOT NULL, wanted INTEGER NOT NULL, columns INTEGER NOT NULL,
        redundancy INTEGER NOT NULL, protected_at INTEGER NOT NULL, scrubbed_at INTEGER,
        state INTEGER NOT NULL,
        PRIMARY KEY(directory, name)) WITHOUT ROWID;
    CREATE INDEX files_by_inode ON files(inode);
    CREATE INDEX files_by_time ON files(mtime, size);
    CREATE INDEX files_by_state ON files(state) WHERE state != 0;
    CREATE TABLE problems(
        directory INTEGER NOT NULL, name BLOB NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
        piece INTEGER NOT NULL, found_at INTEGER NOT NULL);
    CREATE INDEX problems_by_file ON problems(directory, name);
    CREATE TABLE notes(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    PRAGMA user_version = 1;";

/// SQL condition for directories at and below the first parameter. A further alternative for the root would prevent the
/// use of the index, which every removal of a file needs.
fn within(path: &[u8]) -> &'static str {
    match path.is_empty() {
        true => "?1 = x''",
        // `||` makes text even of blobs, and SQLite sorts every blob after any text.
        false => "(path = ?1 OR (path >= CAST(?1 || x'2f' AS BLOB) AND path < CAST(?1 || x'30' AS BLOB)))",
    }
}

const COLUMNS: &str = "size, mtime, ctime, inode, id, \
     (SELECT identity FROM codes WHERE number = code), wanted, columns, redundancy, protected_at, scrubbed_at, state";

fn entry(row: &Row<'_>, first: usize) -> rusqlite::Result<Entry> {
    let at = |column: usize| first + column;
    let unsigned = |column: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, i64>(at(column))? as u64) };
    Ok(Entry {
        generation: Generation {
            size: unsigned(0)?,
            mtime: row.get(at(1))?,
            ctime: row.get(at(2))?,
            inode: unsigned(3)?,
        },
        id: FileId(row.get(at(4))?),
        code: row.get(at(5))?,
        wanted: row.get(at(6))?,
        columns: row.get(at(7))?,
        redundancy: unsigned(8)?,
        protected_at: row.get(at(9))?,
        scrubbed_at: row.get(at(10))?,
        state: State::from_number(row.get(at(11))?),
    })
}

type Result<T> = std::result::Result<T, CatalogueError>;

impl Entry {
    /// True if size or mtime differ from the protected version.
    pub(crate) fn is_another_version(&self, stat: &Stat) -> bool {
        (self.generation.size, self.generation.mtime) != (stat.size, stat.mtime)
    }
}

impl Catalogue {
    /// Opens the catalogue at `path`. Begins empty if it does not exist or has another version.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn open(path: &Path) -> Result<Catalogue> {
        let failed = |reason| {
            let is_readable = !database::has_damaged_header(path);
            let reason = if is_readable { Reason::Database(reason) } else { Reason::Header(reason) };
            CatalogueError { path: path.display().to_string(), reason }
        };
        let connection = database::open_database(path).map_err(failed)?;
        let set_up = || -> rusqlite::Result<()> {
            connection.busy_timeout(std::time::Duration::from_secs(30))?;
            // A cache: after a crash it may lack the last transactions, but is consistent.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.pragma_update(None, "cache_size", -16_000)?;
            connection.pragma_update(None, "temp_store", "file")?;
            connection.set_prepared_statement_cache_capacity(64);
            let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version != VERSION {
                let tables: Vec<String> = connection
                    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?
                    .query_map([], |row| row.get(0))?
                    .collect::<rusqlite::Result<_>>()?;
                let transaction = connection.unchecked_transaction()?;
                for table in tables {
                    transaction.execute_batch(&format!("DROP TABLE \"{}\"", table.replace('"', "\"\"")))?;
                }
                transaction.execute_batch(TABLES)?;
                transaction.execute("INSERT INTO notes VALUES (?, '')", [making::TO_BE_MADE])?;
                transaction.commit()?;
            }
            let added = [
                recent::TABLES,
                held::TABLES,
                accepted::TABLES,
                moving::TABLES,
                changes::TABLES,
                copy::TABLES,
            ];
            added.iter().try_for_each(|tables| connection.execute_batch(tables))
        };
        set_up().map_err(failed)?;
        Ok(Catalogue { path: path.display().to_string(), connection, copy: None })
    }

    fn wrap<T>(&self, result: rusqlite::Result<T>) -> Result<T> {
        result.map_err(|reason| CatalogueError { path: self.path.clone(), reason: Reason::Database(reason) })
    }

    /// Runs `work` in one write transaction. Other writers wait meanwhile.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `work`; the transaction is rolled back.
    pub fn together<T, E: From<CatalogueError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        // A transaction that reads first is refused if another process writes in between; one that begins as a writer
        // waits.
        match self.connection.is_autocommit() {
            true => self.between("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", work),
            false => self.part(work),
        }
    }

    /// Runs `work` in one read transaction, with what other hosts did before. Others may write; `work` may write only
    /// to the change-set.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `work`; the change-set is rolled back.
    pub fn as_of_now<T, E: From<CatalogueError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if self.connection.is_autocommit() {
            self.follow()?;
        }
        self.part(work)
    }

    fn part<T, E: From<CatalogueError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.between("SAVEPOINT part", "RELEASE part", "ROLLBACK TO part; RELEASE part", work)
    }

    fn between<T, E: From<CatalogueError>>(
        &self,
        begin: &str,
        end: &str,
        undo: &str,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let is_whole = self.connection.is_autocommit();
        let collected = self.copy.as_ref().map_or(0, Copy::collected);
        self.wrap(self.connection.execute_batch(begin))?;
        let mut done = work();
        if is_whole && done.is_ok() {
            done = self.publish().map_err(E::from).and(done);
        }
        let finish = if done.is_ok() { end } else { undo };
        if let (Some(copy), Err(_)) = (&self.copy, &done) {
            copy.forget_collected(collected);
        }
        crate::fault::point();
        self.wrap(self.connection.execute_batch(finish))?;
        done
    }

    /// Number of a directory with known files.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn directory(&self, path: &[u8]) -> Result<Option<i64>> {
        let found = || {
            let mut find = self.connection.prepare_cached("SELECT number FROM directories WHERE path = ?")?;
            find.query_row([path], |row| row.get(0)).optional()
        };
        self.wrap(found())
    }

    fn directory_or_new(&self, path: &[u8]) -> Result<i64> {
        if let Some(number) = self.directory(path)? {
            return Ok(number);
        }
        let mut insert =
            self.wrap(self.connection.prepare_cached("INSERT INTO directories(path) VALUES (?)"))?;
        self.wrap(insert.insert([path]))
    }

    /// All directories with known files at or below `path`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn directories(&self, path: &[u8]) -> Result<Vec<(i64, Vec<u8>)>> {
        let found = || {
            let query = format!("SELECT number, path FROM directories WHERE {} ORDER BY path", within(path));
            let mut find = self.connection.prepare_cached(&query)?;
            let rows = find.query_map([path], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        self.wrap(found())
    }

    /// Visits the files of a directory in order of their names.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `visit`.
    pub fn each<E: From<CatalogueError>>(
        &self,
        directory: i64,
        mut visit: impl FnMut(&[u8], Entry) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let query = format!("SELECT name, {COLUMNS} FROM files WHERE directory = ? ORDER BY name");
        let mut find = self.wrap(self.connection.prepare_cached(&query))?;
        let mut rows = self.wrap(find.query([directory]))?;
        while let Some(row) = self.wrap(rows.next())? {
            let name = self.wrap(row.get_ref(0).and_then(|name| Ok(name.as_blob()?)))?;
            visit(name, self.wrap(entry(row, 1))?)?;
        }
        Ok(())
    }

    /// Visits all files at or below `path`, which may be a file, in pages, so that `visit` may change the catalogue.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `visit`.
    pub fn each_page<E: From<CatalogueError>>(
        &self,
        path: &[u8],
        mut visit: impl FnMut(Vec<(Vec<u8>, Entry)>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut page: Vec<(Vec<u8>, Entry)> = Vec::new();
        if let Some(entry) = self.find(path)? {
            page.push((path.to_vec(), entry));
        }
        for (number, directory) in self.directories(path)? {
            let mut after = Vec::new();
            loop {
                let some = self.some_files(number, &after)?;
                let Some((last, _)) = some.last() else { break };
                after.clone_from(last);
                page.extend(some.into_iter().map(|(name, entry)| (join(&directory, &name), entry)));
                if page.len() >= PAGE {
                    visit(std::mem::take(&mut page))?;
                }
            }
        }
        if page.is_empty() { Ok(()) } else { visit(page) }
    }

    fn some_files(&self, directory: i64, after: &[u8]) -> Result<Vec<(Vec<u8>, Entry)>> {
        let query = format!(
            "SELECT name, {COLUMNS} FROM files WHERE directory = ? AND name > ? ORDER BY name LIMIT {PAGE}"
        );
        let find = || {
            let mut find = self.connection.prepare_cached(&query)?;
            let rows = find.query_map(params![directory, after], |row| Ok((row.get(0)?, entry(row, 1)?)))?;
            rows.collect()
        };
        self.wrap(find())
    }

    /// Files and bytes by wanted and actual redundancy columns, at or below `path`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn matrix(&self, path: &[u8]) -> Result<Vec<(u32, u32, u64, u64)>> {
        let find = || {
            let mut find = self.connection.prepare_cached(
                "SELECT wanted, columns, count(*), total(size) FROM files JOIN directories ON number = directory \
                 WHERE ?1 = x'' OR path = ?1 \
                 OR (path >= CAST(?1 || x'2f' AS BLOB) AND path < CAST(?1 || x'30' AS BLOB)) GROUP BY 1, 2",
            )?;
            let rows = find.query_map([path], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, f64>(3)? as u64))
            })?;
            rows.collect()
        };
        self.wrap(find())
    }

    /// Number of files in each state, without protected ones.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn affected(&self) -> Result<Vec<(State, u64)>> {
        let find = || {
            let mut find = self
                .connection
                .prepare_cached("SELECT state, count(*) FROM files WHERE state != 0 GROUP BY state")?;
            let rows = find.query_map([], |row| Ok((State::from_number(row.get(0)?), row.get(1)?)))?;
            rows.collect()
        };
        self.wrap(find())
    }

    /// Time before which the given number of files was last scrubbed. Files that were never scrubbed, or have a time in
    /// the future after the clock was set back, come first.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn oldest_scrubbed(&self, files: u64, now: Timestamp) -> Result<Option<Timestamp>> {
        let query = "SELECT iif(scrubbed_at > ?1, NULL, scrubbed_at) FROM files ORDER BY 1 LIMIT 1 OFFSET ?2";
        let offset = files.saturating_sub(1) as i64;
        let found = self.connection.query_row(query, params![now, offset], |row| row.get(0));
        Ok(self.wrap(found.optional())?.flatten())
    }

    /// Entry of a file.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn find(&self, path: &[u8]) -> Result<Option<Entry>> {
        let (directory, name) = split(path);
        let found = || {
            let mut find = self.connection.prepare_cached(queries::FIND)?;
            find.query_row(params![directory, name], |row| entry(row, 0)).optional()
        };
        self.wrap(found())
    }

    /// Names of files with this inode, size and mtime: former names of a moved file.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn by_inode(&self, generation: &Generation) -> Result<Vec<Vec<u8>>> {
        let found = || {
            let mut find = self.connection.prepare_cached(queries::BY_INODE)?;
            let Generation { size, mtime, inode, .. } = *generation;
            let rows = find.query_map(params![inode as i64, size as i64, mtime], |row| {
                Ok(join(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?))
            })?;
            rows.collect()
        };
        self.wrap(found())
    }

    /// All names of an inode, with the version that is protected under each.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn names_of(&self, inode: u64) -> Result<Vec<(Vec<u8>, Generation)>> {
        let found = || {
            let mut find = self.connection.prepare_cached(queries::NAMES_OF)?;
            let rows = find.query_map([inode as i64], |row| {
                let path = join(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
                let (size, mtime, ctime) = (row.get::<_, i64>(2)? as u64, row.get(3)?, row.get(4)?);
                Ok((path, Generation { size, mtime, ctime, inode }))
            })?;
            rows.collect()
        };
        self.wrap(found())
    }

    /// Stores an entry.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn put(&self, path: &[u8], entry: &Entry) -> Result<()> {
        let fact = Fact::Put { path: path.to_vec(), entry: entry.clone() };
        // In one transaction, so that the directory's row is not removed before the file has one.
        match self.connection.is_autocommit() {
            true => self.together(|| self.write(&fact)),
            false => self.write(&fact),
        }
    }

    fn put_row(&self, path: &[u8], entry: &Entry) -> Result<()> {
        let (directory, name) = split(path);
        let directory = self.directory_or_new(directory)?;
        let code = self.code(&entry.code)?;
        let put = || {
            let mut insert = self.connection.prepare_cached(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            let Generation { size, mtime, ctime, inode } = entry.generation;
            insert.execute(params![
                directory,
                name,
                size as i64,
                mtime,
                ctime,
                inode as i64,
                entry.id.0,
                code,
                entry.wanted,
                entry.columns,
                entry.redundancy as i64,
                entry.protected_at,
                entry.scrubbed_at,
                entry.state.number()
            ])
        };
        self.wrap(put()).map(|_| ())
    }

    fn code(&self, identity: &str) -> Result<i64> {
        let number = || {
            let mut find = self.connection.prepare_cached("SELECT number FROM codes WHERE identity = ?")?;
            if let Some(number) = find.query_row([identity], |row| row.get(0)).optional()? {
                return Ok(number);
            }
            self.connection.prepare_cached("INSERT INTO codes(identity) VALUES (?)")?.insert([identity])
        };
        self.wrap(number())
    }

    /// Removes a file and its problems.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn forget(&self, path: &[u8]) -> Result<()> {
        self.write(&Fact::Forget { path: path.to_vec() })
    }

    fn forget_row(&self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let Some(directory) = self.directory(directory)? else { return Ok(()) };
        self.clear_problem_rows(path)?;
        self.forget_accepted_row(path)?;
        let forget = || {
            let mut forget =
                self.connection.prepare_cached("DELETE FROM files WHERE directory = ? AND name = ?")?;
            forget.execute(params![directory, name])
        };
        self.wrap(forget()).map(|_| ())
    }

    /// Removes all files, here alone.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn clear(&self) -> Result<()> {
        let tables = "DELETE FROM files; DELETE FROM directories; DELETE FROM codes; DELETE FROM problems;";
        self.wrap(self.connection.execute_batch(tables))
    }

    /// Removes all files, and notes that the catalogue is to be made.
    fn clear_rows(&self) -> Result<()> {
        self.clear()?;
        self.set_note_row(making::TO_BE_MADE, Some(""))
    }

    /// True if anything at or below `path` is known.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn knows(&self, path: &[u8]) -> Result<bool> {
        Ok(self.find(path)?.is_some() || !self.directories(path)?.is_empty())
    }

    /// Number of files.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn count(&self) -> Result<u64> {
        self.wrap(self.connection.query_row("SELECT count(*) FROM files", [], |row| row.get(0)))
    }

    /// Number of files below a directory, at any depth.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn count_beneath(&self, path: &[u8]) -> Result<u64> {
        let count = || {
            let mut count = self.connection.prepare_cached(&queries::count_in(within(path)))?;
            count.query_row([path], |row| row.get(0))
        };
        self.wrap(count())
    }
}

#[cfg(test)]
mod tests;
