//! Change events of a directory tree, independent of the interface that reports them.
//!
//! Events are hints: each says that a path has to be examined again. They arrive in the order in which the kernel
//! queued them, but the kernel may merge events of one name, so the last event of a name need not describe the last
//! change of it.

use std::path::PathBuf;
use std::time::Duration;

/// One event. Paths are bytes, relative to the watched root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A name changed.
    Changed {
        /// The path.
        path: Vec<u8>,
        /// The kind of change.
        change: Change,
        /// True for a directory.
        directory: bool,
    },
    /// A name was renamed.
    Moved {
        /// The old path; `None` if it is outside the root.
        from: Option<Vec<u8>>,
        /// The new path; `None` if it is outside the root.
        to: Option<Vec<u8>>,
        /// True for a directory.
        directory: bool,
    },
    /// Events were lost: only a scan of the whole tree finds what changed.
    Gap(EventLoss),
}

/// Kind of change of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Created: a new file, a hard link, a directory.
    Created,
    /// Content was written or truncated.
    Modified,
    /// A descriptor that was open for writing was closed.
    Closed,
    /// Owner, permissions, times or attributes changed, or its number of links.
    Attributes,
    /// Deleted, or deleted and created again.
    Deleted,
}

/// Reason of a loss of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventLoss {
    /// The kernel's queue was full.
    Overflow,
    /// The kernel sent an event that cannot be parsed.
    Unreadable,
    /// An existing directory could not be opened by the handle in its event.
    Unresolved,
}

impl EventLoss {
    /// The reason, for messages.
    pub fn words(self) -> &'static str {
        match self {
            EventLoss::Overflow => "the queue of events was full",
            EventLoss::Unreadable => "an event could not be read",
            EventLoss::Unresolved => "a directory of an event could not be found",
        }
    }
}

/// Reason why a source listens to the whole file system instead of the tree alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesystemWide {
    /// A mount at this directory hides the directories below it.
    Mount(Vec<u8>),
    /// The tree has more directories than may be marked.
    TooMany {
        /// The limit.
        most: usize,
    },
    /// This directory cannot be marked.
    Refused {
        /// The directory.
        path: Vec<u8>,
        /// The error of the operating system.
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

/// Reason why a tree cannot be watched, or cannot be watched any longer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The call needs privileges that this process does not have.
    #[error("{call} needs to be root (CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH): {source}")]
    Rights {
        /// The call.
        call: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The kernel or the file system does not support the call.
    #[error("{call} does not work for {}: {source}", root.display())]
    Unsupported {
        /// The call.
        call: &'static str,
        /// For which tree.
        root: PathBuf,
        /// The error of the operating system.
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
        /// Value of the sysctl.
        limit: String,
    },
    /// The user has too many event queues.
    #[error("no more event queues for this user: the sysctl {sysctl} is {limit}; raise it")]
    TooManyQueues {
        /// The sysctl.
        sysctl: &'static str,
        /// The value.
        limit: String,
    },
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// A source of change events of one tree.
pub trait EventSource: Send {
    /// Its name: `fanotify` or `inotify`.
    fn name(&self) -> &'static str;

    /// Waits until events are ready, for at most the given time. True if there are events.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    fn wait(&mut self, at_most: Duration) -> Result<bool, SourceError>;

    /// Appends all events that are ready, without waiting.
    ///
    /// # Errors
    /// [`SourceError`]; the source delivers no events after that.
    fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError>;

    /// True if events are deferred until [`report_deferred`](EventSource::report_deferred) is called.
    fn has_deferred(&self) -> bool {
        false
    }

    /// Appends the deferred events.
    ///
    /// # Errors
    /// [`SourceError`]; the source delivers no events after that.
    fn report_deferred(&mut self, _events: &mut Vec<Event>) -> Result<(), SourceError> {
        Ok(())
    }

    /// The reason why the source receives events of every write on the file system and not of the tree alone. No event
    /// is missed then, but every writer on that file system pays for the events.
    fn filesystem_wide(&self) -> Option<&FilesystemWide> {
        None
    }

    /// Directories that are not watched, each with the reason.
    fn unwatched(&self) -> &[(Vec<u8>, String)] {
        &[]
    }
}

/// True for the name of directories that are excluded from the tree.
pub(crate) fn is_own(name: &[u8], own: &[u8]) -> bool {
    name == own
}

/// A name in a directory, as a path.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// Waits until a descriptor is readable, for at most the given time.
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
        // Interrupted by a signal; the caller calls again.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(SourceError::Io { path: root.to_owned(), source: error.into() }),
    }
}

/// Value of a sysctl.
pub(crate) fn sysctl(name: &str) -> String {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
