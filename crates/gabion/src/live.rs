//! Starting and stopping of live protection: shared by `gabion watch`, `gabion mount` and the daemon.

mod access;
mod mounted;
mod protect_options;

pub use access::Access;
pub use mounted::{MountPlan, MountedSource, Say, Source};
pub use protect_options::{ProtectOptions, directory};

use gabion_mount::MountError;
use gabion_vault::monitor::MonitorError;
use gabion_vault::storage::pool::PoolError;
use gabion_vault::vault::VaultError;
use std::io;
use std::path::{Path, PathBuf};

/// Error of live protection.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Only directories can be protected.
    #[error("{} is not a directory", gabion_vault::display_path::DisplayPath::path(path))]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The code is invalid.
    #[error("--code {code}: {source}")]
    Code {
        /// As it was written.
        code: String,
        /// The reason.
        source: gabion_engine::Error,
    },
    /// Files cannot be protected with the code.
    #[error("--code {0}")]
    Unusable(#[from] gabion_vault::policy::Unusable),
    /// The directory is a repository, which cannot be protected itself.
    #[error(
        "{} is part of a repository: protect the directory that it belongs to",
        gabion_vault::display_path::DisplayPath::path(path)
    )]
    Repository {
        /// The path.
        path: PathBuf,
    },
    /// The vault cannot be opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The directory cannot be watched.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The changelog's server did not answer at the end of a mount.
    #[error(
        "the changelog's server has not answered for {} s: what was changed last may not be recorded. The mark of \
         this mount stays on the server: once it is lost, `gabion status` says EXPOSED until a scan, as by `gabion \
         protect`, has found the changes", .0.as_secs()
    )]
    Unanswered(std::time::Duration),
    /// Error of the pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] crate::compute::DeviceError),
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
}

fn at(path: &Path) -> impl Fn(io::Error) -> LiveError + '_ {
    |source| LiveError::Io { path: path.to_owned(), source }
}
