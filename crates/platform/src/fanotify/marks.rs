//! What is asked of the kernel: names everywhere, content where a directory has a mark of its own.
//!
//! Whoever writes pays for every event, and unpacking an archive makes five for each file. While the file's
//! directory is new, only the first is needed: whoever reads that a file appeared looks at it later, and sees all that was done to
//! it. So the mark of the file system asks for names, and a mark of each directory in the tree for what happens to the files in
//! it. A new directory gets its mark when the event of its making is read; no event of a name in it is read before that one.
//! So what was done to its files before the mark is seen by those who look, and what is done afterwards is told.
//!
//! Even that one event is most of what being watched costs whoever unpacks. So a new directory is *ignored* at first: an ignore mark
//! (Linux 6.0) keeps the kernel from telling that files appear in it; that directories do, and that anything goes or gets another name,
//! is told. When the ignore ends, the directory first gets its mark and then is listed. Whatever
//! appeared unheard is in that list, or an event tells where it went; and what is done after the listing is told.
//!
//! As long as directories that may have files wait for their marks (all at the beginning and after a loss, those that
//! were moved), the mark of the file system asks for content as well. It does so for good where a directory cannot be
//! marked, such as one under a mount, or where there are too many.

use super::calls::{make_queue, mark};
use super::tree::Tree;
use crate::event::{FilesystemWide, SourceError, is_own, join, sysctl};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What appears, goes, and gets another name.
const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_RENAME | libc::FAN_ONDIR;

/// What happens to files.
const CONTENT: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE | libc::FAN_ATTRIB;

/// What is not told of a directory that is ignored: that files appear.
const IGNORED: u64 = libc::FAN_CREATE;

/// Most directories that are ignored at a time; each keeps a descriptor. Archives are unpacked one directory after the other.
pub(super) const MAX_IGNORED: usize = 64;

/// Most directories with marks of their own; each keeps about a kilobyte of the kernel's memory.
const MAX_MARKED: usize = 1 << 17;

/// Directories that are marked in one go, so that events do not wait for long: some ten milliseconds.
const SLICE: usize = 4096;

/// The marks of one queue.
#[derive(Debug)]
pub(super) struct Marks {
    queue: OwnedFd,
    /// Whether the mark of the file system asks for content.
    is_wide: bool,
    /// Directories that wait for a mark, and with them those in them.
    ahead: Vec<Vec<u8>>,
    marked: usize,
    /// Those that are ignored, by where they were made; the oldest first.
    ignored: VecDeque<(Vec<u8>, OwnedFd)>,
    /// Whether the kernel has ignore marks, as far as is known.
    can_ignore: bool,
    /// Most that are marked.
    most: usize,
    /// Directories get no marks any more, and why.
    given_up: Option<FilesystemWide>,
}

impl Marks {
    /// A queue that hears of everything on the file system of the tree.
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

    /// Why the file system is asked for everything for good.
    pub(super) fn given_up(&self) -> Option<&FilesystemWide> {
        self.given_up.as_ref()
    }

    pub(super) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Events were lost, directories perhaps among them.
    pub(super) fn start_again(&mut self, tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.widen(tree)?;
        self.marked = 0;
        self.ahead = vec![Vec::new()];
        Ok(())
    }

    /// A directory came here with all that is in it.
    pub(super) fn moved(&mut self, path: &[u8], tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.widen(tree)?;
        self.ahead.push(path.to_vec());
        Ok(())
    }

    /// A directory was made here: what comes to be in it is told after this, or when its ignore ends.
    pub(super) fn made(&mut self, path: &[u8], tree: &Tree) -> Result<(), SourceError> {
        if self.given_up.is_some() {
            return Ok(());
        }
        // While all content is asked for, a ignore would keep back one event of five.
        let marked = match self.can_ignore && !self.is_wide {
            true => self.ignore(path, tree),
            false => self.mark(path, tree).map(drop),
        };
        if let Err(error) = marked {
            return self.give_up(refused(path, error), tree);
        }
        match self.marked > self.most && self.ahead.is_empty() {
            // Many of these may be gone by now.
            true => self.flush(tree).and_then(|()| self.start_again(tree)),
            false => Ok(()),
        }
    }

    /// Whether files may have appeared unheard in the directory that was made here.
    pub(super) fn is_ignored(&self, path: &[u8]) -> bool {
        self.ignored.iter().any(|(ignored, _)| ignored == path)
    }

    /// How many directories are ignored.
    pub(super) fn ignored(&self) -> usize {
        self.ignored.len()
    }

    /// Ends the ignore of the oldest directory if more than so many are ignored. What is in it then has not been told of.
    pub(super) fn end_ignore(&mut self, beyond: usize, tree: &Tree) -> Result<Option<OwnedFd>, SourceError> {
        if self.ignored.len() <= beyond {
            return Ok(None);
        }
        let Some((path, directory)) = self.ignored.pop_front() else { return Ok(None) };
        // Where marks were given up, content is told by that of the file system.
        if self.given_up.is_none()
            && let Err(error) = self.add_mark(&directory)
        {
            self.give_up(refused(&path, error), tree)?;
        }
        let speak = libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORE_SURV;
        match mark(&self.queue, speak, IGNORED, &directory) {
            // No mark is left of it: all were taken away meanwhile.
            Ok(()) | Err(Errno::NOENT) => Ok(Some(directory)),
            Err(error) => self.give_up(refused(&path, error), tree).map(|()| Some(directory)),
        }
    }

    /// Hushes a directory, or marks it where that cannot be done; nothing if it is gone, or something else by now.
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

    /// Marks some of those that wait; when none is left, the file system is asked for names only.
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

    /// Marks a directory; nothing if it is gone.
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

    /// Takes the marks of directories away.
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

/// A directory; nothing if it is gone, or something else by now, which events of their own tell.
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

/// A new queue.
fn queue(root: &Path) -> Result<OwnedFd, SourceError> {
    let call = "fanotify_init";
    // Directory and name, and not the file itself: its handle would cost every event, and tell apart only what whoever reads
    // events has to look at anyway.
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
