//! Resolution of pool names: `pool:NAME` is the registered pool of that name, a path is the directory of a target, and
//! a bare name is either.

use super::disk::read_target_config;
use super::{Options, Pool, PoolError, Registry, config};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prefix of a registered pool name.
pub const PREFIX: &str = "pool:";

/// The name after [`PREFIX`]; none without the prefix.
pub fn prefixed(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_prefix(PREFIX.as_bytes()).map(OsStr::from_bytes)
}

impl Pool {
    /// Opens the registered pool of a name, or the pool of a target directory.
    ///
    /// # Errors
    /// See [`PoolError`]; a name that stands for two pools is [`PoolError::Ambiguous`].
    pub fn open(name: &OsStr, registry: Option<&Registry>, options: Options) -> Result<Pool, PoolError> {
        Pool::open_from(Path::new(""), name, registry, options)
    }

    /// As [`open`](Pool::open); relative paths start at `base`.
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
                why: "no pool of this name is registered on this machine; give the directory of a target instead"
                    .to_owned(),
            })?;
            return Pool::open_at(&paths, options);
        }
        let directory = base.join(name);
        let Some(paths) = registered(name)? else { return Pool::open_at(&[directory], options) };
        let pool = Pool::open_at(&paths, options)?;
        match read_target_config(&directory) {
            Ok(other) if other.pool != pool.config().pool => {
                Err(PoolError::Ambiguous { name: name.display().to_string(), other: other.name })
            }
            _ => Ok(pool),
        }
    }
}
