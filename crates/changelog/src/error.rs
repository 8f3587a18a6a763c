//! Errors of a changelog, and which of them are transient.

use std::path::PathBuf;
use std::sync::Arc;

/// The outcome of work on a changelog.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of the client of a server: of its connection, or what the server answered.
pub type ServerError = dyn std::error::Error + Send + Sync;

/// Errors of a changelog. Cheap to clone: all writers of a group get the same one.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No path of a protected file looks like this.
    #[error("a path of {length} bytes {why}")]
    Path {
        /// Its length in bytes.
        length: usize,
        /// What is wrong with it.
        why: PathFault,
    },
    /// A range without a byte in it.
    #[error("the range {start}..{end} holds no byte")]
    Range {
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
    /// A path cannot be moved into itself, nor onto a directory that holds it.
    #[error(
        "a path of {from} bytes and one of {to} bytes lie within each other: neither can become the other"
    )]
    Nested {
        /// Length of the old path in bytes.
        from: usize,
        /// Length of the new path in bytes.
        to: usize,
    },
    /// The claim is not this worker's any more: its result must not be committed.
    #[error("claim {token} is refused: {why}")]
    Refused {
        /// The fencing number of the claim.
        token: u64,
        /// What happened to it.
        why: Refusal,
    },
    /// The database refused.
    #[error("cannot {doing} {}: {reason}", .path.display())]
    Database {
        /// What was tried.
        doing: &'static str,
        /// The database.
        path: PathBuf,
        /// Its answer. Not called `source`: the message has it already.
        reason: Arc<rusqlite::Error>,
    },
    /// Other processes kept the database locked.
    #[error("cannot {doing} {}: others held its lock for more than {waited_s} s", .path.display())]
    Busy {
        /// What was tried.
        doing: &'static str,
        /// The database.
        path: PathBuf,
        /// How long it was tried, in seconds.
        waited_s: u64,
    },
    /// A file that is no changelog: it is left alone.
    #[error("{} is no changelog of gabion (application {application:#010x})", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The application that it says to belong to; 0 if it is no database at all.
        application: i64,
    },
    /// A changelog of another version.
    #[error("{} is a changelog of version {found}; this program knows {known}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The one version this program reads.
        known: i64,
    },
    /// The stored changelog contradicts itself: reconcile everything by a scan.
    #[error("{} is damaged: {what}", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The server cannot be reached. What was being recorded may or may not have arrived.
    #[error("the server {address} is away after {attempts} attempts: {reason}")]
    Away {
        /// Host and port.
        address: String,
        /// How often it was tried.
        attempts: u32,
        /// The last answer.
        reason: Arc<ServerError>,
    },
    /// The server answered with an error.
    #[error("the server {address} refuses to {doing}: {reason}")]
    Server {
        /// What was asked.
        doing: &'static str,
        /// Host and port.
        address: String,
        /// Its answer.
        reason: Arc<ServerError>,
    },
    /// The server gave an answer that the function never gives.
    #[error("the server {address} gave an answer to {doing} that makes no sense")]
    Answer {
        /// What was asked.
        doing: &'static str,
        /// Host and port.
        address: String,
    },
    /// The server has the changes, but not yet on stable storage.
    #[error("the server {address} did not bring its file to stable storage within {waited_ms} ms")]
    NotSynced {
        /// Host and port.
        address: String,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// The server would forget acknowledged changes.
    #[error(
        "the server {address} may forget acknowledged changes (appendonly {appendonly}, appendfsync {appendfsync}): set appendonly yes and \
         appendfsync always; everysec is enough for Redis 7.2 and later"
    )]
    Forgetful {
        /// Host and port.
        address: String,
        /// Its setting.
        appendonly: String,
        /// Its setting.
        appendfsync: String,
    },
    /// The server would drop acknowledged changes to make room for others.
    #[error(
        "the server {address} drops what it has when its memory is full (maxmemory-policy {policy}), acknowledged changes too; it has to \
         be noeviction"
    )]
    Evicting {
        /// Host and port.
        address: String,
        /// Its setting.
        policy: String,
    },
    /// The name of a changelog becomes part of every key.
    #[error("a name of {length} bytes is no name for a changelog: 1 to 64 letters, digits, '-', '_' or '.'")]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// The program was built without the engine that the settings name.
    #[error("cannot use the changelog on {address}: this program was built without Redis (feature `redis`)")]
    NotBuilt {
        /// The address, without a password.
        address: String,
    },
    /// The operating system refused a thread, a directory or random numbers.
    #[error("cannot {doing}: {reason}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The answer.
        reason: Arc<std::io::Error>,
    },
    /// The thread that makes changes durable has ended; open the changelog again.
    #[error("the changelog is closed")]
    Closed,
}

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// More than [`MAX_PATH`](super::MAX_PATH) bytes.
    #[error("is too long")]
    TooLong,
    /// Only a gap or a deletion can be about the root itself.
    #[error("names the root")]
    Root,
    /// `/` at an end, `//`, or a part that is `.` or `..`.
    #[error("is not plain: it begins or ends with '/', or has an empty part, '.' or '..'")]
    NotPlain,
    /// No file system knows such a name.
    #[error("has a zero byte")]
    Zero,
}

/// Why a claim is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The lease ran out and the entry went back to the queue, or the claim was finished before.
    #[error("its lease ran out, or it was finished before")]
    Lost,
    /// The entry was moved to another path or cancelled while it was worked on.
    #[error("its file was moved or deleted meanwhile")]
    Overtaken,
}

impl Error {
    /// True if the stored data is no changelog, or a damaged one.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Foreign { .. } | Error::Damaged { .. })
    }

    /// True for a transient error: the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Busy { .. } | Error::Away { .. } | Error::NotSynced { .. } => true,
            Error::Database { reason, .. } => matches!(
                reason.sqlite_error_code(),
                Some(rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::SystemIoFailure)
            ),
            _ => false,
        }
    }
}
