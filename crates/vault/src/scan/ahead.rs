//! The namespace, read by a thread of its own ahead of the one that compares it with the catalogue.
//!
//! Looking at a file and looking it up take about as long, so both together take as long as one of them. Directories come in the
//! order of their names, each before what is in it, in parts: however large a directory is, few names wait to be compared.

use crate::storage::Storage;
use crate::tree::{Kind, Stat, join};
use std::io;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::Scope;

/// Names that are handed over at once.
const PART: usize = 1024;

/// Parts that wait to be compared.
const WAITING: usize = 4;

/// Names of one directory.
#[derive(Debug, Default)]
struct Part {
    /// Set in the first part of a directory: its path, and whether it can be read.
    directory: Option<(Vec<u8>, io::Result<()>)>,
    /// The names, one behind the other.
    bytes: Vec<u8>,
    /// Where each name ends, and what it stands for; not asked of what its directory calls a directory.
    entries: Vec<(usize, Option<io::Result<Stat>>)>,
}

impl Part {
    fn of(directory: Vec<u8>, read: io::Result<()>) -> Part {
        Part { directory: Some((directory, read)), ..Part::default() }
    }

    fn push(&mut self, name: &[u8], stat: Option<io::Result<Stat>>) {
        self.bytes.extend_from_slice(name);
        self.entries.push((self.bytes.len(), stat));
    }

    fn name(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].0);
        &self.bytes[start..self.entries[index].0]
    }
}

/// What was read ahead, directory by directory.
#[derive(Debug)]
pub(super) struct Ahead {
    parts: Receiver<Part>,
    part: Part,
    /// The first name of the part that was not given yet.
    next: usize,
}

impl Ahead {
    /// Begins to read these directories, from the last to the first, and all beneath them. It ends with this value, at the latest.
    pub(super) fn of<'scope>(
        directories: Vec<Vec<u8>>,
        storage: &'scope dyn Storage,
        scope: &'scope Scope<'scope, '_>,
    ) -> Ahead {
        let (sender, parts) = sync_channel(WAITING);
        scope.spawn(move || {
            // Nobody wants the rest.
            let _ = read(directories, storage, &sender);
        });
        Ahead { parts, part: Part::default(), next: 0 }
    }

    /// The next directory, and whether it can be read; nothing after the last one. What was left of the one before is passed over.
    pub(super) fn directory(&mut self) -> Option<(Vec<u8>, io::Result<()>)> {
        while self.part.directory.is_none() {
            self.part = self.parts.recv().ok()?;
            self.next = 0;
        }
        self.part.directory.take()
    }

    /// The next name of the directory if it is such as is asked for, with what it stands for: nothing said is a directory.
    pub(super) fn next_if(
        &mut self,
        is_wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(&[u8], Option<io::Result<Stat>>)> {
        while self.part.directory.is_none() && self.next == self.part.entries.len() {
            self.part = self.parts.recv().ok()?;
            self.next = 0;
        }
        let index = self.next;
        if self.part.directory.is_some() || !is_wanted(self.part.name(index)) {
            return None;
        }
        self.next += 1;
        let stat = self.part.entries[index].1.take();
        Some((self.part.name(index), stat))
    }
}

/// Reads directories, from the last to the first, and all beneath them.
fn read(
    mut directories: Vec<Vec<u8>>,
    storage: &dyn Storage,
    parts: &SyncSender<Part>,
) -> Result<(), SendError<Part>> {
    while let Some(path) = directories.pop() {
        let folder = match storage.folder(&path) {
            Ok(folder) => folder,
            Err(error) => {
                parts.send(Part::of(path, Err(error)))?;
                continue;
            }
        };
        let first = directories.len();
        let mut part = Part::of(path.clone(), Ok(()));
        for (name, kind) in folder.names().iter() {
            // Directories need no look here, they get their own.
            let stat = (kind != Some(Kind::Directory)).then(|| folder.stat(name));
            let is_directory = match &stat {
                Some(stat) => stat.as_ref().is_ok_and(|stat| stat.kind == Kind::Directory),
                None => true,
            };
            if is_directory {
                directories.push(join(&path, name));
            }
            part.push(name, stat);
            if part.entries.len() == PART {
                parts.send(std::mem::take(&mut part))?;
            }
        }
        parts.send(part)?;
        // They are taken from the end.
        directories[first..].reverse();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
