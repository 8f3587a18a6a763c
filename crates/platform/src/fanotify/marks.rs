//! Marks of a fanotify queue: name events for the whole file system, content events for directories with their own
//! mark.
//!
//! Every event costs the writing process time, and unpacking an archive causes five events per file. In a new directory
//! only the first is needed: the reader of the event examines the file later and sees all changes until then. So the
//! mark of the file system requests name events, and a mark of each directory in the tree requests content events of
//! its files. A new directory is marked when the event of its creation is read, and no event of a name in it is read
//! before that. Changes before the mark are therefore seen when the file is examined, and later changes are reported.
//!
//! That one event is still most of the cost of the watch. So a new directory is *ignored* at first: an ignore mark
//! (Linux 6.0) suppresses the creation events of files in it; new directories, deletions and renames are reported. When
//! the ignore state ends, the directory is marked first and then listed. Files whose creation was suppressed are in
//! that list, or an event says where they moved; changes after the listing are reported.
//!
//! While directories that may contain files wait for their marks (all directories at the start and after a loss of
//! events, and those that were moved in), the mark of the file system requests content events as well. It does so
//! permanently if a directory cannot be marked, such as one under a mount, or if there are too many directories.

use super::calls::{make_queue, mark};
use super::tree::Tree;
use crate::event::{FilesystemWide, SourceError, is_own, join, sysctl};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Name events: creations, deletions, renames.
const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_RENAME | libc::FAN_ONDIR;

/// Content events of files.
const CONTENT: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE | libc::FAN_ATTRIB;

/// Events that an ignore mark suppresses: creations of files.
const IGNORED: u64 = libc::FAN_CREATE;

/// Maximum number of ignored directories; each keeps a descriptor open. Archives are unpacked one directory after the
/// other.
pub(super) const MAX_IGNORED: usize = 64;

/// Maximum number of marked directories; each mark takes about 1 KiB of kernel memory.
const MAX_MARKED: usize = 1 << 17;

/// Directories that are marked per call, so that events wait for some 10 ms at most.
const SLICE: usize = 4096;

/// The marks of one queue.
#[derive(Debug)]
pub(super) struct Marks {
    queue: OwnedFd,
    /// True while the mark of the file system requests content events.
    is_wide: bool,
    /// Directories that wait for a mark, together with their subdirectories.
    ahead: Vec<Vec<u8>>,
    marked: usize,
    /// Ignored directories by the path at which they were created, oldest first.
    ignored: VecDeque<(Vec<u8>, OwnedFd)>,
    /// True unless the kernel was found to lack ignore marks.
    can_ignore: bool,
    /// Limit of marked directories.
    most: usize,
    /// Set once directories are no longer marked: the reason.
    given_up: Option<FilesystemWide>,
}

impl Marks {
    /// A queue with a mark for all events of the file system of the tree.
    pub(super) fn new(tree: &Tree) -> Result<Marks, SourceError> {
        let queue = queue(tree.shown())?;
        let ahead = vec![Vec::new()];
        let marks = Marks {
            queue,
            is_wide: true,
            ahead,
            marked: 0,
            ignored: VecDeque::new(),
            can_ignore: true,
            most: MAX_MARKED,
            given_up: None,
        };
        marks.ask(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, NAMES | CONTENT, tree)?;
        Ok(marks)
    }

    /// Reason why all events of the file system are requested permanently.
    pub(super) fn given_up(&self) -> Option<&FilesystemWide> {
        self.given_up.as_ref()
    }

    pub(super) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Events were lost, possibly of new directories: all directories are marked again.
    pub(super) fn start_again(&mut self, tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.widen(tree)?;
        self.marked = 0;
        self.ahead = vec![Vec::new()];
        Ok(())
    }

    /// A directory was moved to this path with its content.
    pub(super) fn moved(&mut self, path: &[u8], tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.widen(tree)?;
        self.ahead.push(path.to_vec());
        Ok(())
    }

    /// A directory was created at this path: its content is reported from now on, or when its ignore state ends.
    pub(super) fn made(&mut self, path: &[u8], tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        // While content events are requested for the file system, an ignore mark would save only one event in five.
        let marked = match self.can_ignore && !self.is_wide {
            true => self.ignore(path, tree),
            false => self.mark(path, tree).map(drop),
        };
        if let Err(error) = marked {
            return self.give_up(refused(path, error), tree);
        }
        match self.marked > self.most && self.ahead.is_empty() {
            // Many of the marked directories may have been removed.
            true => self.flush(tree).and_then(|()| self.start_again(tree)),
            false => Ok(()),
        }
    }

    /// True if creations of files in the directory created at this path may be suppressed.
    pub(super) fn is_ignored(&self, path: &[u8]) -> bool {
        self.ignored.iter().any(|(ignored, _)| ignored == path)
    }

    /// Number of ignored directories.
    pub(super) fn ignored(&self) -> usize {
        self.ignored.len()
    }

    /// Ends the ignore state of the oldest directory if more than `beyond` directories are ignored. Its files have not
    /// been reported.
    pub(super) fn end_ignore(&mut self, beyond: usize, tree: &Tree) -> Result<Option<OwnedFd>, SourceError> {
        if self.ignored.len() <= beyond {
            return Ok(None);
        }
        let Some((path, directory)) = self.ignored.pop_front() else { return Ok(None) };
        // Once marks are given up, the mark of the file system reports content events.
        if self.given_up.is_none()
            && let Err(error) = self.add_mark(&directory)
        {
            self.give_up(refused(&path, error), tree)?;
        }
        let speak = libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORE_SURV;
        match mark(&self.queue, speak, IGNORED, &directory) {
            // Its mark is gone: all marks were removed meanwhile.
            Ok(()) | Err(Errno::NOENT) => Ok(Some(directory)),
            Err(error) => self.give_up(refused(&path, error), tree).map(|()| Some(directory)),
        }
    }

    /// Ignores a directory, or marks it if ignore marks are not supported; does nothing if it is gone or no longer a
    /// directory.
    fn ignore(&mut self, path: &[u8], tree: &Tree) -> Result<(), Errno> {
        let Some(directory) = open(path, tree)? else { return Ok(()) };
        match mark(&self.queue, libc::FAN_MARK_ADD | libc::FAN_MARK_IGNORE_SURV, IGNORED, &directory) {
            Ok(()) => {
                self.marked += 1;
                self.ignored.push_back((path.to_vec(), directory));
                Ok(())
            }
            Err(Errno::INVAL) => {
                self.can_ignore = false;
                self.marked += 1;
                self.add_mark(&directory)
            }
            Err(error) => Err(error),
        }
    }

    /// Marks some of the waiting directories; when none is left, the file system mark is reduced to name events.
    pub(super) fn walk(&mut self, tree: &Tree) -> Result<(), SourceError> {
        for _ in 0..SLICE {
            let Some(path) = self.ahead.pop() else { break };
            let listed = match self.mark(&path, tree) {
                Ok(Some(directory)) => self.list(&path, directory, tree),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = listed {
                return self.give_up(refused(&path, error), tree);
            }
            if self.marked + self.ahead.len() > self.most {
                return self.give_up(FilesystemWide::TooMany { most: self.most }, tree);
            }
        }
        if self.ahead.is_empty() && self.is_wide && self.given_up.is_none() {
            self.ask(libc::FAN_MARK_REMOVE | libc::FAN_MARK_FILESYSTEM, CONTENT, tree)?;
            self.is_wide = false;
        }
        Ok(())
    }

    /// Marks a directory; `None` if it is gone.
    fn mark(&mut self, path: &[u8], tree: &Tree) -> Result<Option<OwnedFd>, Errno> {
        let Some(directory) = open(path, tree)? else { return Ok(None) };
        self.add_mark(&directory)?;
        self.marked += 1;
        Ok(Some(directory))
    }

    fn add_mark(&self, directory: &OwnedFd) -> Result<(), Errno> {
        mark(&self.queue, libc::FAN_MARK_ADD, CONTENT | libc::FAN_EVENT_ON_CHILD, directory)
    }

    fn list(&mut self, path: &[u8], directory: OwnedFd, tree: &Tree) -> Result<(), Errno> {
        for entry in Dir::new(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let may_be = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if may_be && name != b"." && name != b".." && !is_own(name, tree.own()) {
                self.ahead.push(join(path, name));
            }
        }
        Ok(())
    }

    fn give_up(&mut self, why: FilesystemWide, tree: &Tree) -> Result<(), SourceError> {
        self.widen(tree)?;
        self.given_up = Some(why);
        self.ahead = Vec::new();
        self.flush(tree)
    }

    /// Removes the marks of directories.
    fn flush(&mut self, tree: &Tree) -> Result<(), SourceError> {
        self.widen(tree)?;
        self.marked = 0;
        self.ask(libc::FAN_MARK_FLUSH, 0, tree)
    }

    fn widen(&mut self, tree: &Tree) -> Result<(), SourceError> {
        if !self.is_wide {
            self.ask(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, CONTENT, tree)?;
            self.is_wide = true;
        }
        Ok(())
    }

    fn ask(&self, flags: libc::c_uint, mask: u64, tree: &Tree) -> Result<(), SourceError> {
        let call = "fanotify_mark";
        mark(&self.queue, flags, mask, tree.root()).map_err(|error| match error {
            Errno::PERM => SourceError::Rights { call, source: error.into() },
            _ => SourceError::Unsupported { call, root: tree.shown().to_owned(), source: error.into() },
        })
    }
}

/// Opens a directory; `None` if it is gone or no longer a directory, which other events report.
fn open(path: &[u8], tree: &Tree) -> Result<Option<OwnedFd>, Errno> {
    match tree.open(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn refused(path: &[u8], error: Errno) -> FilesystemWide {
    match error {
        Errno::XDEV => FilesystemWide::Mount(path.to_vec()),
        _ => FilesystemWide::Refused { path: path.to_vec(), error: error.to_string() },
    }
}

/// Creates the event queue.
fn queue(root: &Path) -> Result<OwnedFd, SourceError> {
    let call = "fanotify_init";
    // Directory handle and name, without the handle of the file: that would make every event larger, and the file has
    // to be examined anyway.
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_REPORT_DFID_NAME
        | libc::FAN_UNLIMITED_MARKS;
    let file = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as libc::c_uint;
    make_queue(flags, file).map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => SourceError::Rights { call, source },
        Some(libc::EMFILE) => SourceError::TooManyQueues {
            sysctl: "fs.fanotify.max_user_groups",
            limit: sysctl("fs.fanotify.max_user_groups"),
        },
        _ => SourceError::Unsupported { call, root: root.to_owned(), source },
    })
}

#[cfg(test)]
mod tests;
