//! Configuration of the daemon: a TOML file. `docs/reference/daemon.toml` is a commented example.

mod api;
pub mod notify;

pub use api::ApiConfig;

use crate::compute::DeviceChoice;
use crate::live::{Access, ProtectOptions};
use gabion_vault::monitor::Choice;
use gabion_vault::policy::{DurationText, Rate};
use gabion_vault::schedule::{Hours, Rhythm};
use gabion_vault::world::SECOND;
use notify::{HooksConfig, HooksText, NotifyConfig, NotifyText};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Most sources of one daemon; each has a few threads.
const MAX_SOURCES: usize = 256;

/// Configuration of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// Path of the socket; the default if `None`.
    pub socket: Option<PathBuf>,
    /// Directory of pool names; the default if `None`.
    pub pools: Option<PathBuf>,
    /// Settings of the API.
    pub api: ApiConfig,
    /// Time limit for running jobs and busy mounts when the daemon stops.
    pub stop_within: Duration,
    /// Directory of what outlasts the daemon; the default if `None`.
    pub state: Option<PathBuf>,
    /// The sources.
    pub sources: Vec<SourceConfig>,
    /// Receivers of notifications.
    pub receivers: Vec<NotifyConfig>,
}

/// Configuration of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub what: What,
    /// Policy or code, and changelog.
    pub protection: ProtectOptions,
    /// The device that computes.
    pub device: DeviceChoice,
    /// Repeat on the CPU what a named device fails at.
    pub cpu_takeover: bool,
    /// The repository, if it is outside of the directory.
    pub repository: Option<PathBuf>,
    /// Encoding threads; 0 leaves encoding to `gabion work` (mounts only).
    pub workers: usize,
    /// Read limit for encoding, in bytes per second.
    pub limit: Option<u64>,
    /// Interval between full scans.
    pub rescan: Duration,
    /// Scheduled scrubs.
    pub scrub: Option<ScrubConfig>,
    /// Commands before and after jobs.
    pub hooks: HooksConfig,
}

/// Kind of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A directory that is watched.
    Watch {
        /// The directory.
        path: PathBuf,
        /// Source of file events.
        events: Choice,
    },
    /// A directory that is mounted.
    Mount {
        /// The directory.
        path: PathBuf,
        /// The mount.
        show: Show,
        /// Verify reads.
        verify: bool,
    },
    /// A pool that is mounted.
    Pool {
        /// Its name, `pool:NAME`, or the directory of a target.
        pool: PathBuf,
        /// Base of a relative path.
        base: PathBuf,
        /// The mount.
        show: Show,
        /// Automatic rebuilds.
        rebuild: RebuildConfig,
    },
}

/// Settings of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Show {
    /// Mount point.
    pub at: PathBuf,
    /// Serving threads.
    pub threads: usize,
    /// Which users may access it.
    pub access: Access,
    /// Read-only mount.
    pub read_only: bool,
    /// Allow setuid programs, if the source does.
    pub suid: bool,
    /// Allow device nodes, if the source does.
    pub dev: bool,
    /// Do not block writes while the changelog is unavailable.
    pub continue_without_changelog: bool,
}

/// Settings of scheduled scrubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubConfig {
    /// Scrub each file at the interval of its policy, instead of a share of all files per run.
    pub by_policy: bool,
    /// Interval and share.
    pub rhythm: Rhythm,
    /// Read limit in bytes per second.
    pub limit: Option<u64>,
    /// Repair damaged files at once, except those written since they were protected.
    pub repair: bool,
}

/// Settings of automatic rebuilds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildConfig {
    /// Time after which an absent target is given up; never if `None`.
    pub after: Option<Duration>,
    /// Read limit in bytes per second.
    pub limit: Option<u64>,
    /// Interval at which targets are probed.
    pub look: Duration,
}

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Invalid TOML, or an unknown key.
    #[error("{}: {source}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The parser's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// An invalid value.
    #[error("{}: line {line}, column {column}: {why}", path.display())]
    Meaning {
        /// The file.
        path: PathBuf,
        /// Position, counted from 1.
        line: usize,
        /// Position, counted from 1.
        column: usize,
        /// The reason.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    socket: Option<PathBuf>,
    pools: Option<PathBuf>,
    stop_within: Option<DurationText>,
    api: Option<Spanned<api::ApiText>>,
    state: Option<PathBuf>,
    #[serde(default)]
    hooks: HooksText,
    #[serde(default, rename = "source")]
    sources: Vec<Spanned<SourceText>>,
    #[serde(default, rename = "notify")]
    receivers: Vec<Spanned<NotifyText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceText {
    name: Spanned<String>,
    watch: Option<PathBuf>,
    mount: Option<PathBuf>,
    pool: Option<PathBuf>,
    at: Option<Spanned<PathBuf>>,
    repository: Option<Spanned<PathBuf>>,
    policy: Option<Spanned<PathBuf>>,
    code: Option<Spanned<String>>,
    changelog: Option<String>,
    workers: Option<Spanned<usize>>,
    device: Option<Spanned<String>>,
    #[serde(default)]
    cpu_takeover: bool,
    limit: Option<Rate>,
    rescan: Option<DurationText>,
    events: Option<Spanned<Events>>,
    threads: Option<Spanned<usize>>,
    private: Option<Spanned<bool>>,
    read_only: Option<Spanned<bool>>,
    suid: Option<Spanned<bool>>,
    dev: Option<Spanned<bool>>,
    verify: Option<Spanned<bool>>,
    continue_without_changelog: Option<Spanned<bool>>,
    scrub: Option<Spanned<ScrubText>>,
    rebuild: Option<Spanned<RebuildText>>,
    #[serde(default)]
    hooks: HooksText,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Events {
    Auto,
    Fanotify,
    Inotify,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScrubText {
    every: Option<DurationText>,
    percent: Option<u8>,
    hours: Option<String>,
    limit: Option<Rate>,
    #[serde(default)]
    repair: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RebuildText {
    after: Option<DurationText>,
    limit: Option<Rate>,
    look: Option<DurationText>,
}

/// Defaults.
const STOP_WITHIN: Duration = Duration::from_secs(60);
const RESCAN: Duration = Duration::from_secs(3600);
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which files with due scrubs are searched.
const DUE_LOOK: Duration = Duration::from_secs(3600);
const SERVING_THREADS: usize = 16;

impl Config {
    /// Reads a file. Relative paths in it start at its directory.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Io { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// Parses text that was read from `path`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let parsed: Text = toml::from_str(text)
            .map_err(|source| ConfigError::Text { path: path.to_owned(), source: Box::new(source) })?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let reader = Reader { text, path, base: absolute.parent().unwrap_or(Path::new("/")) };
        if parsed.sources.len() > MAX_SOURCES {
            let why = format!("there may be up to {MAX_SOURCES} [[source]]s, not {}", parsed.sources.len());
            return Err(reader.wrong(0, why));
        }
        let (mut names, mut places, mut mounts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut sources = Vec::new();
        let hooks = reader.hooks(&parsed.hooks, &HooksConfig::default())?;
        for source in parsed.sources {
            let (at, name) = (source.span().start, source.get_ref().name.clone());
            let source = reader.source(source, &hooks)?;
            if !names.insert(source.name.clone()) {
                return Err(
                    reader.wrong(name.span().start, format!("there are two sources {:?}", source.name))
                );
            }
            if !places.insert(source.path().to_owned()) {
                let why = format!("{} is in two sources", source.path().display());
                return Err(reader.wrong(at, why));
            }
            if let Some(show) = source.show().filter(|show| !mounts.insert(show.at.clone())) {
                return Err(reader.wrong(at, format!("two sources are mounted at {}", show.at.display())));
            }
            if let (What::Mount { path, .. }, Some(show)) = (&source.what, source.show())
                && (path.starts_with(&show.at) || show.at.starts_with(path))
            {
                let why = format!("mount point {} and source {} overlap", show.at.display(), path.display());
                return Err(reader.wrong(at, why));
            }
            sources.push(source);
        }
        let receivers = reader.receivers(parsed.receivers, &names)?;
        Ok(Config {
            path: absolute.clone(),
            socket: parsed.socket.map(|path| reader.base.join(path)),
            pools: parsed.pools.map(|path| reader.base.join(path)),
            api: reader.api(parsed.api)?,
            stop_within: parsed.stop_within.map_or(STOP_WITHIN, |time| time.0),
            state: parsed.state.map(|path| reader.base.join(path)),
            sources,
            receivers,
        })
    }
}

impl SourceConfig {
    /// The directory or pool.
    pub fn path(&self) -> &Path {
        match &self.what {
            What::Watch { path, .. } | What::Mount { path, .. } => path,
            What::Pool { pool, .. } => pool,
        }
    }

    /// Its mount, if it has one.
    pub fn show(&self) -> Option<&Show> {
        match &self.what {
            What::Watch { .. } => None,
            What::Mount { show, .. } | What::Pool { show, .. } => Some(show),
        }
    }

    /// Its rebuild settings, if it is a pool.
    pub fn rebuild(&self) -> Option<&RebuildConfig> {
        match &self.what {
            What::Pool { rebuild, .. } => Some(rebuild),
            _ => None,
        }
    }

    /// Name of its kind.
    pub fn kind(&self) -> &'static str {
        match self.what {
            What::Watch { .. } => "watch",
            What::Mount { .. } => "mount",
            What::Pool { .. } => "pool",
        }
    }
}

/// Parser that knows positions in the text.
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    base: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, at: usize, why: String) -> ConfigError {
        let before = &self.text[..at.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        ConfigError::Meaning { path: self.path.to_owned(), line, column, why }
    }

    /// Refuses a key that does not apply to this kind of source.
    fn refuse<T>(&self, key: &str, value: Option<&Spanned<T>>, kind: &str) -> Result<(), ConfigError> {
        value.map_or(Ok(()), |value| {
            Err(self.wrong(value.span().start, format!("{key} does not apply to a source with {kind}")))
        })
    }

    fn plain_name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        let (at, name) = (name.span().start, name.get_ref());
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let why = format!("invalid name {name:?}: use up to 64 letters, digits, and any of - _ .");
            return Err(self.wrong(at, why));
        }
        Ok(name.clone())
    }

    fn source(&self, source: Spanned<SourceText>, hooks: &HooksConfig) -> Result<SourceConfig, ConfigError> {
        let begins = source.span().start;
        let text = source.into_inner();
        let name = self.plain_name(&text.name)?;
        if let (Some(_), Some(code)) = (&text.policy, &text.code) {
            return Err(self.wrong(
                code.span().start,
                "code and policy exclude each other: set the code in the policy".to_owned(),
            ));
        }
        if let Some(code) = &text.code {
            code.get_ref().parse::<gabion_engine::Code>().map_err(|error| {
                self.wrong(code.span().start, format!("code {}: {error}", code.get_ref()))
            })?;
        }
        let what = self.what(&text, begins)?;
        let workers = match (&what, &text.workers) {
            (What::Watch { .. }, Some(none)) if *none.get_ref() == 0 => {
                return Err(self.wrong(
                    none.span().start,
                    "a watched source needs at least 1 worker to encode".to_owned(),
                ));
            }
            (_, workers) => workers.as_ref().map_or(1, |workers| *workers.get_ref()),
        };
        let scrub = text.scrub.as_ref().map(|scrub| self.scrub(scrub)).transpose()?;
        let device = text.device.as_ref().map(|device| self.device(device)).transpose()?;
        let join = |path: &Spanned<PathBuf>| self.base.join(path.get_ref());
        Ok(SourceConfig {
            name,
            what,
            protection: ProtectOptions {
                policy: text.policy.as_ref().map(join),
                code: text.code.map(Spanned::into_inner),
                changelog: text.changelog,
            },
            repository: text.repository.as_ref().map(join),
            workers,
            device: device.unwrap_or_default(),
            cpu_takeover: text.cpu_takeover,
            limit: text.limit.map(|rate| rate.0),
            rescan: text.rescan.map_or(RESCAN, |time| time.0),
            scrub,
            hooks: self.hooks(&text.hooks, hooks)?,
        })
    }

    fn device(&self, device: &Spanned<String>) -> Result<DeviceChoice, ConfigError> {
        let wrong = |error: gabion_device::BadDevice| self.wrong(device.span().start, error.to_string());
        device.get_ref().parse().map_err(wrong)
    }

    fn what(&self, text: &SourceText, begins: usize) -> Result<What, ConfigError> {
        match (&text.watch, &text.mount, &text.pool) {
            (Some(path), None, None) => {
                self.refuse("at", text.at.as_ref(), "watch")?;
                self.refuse("threads", text.threads.as_ref(), "watch")?;
                self.refuse("private", text.private.as_ref(), "watch")?;
                self.refuse("read_only", text.read_only.as_ref(), "watch")?;
                self.refuse("suid", text.suid.as_ref(), "watch")?;
                self.refuse("dev", text.dev.as_ref(), "watch")?;
                self.refuse("verify", text.verify.as_ref(), "watch")?;
                let go_on = text.continue_without_changelog.as_ref();
                self.refuse("continue_without_changelog", go_on, "watch")?;
                self.refuse("rebuild", text.rebuild.as_ref(), "watch")?;
                let events = match text.events.as_ref().map(|events| *events.get_ref()) {
                    None | Some(Events::Auto) => Choice::Auto,
                    Some(Events::Fanotify) => Choice::Fanotify,
                    Some(Events::Inotify) => Choice::Inotify,
                };
                Ok(What::Watch { path: self.base.join(path), events })
            }
            (None, Some(path), None) => {
                self.refuse("events", text.events.as_ref(), "mount")?;
                self.refuse("rebuild", text.rebuild.as_ref(), "mount")?;
                let verify = text.verify.as_ref().is_none_or(|verify| *verify.get_ref());
                Ok(What::Mount { path: self.base.join(path), show: self.show(text, begins)?, verify })
            }
            (None, None, Some(pool)) => {
                self.refuse("events", text.events.as_ref(), "pool")?;
                self.refuse("verify", text.verify.as_ref(), "pool")?;
                self.refuse("repository", text.repository.as_ref(), "pool")?;
                let (pool, base) = (pool.clone(), self.base.to_owned());
                let rebuild = text.rebuild.as_ref().map(Spanned::get_ref);
                let rebuild = RebuildConfig {
                    after: rebuild.and_then(|it| it.after).map(|time| time.0),
                    limit: rebuild.and_then(|it| it.limit).map(|rate| rate.0),
                    look: rebuild.and_then(|it| it.look).map_or(POLL_INTERVAL, |time| time.0.max(SECOND)),
                };
                Ok(What::Pool { pool, base, show: self.show(text, begins)?, rebuild })
            }
            _ => {
                let why = "a source has one of: watch = DIR, mount = DIR, pool = NAME".to_owned();
                Err(self.wrong(begins, why))
            }
        }
    }

    fn show(&self, text: &SourceText, begins: usize) -> Result<Show, ConfigError> {
        let missing = || self.wrong(begins, "at = DIR is missing: the mount point".to_owned());
        let is = |value: &Option<Spanned<bool>>| value.as_ref().is_some_and(|value| *value.get_ref());
        Ok(Show {
            at: self.base.join(text.at.as_ref().ok_or_else(missing)?.get_ref()),
            threads: text.threads.as_ref().map_or(SERVING_THREADS, |threads| *threads.get_ref()),
            access: if is(&text.private) { Access::Owner } else { Access::AsAllowed },
            read_only: is(&text.read_only),
            suid: is(&text.suid),
            dev: is(&text.dev),
            continue_without_changelog: is(&text.continue_without_changelog),
        })
    }

    fn scrub(&self, scrub: &Spanned<ScrubText>) -> Result<ScrubConfig, ConfigError> {
        let (at, scrub) = (scrub.span().start, scrub.get_ref());
        let hours = scrub.hours.as_ref().map(|hours| hours.parse::<Hours>());
        let hours = hours.transpose().map_err(|error| self.wrong(at, error.to_string()))?;
        let rhythm = match (scrub.every, scrub.percent) {
            (Some(every), percent) => Rhythm::new(every.0, percent, hours)
                .map_err(|error| self.wrong(at, format!("scrub: {error}")))?,
            (None, None) => Rhythm { every: DUE_LOOK, percent: 100, hours },
            (None, Some(_)) => {
                let why = "scrub: percent is a share of all files per run and needs every; without every, the policy says when files are due";
                return Err(self.wrong(at, why.to_owned()));
            }
        };
        Ok(ScrubConfig {
            by_policy: scrub.every.is_none(),
            rhythm,
            limit: scrub.limit.map(|rate| rate.0),
            repair: scrub.repair,
        })
    }
}

#[cfg(test)]
mod tests;
