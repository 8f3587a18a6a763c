//! Shared by the commands on vaults: choice of the vault, limits, locks.

pub(super) mod approve;
pub(super) mod catalogue;
pub(super) mod check;
pub(super) mod diff;
pub(super) mod events;
pub(super) mod forget;
pub(super) mod history;
mod lists;
pub(super) mod move_changelog;
mod placed;
pub(super) mod policy;
pub(super) mod protect;
pub(super) mod protection_args;
pub(super) mod rebuild;
pub(super) mod repair;
pub(super) mod replaced;
pub(super) mod report;
pub(super) mod scrub;
pub(super) mod status;
mod status_metrics;
pub(super) mod watch;
pub(super) mod whatif;
pub(super) mod work;

use crate::commands::pool::Names;
use crate::output::{Amount, OutputArgs, note_interruption, stopped_by_signal};
use crate::progress::ProgressLines;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::changelog;
use gabion_vault::policy::Rate;
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::storage::pool::{self, Pool, naming};
use gabion_vault::vault::{Location, Lock, LockError, OWN, Vault, VaultError};
use gabion_vault::world::Clock;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most names that are listed without `--files`.
pub(super) const FIRST: usize = 10;

/// Warning after a vault was created because the target of the old one is offline.
pub(super) const BEGUN: &str = "the target with the pool's vault is offline: created a new vault, with a catalogue rebuilt \
from headers. It does not have the policy of the old one";

/// Choice of a vault or of a part of it.
#[derive(clap::Args)]
struct Which {
    /// A protected directory or pool, or a file or directory in it
    #[arg(default_value = ".")]
    path: PathBuf,
    #[command(flatten)]
    elsewhere: Elsewhere,
}

#[derive(clap::Args)]
pub(super) struct Elsewhere {
    /// The repository, if it is not DIR/.gabion
    #[arg(long, value_name = "DIR", env = "GABION_REPOSITORY")]
    pub(super) repository: Option<PathBuf>,
    #[command(flatten)]
    pools: Names,
}

impl Elsewhere {
    /// The pool that a path names, and the path in it: the directory of a target, or the name of a pool followed by a
    /// path. `pool:NAME` is always a pool, `./NAME` always a directory; a bare name that is both is an error.
    pub(super) fn pool(&self, path: &Path) -> anyhow::Result<Option<(Pool, Vec<u8>)>> {
        if self.repository.is_some() {
            return Ok(None);
        }
        if path.join("pool.toml").exists() {
            let registry = self.pools.registry();
            let pool = Pool::open(path.as_os_str(), registry.as_ref(), pool::Options::default())?;
            return Ok(Some((pool, Vec::new())));
        }
        let named = naming::prefixed(path.as_os_str()).map(Path::new);
        let mut parts = named.unwrap_or(path).components();
        let Some(Component::Normal(name)) = parts.next() else { return Ok(None) };
        let (Some(registry), Some(text)) = (self.pools.registry(), name.to_str()) else { return Ok(None) };
        // A name that is invalid for pools is a path.
        if named.is_none() && !matches!(registry.find(text), Ok(Some(_))) {
            return Ok(None);
        }
        anyhow::ensure!(
            named.is_some() || !path.exists(),
            "{text} is ambiguous: write pool:{0} for the pool, ./{0} for the directory",
            DisplayPath::path(path)
        );
        let name = OsString::from(format!("{}{text}", naming::PREFIX));
        let pool = Pool::open(&name, Some(&registry), pool::Options::default())?;
        Ok(Some((pool, parts.as_path().as_os_str().as_bytes().to_vec())))
    }
}

fn warn(text: &str) {
    errln!("gabion: warning: {text}");
}

fn warn_of_missing(changelog: Option<changelog::Error>) {
    if let Some(why) = changelog {
        errln!("gabion: warning: continuing without the changelog: {why}");
    }
}

impl Which {
    /// Opens the vault. Returns the path relative to its root.
    fn open(&self) -> anyhow::Result<(Vault, Vec<u8>)> {
        if let Some((pool, inside)) = self.elsewhere.pool(&self.path)? {
            let (vault, begun) = Vault::of_pool(&pool, Clock::System)?;
            if begun {
                errln!("gabion: warning: {BEGUN}");
            }
            refuse_unknown(&vault, &inside, &DisplayPath::path(&self.path))?;
            return Ok((vault, inside));
        }
        let location = Location::find(&self.path, self.elsewhere.repository.as_deref())?;
        let vault = Vault::open(&location, Clock::System)?;
        let inside = self.inside(&vault)?;
        Ok((vault, inside))
    }

    /// Like [`open`](Which::open), for commands that only examine or repair files: they continue without the changelog.
    fn open_to_examine(&self) -> anyhow::Result<(Vault, Vec<u8>)> {
        if let Some((pool, inside)) = self.elsewhere.pool(&self.path)? {
            let (vault, begun, missing) = Vault::of_pool_to_examine(&pool, Clock::System)?;
            if begun {
                errln!("gabion: warning: {BEGUN}");
            }
            warn_of_missing(missing);
            refuse_unknown(&vault, &inside, &DisplayPath::path(&self.path))?;
            return Ok((vault, inside));
        }
        let location = Location::find(&self.path, self.elsewhere.repository.as_deref())?;
        let (vault, missing) = Vault::open_to_examine(&location, Clock::System)?;
        warn_of_missing(missing);
        let inside = self.inside(&vault)?;
        Ok((vault, inside))
    }

    /// The path relative to the root. A path that neither exists nor was protected is an error: a typing mistake would
    /// otherwise report success.
    fn inside(&self, vault: &Vault) -> anyhow::Result<Vec<u8>> {
        let inside = match self.elsewhere.repository.is_some() && self.path == Path::new(".") {
            // Only --repository was given: the whole vault.
            true => Vec::new(),
            false => vault.inside(&self.path).ok_or_else(|| {
                anyhow::anyhow!(
                    "{} is not within {}",
                    DisplayPath::path(&self.path),
                    DisplayPath::path(&vault.root)
                )
            })?,
        };
        let shown = DisplayPath::path(&self.path);
        anyhow::ensure!(
            inside.split(|&byte| byte == b'/').next() != Some(OWN.as_bytes()),
            "{shown} is in the repository, which is not protected itself"
        );
        refuse_unknown(vault, &inside, &shown)?;
        Ok(inside)
    }

    /// Location of a vault that may be damaged.
    fn remains(&self) -> anyhow::Result<Location> {
        if let Some((pool, _)) = self.elsewhere.pool(&self.path)? {
            return Ok(Location::of_pool(&pool)?);
        }
        let repository = self.elsewhere.repository.as_deref();
        Ok(match Location::find(&self.path, repository) {
            Err(error @ (VaultError::Unprotected { .. } | VaultError::Damaged { .. })) => {
                // The tree of an external repository is recorded only in its settings.
                let has_tree = repository.is_none() || self.path != Path::new(".");
                anyhow::ensure!(has_tree, "{error}; name the directory that it protects");
                Location::find_remains(&self.path, repository).map_err(|_| error)?
            }
            location => location?,
        })
    }
}

fn refuse_unknown(vault: &Vault, inside: &[u8], shown: &DisplayPath<'_>) -> anyhow::Result<()> {
    let is_there = || anyhow::Ok(vault.storage.find(inside)?.is_some() || vault.catalogue.knows(inside)?);
    anyhow::ensure!(
        inside.is_empty() || is_there()?,
        "{shown}: no such file, and no protected file of that name"
    );
    Ok(())
}

/// Limits on threads and read rate.
#[derive(clap::Args)]
pub(super) struct Effort {
    /// Number of threads, 0 for all processors
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Limit of the read rate, such as 200MiB/s
    #[arg(long, value_name = "RATE")]
    limit: Option<Rate>,
}

impl Effort {
    const ALL: Effort = Effort { threads: 0, limit: None };

    /// True if both options have their defaults.
    pub(super) fn is_usual(&self) -> bool {
        self.threads == 0 && self.limit.is_none()
    }

    pub(super) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            threads => threads,
        }
    }
}

impl OutputArgs {
    /// Runs `work` with a progress bar if standard error is a terminal. SIGINT and SIGTERM stop it.
    pub(super) fn run<T>(
        &self,
        effort: &Effort,
        work: impl FnOnce(RunContext<'_>) -> T,
    ) -> anyhow::Result<T> {
        let (stop, steps) = (stopped_by_signal()?, self.steps());
        let lines = ProgressLines::new(self.progress);
        let progress = |step: Progress| {
            match step {
                Progress::Step(name, ahead) => steps.begin(name, amount(ahead)),
                Progress::Done(files, bytes) | Progress::Elsewhere(files, bytes) => {
                    steps.advance(files, bytes)
                }
            }
            lines.note(step);
        };
        let stopped = || stop.load(Ordering::Relaxed);
        let rate = effort.limit.map(|rate| rate.0);
        let done =
            work(RunContext { threads: effort.threads(), rate, progress: &progress, stopped: &stopped });
        if stopped() {
            note_interruption();
        }
        Ok(done)
    }
}

/// Bytes if their total is known, otherwise files.
fn amount(ahead: Option<(u64, u64)>) -> Amount {
    match ahead {
        Some((_, bytes)) if bytes > 0 => Amount::Bytes(Some(bytes)),
        Some((files, _)) => Amount::Files(Some(files)),
        None => Amount::Files(None),
    }
}

/// Locks the vault for a command; with `wait`, waits for its holder.
pub(super) fn lock(vault: &Vault, command: &str, wait: bool, output: &OutputArgs) -> anyhow::Result<Lock> {
    let mut said = false;
    loop {
        match vault.lock(command) {
            Err(LockError::Held { holder }) if wait => {
                if !said {
                    errln!("gabion: waiting for {holder}");
                    said = !output.json || said;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            locked => return Ok(locked?),
        }
    }
}

/// The first four of several byte ranges.
fn ranges<'a>(ranges: impl ExactSizeIterator<Item = &'a std::ops::Range<u64>>) -> String {
    let total = ranges.len();
    let mut shown: Vec<String> =
        ranges.take(4).map(|range| format!("{}-{}", range.start, range.end)).collect();
    if total > shown.len() {
        shown.push(format!("and {} more", total - shown.len()));
    }
    shown.join(", ")
}
