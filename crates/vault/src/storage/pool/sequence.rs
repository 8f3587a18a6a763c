//! Change records: every mirror keeps a record of the last change of the namespace, under a number that is never
//! reused.
//!
//! A change is recorded on a mirror before it is applied there, with everything needed to apply it again. The mirrors
//! thus share one order of changes: the record with the highest number is the last change, a mirror that has not
//! applied it does so now, and a mirror that is further behind or has another history is not used.
//! `docs/reference/pool.md` has the format.
//!
//! Records alternate between two files that are written in place. A torn record is ignored, and the previous one is
//! still there.

use super::error::PoolError;
use super::namespace::{MirrorEntry, TREE, make_directories, mirror_path, read_entry, set_owner_and_mode};
use super::stub::{LinkStub, Stub, hex, unhex};
use crate::fault;
use crate::format::FileId;
use crate::redundancy::STAGING;
use crate::tree::{Kind, Tree, absent_is_none, join, split};
use blake3::Hash;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The two files of a mirror that records alternate between.
const SLOTS: [&[u8]; 2] = [b"sequence.0", b"sequence.1"];

const HEAD: &str = "gabion pool sequence 1";

/// Length of the first line: the head, a space, ten digits, a line feed.
const FIRST_LINE: usize = HEAD.len() + 12;

/// Change numbers start above this, which is higher than any revision of a pool without records.
const BEGIN: u64 = 1 << 32;

/// Maximum size of a record: a stub has at most 1 MiB, and a change writes at most three.
const MAX_BYTES: usize = 4 << 20;

/// A write of up to one page is applied completely even if the writer is killed.
const AT_ONCE: usize = 4096;

/// Which failures a change survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A crash of the process.
    Volatile,
    /// A power failure leaves the old or the new state.
    Atomic,
    /// A power failure leaves the new state.
    Durable,
}

/// Part of a change. Paths are relative to the root of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes a stub.
    Write { full: Vec<u8>, text: String },
    /// Removes a stub.
    Remove { full: Vec<u8> },
    /// Creates a directory, or sets its owner and mode.
    Directory { full: Vec<u8>, mode: u32, uid: u32, gid: u32 },
    /// Removes an empty directory.
    RemoveDirectory { full: Vec<u8> },
    /// Moves a file or directory; `id` is that of the file.
    Rename { from: Vec<u8>, to: Vec<u8>, id: Option<FileId> },
    /// Exchanges two names.
    Exchange { one: Vec<u8>, other: Vec<u8> },
}

/// Steps that remove a directory which holds only blank names.
pub(crate) fn removal(full: &[u8], blanks: &[Vec<u8>]) -> Result<Vec<Step>, PoolError> {
    let removed = blanks.iter().map(|path| Ok(Step::Remove { full: mirror_path(TREE, path)? }));
    removed.chain([Ok(Step::RemoveDirectory { full: full.to_vec() })]).collect()
}

/// Position in the sequence of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) number: u64,
    digest: Hash,
}

impl Position {
    /// The position before the first change.
    pub(crate) fn start() -> Position {
        Position { number: BEGIN, digest: Hash::from_bytes([0; 32]) }
    }

    /// The record of the next change.
    pub(crate) fn next(&self, steps: Vec<Step>) -> Record {
        Record { number: self.number + 1, after: self.digest, steps, inode: 0 }
    }
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    number: u64,
    /// Digest of the previous record.
    after: Hash,
    steps: Vec<Step>,
    /// Inode of the first name of an exchange on this mirror before the change; 0 if there is no exchange.
    inode: u64,
}

impl Record {
    /// The part that is the same on all mirrors.
    fn common(&self) -> String {
        let mut text = String::with_capacity(AT_ONCE);
        let _ = write!(text, "number = {}\nafter = {}\n", self.number, self.after.to_hex());
        // Writing to a string cannot fail.
        for step in &self.steps {
            let _ = match step {
                Step::Write { full, text: stub } => {
                    write!(text, "write {} {}\n{stub}", hex(full), stub.len())
                }
                Step::Remove { full } => writeln!(text, "remove {}", hex(full)),
                Step::Directory { full, mode, uid, gid } => {
                    writeln!(text, "directory {} {mode:o} {uid} {gid}", hex(full))
                }
                Step::RemoveDirectory { full } => writeln!(text, "remove-directory {}", hex(full)),
                Step::Rename { from, to, id: Some(id) } => {
                    writeln!(text, "rename {} {} {id}", hex(from), hex(to))
                }
                Step::Rename { from, to, id: None } => {
                    writeln!(text, "rename {} {} directory", hex(from), hex(to))
                }
                Step::Exchange { one, other } => writeln!(text, "exchange {} {}", hex(one), hex(other)),
            };
        }
        text
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(crate) fn position(&self) -> Position {
        self.position_of(&self.common())
    }

    fn position_of(&self, common: &str) -> Position {
        Position { number: self.number, digest: blake3::hash(common.as_bytes()) }
    }

    /// True if this change is the only one that a mirror at this position lacks. None stands for a mirror without a
    /// record.
    pub(crate) fn follows(&self, position: Option<Position>) -> bool {
        let before = position.unwrap_or_else(Position::start);
        self.after == before.digest && self.number > before.number
    }

    /// Its bytes on a mirror where nothing is exchanged, and its position.
    pub(crate) fn encode_with_position(&self) -> (Vec<u8>, Position) {
        let common = self.common();
        (self.encode_of(&common), self.position_of(&common))
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_of(&self.common())
    }

    fn encode_of(&self, common: &str) -> Vec<u8> {
        let body = format!("{common}inode = {}\n", self.inode);
        let check = "check = ".len() + 65;
        let text = format!("{HEAD} {:010}\n{body}", FIRST_LINE + body.len() + check);
        let check = blake3::hash(text.as_bytes()).to_hex();
        format!("{text}check = {check}\n").into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, check) = text.split_at_checked(text.len().checked_sub("check = ".len() + 65)?)?;
        if check != format!("check = {}\n", blake3::hash(body.as_bytes()).to_hex()) {
            return None;
        }
        let mut rest = body.get(FIRST_LINE..)?;
        let mut line = || {
            let (line, later) = rest.split_once('\n')?;
            rest = later;
            Some((line, later))
        };
        let number = line()?.0.strip_prefix("number = ")?.parse().ok()?;
        let after = Hash::from_hex(line()?.0.strip_prefix("after = ")?).ok()?;
        let mut steps = Vec::new();
        loop {
            let (step, later) = rest.split_once('\n')?;
            rest = later;
            let words: Vec<&str> = step.split(' ').collect();
            steps.push(match words[..] {
                ["inode", "=", inode] => {
                    let inode = inode.parse().ok().filter(|_| rest.is_empty())?;
                    return Some(Record { number, after, steps, inode });
                }
                ["write", full, bytes] => {
                    let (text, later) = rest.split_at_checked(bytes.parse().ok()?)?;
                    rest = later;
                    Step::Write { full: unhex(full)?, text: text.to_owned() }
                }
                ["remove", full] => Step::Remove { full: unhex(full)? },
                ["directory", full, mode, uid, gid] => Step::Directory {
                    full: unhex(full)?,
                    mode: u32::from_str_radix(mode, 8).ok()?,
                    uid: uid.parse().ok()?,
                    gid: gid.parse().ok()?,
                },
                ["remove-directory", full] => Step::RemoveDirectory { full: unhex(full)? },
                ["rename", from, to, "directory"] => {
                    Step::Rename { from: unhex(from)?, to: unhex(to)?, id: None }
                }
                ["rename", from, to, id] => {
                    let id = FileId(unhex(id)?.try_into().ok()?);
                    Step::Rename { from: unhex(from)?, to: unhex(to)?, id: Some(id) }
                }
                ["exchange", one, other] => Step::Exchange { one: unhex(one)?, other: unhex(other)? },
                _ => return None,
            });
        }
    }

    /// True if a mirror has applied the whole change.
    pub(crate) fn is_applied(&self, tree: &Tree) -> io::Result<bool> {
        for step in &self.steps {
            if !self.is_step_applied(tree, step)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_step_applied(&self, tree: &Tree, step: &Step) -> io::Result<bool> {
        let is_directory = |full: &[u8]| {
            Ok::<_, io::Error>(tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory))
        };
        let has = |full: &[u8], id: FileId| match read_entry(tree, full) {
            Ok(Some(MirrorEntry::File(stub))) => Some(stub.id == id),
            Ok(Some(MirrorEntry::Name(name))) => Some(name.id == id),
            Ok(_) => Some(false),
            Err(_) => None,
        };
        Ok(match step {
            Step::Write { full, text } => match read_entry(tree, full) {
                Ok(Some(there)) => there.revision() >= revision_of(text),
                Ok(None) | Err(_) => false,
            },
            Step::Remove { full } => match read_entry(tree, full) {
                // A stub that was never durable reads as absent.
                Ok(None) => tree.find(full)?.is_none(),
                Ok(Some(there)) => there.revision().is_none_or(|revision| revision > self.number),
                Err(_) => false,
            },
            Step::Directory { full, mode, .. } => {
                tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory && stat.mode == mode | 0o700)
            }
            Step::RemoveDirectory { full } => !is_directory(full)?,
            // If the old name is unreadable, the new name decides.
            Step::Rename { from, to, id: Some(id) } => match has(from, *id) {
                Some(is_there) => !is_there,
                None => has(to, *id) == Some(true),
            },
            Step::Rename { from, to, id: None } => {
                let is_free = match tree.find(to)? {
                    None => true,
                    Some(stat) if stat.kind == Kind::Directory => {
                        tree.directory(to)?.names()?.get(0).is_none()
                    }
                    Some(_) => false,
                };
                !(is_free && is_directory(from)?)
            }
            Step::Exchange { one, .. } => tree.find(one)?.is_none_or(|stat| stat.inode != self.inode),
        })
    }

    /// Records a change on a mirror, then applies it. `prepared` is the result of [`prepare`] for the same steps.
    pub(crate) fn apply(&self, tree: &Tree, prepared: &Prepared, durability: Durability) -> io::Result<()> {
        self.apply_with(tree, &RecordFiles::default(), &self.encode(), prepared, durability)
    }

    /// As [`apply`](Record::apply), with record files that stay open. `encoded` is the record as encoded by
    /// [`encode`](Record::encode): most mirrors get the same bytes.
    pub(crate) fn apply_with(
        &self,
        tree: &Tree,
        record_files: &RecordFiles,
        encoded: &[u8],
        prepared: &Prepared,
        durability: Durability,
    ) -> io::Result<()> {
        self.record(tree, record_files, encoded, durability == Durability::Durable)?;
        for (step, temporary) in self.steps.iter().zip(prepared.0.iter().chain(std::iter::repeat(&None))) {
            apply_step(tree, step, temporary.as_deref(), durability)?;
        }
        Ok(())
    }

    /// Writes the record of a change to a mirror.
    fn record(
        &self,
        tree: &Tree,
        record_files: &RecordFiles,
        encoded: &[u8],
        durably: bool,
    ) -> io::Result<()> {
        let exchanged = self.steps.iter().find_map(|step| match step {
            Step::Exchange { one, .. } => Some(one),
            _ => None,
        });
        match exchanged {
            Some(one) => {
                let inode = tree.find(one)?.map_or(0, |stat| stat.inode);
                record_files.write(tree, self.number, &Record { inode, ..self.clone() }.encode(), durably)
            }
            None => record_files.write(tree, self.number, encoded, durably),
        }
    }

    /// Copies the record to a mirror that has the change applied already.
    pub(crate) fn copy_to(&self, tree: &Tree) -> io::Result<()> {
        for slot in SLOTS {
            tree.remove(slot)?;
        }
        RecordFiles::default().write(tree, self.number, &Record { inode: 0, ..self.clone() }.encode(), true)
    }

    /// Brings a mirror that has this record, or the previous one, to this position.
    pub(crate) fn redo(&self, tree: &Tree, has_record: bool) -> io::Result<()> {
        if !has_record {
            return self
                .apply(tree, &Prepared(Vec::new()), Durability::Durable)
                .and_then(|()| self.sync(tree));
        }
        let mut made = false;
        for step in &self.steps {
            if !self.is_step_applied(tree, step)? {
                apply_step(tree, step, None, Durability::Durable)?;
                made = true;
            }
        }
        if made { self.sync(tree) } else { Ok(()) }
    }

    /// Syncs the directories that the change modified.
    pub(crate) fn sync(&self, tree: &Tree) -> io::Result<()> {
        let mut above = BTreeSet::new();
        for step in &self.steps {
            match step {
                Step::Directory { full, .. } => above.extend([full.as_slice(), split(full).0]),
                Step::Write { full, .. } | Step::Remove { full } | Step::RemoveDirectory { full } => {
                    above.insert(split(full).0);
                }
                Step::Rename { from: one, to: other, .. } | Step::Exchange { one, other } => {
                    above.extend([split(one).0, split(other).0]);
                }
            }
        }
        // A removed directory needs no sync.
        above.into_iter().try_for_each(|full| absent_is_none(tree.sync_directory(full)).map(|_| ()))
    }
}

fn revision_of(text: &str) -> Option<u64> {
    match Stub::decode(text.as_bytes()) {
        Ok(stub) => Some(stub.revision),
        Err(_) => LinkStub::decode(text.as_bytes()).ok()?.map(|name| name.revision),
    }
}

/// The record files of a mirror. They stay open from the first use on, for as long as the locks of the namespace are
/// held: until then nobody else replaces them.
#[derive(Debug, Default)]
pub(crate) struct RecordFiles([OnceLock<File>; 2]);

impl RecordFiles {
    fn write(&self, tree: &Tree, number: u64, bytes: &[u8], durably: bool) -> io::Result<()> {
        let (slot, open) = (SLOTS[(number % 2) as usize], &self.0[(number % 2) as usize]);
        let mut is_new = false;
        let file = match open.get() {
            Some(file) => file,
            None => {
                let found = absent_is_none(tree.write(slot))?;
                is_new = found.is_none();
                let file = found.map_or_else(|| tree.create(slot, 0o600), Ok)?;
                open.get_or_init(|| file)
            }
        };
        fault::point();
        file.write_all_at(bytes, 0)?;
        if durably {
            file.sync_data()?;
            if is_new {
                tree.sync_directory(b"")?;
            }
        }
        Ok(())
    }
}

/// Syncs the records of a mirror.
pub(crate) fn sync_records(tree: &Tree) -> io::Result<()> {
    for slot in SLOTS {
        if let Some(file) = absent_is_none(tree.write(slot))? {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// The last change that a mirror has recorded.
pub(crate) fn read(tree: &Tree) -> io::Result<Option<Record>> {
    let mut last: Option<Record> = None;
    for slot in SLOTS {
        let Some(mut file) = absent_is_none(tree.read(slot))? else { continue };
        let mut bytes = vec![0; AT_ONCE];
        let mut got = 0;
        while got < bytes.len() {
            match file.read(&mut bytes[got..])? {
                0 => break,
                more => got += more,
            }
            let length = bytes[..got].get(HEAD.len() + 1..FIRST_LINE - 1);
            let length: Option<usize> = length.and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
            bytes.resize(length.filter(|&length| length <= MAX_BYTES).unwrap_or(bytes.len()), 0);
        }
        if got < bytes.len() || !bytes.starts_with(HEAD.as_bytes()) {
            continue;
        }
        let found = Record::decode(&bytes);
        last = match (last, found) {
            (Some(last), Some(found)) if found.number > last.number => Some(found),
            (None, found) => found,
            (last, _) => last,
        };
    }
    Ok(last)
}

/// Temporary stub files, by step.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Vec<Option<Vec<u8>>>);

/// Writes the stubs of a change to temporary files: what takes room or time is done before anything is recorded. A
/// stub of a new name (`is_new`) that need not be durable is written where it belongs instead, if it gets all of its
/// bytes at once: as long as it has none it is as if nothing were there.
pub(crate) fn prepare(
    tree: &Tree,
    steps: &[Step],
    durability: Durability,
    is_new: bool,
) -> io::Result<Prepared> {
    let mut prepared = Prepared(Vec::new());
    for step in steps {
        let temporary = match step {
            Step::Write { text, .. }
                if durability != Durability::Volatile || !is_new || text.len() > AT_ONCE =>
            {
                match write_temporary(tree, text, durability) {
                    Ok(temporary) => Some(temporary),
                    Err(error) => {
                        prepared.discard(tree);
                        return Err(error);
                    }
                }
            }
            _ => None,
        };
        prepared.0.push(temporary);
    }
    Ok(prepared)
}

impl Prepared {
    /// Removes the temporary files of a change that is not applied.
    pub(crate) fn discard(&self, tree: &Tree) {
        for temporary in self.0.iter().flatten() {
            // A file that stays is removed by a sweep.
            let _ = tree.remove(temporary);
        }
    }
}

/// Name of a temporary file of this process.
pub(crate) fn temporary_name(suffix: &str) -> io::Result<Vec<u8>> {
    static PREFIX: OnceLock<String> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let prefix = match PREFIX.get() {
        Some(prefix) => prefix,
        None => {
            let made = super::config::new_identity()?;
            PREFIX.get_or_init(|| made)
        }
    };
    let name = format!("{prefix}-{:x}{suffix}", COUNT.fetch_add(1, Ordering::Relaxed));
    Ok(join(STAGING, name.as_bytes()))
}

fn write_temporary(tree: &Tree, text: &str, durability: Durability) -> io::Result<Vec<u8>> {
    let temporary = temporary_name(".stub")?;
    let mut file = tree.create(&temporary, 0o600)?;
    fault::point();
    let written = file.write_all(text.as_bytes());
    let written =
        written.and_then(|()| if durability == Durability::Volatile { Ok(()) } else { file.sync_all() });
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            // The first error is more useful than one of the cleanup.
            let _ = tree.remove(&temporary);
            Err(error)
        }
    }
}

fn apply_step(tree: &Tree, step: &Step, temporary: Option<&[u8]>, durability: Durability) -> io::Result<()> {
    // A mirror that missed the creation of a directory gets it now.
    let with_directory = |full: &[u8], act: &dyn Fn() -> io::Result<()>| match act() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_directories(tree, split(full).0, 0o755)?;
            act()
        }
        done => done,
    };
    match step {
        Step::Write { full, text } => {
            let made;
            let temporary = match temporary {
                Some(temporary) => temporary,
                None => {
                    if durability == Durability::Volatile {
                        let begun = with_directory(full, &|| {
                            let mut file = tree.create(full, 0o600)?;
                            fault::point();
                            file.write_all(text.as_bytes())
                        });
                        match begun {
                            // A crash left a name without a stub there.
                            Err(error)
                                if error.kind() == io::ErrorKind::AlreadyExists
                                    && read_entry(tree, full)?.is_none() => {}
                            begun => return begun,
                        }
                    }
                    made = write_temporary(tree, text, durability)?;
                    &made
                }
            };
            with_directory(full, &|| match durability {
                Durability::Volatile => tree.supplant(temporary, full),
                Durability::Atomic | Durability::Durable => tree.rename(temporary, full),
            })
            .inspect_err(|_| {
                let _ = tree.remove(temporary);
            })
        }
        Step::Remove { full } => tree.remove(full),
        Step::Directory { full, mode, uid, gid } => {
            match durability {
                Durability::Durable => make_directories(tree, full, 0o755)?,
                Durability::Volatile | Durability::Atomic => tree.make_directories(full, 0o755)?,
            }
            set_owner_and_mode(tree, full, *mode, *uid, *gid)
        }
        Step::RemoveDirectory { full } => tree.remove_empty(full, split(full).0),
        Step::Rename { from, to, .. } => tree.rename(from, to),
        Step::Exchange { one, other } => tree.exchange(one, other),
    }
}

#[cfg(test)]
mod tests;
