//! Events of a whole file system through fanotify: one mark, however many directories there are.
//!
//! The kernel names what changed by the handle of its directory and the name in it, and tells both ends of a rename in
//! one event. The handle is opened, its path read, and the path opened again beneath the root: only if that is the
//! same directory, the event is one of ours. So neither another mount of the same file system nor a directory that is hidden
//! under a mount is taken for a part of the tree. Paths are remembered until a directory is renamed.
//!
//! It needs root and Linux 5.17. Stores through a memory map give no event; closing the file that was mapped does.

pub mod wire;

use crate::event::{Change, Event, Loss, Source, SourceError, is_own, join, sysctl, wait_for};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Handle, Item, Place, Report};

/// What we want to hear of.
const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// Bytes of events that are read at once: some thousands of them.
const BUFFER: usize = 512 << 10;

/// Directories whose paths are remembered; when there are more, all are forgotten and found again.
const MAX_REMEMBERED: usize = 1 << 16;

/// How often a directory is looked for that is moved while we look.
const TRIES: u32 = 3;

/// The events of the file system that a tree is on, those of the tree picked out.
#[derive(Debug)]
pub struct Fanotify {
    queue: OwnedFd,
    tree: Tree,
    buffer: Vec<u8>,
}

/// The tree that is watched.
#[derive(Debug)]
struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// Directories of this name are not part of the tree, wherever they are.
    own: Vec<u8>,
    /// Paths of directories by their handles; nothing for those outside.
    remembered: Remembered,
}

type Remembered = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Where a directory is.
enum Found {
    /// Its path within the tree.
    Inside(Vec<u8>),
    /// Elsewhere on the file system, or of ours.
    Outside,
    /// It is gone.
    Gone,
    /// Nobody can say.
    Unknown,
}

impl Fanotify {
    /// Watches the tree below `root`; directories called `own` are left out with all that is in them.
    ///
    /// # Errors
    /// [`SourceError`]: rights, an old kernel, a file system without handles.
    pub fn watch(root: &Path, own: &[u8]) -> Result<Fanotify, SourceError> {
        let io = |source: io::Error| SourceError::Io { path: root.to_owned(), source };
        // Marks and handles need a real descriptor, not one that is only a path.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| io(error.into()))?;
        let queue = queue(root)?;
        mark(&queue, &opened, root)?;
        let tree =
            Tree { root: opened, path: root.to_owned(), own: own.to_vec(), remembered: HashMap::new() };
        // Handles that cannot be opened would be heard of only with the first event.
        tree.check_handles()?;
        Ok(Fanotify { queue, tree, buffer: vec![0; BUFFER] })
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
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let made = unsafe { libc::fanotify_init(flags, file) };
    if made < 0 {
        let source = io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::EPERM) => SourceError::Rights { call, source },
            Some(libc::EMFILE) => SourceError::TooManyQueues {
                sysctl: "fs.fanotify.max_user_groups",
                limit: sysctl("fs.fanotify.max_user_groups"),
            },
            _ => SourceError::Unsupported { call, root: root.to_owned(), source },
        });
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn mark(queue: &OwnedFd, root: &OwnedFd, path: &Path) -> Result<(), SourceError> {
    let call = "fanotify_mark";
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: both descriptors are open for as long as they are borrowed, and a null path means the descriptor itself.
    let marked =
        unsafe { libc::fanotify_mark(queue.as_raw_fd(), flags, MASK, root.as_raw_fd(), std::ptr::null()) };
    if marked == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        Some(libc::EPERM) => SourceError::Rights { call, source },
        _ => SourceError::Unsupported { call, root: path.to_owned(), source },
    })
}

/// A handle as the kernel has it, with room for the longest.
#[repr(C)]
struct FileHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; wire::MAX_HANDLE],
}

/// Opens what a handle stands for, on the file system of `root`.
fn open_by_handle(root: &OwnedFd, handle: Handle<'_>) -> io::Result<OwnedFd> {
    if handle.bytes.len() > wire::MAX_HANDLE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut given = FileHandle {
        bytes: handle.bytes.len() as libc::c_uint,
        kind: handle.kind,
        handle: [0; wire::MAX_HANDLE],
    };
    given.handle[..handle.bytes.len()].copy_from_slice(handle.bytes);
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the struct begins as the kernel's does, holds as many bytes as it says, and outlives the call; the
    // descriptor is open for as long as it is borrowed.
    let opened =
        unsafe { libc::open_by_handle_at(root.as_raw_fd(), std::ptr::from_mut(&mut given).cast(), flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The handle of an open file or directory: its kind and bytes.
fn handle_of(file: &OwnedFd) -> io::Result<(i32, Vec<u8>)> {
    let mut given =
        FileHandle { bytes: wire::MAX_HANDLE as libc::c_uint, kind: 0, handle: [0; wire::MAX_HANDLE] };
    let mut mount = 0;
    // SAFETY: the struct has room for as many bytes as it says, the path is an empty C string, and all of them outlive
    // the call.
    let done = unsafe {
        libc::name_to_handle_at(
            file.as_raw_fd(),
            c"".as_ptr(),
            std::ptr::from_mut(&mut given).cast(),
            &mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = (given.bytes as usize).min(wire::MAX_HANDLE);
    Ok((given.kind, given.handle[..length].to_vec()))
}

fn identity(file: &OwnedFd) -> io::Result<(u32, u32, u64, u32)> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::NLINK)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino, stat.stx_nlink))
}

fn path_of(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(link.as_os_str().as_bytes().to_vec())
}

impl Tree {
    fn check_handles(&self) -> Result<(), SourceError> {
        let call = "open_by_handle_at";
        let check = || {
            let (kind, bytes) = handle_of(&self.root)?;
            open_by_handle(&self.root, Handle { kind, bytes: &bytes }).map(drop)
        };
        check().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => SourceError::Rights { call, source },
            _ => SourceError::Unsupported { call, root: self.path.clone(), source },
        })
    }

    /// Where a directory is.
    fn find(&mut self, handle: Handle<'_>) -> Found {
        let key = handle.key();
        if let Some(known) = self.remembered.get(&*key) {
            return known.as_ref().map_or(Found::Outside, |path| Found::Inside(path.to_vec()));
        }
        let found = self.look(handle);
        let remember = match &found {
            Found::Inside(path) => Some(path.clone().into_boxed_slice()),
            Found::Outside => None,
            Found::Gone | Found::Unknown => return found,
        };
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(key, remember);
        found
    }

    fn look(&self, handle: Handle<'_>) -> Found {
        let directory = match open_by_handle(&self.root, handle) {
            Ok(directory) => directory,
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Found::Gone,
            Err(_) => return Found::Unknown,
        };
        for _ in 0..TRIES {
            match self.place(&directory) {
                Ok(Some(found)) => return found,
                // It was moved while we looked.
                Ok(None) => {}
                Err(_) => return Found::Unknown,
            }
        }
        // Whoever moves it all the time is heard of; what is hidden under a mount is not part of the tree.
        Found::Outside
    }

    /// Where an open directory is; nothing if its path is not its own any more.
    fn place(&self, directory: &OwnedFd) -> io::Result<Option<Found>> {
        let (path, root) = (path_of(directory)?, path_of(&self.root)?);
        let expected = identity(directory)?;
        if expected.3 == 0 {
            return Ok(Some(Found::Gone));
        }
        let below = match (path.strip_prefix(&root[..]), &root[..]) {
            (Some(rest), b"/") => rest,
            (Some([]), _) => b"",
            (Some([b'/', rest @ ..]), _) => rest,
            _ => return Ok(Some(Found::Outside)),
        };
        if below.split(|&byte| byte == b'/').any(|name| is_own(name, &self.own)) {
            return Ok(Some(Found::Outside));
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = if below.is_empty() { b"." } else { below };
        let Ok(again) = openat2(&self.root, again, flags, Mode::empty(), beneath) else { return Ok(None) };
        Ok((identity(&again)? == expected).then(|| Found::Inside(below.to_vec())))
    }

    /// The path of a name; nothing outside of the tree, nothing at all where nobody can say.
    fn path(&mut self, place: Place<'_>) -> Result<Option<Vec<u8>>, Unplaced> {
        match self.find(place.directory) {
            Found::Inside(_) if is_own(place.name, &self.own) => Ok(None),
            Found::Inside(directory) => Ok(Some(join(&directory, place.name))),
            Found::Outside => Ok(None),
            Found::Gone => Err(Unplaced::Gone),
            Found::Unknown => Err(Unplaced::Unknown),
        }
    }

    fn event(&mut self, report: &Report<'_>, events: &mut Vec<Event>) {
        let directory = report.mask & libc::FAN_ONDIR != 0;
        if report.mask & libc::FAN_RENAME != 0 {
            self.renamed(report, directory, events);
            return;
        }
        let Some(place) = report.place else { return };
        let Some(change) = change(report.mask, directory) else { return };
        match self.path(place) {
            Ok(Some(path)) => events.push(Event::Changed { path, change, directory }),
            Ok(None) => {}
            // Someone removed the directory; that event follows, and counts for all that was in it.
            Err(Unplaced::Gone) => {}
            Err(Unplaced::Unknown) => events.push(Event::Gap(Loss::Unresolved)),
        }
    }

    fn renamed(&mut self, report: &Report<'_>, directory: bool, events: &mut Vec<Event>) {
        let mut end = |place: Option<Place<'_>>| match place.map(|place| self.path(place)) {
            None | Some(Ok(None)) | Some(Err(Unplaced::Gone)) => Ok(None),
            Some(Ok(Some(path))) => Ok(Some(path)),
            Some(Err(Unplaced::Unknown)) => Err(()),
        };
        let ends = (end(report.from), end(report.to));
        if directory {
            // Whatever was remembered of it and of what is in it is no longer so.
            self.remembered.clear();
        }
        match ends {
            (Ok(None), Ok(None)) => {}
            (Ok(from), Ok(to)) => events.push(Event::Moved { from, to, directory }),
            _ => events.push(Event::Gap(Loss::Unresolved)),
        }
    }
}

/// Why a name has no path.
enum Unplaced {
    Gone,
    Unknown,
}

/// What a mask says; nothing for what is of no interest.
fn change(mask: u64, directory: bool) -> Option<Change> {
    let has = |bit: u64| mask & bit != 0;
    // Merged events do not tell their order; that something may be gone is what must not be missed.
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

impl Source for Fanotify {
    fn name(&self) -> &'static str {
        "fanotify"
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, SourceError> {
        wait_for(&self.queue, at_most, &self.tree.path)
    }

    fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        loop {
            let got = match rustix::io::read(&self.queue, &mut self.buffer[..]) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Ok(got) => got,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return Err(SourceError::Io { path: self.tree.path.clone(), source: error.into() });
                }
            };
            for item in wire::items(&self.buffer[..got]) {
                match item {
                    Item::Report(report) => self.tree.event(&report, events),
                    Item::Overflow => events.push(Event::Gap(Loss::Overflow)),
                    Item::Unreadable => events.push(Event::Gap(Loss::Unreadable)),
                }
            }
        }
    }
}
