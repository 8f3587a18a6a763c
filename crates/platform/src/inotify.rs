//! Events of a tree through inotify, for those who are not root: one watch for each directory.
//!
//! A directory that appears gets a watch first and is then looked through: whatever came before the watch is told as
//! created. Both ends of a rename are two events with one number; the first waits for the second until all that the
//! kernel has to tell is read twice, and then the directory or file has left the tree. After a directory was moved, all
//! directories are looked at again: a path may stand for another one by the time that its event is read. When the kernel's queue was full, all watches
//! are made anew.

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

/// Bytes of events that are read at once.
const BUFFER: usize = 256 << 10;

/// How long the other end of a rename is waited for.
const OTHER_END: Duration = Duration::from_millis(10);

/// Levels of directories; deeper ones are left to scans.
const MAX_DEPTH: usize = 4096;

/// The events of a tree.
#[derive(Debug)]
pub struct Inotify {
    queue: OwnedFd,
    root: OwnedFd,
    path: PathBuf,
    own: Vec<u8>,
    /// Directories by their watches.
    nodes: HashMap<i32, Node>,
    /// Renames of which only one end was told yet.
    halves: Vec<Half>,
    /// Directories that were moved since all watches were known to be where they are.
    moves: usize,
    unwatched: Vec<(Vec<u8>, String)>,
    buffer: Vec<u8>,
}

/// A directory: where it hangs, so that a rename changes but one of them.
#[derive(Debug)]
struct Node {
    /// The watch of the directory above; the root has none.
    parent: Option<i32>,
    name: Vec<u8>,
}

/// A name that was taken away and may come back elsewhere.
#[derive(Debug)]
struct Half {
    cookie: u32,
    path: Vec<u8>,
    directory: bool,
    /// All that there was to read was read once more since.
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
    /// Watches the tree below `root`; directories called `own` are left out with all that is in them.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::TooManyWatches`] where there are more directories than watches.
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

    /// Watches everything there is.
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

    /// Watches a directory and those in it; tells of what is in them, if someone wants to hear it.
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
                // Gone or another thing by now: that is told by an event of its own.
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
            // What hangs below a directory that was watched already came along with it.
            if let Some(known) = self.nodes.get(&watch) {
                let moved = !same(known);
                self.nodes.insert(watch, node);
                // It was moved to a place that nobody watched yet.
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

    /// The path of a directory by its watch; nothing if it left the tree.
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

    /// Finds out where all watched directories are. A path of an event may stand for another directory by the time that it is
    /// read, if directories are moved one after the other.
    fn find_all(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        self.moves = 0;
        let before = std::mem::take(&mut self.nodes);
        self.unwatched.clear();
        self.watch_tree(Vec::new(), None, None)?;
        let all: Vec<i32> = self.nodes.keys().copied().collect();
        for watch in all {
            let (was, now) = (before.get(&watch), self.nodes.get(&watch));
            if was.zip(now).is_none_or(|(was, now)| (was.parent, &was.name) != (now.parent, &now.name)) {
                // Whatever was told of it may have gone to another path; of a new one nothing was told.
                let to = self.path_of(watch);
                events.push(Event::Moved { from: None, to, directory: true });
            }
        }
        for watch in before.keys().filter(|watch| !self.nodes.contains_key(watch)) {
            // It left the tree, or is gone.
            let _ = inotify::remove_watch(&self.queue, *watch);
        }
        Ok(())
    }

    /// Renames whose other end did not come: it is outside.
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

    /// Reads once; false if there was nothing.
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
            // Renames and directories that were not told of make all paths doubtful.
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
