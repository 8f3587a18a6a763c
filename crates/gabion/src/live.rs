//! Sources that are kept protected while programs use them: what `gabion watch`, `gabion mount` and the daemon share.

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

/// Why a source is not protected.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Only directories can be protected.
    #[error("{} is not a directory", gabion_vault::shown::Shown::path(path))]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The code is none.
    #[error("--code {code}: {source}")]
    Code {
        /// As it was written.
        code: String,
        /// What is wrong.
        source: gabion_engine::Error,
    },
    /// Files cannot be protected with the code.
    #[error("--code {0}")]
    Unusable(#[from] gabion_vault::policy::Unusable),
    /// The redundancy of redundancy would change with every look at it.
    #[error(
        "{} belongs to a repository: protect the directory that it is for",
        gabion_vault::shown::Shown::path(path)
    )]
    Repository {
        /// The path.
        path: PathBuf,
    },
    /// The vault cannot be opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// It cannot be watched.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// It cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The pool fails.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The engine fails.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
}

fn at(path: &Path) -> impl Fn(io::Error) -> LiveError + '_ {
    |source| LiveError::Io { path: path.to_owned(), source }
}
