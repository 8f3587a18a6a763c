//! Errors of a pool.

use super::config::{ConfigError, TargetName};
use crate::display_path::DisplayPath;
use crate::retry::{Failure, Retry, Retryable};
use std::io;
use std::path::PathBuf;

/// Why an operation on a pool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool was not found.
    #[error("no pool at {}: {}", .paths, .why)]
    NotFound {
        /// Where it was searched.
        paths: String,
        /// The reason.
        why: String,
    },
    /// A name stands for a registered pool and for a target directory of another pool.
    #[error(
        "{name} is the name of a pool and the directory of a target of pool {other}: write pool:{name} for the pool, ./{name} for the directory"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The pool of the target directory.
        other: String,
    },
    /// A directory belongs to another pool, or is another target than expected.
    #[error("{} is target {found}, not {expected}: was another disk mounted there?", DisplayPath::path(.path))]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Pool and target named by its `pool.toml`.
        found: String,
        /// Pool and target that were expected.
        expected: String,
    },
    /// A directory cannot become a target.
    #[error("{} cannot become a target: {why}", DisplayPath::path(.path))]
    Unfit {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// An invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Unknown target name.
    #[error("pool {pool} has no target {target}; it has {known}")]
    NoTarget {
        /// The pool.
        pool: String,
        /// The requested name.
        target: String,
        /// The known names.
        known: String,
    },
    /// A target that is to be removed from the pool is needed.
    #[error("target {target} cannot be removed from the pool: {why}")]
    InUse {
        /// Its name.
        target: TargetName,
        /// The reason.
        why: String,
    },
    /// Too few failure domains can receive new data.
    #[error("{need} targets in different domains are needed, {have} can be used{}", unusable(.offline))]
    Domains {
        /// Columns to place.
        need: usize,
        /// Usable domains.
        have: usize,
        /// Unreachable targets.
        offline: Vec<TargetName>,
    },
    /// Too few targets are reachable to change anything: those left may have missed changes.
    #[error("{online} targets are reachable and {need} are needed to change anything{}", unusable(.offline))]
    Quorum {
        /// Reachable targets.
        online: usize,
        /// Required number.
        need: usize,
        /// Unreachable targets.
        offline: Vec<TargetName>,
    },
    /// No mirror with the current namespace is reachable.
    #[error("no target with the current namespace is reachable; it is on {}", .mirrors.join(", "))]
    Mirrors {
        /// The mirrors.
        mirrors: Vec<TargetName>,
    },
    /// Another process has mounted the pool.
    #[error("the pool is mounted already: the process that has it holds `live` on target {target}")]
    Mounted {
        /// A target that it has locked.
        target: TargetName,
    },
    /// An error at a path of the pool.
    #[error("{}: {source}", DisplayPath::bytes(.path))]
    Path {
        /// The path.
        path: Vec<u8>,
        /// The error.
        source: io::Error,
    },
    /// An error of a target.
    #[error("target {target}: {doing}: {source}")]
    Target {
        /// Its name.
        target: TargetName,
        /// The operation.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Bytes of a file are missing or unreachable.
    #[error("{}: column {column} on target {target}: {why}", DisplayPath::bytes(.path))]
    Lost {
        /// The file.
        path: Vec<u8>,
        /// The column.
        column: usize,
        /// The target of the column.
        target: TargetName,
        /// The reason.
        why: Failure,
    },
    /// A file was replaced, moved or removed during an operation.
    #[error("{}: it was changed meanwhile", DisplayPath::bytes(.path))]
    Changed {
        /// The file.
        path: Vec<u8>,
    },
    /// A target was retired or given up while new data was being written to it.
    #[error("target {target} left service while data was being written to it; try again")]
    Left {
        /// The target.
        target: TargetName,
    },
    /// An error of the caller's input or output rather than of a disk.
    #[error("{doing}: {source}")]
    Caller {
        /// The operation.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn unusable(offline: &[TargetName]) -> String {
    if offline.is_empty() { String::new() } else { format!("; offline: {}", offline.join(", ")) }
}

impl PoolError {
    pub(crate) fn path(path: &[u8], source: impl Into<io::Error>) -> PoolError {
        PoolError::Path { path: path.to_vec(), source: source.into() }
    }

    pub(crate) fn target(
        target: &TargetName,
        doing: &'static str,
    ) -> impl FnOnce(io::Error) -> PoolError + use<> {
        let target = target.clone();
        move |source| PoolError::Target { target, doing, source }
    }

    /// The kind of error of the operating system that fits best.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            PoolError::Path { source, .. }
            | PoolError::Target { source, .. }
            | PoolError::Caller { source, .. } => source.kind(),
            PoolError::NotFound { .. } | PoolError::NoTarget { .. } => io::ErrorKind::NotFound,
            PoolError::Changed { .. } | PoolError::Left { .. } => io::ErrorKind::ResourceBusy,
            PoolError::Config(_) | PoolError::Unfit { .. } => io::ErrorKind::InvalidInput,
            PoolError::Mounted { .. } => io::ErrorKind::ResourceBusy,
            _ => io::ErrorKind::Other,
        }
    }
}

impl Retryable for PoolError {
    fn retry(&self) -> Retry {
        match self {
            PoolError::Changed { .. } | PoolError::Left { .. } => Retry::Now,
            PoolError::Path { source, .. }
            | PoolError::Target { source, .. }
            | PoolError::Caller { source, .. } => source.retry(),
            PoolError::Domains { .. }
            | PoolError::Quorum { .. }
            | PoolError::Mirrors { .. }
            | PoolError::Mounted { .. } => Retry::Later,
            PoolError::Lost { why, .. } => why.retry(),
            PoolError::NotFound { .. }
            | PoolError::Ambiguous { .. }
            | PoolError::Foreign { .. }
            | PoolError::Unfit { .. }
            | PoolError::Config(_)
            | PoolError::InUse { .. }
            | PoolError::NoTarget { .. } => Retry::AfterChange,
        }
    }
}

impl From<PoolError> for io::Error {
    fn from(error: PoolError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
