//! Shared by the pool commands: choice of the pool, paths in it, warnings and errors per file.

use anyhow::Context;
use gabion::exit::Outcome;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::pool::{MirrorFault, Options, Pool, Registry};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directory of pool names.
#[derive(clap::Args)]
pub(in crate::commands) struct Names {
    /// Directory of pool names; default ~/.config/gabion/pools
    #[arg(long, value_name = "DIR", env = "GABION_POOLS")]
    pools: Option<PathBuf>,
    #[arg(long, env = "XDG_CONFIG_HOME", hide = true)]
    config_home: Option<PathBuf>,
    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

impl Names {
    /// The registry, if its directory is known.
    pub(in crate::commands) fn registry(&self) -> Option<Registry> {
        let below = |home: PathBuf| home.join("gabion/pools");
        // By its specification, an empty or relative XDG_CONFIG_HOME is ignored.
        let configured = self.config_home.clone().filter(|home| home.is_absolute()).map(below);
        let usual =
            || self.home.clone().filter(|home| home.is_absolute()).map(|home| below(home.join(".config")));
        self.pools.clone().or(configured).or_else(usual).map(Registry::new)
    }
}

/// Choice of a pool.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The pool: its name, also written pool:NAME, or the directory of any of its targets
    #[arg(value_name = "NAME")]
    pool: OsString,
    #[command(flatten)]
    names: Names,
}

impl Which {
    pub(super) fn open(&self) -> anyhow::Result<Pool> {
        let registry = self.names.registry();
        Pool::open(&self.pool, registry.as_ref(), Options::default())
            .with_context(|| format!("pool {}", DisplayPath::bytes(self.pool.as_bytes())))
    }

    /// Updates the registry with the current paths of the targets, if the pool is in it.
    pub(super) fn record(&self, pool: &Pool) -> anyhow::Result<()> {
        let Some(registry) = self.names.registry() else { return Ok(()) };
        let name = pool.config().name;
        if registry.find(&name)?.is_some() {
            registry.record(&name, &pool.paths())?;
        }
        Ok(())
    }
}

/// A path in the pool: leading, trailing and repeated slashes and `.` are dropped. The pool refuses other irregular
/// paths.
pub(super) fn inside(path: &OsStr) -> Vec<u8> {
    let parts = path.as_bytes().split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Warns of mirrors that missed a change.
pub(super) fn warn(faults: &[MirrorFault]) {
    for MirrorFault { target, source } in faults {
        errln!(
            "gabion: warning: target {target} missed a change of the namespace and is now stale: {source}"
        );
    }
}

/// Errors of single files, each printed when it occurs.
#[derive(Default)]
pub(super) struct FileErrors(Vec<String>);

impl FileErrors {
    pub(super) fn report(&mut self, path: &[u8], error: &dyn std::fmt::Display) {
        let text = error.to_string();
        let shown = DisplayPath::bytes(path).to_string();
        let text = if text.starts_with(&shown) { text } else { format!("{shown}: {text}") };
        errln!("gabion: {text}");
        self.0.push(text);
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.0
    }

    pub(super) fn outcome(&self) -> Outcome {
        if self.0.is_empty() { Outcome::Fine } else { Outcome::Failed }
    }
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn slashes_are_normalised_and_dotdot_is_kept() {
        let read = |path: &str| String::from_utf8(inside(path.as_ref())).unwrap_or_default();
        assert_eq!(read("/"), "");
        assert_eq!(read("/a//b/./c/"), "a/b/c");
        assert_eq!(read("a/../b"), "a/../b", "the pool refuses it");
    }
}
