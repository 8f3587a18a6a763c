//! Event source of a tree through inotify, for users without root privileges: one watch per directory.
//!
//! A new directory is watched first and then listed: entries that appeared before the watch are reported as created.
//! Both ends of a rename are two events with one cookie; if the second end has not arrived after the queue was read
//! empty twice, the entry has left the tree. After a move of a directory all directories are visited again, because a
//! path may name another directory by the time its event is read. After an overflow of the kernel's queue all watches
//! are created again.

pub mod wire;

use crate::event::{Change, Event, EventLoss, EventSource, SourceError, is_own, join, sysctl, wait_for};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Item, RawEvent};

/// Bytes of the read buffer.
const BUFFER: usize = 256 << 10;

/// Time to wait for the other end of a rename.
const OTHER_END: Duration = Duration::from_millis(10);

/// Deepest directory level; deeper ones are left to scans.
const MAX_DEPTH: usize = 4096;

/// Watches a tree with inotify.
#[derive(Debug)]
pub struct Inotify {
    queue: OwnedFd,
    root: OwnedFd,
    path: PathBuf,
    own: Vec<u8>,
    /// Directories by watch descriptor.
    nodes: HashMap<i32, Node>,
    /// Renames of which only one end has arrived.
    halves: Vec<Half>,
    /// Directories moved since the paths of all watches were last verified.
    moves: usize,
    unwatched: Vec<(Vec<u8>, String)>,
    buffer: Vec<u8>,
}

/// A directory with its parent, so that a rename changes only one node.
#[derive(Debug)]
struct Node {
    /// Watch of the parent directory; `None` for the root.
    parent: Option<i32>,
    name: Vec<u8>,
}

/// The old end of a rename, waiting for the new one.
#[derive(Debug)]
struct Half {
    cookie: u32,
    path: Vec<u8>,
    directory: bool,
    /// True after the queue was read empty once more.
    old: bool,
}

fn wanted() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
}

fn queue() -> Result<OwnedFd, SourceError> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| match error {
        Errno::MFILE => SourceError::TooManyQueues {
            sysctl: "fs.inotify.max_user_instances",
            limit: sysctl("fs.inotify.max_user_instances"),
        },
        error => SourceError::Io { path: PathBuf::from("inotify"), source: error.into() },
    })
}

impl Inotify {
    /// Watches the tree below `root`, without directories named `own` and their content.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::TooManyWatches`] if there are more directories than watches.
    pub fn watch(root: &Path, own: &[u8]) -> Result<Inotify, SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|error| SourceError::Io { path: root.to_owned(), source: error.into() })?;
        let mut watching = Inotify {
            queue: queue()?,
            root: opened,
            path: root.to_owned(),
            own: own.to_vec(),
            nodes: HashMap::new(),
            halves: Vec::new(),
            moves: 0,
            unwatched: Vec::new(),
            buffer: vec![0; BUFFER],
        };
        watching.begin()?;
        Ok(watching)
    }

    /// Watches all directories.
    fn begin(&mut self) -> Result<(), SourceError> {
        self.unwatched.clear();
        self.watch_tree(Vec::new(), None, None)?;
        match self.nodes.is_empty() {
            false => Ok(()),
            true => {
                let why = self.unwatched.first().map_or("it is gone", |(_, why)| why.as_str());
                Err(SourceError::Io {
                    path: self.path.clone(),
                    source: std::io::Error::other(why.to_owned()),
                })
            }
        }
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(std::ffi::OsStr::from_bytes(path)) }
    }

    fn open(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        openat2(&self.root, if path.is_empty() { b"." } else { path }, flags, Mode::empty(), beneath)
    }

    /// Watches a directory and its subdirectories; reports their files to `tell` if given.
    fn watch_tree(
        &mut self,
        path: Vec<u8>,
        parent: Option<i32>,
        mut tell: Option<&mut Vec<Event>>,
    ) -> Result<(), SourceError> {
        let mut ahead = vec![(path, parent)];
        while let Some((path, parent)) = ahead.pop() {
            let directory = match self.open(&path) {
                Ok(directory) => directory,
                // Removed or replaced meanwhile: another event reports that.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => {
                    self.unwatched.push((path, std::io::Error::from(error).to_string()));
                    continue;
                }
            };
            let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
            let watch = match inotify::add_watch(&self.queue, link, wanted()) {
                Ok(watch) => watch,
                Err(Errno::NOSPC) => {
                    let limit = sysctl("fs.inotify.max_user_watches");
                    return Err(SourceError::TooManyWatches { path: self.shown(&path), limit });
                }
                Err(error) => {
                    self.unwatched.push((path, std::io::Error::from(error).to_string()));
                    continue;
                }
            };
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path).to_vec();
            let node = Node { parent, name };
            let same = |known: &Node| (known.parent, &known.name) == (node.parent, &node.name);
            // The subdirectories of a directory that was watched already are known.
            if let Some(known) = self.nodes.get(&watch) {
                let moved = !same(known);
                self.nodes.insert(watch, node);
                // It was moved to a directory that was not watched yet.
                if let Some(events) = tell.as_deref_mut().filter(|_| moved) {
                    events.push(Event::Moved { from: None, to: Some(path), directory: true });
                }
                continue;
            }
            self.nodes.insert(watch, node);
            if let Err(error) = self.look_through(&directory, &path, watch, &mut ahead, tell.as_deref_mut()) {
                self.unwatched.push((path, std::io::Error::from(error).to_string()));
            }
        }
        Ok(())
    }

    fn look_through(
        &self,
        directory: &OwnedFd,
        path: &[u8],
        watch: i32,
        ahead: &mut Vec<(Vec<u8>, Option<i32>)>,
        mut tell: Option<&mut Vec<Event>>,
    ) -> rustix::io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_own(name, &self.own) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            let inner = join(path, name);
            if kind == FileType::Directory {
                ahead.push((inner, Some(watch)));
            } else if let Some(events) = &mut tell {
                events.push(Event::Changed { path: inner, change: Change::Created, directory: false });
            }
        }
        Ok(())
    }

    /// The path of a directory by its watch; `None` if it left the tree.
    fn path_of(&self, watch: i32) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = watch;
        for _ in 0..MAX_DEPTH {
            let node = self.nodes.get(&at)?;
            match node.parent {
                Some(parent) => {
                    names.push(&node.name[..]);
                    at = parent;
                }
                None => {
                    names.reverse();
                    return Some(names.join(&b'/'));
                }
            }
        }
        None
    }

    fn start_again(&mut self) -> Result<(), SourceError> {
        self.queue = queue()?;
        self.nodes.clear();
        self.halves.clear();
        self.begin()
    }

    fn event(&mut self, report: &RawEvent<'_>, events: &mut Vec<Event>) -> Result<(), SourceError> {
        let mask = ReadFlags::from_bits_retain(report.mask);
        if mask.contains(ReadFlags::IGNORED) {
            self.nodes.remove(&report.watch);
            return Ok(());
        }
        let Some(name) = report.name.filter(|name| !is_own(name, &self.own)) else { return Ok(()) };
        let Some(above) = self.path_of(report.watch) else { return Ok(()) };
        let (path, directory) = (join(&above, name), mask.contains(ReadFlags::ISDIR));
        let change = if mask.contains(ReadFlags::MOVED_FROM) {
            self.halves.push(Half { cookie: report.cookie, path, directory, old: false });
            return Ok(());
        } else if mask.contains(ReadFlags::MOVED_TO) {
            return self.arrived(path, report, directory, events);
        } else if mask.contains(ReadFlags::DELETE) {
            Change::Deleted
        } else if mask.contains(ReadFlags::CREATE) {
            Change::Created
        } else if directory {
            return Ok(());
        } else if mask.contains(ReadFlags::CLOSE_WRITE) {
            Change::Closed
        } else if mask.contains(ReadFlags::MODIFY) {
            Change::Modified
        } else {
            Change::Attributes
        };
        events.push(Event::Changed { path: path.clone(), change, directory });
        if directory && change == Change::Created {
            self.watch_tree(path, Some(report.watch), Some(events))?;
        }
        Ok(())
    }

    fn arrived(
        &mut self,
        path: Vec<u8>,
        report: &RawEvent<'_>,
        directory: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        let half = self.halves.iter().position(|half| half.cookie == report.cookie);
        let half = half.map(|at| self.halves.remove(at));
        let from = half.map(|half| half.path);
        events.push(Event::Moved { from, to: Some(path.clone()), directory });
        if directory {
            self.moves += 1;
            self.watch_tree(path, Some(report.watch), Some(events))?;
        }
        Ok(())
    }

    /// Determines the paths of all watched directories again. If directories are moved one after the other, the path of
    /// an event may name another directory by the time it is read.
    fn find_all(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        self.moves = 0;
        let before = std::mem::take(&mut self.nodes);
        self.unwatched.clear();
        self.watch_tree(Vec::new(), None, None)?;
        let all: Vec<i32> = self.nodes.keys().copied().collect();
        for watch in all {
            let (was, now) = (before.get(&watch), self.nodes.get(&watch));
            if was.zip(now).is_none_or(|(was, now)| (was.parent, &was.name) != (now.parent, &now.name)) {
                // Earlier events of it may carry another path; a new directory has not been reported.
                let to = self.path_of(watch);
                events.push(Event::Moved { from: None, to, directory: true });
            }
        }
        for watch in before.keys().filter(|watch| !self.nodes.contains_key(watch)) {
            // It left the tree or was removed.
            let _ = inotify::remove_watch(&self.queue, *watch);
        }
        Ok(())
    }

    /// Reports renames whose other end did not arrive: it is outside the tree.
    fn departed(&mut self, events: &mut Vec<Event>) {
        let halves = std::mem::take(&mut self.halves);
        for half in halves {
            if !half.old {
                self.halves.push(Half { old: true, ..half });
                continue;
            }
            self.moves += usize::from(half.directory);
            events.push(Event::Moved { from: Some(half.path), to: None, directory: half.directory });
        }
    }

    /// Reads once; false if the queue was empty.
    fn read(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError> {
        let got = match rustix::io::read(&self.queue, &mut self.buffer[..]) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(false),
            Ok(got) => got,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(SourceError::Io { path: self.path.clone(), source: error.into() }),
        };
        let buffer = std::mem::take(&mut self.buffer);
        let mut lost = None;
        for item in wire::items(&buffer[..got]) {
            let overflow = |mask: u32| ReadFlags::from_bits_retain(mask).contains(ReadFlags::QUEUE_OVERFLOW);
            match item {
                Item::Event(report) if overflow(report.mask) => lost = Some(EventLoss::Overflow),
                Item::Event(report) => self.event(&report, events)?,
                Item::Unreadable => lost = Some(EventLoss::Unreadable),
            }
        }
        self.buffer = buffer;
        if let Some(loss) = lost {
            // Lost renames and directories make all paths unreliable.
            self.start_again()?;
            events.push(Event::Gap(loss));
        }
        Ok(true)
    }
}

impl EventSource for Inotify {
    fn name(&self) -> &'static str {
        "inotify"
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, SourceError> {
        if self.halves.is_empty() {
            return wait_for(&self.queue, at_most, &self.path);
        }
        wait_for(&self.queue, OTHER_END, &self.path)?;
        Ok(true)
    }

    fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        while self.read(events)? {}
        self.departed(events);
        if self.moves > 0 {
            self.find_all(events)?;
        }
        Ok(())
    }

    fn unwatched(&self) -> &[(Vec<u8>, String)] {
        &self.unwatched
    }
}
