//! Copies of one catalogue on several hosts.
//!
//! Where several hosts share a changelog, each has a copy of the catalogue on a disk of its own. The truth is the
//! [`Journal`] of the changelog: a list of [facts](Fact) in one order. A transaction appends its facts to the journal
//! before it is committed here, together with what other hosts appended before it, so every copy is the result of the
//! same facts up to its mark. A process that dies between the two leaves facts that the next one reads. A copy that is
//! missing, or whose mark the journal does not know, is made from the beginning of the journal, which describes
//! everything; an empty journal is begun with what the headers of redundancy files say.

use super::fact::{Fact, Facts};
use super::{Catalogue, CatalogueError, Reason, Result, making};
use crate::changelog::journal::{Mark, Reading, Record};
use crate::changelog::{self, Changelog, Journal};
use crate::tree::{Generation, join, split};
use crate::world::Stopwatch;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Facts of a host that cannot reach the server; appended when it can. Created with `IF NOT EXISTS`, so that existing
/// catalogues get it as well.
pub(super) const TABLES: &str = "CREATE TABLE IF NOT EXISTS unsent(facts BLOB NOT NULL);";

/// Note with the mark of the copy. Never a fact.
const MARK: &str = "mark in the journal";

/// Age of what a copy knows up to which a reader of many files need not ask again.
const FRESH: Duration = Duration::from_millis(200);

/// Bytes of a journal that is not worth shortening.
pub const LONG_JOURNAL: u64 = 64 << 20;

/// How much longer a journal has to be than it would be after it was shortened.
const TIMES: u64 = 3;

/// Bytes of a file's facts, about.
const PER_FILE: u64 = 150;

/// How a copy is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Follow the journal, and append to it.
    Shared,
    /// Follow the journal only: nothing is recorded in a read-only repository.
    Silent,
}

/// Tells a part of what is known.
type Tell<'a> = &'a mut dyn FnMut(&dyn Fn() -> Result<Vec<Fact>>) -> Result<Vec<Fact>>;

/// What makes a catalogue a copy.
pub(super) struct Copy {
    changelog: Arc<dyn Changelog>,
    keeping: Keeping,
    /// Facts of the transaction.
    collected: RefCell<Vec<u8>>,
    /// The last record that this process appended.
    own: Cell<Option<Mark>>,
    followed: RefCell<Option<Stopwatch>>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Copy").finish_non_exhaustive()
    }
}

impl Copy {
    /// The journal; none while the server is away.
    fn journal(&self) -> Option<&dyn Journal> {
        self.changelog.journal()
    }

    pub(super) fn collected(&self) -> usize {
        self.collected.borrow().len()
    }

    /// Drops what was collected after that many bytes, because the work was rolled back.
    pub(super) fn forget_collected(&self, length: usize) {
        self.collected.borrow_mut().truncate(length);
    }
}

impl Catalogue {
    /// Opens this host's copy of a catalogue that hosts share.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub(crate) fn open_copy(
        path: &Path,
        changelog: Arc<dyn Changelog>,
        keeping: Keeping,
    ) -> Result<Catalogue> {
        let (collected, own, followed) = (RefCell::default(), Cell::default(), RefCell::default());
        let copy = Copy { changelog, keeping, collected, own, followed };
        Ok(Catalogue { copy: Some(copy), ..Catalogue::open(path)? })
    }

    /// Whether this is one of several copies.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    fn journal_failed(&self, error: changelog::Error) -> CatalogueError {
        CatalogueError { path: self.path.clone(), reason: Reason::Journal(error) }
    }

    /// Makes a change here and, if hosts share the catalogue, for all of them.
    pub(super) fn write(&self, fact: &Fact) -> Result<()> {
        let Some(copy) = &self.copy else { return self.apply(fact) };
        if self.connection.is_autocommit() {
            return self.together(|| self.write(fact));
        }
        self.apply(fact)?;
        if copy.keeping == Keeping::Shared {
            fact.put(&mut copy.collected.borrow_mut());
        }
        Ok(())
    }

    /// Makes a change here.
    pub(super) fn apply(&self, fact: &Fact) -> Result<()> {
        match fact {
            Fact::Put { path, entry } => self.put_row(path, entry),
            Fact::Forget { path } => self.forget_row(path),
            Fact::Problems { path, problems, found_at } => self.set_problem_rows(path, problems, *found_at),
            Fact::NoProblems { path } => self.clear_problem_rows(path),
            Fact::Accepted { path, version } => self.accept_row(path, version),
            Fact::NotAccepted { path } => self.forget_accepted_row(path),
            Fact::Moving { worker, path } => self.note_moving_row(worker, path),
            Fact::NotMoving { worker } => self.forget_moving_rows(worker),
            Fact::Recent { path, removed, at } => self.note_recent_row(path, *removed, *at),
            Fact::NotRecent { before } => self.forget_recent_rows(*before),
            Fact::Note { key, value } if key != MARK => self.set_note_row(key, value.as_deref()),
            Fact::Note { .. } => Ok(()),
            Fact::Clear => self.clear_rows(),
            Fact::Made => self.set_note_row(making::TO_BE_MADE, None),
        }
    }

    fn apply_record(&self, record: &[u8]) -> Result<()> {
        for fact in Facts::of(record) {
            let damaged = || CatalogueError { path: self.path.clone(), reason: Reason::Record };
            self.apply(&fact.ok_or_else(damaged)?)?;
        }
        Ok(())
    }

    fn mark(&self) -> Result<Option<Mark>> {
        let mark = |text: String| {
            let (position, name) = text.split_once(' ')?;
            let name = u128::from_str_radix(name, 16).ok()?.to_be_bytes();
            Some(Mark { position: position.parse().ok()?, name })
        };
        Ok(self.note(MARK)?.and_then(mark))
    }

    fn set_mark(&self, mark: &Mark) -> Result<()> {
        let text = format!("{} {:032x}", mark.position, u128::from_be_bytes(mark.name));
        self.set_note_row(MARK, Some(&text))
    }

    /// Learns what other hosts did.
    ///
    /// # Errors
    /// [`CatalogueError`]: the database or the server fails, or the journal was lost and has to be begun again
    /// ([`Vault::follow`](crate::vault::Vault::follow)).
    pub fn follow(&self) -> Result<()> {
        self.catch_up()?;
        match self.copy.is_some() && self.connection.is_autocommit() && self.is_to_be_made()? {
            true => Err(CatalogueError { path: self.path.clone(), reason: Reason::NotMade }),
            false => Ok(()),
        }
    }

    /// Reads the journal up to its end.
    pub(crate) fn catch_up(&self) -> Result<()> {
        let Some(copy) = &self.copy else { return Ok(()) };
        let (Some(journal), true) = (copy.journal(), self.connection.is_autocommit()) else { return Ok(()) };
        loop {
            let mark = self.mark()?;
            let reading = journal.read(mark.as_ref()).map_err(|error| self.journal_failed(error))?;
            match reading {
                Reading::Records(records) if records.is_empty() && mark.is_some() => break,
                reading => {
                    self.between("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", || -> Result<()> {
                        // Another process of this host may have been faster.
                        if self.mark()? != mark {
                            return Ok(());
                        }
                        // What is here may have been made without the journal, or from one that is lost.
                        if mark.is_none() || reading == Reading::Unknown {
                            self.begin_again()?;
                        }
                        match &reading {
                            Reading::Records(records) => self.apply_all(records),
                            Reading::Unknown => Ok(()),
                        }
                    })?;
                    // The journal is empty, or its beginning is not there: it has to be begun anew.
                    let is_at_end = match &reading {
                        Reading::Records(records) => records.is_empty(),
                        Reading::Unknown => mark.is_none(),
                    };
                    if is_at_end && self.mark()?.is_none() {
                        break;
                    }
                }
            }
        }
        if copy.keeping == Keeping::Shared {
            self.send_unsent(copy)?;
        }
        *copy.followed.borrow_mut() = Some(Stopwatch::start());
        Ok(())
    }

    /// Learns what other hosts did, unless that was just done.
    ///
    /// # Errors
    /// As [`follow`](Catalogue::follow).
    pub fn follow_if_old(&self) -> Result<()> {
        let is_fresh =
            |copy: &Copy| copy.followed.borrow().as_ref().is_some_and(|when| when.elapsed() < FRESH);
        if self.copy.as_ref().is_some_and(is_fresh) { Ok(()) } else { self.follow() }
    }

    fn apply_all(&self, records: &[Record]) -> Result<()> {
        records.iter().try_for_each(|record| self.apply_record(&record.bytes))?;
        records.last().map_or(Ok(()), |last| self.set_mark(&last.mark))
    }

    /// Forgets everything, to read the journal from its beginning.
    fn begin_again(&self) -> Result<()> {
        self.clear_rows()?;
        let tables = "DELETE FROM accepted; DELETE FROM moving; DELETE FROM recent; DELETE FROM held; DELETE FROM notes;";
        self.wrap(self.connection.execute_batch(tables))?;
        self.set_note_row(making::TO_BE_MADE, Some(""))
    }

    /// Appends the facts of the transaction to the journal, and applies what others appended before.
    pub(super) fn publish(&self) -> Result<()> {
        let Some(copy) = &self.copy else { return Ok(()) };
        let facts = std::mem::take(&mut *copy.collected.borrow_mut());
        if facts.is_empty() {
            return Ok(());
        }
        let Some(journal) = copy.journal() else {
            // A copy that never followed the journal begins with it when it can, and forgets what it knew.
            return if self.mark()?.is_some() { self.keep_unsent(&facts) } else { Ok(()) };
        };
        let failed = |error| self.journal_failed(error);
        let Some(own) = journal.append(&facts, None).map_err(failed)? else { return Ok(()) };
        copy.own.set(Some(own));
        let mut mark = self.mark()?;
        while mark.map_or(0, |mark| mark.position) + 1 < own.position {
            match journal.read(mark.as_ref()).map_err(failed)? {
                // Up to and with the own record, whose facts are the last word on what they are about.
                Reading::Records(records) => {
                    self.apply_all(&records)?;
                    mark = self.mark()?;
                }
                // The next follower begins again, and reads the own record as well.
                Reading::Unknown => return Ok(()),
            }
        }
        if mark.is_none_or(|mark| mark.position < own.position) { self.set_mark(&own) } else { Ok(()) }
    }

    fn keep_unsent(&self, facts: &[u8]) -> Result<()> {
        self.wrap(self.connection.execute("INSERT INTO unsent VALUES (?)", [facts])).map(drop)
    }

    fn send_unsent(&self, copy: &Copy) -> Result<()> {
        let find = || {
            let mut find = self.connection.prepare_cached("SELECT facts FROM unsent ORDER BY rowid")?;
            find.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<Vec<u8>>>>()
        };
        if self.wrap(find())?.is_empty() {
            return Ok(());
        }
        self.together(|| {
            let unsent = self.wrap(find())?.concat();
            self.wrap(self.connection.execute("DELETE FROM unsent", []))?;
            copy.collected.borrow_mut().extend(unsent);
            Ok(())
        })
    }

    /// Forgets everything, here and in all copies, which wait until [`made`](Catalogue::made) says that everything was
    /// told again. Returns the record with which a new beginning of the journal starts.
    pub(crate) fn begin_making(&self) -> Result<Option<Mark>> {
        self.write(&Fact::Clear)?;
        Ok(self.copy.as_ref().and_then(|copy| copy.own.take()))
    }

    /// Everything was told since [`begin_making`](Catalogue::begin_making).
    pub(crate) fn made(&self, first: Option<&Mark>) -> Result<()> {
        self.write(&Fact::Made)?;
        match (self.copy.as_ref().and_then(Copy::journal), first) {
            (Some(journal), Some(first)) => {
                journal.begin_at(first).map_err(|error| self.journal_failed(error))
            }
            _ => Ok(()),
        }
    }

    /// Begins the journal with what this copy knows, and drops what came before, if the journal has more than `long`
    /// bytes and several times as many as it would have then.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn shorten_journal(&self, long: u64) -> Result<()> {
        let Some(copy) = self.copy.as_ref().filter(|copy| copy.keeping == Keeping::Shared) else {
            return Ok(());
        };
        let Some(journal) = copy.journal() else { return Ok(()) };
        let failed = |error| self.journal_failed(error);
        let size = journal.size().map_err(failed)?;
        if size <= long || size / TIMES <= self.count()?.saturating_mul(PER_FILE) {
            return Ok(());
        }
        let mut first = None;
        // A record has to follow the last one that was applied here: otherwise it could bring back what another host
        // has changed since.
        self.describe(&mut |facts| {
            loop {
                self.follow()?;
                let (mark, facts) = self.as_of_now(|| -> Result<_> { Ok((self.mark()?, facts()?)) })?;
                let mut record = Vec::new();
                facts.iter().for_each(|fact| fact.put(&mut record));
                if record.is_empty() {
                    return Ok(facts);
                }
                if let Some(own) = journal.append(&record, Some(mark.as_ref())).map_err(failed)? {
                    first.get_or_insert(own);
                    return Ok(facts);
                }
            }
        })?;
        self.follow()?;
        first.map_or(Ok(()), |first| journal.begin_at(&first).map_err(failed))
    }

    /// Tells another catalogue everything, in place of what it knew.
    pub(crate) fn tell(&self, other: &Catalogue) -> Result<()> {
        let first = other.begin_making()?;
        self.describe(&mut |facts| {
            let facts = facts()?;
            other.together(|| facts.iter().try_for_each(|fact| other.write(fact)))?;
            Ok(facts)
        })?;
        other.made(first.as_ref())
    }

    /// Everything that is known, in parts: `tell` asks for a part when it can tell it, and returns what it told.
    fn describe(&self, tell: Tell<'_>) -> Result<()> {
        for (_, directory) in self.directories(b"")? {
            let mut after = Vec::new();
            while let Some(Fact::Put { path, .. }) = tell(&|| self.facts_of_files(&directory, &after))?.last()
            {
                after = split(path).1.to_vec();
            }
        }
        tell(&|| self.other_facts()).map(drop)
    }

    /// Some files of a directory, in order of their names, each after its damage.
    fn facts_of_files(&self, directory: &[u8], after: &[u8]) -> Result<Vec<Fact>> {
        let Some(number) = self.directory(directory)? else { return Ok(Vec::new()) };
        let mut facts = Vec::new();
        for (name, entry) in self.some_files(number, after)? {
            let path = join(directory, &name);
            let problems = self.problems(&path)?;
            if !problems.is_empty() {
                facts.push(Fact::Problems { path: path.clone(), problems, found_at: entry.protected_at });
            }
            facts.push(Fact::Put { path, entry });
        }
        Ok(facts)
    }

    /// All that is no file.
    fn other_facts(&self) -> Result<Vec<Fact>> {
        let mut facts = Vec::new();
        for (worker, path) in self.moving()? {
            facts.push(Fact::Moving { worker, path });
        }
        let rest = || -> rusqlite::Result<Vec<Fact>> {
            let mut rest = Vec::new();
            let mut find = self.connection.prepare("SELECT path, size, mtime, ctime, inode FROM accepted")?;
            let accepted = find.query_map([], |row| {
                let (size, inode) =
                    (row.get::<_, i64>(1)?.cast_unsigned(), row.get::<_, i64>(4)?.cast_unsigned());
                let version = Generation { size, mtime: row.get(2)?, ctime: row.get(3)?, inode };
                Ok(Fact::Accepted { path: row.get(0)?, version })
            })?;
            rest.extend(accepted.collect::<rusqlite::Result<Vec<Fact>>>()?);
            let mut find = self.connection.prepare("SELECT path, removed, at FROM recent")?;
            let recent = find.query_map([], |row| {
                Ok(Fact::Recent { path: row.get(0)?, removed: row.get(1)?, at: row.get(2)? })
            })?;
            rest.extend(recent.collect::<rusqlite::Result<Vec<Fact>>>()?);
            let mut find = self.connection.prepare("SELECT key, value FROM notes WHERE key NOT IN (?, ?)")?;
            let notes = find.query_map([MARK, making::TO_BE_MADE], |row| {
                Ok(Fact::Note { key: row.get(0)?, value: row.get(1)? })
            })?;
            rest.extend(notes.collect::<rusqlite::Result<Vec<Fact>>>()?);
            Ok(rest)
        };
        facts.extend(self.wrap(rest())?);
        facts.push(Fact::Made);
        Ok(facts)
    }
}
