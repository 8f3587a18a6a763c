//! Sequence of changes of a pool's namespace: every mirror has a record of the last change, under a number that is never used again.
//!
//! A change is recorded on a mirror before it is made there, with all that is needed to make it again. So the mirrors have one order
//! of events: the record with the highest number says what happened last, a mirror that has not made it does so now, and a mirror
//! that is further behind, or has another history, is not believed. `docs/pool.md` has the format.
//!
//! Records alternate between two files that are written in place: a torn record is none, and the one before it is still there.

use super::error::PoolError;
use super::namespace::{TREE, Written, beneath, dress, make_directories, read_entry};
use super::stub::{NameOfShared, Stub, hex, unhex};
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

/// The files of a mirror that records alternate between.
const SLOTS: [&[u8]; 2] = [b"sequence.0", b"sequence.1"];

const HEAD: &str = "gabion pool sequence 1";

/// Bytes of the first line: the head, a space, ten digits, a line feed.
const FIRST_LINE: usize = HEAD.len() + 12;

/// Numbers begin above this: no revision of a pool without records is as high.
const BEGIN: u64 = 1 << 32;

/// Longest record that is read: stubs have at most 1 MiB, and a change writes at most three.
const MAX_BYTES: usize = 4 << 20;

/// Bytes that a file gets all at once, whenever its writer is killed: a page.
const AT_ONCE: usize = 4096;

/// What a change has to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// The process.
    Cheap,
    /// A power cut leaves what was there, or what is there now.
    Synced,
    /// A power cut leaves what is there now.
    Durable,
}

/// Part of a change. Paths are those on a mirror, below its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A stub is put in place.
    Write { full: Vec<u8>, text: String },
    /// A stub is removed.
    Remove { full: Vec<u8> },
    /// A directory is made, or gets another owner or mode.
    Directory { full: Vec<u8>, mode: u32, uid: u32, gid: u32 },
    /// An empty directory is removed.
    RemoveDirectory { full: Vec<u8> },
    /// A file or directory is moved; `id` is that of the file.
    Rename { from: Vec<u8>, to: Vec<u8>, id: Option<FileId> },
    /// Two names are exchanged.
    Exchange { one: Vec<u8>, other: Vec<u8> },
}

/// What removes a directory that has nothing but blank names.
pub(crate) fn removal(full: &[u8], blanks: &[Vec<u8>]) -> Result<Vec<Step>, PoolError> {
    let removed = blanks.iter().map(|path| Ok(Step::Remove { full: beneath(TREE, path)? }));
    removed.chain([Ok(Step::RemoveDirectory { full: full.to_vec() })]).collect()
}

/// Position in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) number: u64,
    digest: Hash,
}

impl Position {
    /// Before the first change.
    pub(crate) fn begin() -> Position {
        Position { number: BEGIN, digest: Hash::from_bytes([0; 32]) }
    }

    /// The record of the next change.
    pub(crate) fn next(&self, steps: Vec<Step>) -> Record {
        Record { number: self.number + 1, after: self.digest, steps, inode: 0 }
    }
}

/// A change, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    number: u64,
    /// Digest of the record before.
    after: Hash,
    steps: Vec<Step>,
    /// Inode that the first name of an exchange had on this mirror before; 0 where nothing is to be exchanged.
    inode: u64,
}

impl Record {
    /// What all mirrors have in common.
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

    /// Whether a mirror at this position lacks this change only; no position stands for a mirror without a record.
    pub(crate) fn follows(&self, position: Option<Position>) -> bool {
        let before = position.unwrap_or_else(Position::begin);
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

    /// Whether a mirror has made all of the change.
    pub(crate) fn is_made(&self, tree: &Tree) -> io::Result<bool> {
        for step in &self.steps {
            if !self.is_step_made(tree, step)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_step_made(&self, tree: &Tree, step: &Step) -> io::Result<bool> {
        let is_directory = |full: &[u8]| {
            Ok::<_, io::Error>(tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory))
        };
        let has = |full: &[u8], id: FileId| match read_entry(tree, full) {
            Ok(Some(Written::File(stub))) => Some(stub.id == id),
            Ok(Some(Written::Name(name))) => Some(name.id == id),
            Ok(_) => Some(false),
            Err(_) => None,
        };
        Ok(match step {
            Step::Write { full, text } => match read_entry(tree, full) {
                Ok(Some(there)) => there.revision() >= revision_of(text),
                Ok(None) | Err(_) => false,
            },
            Step::Remove { full } => match read_entry(tree, full) {
                // A stub that was never durable reads as none.
                Ok(None) => tree.find(full)?.is_none(),
                Ok(Some(there)) => there.revision().is_none_or(|revision| revision > self.number),
                Err(_) => false,
            },
            Step::Directory { full, mode, .. } => {
                tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory && stat.mode == mode | 0o700)
            }
            Step::RemoveDirectory { full } => !is_directory(full)?,
            // A stub that cannot be read says nothing: then the new name tells.
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

    /// Makes a change on a mirror: it is recorded first. `prepared` is what [`prepare`] gave for the same steps.
    pub(crate) fn make(&self, tree: &Tree, prepared: &Prepared, care: Care) -> io::Result<()> {
        self.make_with(tree, &Slots::default(), &self.encode(), prepared, care)
    }

    /// As [`make`](Record::make), with record files that stay open. `encoded` is the record as [`encode`](Record::encode) gives it: most
    /// mirrors get the same bytes.
    pub(crate) fn make_with(
        &self,
        tree: &Tree,
        slots: &Slots,
        encoded: &[u8],
        prepared: &Prepared,
        care: Care,
    ) -> io::Result<()> {
        self.record(tree, slots, encoded, care == Care::Durable)?;
        for (step, temporary) in self.steps.iter().zip(prepared.0.iter().chain(std::iter::repeat(&None))) {
            make_step(tree, step, temporary.as_deref(), care)?;
        }
        Ok(())
    }

    /// Records a change on a mirror.
    fn record(&self, tree: &Tree, slots: &Slots, encoded: &[u8], durably: bool) -> io::Result<()> {
        let exchanged = self.steps.iter().find_map(|step| match step {
            Step::Exchange { one, .. } => Some(one),
            _ => None,
        });
        match exchanged {
            Some(one) => {
                let inode = tree.find(one)?.map_or(0, |stat| stat.inode);
                slots.write(tree, self.number, &Record { inode, ..self.clone() }.encode(), durably)
            }
            None => slots.write(tree, self.number, encoded, durably),
        }
    }

    /// Copies the record to a mirror that has made the change already.
    pub(crate) fn copy_to(&self, tree: &Tree) -> io::Result<()> {
        for slot in SLOTS {
            tree.remove(slot)?;
        }
        Slots::default().write(tree, self.number, &Record { inode: 0, ..self.clone() }.encode(), true)
    }

    /// Brings a mirror that has this record, or the one before, to this position.
    pub(crate) fn redo(&self, tree: &Tree, has_record: bool) -> io::Result<()> {
        if !has_record {
            return self.make(tree, &Prepared(Vec::new()), Care::Durable).and_then(|()| self.sync(tree));
        }
        let mut made = false;
        for step in &self.steps {
            if !self.is_step_made(tree, step)? {
                make_step(tree, step, None, Care::Durable)?;
                made = true;
            }
        }
        if made { self.sync(tree) } else { Ok(()) }
    }

    /// Makes the directories durable that the change was made in.
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
        // A directory that is gone has nothing to keep.
        above.into_iter().try_for_each(|full| absent_is_none(tree.sync_directory(full)).map(|_| ()))
    }
}

fn revision_of(text: &str) -> Option<u64> {
    match Stub::decode(text.as_bytes()) {
        Ok(stub) => Some(stub.revision),
        Err(_) => NameOfShared::decode(text.as_bytes()).ok()?.map(|name| name.revision),
    }
}

/// The record files of a mirror. They stay open from the first use on, for as long as the locks of the namespace are held: until then nobody
/// else replaces them.
#[derive(Debug, Default)]
pub(crate) struct Slots([OnceLock<File>; 2]);

impl Slots {
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

/// Makes the records of a mirror durable.
pub(crate) fn sync_records(tree: &Tree) -> io::Result<()> {
    for slot in SLOTS {
        if let Some(file) = absent_is_none(tree.write(slot))? {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// The last change that a mirror has recorded, if any.
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

/// Stubs that were written beside their places, by step.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Vec<Option<Vec<u8>>>);

/// Writes the stubs of a change to temporary files: what takes room or time is done before anything is recorded. A stub of a new name
/// (`is_new`) that need not be durable is written where it belongs instead, if it gets all of its bytes at once: as long as it has none it is as if
/// nothing were there.
pub(crate) fn prepare(tree: &Tree, steps: &[Step], care: Care, is_new: bool) -> io::Result<Prepared> {
    let mut prepared = Prepared(Vec::new());
    for step in steps {
        let temporary = match step {
            Step::Write { text, .. } if care != Care::Cheap || !is_new || text.len() > AT_ONCE => {
                match write_temporary(tree, text, care) {
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
    /// Removes what was prepared for a change that is not made.
    pub(crate) fn discard(&self, tree: &Tree) {
        for temporary in self.0.iter().flatten() {
            // What stays is found by a sweep.
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

fn write_temporary(tree: &Tree, text: &str, care: Care) -> io::Result<Vec<u8>> {
    let temporary = temporary_name(".stub")?;
    let mut file = tree.create(&temporary, 0o600)?;
    fault::point();
    let written = file.write_all(text.as_bytes());
    let written = written.and_then(|()| if care == Care::Cheap { Ok(()) } else { file.sync_all() });
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            // The reason of the failure is worth more than a second one.
            let _ = tree.remove(&temporary);
            Err(error)
        }
    }
}

fn make_step(tree: &Tree, step: &Step, temporary: Option<&[u8]>, care: Care) -> io::Result<()> {
    // A mirror that never had a directory gets it.
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
                    if care == Care::Cheap {
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
                    made = write_temporary(tree, text, care)?;
                    &made
                }
            };
            with_directory(full, &|| match care {
                Care::Cheap => tree.supplant(temporary, full),
                Care::Synced | Care::Durable => tree.rename(temporary, full),
            })
            .inspect_err(|_| {
                let _ = tree.remove(temporary);
            })
        }
        Step::Remove { full } => tree.remove(full),
        Step::Directory { full, mode, uid, gid } => {
            match care {
                Care::Durable => make_directories(tree, full, 0o755)?,
                Care::Cheap | Care::Synced => tree.make_directories(full, 0o755)?,
            }
            dress(tree, full, *mode, *uid, *gid)
        }
        Step::RemoveDirectory { full } => tree.remove_empty(full, split(full).0),
        Step::Rename { from, to, .. } => tree.rename(from, to),
        Step::Exchange { one, other } => tree.exchange(one, other),
    }
}

#[cfg(test)]
mod tests;
