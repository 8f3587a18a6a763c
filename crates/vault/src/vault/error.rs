//! Errors of opening and creating vaults.

use super::OWN;
use super::lock::LockError;
use super::settings::FILE;
use crate::catalogue::CatalogueError;
use crate::catalogue_rebuild::RebuildError;
use crate::changelog;
use crate::changelog::monitors::MARK_LEASE;
use crate::display_path::DisplayPath;
use crate::policy::PolicyError;
use crate::storage::pool;
use std::io;
use std::path::{Path, PathBuf};

/// Error of opening or creating a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Neither the path nor a parent directory is protected.
    #[error("{} is not protected: there is no {OWN} directory in it or above it (`gabion protect DIR` creates one; \
             --repository names one in another place)", path.display())]
    Unprotected {
        /// The path.
        path: PathBuf,
    },
    /// The operating system returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The settings are invalid.
    #[error("{}: {why}", path.display())]
    Settings {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// A part of the repository is damaged and can be created again.
    #[error("{}: {}; `gabion catalogue rebuild` rebuilds it", path.display(), why.trim_end())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// Another process holds the vault.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A watch, a mount or a daemon has the catalogue open.
    #[error(
        "the catalogue is in use by {holder}: stop that first, since it would continue with the old catalogue"
    )]
    CatalogueInUse {
        /// Process, host and time.
        holder: String,
    },
    /// Others record changes in the changelog, or work on what is there.
    #[error(
        "the vault is in use by {who}: stop that first, since what it records from now on would stay in the former \
         changelog. What was killed is forgotten at most {} s after its last sign of life: --wait waits for that, \
         --force does not look who is there", MARK_LEASE.as_secs()
    )]
    Attended {
        /// Their kinds, hosts and processes.
        who: String,
    },
    /// Processes use the vault, which is to be removed.
    #[error("the vault is in use by {who}: stop that first. --force does not look who is there")]
    InUse {
        /// Their kinds, hosts and processes.
        who: String,
    },
    /// The changelog cannot say who uses it.
    #[error(
        "who uses the vault is unknown: {0}. Stop its watches, mounts, daemons and workers on all hosts, then repeat \
         this with --force"
    )]
    UsersUnknown(#[source] changelog::Error),
    /// The changelog was moved since the vault was opened.
    #[error("the changelog was moved to {to} meanwhile: start this again")]
    Moved {
        /// Where it is now.
        to: String,
    },
    /// No directory for copies of catalogues is known.
    #[error("a catalogue that hosts share needs a directory for its copy on this host: set {variable}")]
    NoCache {
        /// Variable that names it.
        variable: &'static str,
    },
    /// The policy is invalid.
    #[error("{}: {source}", path.display())]
    Policy {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: Box<PolicyError>,
    },
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The changelog failed.
    #[error("the changelog: {}{}", .0, advice(.0))]
    Changelog(#[from] changelog::Error),
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] pool::PoolError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// The repository belongs to another tree.
    #[error(
        "the repository {} protects {}, not {}; if that is where the tree is now, put it into {}",
        DisplayPath::path(repository), DisplayPath::path(theirs), DisplayPath::path(ours), DisplayPath::path(&repository.join(FILE))
    )]
    OtherTree {
        /// The repository.
        repository: PathBuf,
        /// Tree of the repository.
        theirs: PathBuf,
        /// Tree that was given.
        ours: PathBuf,
    },
    /// The tree of the repository does not exist.
    #[error(
        "{}, which the repository {} protects, is not there; if it was moved, put where it is now into {}",
        DisplayPath::path(root), DisplayPath::path(repository), DisplayPath::path(&repository.join(FILE))
    )]
    NoTree {
        /// The repository.
        repository: PathBuf,
        /// Former path of the tree.
        root: PathBuf,
    },
}

fn advice(error: &changelog::Error) -> &'static str {
    if error.is_damage() { "; `gabion catalogue rebuild` rebuilds it" } else { "" }
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> VaultError + '_ {
    |source| VaultError::Io { path: path.to_owned(), source }
}

impl From<RebuildError> for VaultError {
    fn from(error: RebuildError) -> VaultError {
        match error {
            RebuildError::Catalogue(error) => VaultError::Catalogue(error),
            RebuildError::Io { path, source } => VaultError::Io { path, source },
        }
    }
}
