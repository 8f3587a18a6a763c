//! Reader of the namespace in a thread of its own, ahead of the comparison with the catalogue.
//!
//! Reading a file's properties and finding its entry take about equally long, so the two are overlapped. Directories
//! come in order of their names, parents first, in parts of bounded size, so that memory does not depend on the size of
//! a directory.

use crate::storage::Storage;
use crate::tree::{Kind, Stat, join};
use std::io;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::Scope;

/// Names per part.
const PART: usize = 1024;

/// Maximum number of parts that wait for comparison.
const WAITING: usize = 4;

/// Part of a directory's names.
#[derive(Debug, Default)]
struct Part {
    /// Set in the first part of a directory: its path, and whether it can be read.
    directory: Option<(Vec<u8>, io::Result<()>)>,
    /// Names, concatenated.
    bytes: Vec<u8>,
    /// End of each name, and its properties; none for names that the directory lists as directories.
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

/// Directories and names that were read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    parts: Receiver<Part>,
    part: Part,
    /// Index of the next name of the part.
    next: usize,
}

impl Ahead {
    /// Starts reading these directories, from the last to the first, with everything below. The thread ends when this
    /// value is dropped.
    pub(super) fn of<'scope>(
        directories: Vec<Vec<u8>>,
        storage: &'scope dyn Storage,
        scope: &'scope Scope<'scope, '_>,
    ) -> Ahead {
        let (sender, parts) = sync_channel(WAITING);
        scope.spawn(move || {
            // The receiver was dropped.
            let _ = read(directories, storage, &sender);
        });
        Ahead { parts, part: Part::default(), next: 0 }
    }

    /// Returns the next directory and whether it can be read, or none at the end. Skips remaining names of the previous
    /// one.
    pub(super) fn directory(&mut self) -> Option<(Vec<u8>, io::Result<()>)> {
        while self.part.directory.is_none() {
            self.part = self.parts.recv().ok()?;
            self.next = 0;
        }
        self.part.directory.take()
    }

    /// Returns the next name if it satisfies a condition, with its properties; none stands for a directory.
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

/// Reads directories, from the last to the first, with everything below.
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
            // Directories are examined when they are read themselves.
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
        // The stack is processed from its end.
        directories[first..].reverse();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
