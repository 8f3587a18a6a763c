//! Errors of the encoder.

use super::Encoded;
use crate::display_path::DisplayPath;
use crate::examine::ExamineError;
use crate::redundancy::{PartError, PartPath};
use crate::retry::{Retry, Retryable};
use crate::storage::{Fault, LayoutError};
use std::io;

/// Error that leaves a file without new redundancy. Existing redundancy is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The file changed while it was read.
    #[error("it changed while it was read")]
    Changed,
    /// The file does not exist.
    #[error("it no longer exists")]
    Gone,
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] Fault),
    /// The file cannot be divided into blocks for this code.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A redundancy file cannot be written.
    #[error("its redundancy cannot be written to {}: {source}", DisplayPath::path(.path))]
    Write {
        /// Path of the redundancy file.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Existing redundancy must not be overwritten: it has a newer format, or cannot be read now.
    #[error("its redundancy {} is not overwritten: {source}", DisplayPath::path(.path))]
    Redundancy {
        /// Path of the redundancy file.
        path: std::path::PathBuf,
        /// Problem of the redundancy file.
        source: Box<PartError>,
    },
    /// A property of the file does not fit into a header or a code.
    #[error("{0}")]
    Engine(#[from] gabion_engine::Error),
    /// The file differs from its protected content although size and mtime are unchanged. It keeps its redundancy.
    #[error(
        "it is corrupt: its content differs from the protected content although size and mtime are unchanged; \
         repair it first"
    )]
    Damaged(Box<Encoded>),
    /// The file is protected under another name and differs from the content protected there.
    #[error(
        "it is corrupt: it is a hard link of {}, whose content differs from the protected content; repair that first",
        DisplayPath::bytes(.0)
    )]
    OtherName(Vec<u8>),
    /// Existing redundancy cannot be examined.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
}

impl EncodeError {
    pub(super) fn read(error: io::Error) -> EncodeError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => EncodeError::Gone,
            _ => EncodeError::Read(Fault::Io(error)),
        }
    }

    pub(super) fn write(place: &PartPath) -> impl Fn(io::Error) -> EncodeError + '_ {
        |source| EncodeError::Write { path: place.tree.shown(&place.path), source }
    }
}

impl Retryable for EncodeError {
    fn retry(&self) -> Retry {
        use io::ErrorKind::{AlreadyExists, NotADirectory};
        match self {
            EncodeError::Changed | EncodeError::Gone | EncodeError::Stopped => Retry::Now,
            // The obstacle may be redundancy of a deleted file, which is about to be removed.
            EncodeError::Write { source, .. } if matches!(source.kind(), AlreadyExists | NotADirectory) => {
                Retry::Now
            }
            EncodeError::Write { source, .. } => source.retry(),
            EncodeError::Read(fault) => fault.retry(),
            EncodeError::Layout(error) => error.retry(),
            EncodeError::Redundancy { source, .. } => source.retry(),
            EncodeError::Examine(error) => error.retry(),
            EncodeError::Engine(_) | EncodeError::Damaged(_) | EncodeError::OtherName(_) => {
                Retry::AfterChange
            }
        }
    }
}
