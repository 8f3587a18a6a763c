//! What happens in a directory tree, whoever tells it.
//!
//! Events are hints: each says that something at a path is to be looked at again. They come in the order in which
//! the kernel queued them, but the kernel may merge events of one name, so the last event of a name need not be the last
//! thing that happened to it.

use std::path::PathBuf;
use std::time::Duration;

/// Something happened. Paths are bytes, relative to the root that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something happened to a name.
    Changed {
        /// The path.
        path: Vec<u8>,
        /// What.
        change: Change,
        /// Whether it is a directory.
        directory: bool,
    },
    /// A name became another one.
    Moved {
        /// Where it was; nothing for outside of the root.
        from: Option<Vec<u8>>,
        /// Where it is; nothing for outside of the root.
        to: Option<Vec<u8>>,
        /// Whether it is a directory.
        directory: bool,
    },
    /// Events were lost: only a look at the whole tree tells what changed.
    Gap(EventLoss),
}

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It appeared: a new file, a hard link, a directory.
    Created,
    /// Bytes were written or cut.
    Modified,
    /// Someone who could write to it closed it.
    Closed,
    /// Owner, permissions, times or attributes changed, or its number of links.
    Attributes,
    /// It is gone, or was and is there again.
    Deleted,
}

/// Why events were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventLoss {
    /// The kernel's queue was full.
    Overflow,
    /// The kernel told something that cannot be read.
    Unreadable,
    /// A directory that was there could not be found by what the kernel told of it.
    Unresolved,
}

impl EventLoss {
    /// Why, in words.
    pub fn words(self) -> &'static str {
        match self {
            EventLoss::Overflow => "the queue of events was full",
            EventLoss::Unreadable => "an event could not be read",
            EventLoss::Unresolved => "a directory of an event could not be found",
        }
    }
}

/// Why all of a file system is listened to instead of the tree alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesystemWide {
    /// Something is mounted at this directory, and hides what is below.
    Mount(Vec<u8>),
    /// The tree has more directories than are to be marked.
    TooMany {
        /// Most that are.
        most: usize,
    },
    /// This directory cannot be marked.
    Refused {
        /// Which.
        path: Vec<u8>,
        /// What the operating system says.
        error: String,
    },
}

impl std::fmt::Display for FilesystemWide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FilesystemWide::Mount(path) => write!(f, "something is mounted at {}", path.escape_ascii()),
            FilesystemWide::TooMany { most } => write!(f, "the tree has more than {most} directories"),
            FilesystemWide::Refused { path, error } => {
                write!(f, "{} cannot be marked: {error}", path.escape_ascii())
            }
        }
    }
}

/// Why a tree cannot be watched, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The call needs rights that this process does not have.
    #[error("{call} needs to be root (CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH): {source}")]
    Rights {
        /// Which call.
        call: &'static str,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The kernel or the file system cannot do that.
    #[error("{call} does not work for {}: {source}", root.display())]
    Unsupported {
        /// Which call.
        call: &'static str,
        /// For which tree.
        root: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// There are more directories than this user may watch.
    #[error(
        "{} cannot be watched: this user may watch no more directories with inotify (the sysctl fs.inotify.max_user_watches \
         is {limit}); raise it, or run as root with fanotify, which needs no watch for each directory", path.display()
    )]
    TooManyWatches {
        /// The directory that was too many.
        path: PathBuf,
        /// What the sysctl says.
        limit: String,
    },
    /// This user has too many event queues.
    #[error("no more event queues for this user: the sysctl {sysctl} is {limit}; raise it")]
    TooManyQueues {
        /// The sysctl.
        sysctl: &'static str,
        /// What it says.
        limit: String,
    },
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// What it is about.
        path: PathBuf,
        /// What it says.
        source: std::io::Error,
    },
}

/// Tells what changes in a tree.
pub trait Source: Send {
    /// Its name: `fanotify` or `inotify`.
    fn name(&self) -> &'static str;

    /// Waits until there is something to tell, at most so long. Whether there is.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    fn wait(&mut self, at_most: Duration) -> Result<bool, SourceError>;

    /// Takes all that there is to tell, without waiting.
    ///
    /// # Errors
    /// [`SourceError`]; then nothing more will come.
    fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError>;

    /// Whether it keeps something back that [`report_deferred`](Source::report_deferred) would tell.
    fn has_deferred(&self) -> bool {
        false
    }

    /// Tells what it kept back.
    ///
    /// # Errors
    /// [`SourceError`]; then nothing more will come.
    fn report_deferred(&mut self, _events: &mut Vec<Event>) -> Result<(), SourceError> {
        Ok(())
    }

    /// Why it has to hear of every write on the whole file system for good, where it could hear of the tree's alone. Nothing is missed
    /// then, but everyone who writes there pays.
    fn filesystem_wide(&self) -> Option<&FilesystemWide> {
        None
    }

    /// Directories that it tells nothing of, and why.
    fn unwatched(&self) -> &[(Vec<u8>, String)] {
        &[]
    }
}

/// Is the name left out of everything?
pub(crate) fn is_own(name: &[u8], own: &[u8]) -> bool {
    name == own
}

/// A name in a directory, as a path.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// Waits until a descriptor can be read, at most so long.
pub(crate) fn wait_for(
    file: impl std::os::fd::AsFd,
    at_most: Duration,
    root: &std::path::Path,
) -> Result<bool, SourceError> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    let mut ready = [PollFd::new(&file, PollFlags::IN)];
    match poll(&mut ready, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        // A signal; whoever asked looks around and asks again.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(SourceError::Io { path: root.to_owned(), source: error.into() }),
    }
}

/// What a sysctl says.
pub(crate) fn sysctl(name: &str) -> String {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
