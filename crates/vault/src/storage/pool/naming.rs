//! Which pool a name means: `pool:NAME` is the pool of that name in the registry, a path is the directory of a target, and a bare name is either.

use super::disk::look;
use super::{Options, Pool, PoolError, Registry, config};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Before a name that is always that of a pool.
pub const PREFIX: &str = "pool:";

/// The name behind [`PREFIX`]; nothing if it is not there.
pub fn prefixed(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_prefix(PREFIX.as_bytes()).map(OsStr::from_bytes)
}

impl Pool {
    /// Opens the pool of a name in the registry, or that a directory is a target of.
    ///
    /// # Errors
    /// See [`PoolError`]; a name that is both, and of two pools, is [`PoolError::Ambiguous`].
    pub fn open(name: &OsStr, registry: Option<&Registry>, options: Options) -> Result<Pool, PoolError> {
        Pool::open_from(Path::new(""), name, registry, options)
    }

    /// As [`open`](Pool::open); relative paths begin at `base`.
    ///
    /// # Errors
    /// As [`open`](Pool::open).
    pub fn open_from(
        base: &Path,
        name: &OsStr,
        registry: Option<&Registry>,
        options: Options,
    ) -> Result<Pool, PoolError> {
        let registered = |name: &OsStr| match (registry, name.to_str()) {
            (Some(registry), Some(name)) if config::is_name(name) => registry.find(name),
            _ => Ok(None),
        };
        if let Some(named) = prefixed(name) {
            let paths = registered(named)?.ok_or_else(|| PoolError::NotFound {
                paths: name.display().to_string(),
                why: "no pool of this name is known on this machine; name the directory of a target"
                    .to_owned(),
            })?;
            return Pool::open_at(&paths, options);
        }
        let directory = base.join(name);
        let Some(paths) = registered(name)? else { return Pool::open_at(&[directory], options) };
        let pool = Pool::open_at(&paths, options)?;
        match look(&directory) {
            Ok(other) if other.pool != pool.config().pool => {
                Err(PoolError::Ambiguous { name: name.display().to_string(), other: other.name })
            }
            _ => Ok(pool),
        }
    }
}
