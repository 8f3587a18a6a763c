//! History of the events of one source: two files of JSON lines in its repository.
//!
//! Events are appended to `events.jsonl` and synchronised to disk. When that is full, it takes the place of
//! `events.old.jsonl`, so the history has between [`MAX_EVENTS`] and twice as many events once it is full. A crash can
//! leave a torn last line, which the next start removes. Lines that cannot be read are skipped.

use super::Event;
use gabion_platform::private;
use gabion_platform::tree::{Kind, Tree, absent_is_none};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The files.
const FILE: &str = "events.jsonl";
const OLD_FILE: &str = "events.old.jsonl";

/// Most events and bytes of a file.
pub(super) const MAX_EVENTS: u64 = 4096;
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// The open history of a source.
#[derive(Debug)]
pub(super) struct History {
    repository: PathBuf,
    file: File,
    events: u64,
    bytes: u64,
}

impl History {
    /// Opens it, and removes a torn last line. Also the number of its last event.
    pub(super) fn open(repository: &Path) -> io::Result<(History, u64)> {
        // A link or a pipe under its name is refused before it is opened for writing.
        let (current, old) = (read_file(repository, FILE)?, read_file(repository, OLD_FILE)?);
        let file = private::append(repository, FILE)?;
        let whole = current.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < current.len() {
            file.set_len(whole as u64)?;
            file.sync_all()?;
        }
        let last = events_of(&current).chain(events_of(&old)).map(|event| event.sequence).max();
        let events = current.iter().filter(|byte| **byte == b'\n').count() as u64;
        let history = History { repository: repository.to_owned(), file, events, bytes: whole as u64 };
        Ok((history, last.unwrap_or(0)))
    }

    /// Appends an event durably.
    pub(super) fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if self.events >= MAX_EVENTS || self.bytes + line.len() as u64 > MAX_BYTES {
            self.rotate()?;
        }
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // What is there of the line, on a full disk, must not spoil the next one.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        (self.events, self.bytes) = (self.events + 1, self.bytes + line.len() as u64);
        // The directory may have been removed, and the file with it.
        match Tree::open_owned(&self.repository)?.find(FILE.as_bytes())? {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let tree = Tree::open_owned(&self.repository)?;
        tree.rename(FILE.as_bytes(), OLD_FILE.as_bytes())?;
        tree.sync_directory(b"")?;
        self.file = private::append(&self.repository, FILE)?;
        (self.events, self.bytes) = (0, 0);
        Ok(())
    }

    /// All events, oldest first.
    pub(super) fn read(&self) -> io::Result<Vec<Event>> {
        let (old, current) = (read_file(&self.repository, OLD_FILE)?, read_file(&self.repository, FILE)?);
        Ok(events_of(&old).chain(events_of(&current)).collect())
    }
}

/// All events of a repository, oldest first, also if a daemon is writing them.
///
/// # Errors
/// The files cannot be read.
pub fn recorded(repository: &Path) -> io::Result<Vec<Event>> {
    // In this order: one that is moved meanwhile is read twice, not missed.
    let (current, old) = (read_file(repository, FILE)?, read_file(repository, OLD_FILE)?);
    let mut events: Vec<Event> = events_of(&old).chain(events_of(&current)).collect();
    events.sort_by_key(|event| event.sequence);
    events.dedup_by_key(|event| event.sequence);
    Ok(events)
}

/// The end of a file, from the start of a line; empty if it is absent.
fn read_file(repository: &Path, name: &str) -> io::Result<Vec<u8>> {
    let tree = Tree::open_owned(repository)?;
    let Some(found) = tree.find(name.as_bytes())? else { return Ok(Vec::new()) };
    if found.kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a regular file")));
    }
    let Some(mut file) = absent_is_none(tree.read(name.as_bytes()))? else { return Ok(Vec::new()) };
    // Files of this program are not longer.
    if file.metadata()?.len() > 2 * MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is longer than 2 MiB")));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(2 * MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The events of whole lines.
fn events_of(bytes: &[u8]) -> impl Iterator<Item = Event> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}
