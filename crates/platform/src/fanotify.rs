//! Event source of a tree through fanotify, with one mark for the whole file system.
//!
//! The kernel identifies a changed entry by the handle of its directory and its name, and reports both ends of a rename
//! in one event. The source opens the handle, reads its path and opens that path again beneath the root; the event
//! belongs to the tree only if both are the same directory. So neither another mount of the same file system nor a
//! directory hidden under a mount is taken for a part of the tree. Paths are cached until a directory is renamed.
//!
//! `marks` decides which events are requested for which directory.
//!
//! Requires root and Linux 5.17. Stores through a memory mapping cause no event; closing the mapped file does.

mod calls;
mod marks;
mod tree;
pub mod wire;

use crate::event::{Change, Event, EventLoss, EventSource, FilesystemWide, SourceError, join, wait_for};
use marks::{MAX_IGNORED, Marks};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use tree::{DirLocation, PathError, Tree};
use wire::{EntryName, Item, RawEvent};

/// Bytes of the read buffer: some thousands of events.
const BUFFER: usize = 512 << 10;

/// Watches the file system of a tree and filters the events of the tree.
#[derive(Debug)]
pub struct Fanotify {
    marks: Marks,
    tree: Tree,
    buffer: Vec<u8>,
}

impl Fanotify {
    /// Watches the tree below `root`, without directories named `own` and their content.
    ///
    /// # Errors
    /// [`SourceError`]: missing privileges, an old kernel, a file system without handles.
    pub fn watch(root: &Path, own: &[u8]) -> Result<Fanotify, SourceError> {
        let tree = Tree::open_root(root, own)?;
        let mut marks = Marks::new(&tree)?;
        tree.check_handles()?;
        marks.walk(&tree)?;
        Ok(Fanotify { marks, tree, buffer: vec![0; BUFFER] })
    }

    fn item(&mut self, item: &Item<'_>, events: &mut Vec<Event>) -> Result<(), SourceError> {
        match item {
            Item::Event(report) => self.event(report, events),
            Item::Overflow => self.lost(EventLoss::Overflow, events),
            Item::Unreadable => self.lost(EventLoss::Unreadable, events),
        }
    }

    fn lost(&mut self, loss: EventLoss, events: &mut Vec<Event>) -> Result<(), SourceError> {
        events.push(Event::Gap(loss));
        self.marks.start_again(&self.tree)
    }

    fn event(&mut self, report: &RawEvent<'_>, events: &mut Vec<Event>) -> Result<(), SourceError> {
        let directory = report.mask & libc::FAN_ONDIR != 0;
        if report.mask & libc::FAN_RENAME != 0 {
            return self.renamed(report, directory, events);
        }
        let Some(place) = report.place else { return Ok(()) };
        let Some(change) = change(report.mask, directory) else { return Ok(()) };
        match self.tree.path(place) {
            Ok(Some(path)) => {
                // A removal and a new creation may be one event; it is reported as a removal.
                let made = directory && report.mask & libc::FAN_CREATE != 0;
                if made {
                    self.marks.made(&path, &self.tree)?;
                }
                events.push(Event::Changed { path, change, directory });
                if made { self.end_ignores(MAX_IGNORED, events) } else { Ok(()) }
            }
            Ok(None) => Ok(()),
            // The directory was removed; the event of that follows and covers its content.
            Err(PathError::Gone) => Ok(()),
            Err(PathError::Unknown) => self.lost(EventLoss::Unresolved, events),
        }
    }

    fn renamed(
        &mut self,
        report: &RawEvent<'_>,
        directory: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        let mut end = |place: Option<EntryName<'_>>| match place.map(|place| self.tree.path(place)) {
            None | Some(Ok(None)) | Some(Err(PathError::Gone)) => Ok(None),
            Some(Ok(Some(path))) => Ok(Some(path)),
            Some(Err(PathError::Unknown)) => Err(()),
        };
        let ends = (end(report.from), end(report.to));
        if directory {
            // Cached paths of the directory and of its content are stale.
            self.tree.forget();
        }
        match ends {
            (Ok(None), Ok(None)) => Ok(()),
            (Ok(from), Ok(to)) => {
                if let Some(to) = to.as_ref().filter(|_| directory) {
                    self.marks.moved(to, &self.tree)?;
                }
                let unheard =
                    !directory && [&from, &to].into_iter().flatten().any(|path| self.is_ignored(path));
                let look_at = to.clone().filter(|_| unheard);
                events.push(Event::Moved { from, to, directory });
                // The creation of this file was not reported.
                events.extend(look_at.map(created));
                Ok(())
            }
            _ => self.lost(EventLoss::Unresolved, events),
        }
    }

    /// True if the creation of a file at this path may not have been reported.
    fn is_ignored(&self, path: &[u8]) -> bool {
        let directory = path.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |end| &path[..end]);
        self.marks.is_ignored(directory)
    }

    /// Ends the ignore state of the oldest directories until at most `left` remain.
    fn end_ignores(&mut self, left: usize, events: &mut Vec<Event>) -> Result<(), SourceError> {
        while let Some(directory) = self.marks.end_ignore(left, &self.tree)? {
            let told = match self.tree.whereabouts(&directory) {
                // If it was removed meanwhile, an event reports that.
                DirLocation::Inside(path) => {
                    matches!(tell(&path, directory, events), Ok(()) | Err(Errno::NOENT))
                }
                // Its content left the tree with it, or the event of its move reports it.
                DirLocation::Outside | DirLocation::Gone => true,
                DirLocation::Unknown => false,
            };
            if !told {
                self.lost(EventLoss::Unresolved, events)?;
            }
        }
        Ok(())
    }
}

/// Reports all files of a directory as created.
fn tell(path: &[u8], directory: OwnedFd, events: &mut Vec<Event>) -> Result<(), Errno> {
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                // It was removed; an event reports that.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        // New directories are reported in any case.
        if kind != FileType::Directory {
            events.push(created(join(path, name.to_bytes())));
        }
    }
    Ok(())
}

fn created(path: Vec<u8>) -> Event {
    Event::Changed { path, change: Change::Created, directory: false }
}

/// The change that a mask describes; `None` for masks that are not of interest.
fn change(mask: u64, directory: bool) -> Option<Change> {
    let has = |bit: u64| mask & bit != 0;
    // The order of merged events is unknown; a deletion must not be missed.
    if has(libc::FAN_DELETE) {
        Some(Change::Deleted)
    } else if has(libc::FAN_CREATE) {
        Some(Change::Created)
    } else if directory {
        None
    } else if has(libc::FAN_CLOSE_WRITE) {
        Some(Change::Closed)
    } else if has(libc::FAN_MODIFY) {
        Some(Change::Modified)
    } else {
        has(libc::FAN_ATTRIB).then_some(Change::Attributes)
    }
}

impl EventSource for Fanotify {
    fn name(&self) -> &'static str {
        "fanotify"
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, SourceError> {
        wait_for(self.marks.queue(), at_most, self.tree.shown())
    }

    fn has_deferred(&self) -> bool {
        self.marks.ignored() > 0
    }

    fn report_deferred(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        self.end_ignores(0, events)
    }

    fn filesystem_wide(&self) -> Option<&FilesystemWide> {
        self.marks.given_up()
    }

    fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        loop {
            let got = match rustix::io::read(self.marks.queue(), &mut self.buffer[..]) {
                Ok(0) | Err(Errno::AGAIN) => return self.marks.walk(&self.tree),
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    let path = self.tree.shown().to_owned();
                    return Err(SourceError::Io { path, source: error.into() });
                }
            };
            // After an error no more events are read, so the buffer is not needed again.
            let buffer = std::mem::take(&mut self.buffer);
            for item in wire::items(&buffer[..got]) {
                self.item(&item, events)?;
            }
            self.buffer = buffer;
        }
    }
}
