//! When it makes sense to try a failed operation again.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::io;

/// When it makes sense to try a failed operation again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retry {
    /// At once, a few times: another process was in the way, for example one that wrote the file.
    Now,
    /// After a pause: the cause may pass by itself. A target returns, space is freed, a disk answers again.
    Later,
    /// After somebody has changed something: the file, its permissions, the policy, the program's version.
    AfterChange,
    /// Never: bytes are lost.
    Never,
}

/// An error that says when it makes sense to try again.
pub trait Retryable: Display {
    /// When it makes sense to try again.
    fn retry(&self) -> Retry;
}

impl Retryable for io::Error {
    fn retry(&self) -> Retry {
        use io::ErrorKind::{
            FileTooLarge, Interrupted, InvalidData, InvalidFilename, InvalidInput, IsADirectory,
            NotADirectory, PermissionDenied, ReadOnlyFilesystem, ResourceBusy, StaleNetworkFileHandle,
            Unsupported, WouldBlock,
        };
        match self.kind() {
            Interrupted | ResourceBusy | StaleNetworkFileHandle | WouldBlock => Retry::Now,
            FileTooLarge | InvalidData | InvalidFilename | InvalidInput | IsADirectory | NotADirectory
            | PermissionDenied | ReadOnlyFilesystem | Unsupported => Retry::AfterChange,
            _ => Retry::Later,
        }
    }
}

/// Failure with one file, for a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    why: String,
    retry: Retry,
}

impl Failure {
    /// A failure with a text of its own.
    pub fn new(why: impl Display, retry: Retry) -> Failure {
        Failure { why: why.to_string(), retry }
    }

    /// When it makes sense to try again.
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.why)
    }
}

impl<E: Retryable> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(&error, error.retry())
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Retry, Retryable};
    use std::io;

    #[test]
    fn errors_of_the_system_say_when_to_try_again() {
        use rustix::io::Errno;
        for (errno, retry) in [
            (Errno::BUSY, Retry::Now),
            (Errno::STALE, Retry::Now),
            (Errno::IO, Retry::Later),
            (Errno::NOSPC, Retry::Later),
            (Errno::TIMEDOUT, Retry::Later),
            (Errno::ACCESS, Retry::AfterChange),
            (Errno::ROFS, Retry::AfterChange),
        ] {
            let error = io::Error::from(errno);
            let text = error.to_string();
            assert_eq!(error.retry(), retry, "{text}");
            let failure = Failure::from(error);
            assert_eq!((failure.retry(), failure.to_string()), (retry, text));
        }
    }
}
