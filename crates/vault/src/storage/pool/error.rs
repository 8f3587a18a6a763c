//! What can go wrong with a pool, by the names of pools, targets and files.

use super::config::ConfigError;
use crate::shown::Shown;
use std::io;
use std::path::PathBuf;

/// Why something could not be done with a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No target of the pool was found where it should be.
    #[error("no pool at {}: {}", .paths, .why)]
    NotFound {
        /// Where was looked.
        paths: String,
        /// What was found instead.
        why: String,
    },
    /// A name is that of a pool and the directory of a target of another one.
    #[error(
        "{name} is the name of a pool and the directory of a target of pool {other}: write pool:{name} for the pool of that name, ./{name} for the other"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The pool whose target the directory is.
        other: String,
    },
    /// A directory belongs to another pool, or is another target than the one that should be there.
    #[error("{} is target {found}, not {wanted}: was another disk mounted there?", Shown::path(.path))]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Pool and target that its `pool.toml` names.
        found: String,
        /// Pool and target that were looked for.
        wanted: String,
    },
    /// A directory that shall become a target has something in it that we must not touch.
    #[error("{} cannot become a target: {why}", Shown::path(.path))]
    Unfit {
        /// The directory.
        path: PathBuf,
        /// What is the matter with it.
        why: String,
    },
    /// A name or number that no pool can have.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No target of this name.
    #[error("pool {pool} has no target {target}; it has {known}")]
    NoTarget {
        /// The pool.
        pool: String,
        /// What was asked for.
        target: String,
        /// What there is.
        known: String,
    },
    /// Content needs more failure domains that can take something.
    #[error("{need} targets in different domains are needed, {have} can be used{}", unusable(.offline))]
    Domains {
        /// Columns to place.
        need: usize,
        /// Domains with a target that can take something.
        have: usize,
        /// Targets that do not answer.
        offline: Vec<String>,
    },
    /// So many targets are gone that those left may not know of changes; nothing is changed then.
    #[error("{online} targets answer and {need} are needed to change anything{}", unusable(.offline))]
    Quorum {
        /// Targets that answer.
        online: usize,
        /// How many it takes.
        need: usize,
        /// Those that do not.
        offline: Vec<String>,
    },
    /// All targets that have the namespace as it is now are gone.
    #[error("no target with the current namespace answers; it is on {}", .mirrors.join(", "))]
    Mirrors {
        /// Those that have it.
        mirrors: Vec<String>,
    },
    /// Another process has the pool mounted.
    #[error("the pool is mounted already: the process that has it holds `live` on target {target}")]
    Mounted {
        /// A target that it has locked.
        target: String,
    },
    /// A path of the pool.
    #[error("{}: {source}", Shown::bytes(.path))]
    Path {
        /// The path.
        path: Vec<u8>,
        /// What is the matter.
        source: io::Error,
    },
    /// A target.
    #[error("target {target}: {doing}: {source}")]
    Target {
        /// Its name.
        target: String,
        /// What was tried.
        doing: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
    /// Bytes of a file are gone or cannot be reached.
    #[error("{}: column {column} on target {target}: {why}", Shown::bytes(.path))]
    Lost {
        /// The file.
        path: Vec<u8>,
        /// The column.
        column: usize,
        /// The target that should have it.
        target: String,
        /// What happened.
        why: String,
    },
    /// A file was replaced, moved or removed while something was done with it.
    #[error("{}: it was changed meanwhile", Shown::bytes(.path))]
    Changed {
        /// The file.
        path: Vec<u8>,
    },
    /// A target was retired or given up while something new was put on it.
    #[error("target {target} left service while something was put on it; it has to be put again")]
    Left {
        /// Which one.
        target: String,
    },
    /// No disk is to blame: reading what shall be put, writing what was asked for.
    #[error("{doing}: {source}")]
    Caller {
        /// What was tried.
        doing: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

fn unusable(offline: &[String]) -> String {
    if offline.is_empty() { String::new() } else { format!("; offline: {}", offline.join(", ")) }
}

impl PoolError {
    pub(crate) fn path(path: &[u8], source: impl Into<io::Error>) -> PoolError {
        PoolError::Path { path: path.to_vec(), source: source.into() }
    }

    pub(crate) fn target(target: &str, doing: &'static str) -> impl FnOnce(io::Error) -> PoolError {
        let target = target.to_owned();
        move |source| PoolError::Target { target, doing, source }
    }

    /// What kind of trouble it is, in the words of the operating system.
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

impl From<PoolError> for io::Error {
    fn from(error: PoolError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
