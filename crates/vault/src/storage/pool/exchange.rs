//! Two names stand for what the other did, on all mirrors or on none.
//!
//! Each mirror exchanges names in one step of its own. What a crash left between two mirrors is finished by notes: every mirror
//! has one, with the number of the inode that its first name led to before. Whoever finds notes on *all* current mirrors exchanges
//! the names where that number is still there. Where one has no note, nobody has begun, or all have ended.

use super::change::Change;
use super::error::PoolError;
use super::namespace::{Entry, TREE, beneath, write_whole};
use super::stub::{hex, unhex};
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join, split};
use std::io::{self, Read};

/// Ends the names of notes of exchanges that are under way.
pub(super) const EXCHANGE: &[u8] = b".exchange";

const HEAD: &str = "gabion pool exchange 1";

fn refuse<T>(path: &[u8], kind: io::ErrorKind) -> Result<T, PoolError> {
    Err(PoolError::path(path, kind))
}

impl Change<'_> {
    /// Exchanges what two names stand for: files, links, directories.
    pub(super) fn exchange(&mut self, one: &[u8], other: &[u8]) -> Result<(), PoolError> {
        let within = |outer: &[u8], inner: &[u8]| inner.starts_with(&[outer, b"/"].concat());
        if one.is_empty() || other.is_empty() || within(one, other) || within(other, one) {
            return refuse(other, io::ErrorKind::InvalidInput);
        }
        let first: Option<Entry> = self.settle(one)?;
        if first.is_none() {
            return refuse(one, io::ErrorKind::NotFound);
        }
        if self.settle(other)?.is_none() {
            return refuse(other, io::ErrorKind::NotFound);
        }
        if one == other {
            return Ok(());
        }
        let (first, second) = (beneath(TREE, one)?, beneath(TREE, other)?);
        let name = super::config::new_identity().map_err(|error| PoolError::path(one, error))?;
        let note = join(STAGING, &[name.as_bytes(), EXCHANGE].concat());
        self.on_all(one, |tree| {
            let inode = tree.stat(&first)?.inode;
            let text = format!("{HEAD}\n{}\n{}\n{inode}\n", hex(one), hex(other));
            let text = format!("{text}{}\n", blake3::hash(text.as_bytes()).to_hex());
            write_whole(tree, &note, text.as_bytes(), b".note")?;
            tree.sync_directory(STAGING)
        })?;
        self.on_all(one, |tree| exchange_durably(tree, &first, &second))?;
        self.on_all(one, |tree| tree.remove(&note))
    }

    /// Ends an exchange that someone began and did not live to see.
    pub(super) fn finish_exchange(&mut self, note: &[u8]) -> Result<(), PoolError> {
        let notes: Vec<Option<Note>> = self.copies.iter().map(|copy| read_note(&copy.tree, note)).collect();
        if notes.iter().all(Option::is_some) {
            self.on_all(b"", |tree| {
                let Some(Note { one, other, inode }) = read_note(tree, note) else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a note cannot be read again"));
                };
                let full = |path: &[u8]| beneath(TREE, path).map_err(io::Error::from);
                let (first, second) = (full(&one)?, full(&other)?);
                match tree.find(&first)?.is_some_and(|stat| stat.inode == inode) {
                    true => exchange_durably(tree, &first, &second),
                    false => Ok(()),
                }
            })?;
        }
        self.on_all(b"", |tree| tree.remove(note))
    }
}

fn exchange_durably(tree: &Tree, first: &[u8], second: &[u8]) -> io::Result<()> {
    tree.exchange(first, second)?;
    tree.sync_directory(split(first).0)?;
    if split(first).0 == split(second).0 { Ok(()) } else { tree.sync_directory(split(second).0) }
}

/// What a note says.
struct Note {
    one: Vec<u8>,
    other: Vec<u8>,
    /// What the first name led to on this mirror before.
    inode: u64,
}

fn read_note(tree: &Tree, note: &[u8]) -> Option<Note> {
    let mut text = String::new();
    absent_is_none(tree.read(note)).ok()??.take(1 << 16).read_to_string(&mut text).ok()?;
    let body = &text[..text.trim_end().rfind('\n')? + 1];
    if blake3::hash(body.as_bytes()).to_hex().as_str() != text[body.len()..].trim_end() {
        return None;
    }
    let mut lines = body.lines();
    (lines.next()? == HEAD).then_some(())?;
    Some(Note {
        one: unhex(lines.next()?)?,
        other: unhex(lines.next()?)?,
        inode: lines.next()?.parse().ok()?,
    })
}
