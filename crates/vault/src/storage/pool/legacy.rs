//! Intent files of renames and exchanges, used before pools had change records. Those found on an old pool are
//! completed once.

use super::change::Change;
use super::error::PoolError;
use super::namespace::{TREE, mirror_path};
use super::stub::unhex;
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join, split};
use std::io::{self, Read};

/// Suffix of intent files of renames.
const RENAME: &[u8] = b".rename";

const RENAME_HEAD: &str = "gabion pool rename 1";

/// Suffix of intent files of exchanges.
const EXCHANGE: &[u8] = b".exchange";

const EXCHANGE_HEAD: &str = "gabion pool exchange 1";

impl Change<'_> {
    /// Completes the recorded operations.
    pub(crate) fn finish_notes(&mut self) -> Result<(), PoolError> {
        let mut notes = Vec::new();
        for copy in &self.copies {
            let staging = copy.tree.directory(STAGING).and_then(|directory| directory.names());
            let staging = staging.map_err(PoolError::target(&copy.name, "reading its staging directory"))?;
            let ours = staging.iter().filter(|(name, _)| name.ends_with(RENAME) || name.ends_with(EXCHANGE));
            notes.extend(ours.map(|(name, _)| join(STAGING, name)));
        }
        notes.sort();
        notes.dedup();
        for note in notes {
            if note.ends_with(EXCHANGE) {
                self.finish_exchange(&note)?;
                continue;
            }
            // A torn intent file was never acted upon.
            if let Some((from, to)) = self.copies.iter().find_map(|copy| read_rename(&copy.tree, &note)) {
                let (old, new) = (mirror_path(TREE, &from)?, mirror_path(TREE, &to)?);
                self.on_all(&from, |tree| match tree.find(&old)? {
                    Some(_) => move_durably(tree, &old, &new),
                    None => Ok(()),
                })?;
            }
            self.on_all(b"", |tree| tree.remove(&note))?;
        }
        Ok(())
    }

    /// Exchanges names on the mirrors that have not done so, if all have the intent file.
    fn finish_exchange(&mut self, note: &[u8]) -> Result<(), PoolError> {
        let notes: Vec<Option<Note>> = self.copies.iter().map(|copy| read_note(&copy.tree, note)).collect();
        if notes.iter().all(Option::is_some) {
            self.on_all(b"", |tree| {
                let Some(Note { one, other, inode }) = read_note(tree, note) else {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "an intent file has become unreadable",
                    ));
                };
                let full = |path: &[u8]| mirror_path(TREE, path).map_err(io::Error::from);
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

fn move_durably(tree: &Tree, old: &[u8], new: &[u8]) -> io::Result<()> {
    tree.rename(old, new)?;
    tree.sync_directory(split(old).0)?;
    if split(old).0 == split(new).0 { Ok(()) } else { tree.sync_directory(split(new).0) }
}

fn read_rename(tree: &Tree, note: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let lines = read_checked(tree, note, RENAME_HEAD)?;
    Some((unhex(lines.first()?)?, unhex(lines.get(1)?)?))
}

/// A recorded exchange.
struct Note {
    one: Vec<u8>,
    other: Vec<u8>,
    /// Inode of the first name on this mirror before the exchange.
    inode: u64,
}

fn read_note(tree: &Tree, note: &[u8]) -> Option<Note> {
    let lines = read_checked(tree, note, EXCHANGE_HEAD)?;
    Some(Note {
        one: unhex(lines.first()?)?,
        other: unhex(lines.get(1)?)?,
        inode: lines.get(2)?.parse().ok()?,
    })
}

/// The lines after the first one, which must be `head`. The last line is the checksum of all others; a torn file is
/// ignored.
fn read_checked(tree: &Tree, note: &[u8], head: &str) -> Option<Vec<String>> {
    let mut text = String::new();
    absent_is_none(tree.read(note)).ok()??.take(1 << 16).read_to_string(&mut text).ok()?;
    let body = &text[..text.trim_end().rfind('\n')? + 1];
    if blake3::hash(body.as_bytes()).to_hex().as_str() != text[body.len()..].trim_end() {
        return None;
    }
    let mut lines = body.lines();
    (lines.next()? == head).then(|| lines.map(str::to_owned).collect())
}
