//! The daemon's configuration: TOML, read once and checked whole. `docs/reference/daemon.toml` is a commented example.

use crate::live::{Access, ProtectOptions};
use gabion_vault::monitor::Choice;
use gabion_vault::policy::{Duration, Rate};
use gabion_vault::schedule::{Hours, Rhythm};
use gabion_vault::world::{Nanos, SECOND};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Most sources of one daemon: each has a few threads.
const MAX_SOURCES: usize = 256;

/// Everything that a daemon does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where it was read from.
    pub path: PathBuf,
    /// Where the daemon is spoken to; nothing for the usual place.
    pub socket: Option<PathBuf>,
    /// Where names of pools are kept; nothing for the usual place.
    pub pools: Option<PathBuf>,
    /// How long work in hand, and programs that use mounts, are waited for at the end.
    pub stop_within: Nanos,
    /// What is protected.
    pub sources: Vec<SourceConfig>,
}

/// One protected source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// What people call it.
    pub name: String,
    /// What it is.
    pub what: What,
    /// What files get.
    pub protection: ProtectOptions,
    /// The repository, where it is not within.
    pub repository: Option<PathBuf>,
    /// Threads that encode; 0 leaves that to `gabion work` elsewhere, for mounts.
    pub workers: usize,
    /// Most bytes read per second to protect what changed.
    pub limit: Option<u64>,
    /// How long after the last scan of everything the next one begins.
    pub rescan: Nanos,
    /// When to scrub, if at all.
    pub scrub: Option<ScrubConfig>,
}

/// What a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A directory that programs use directly.
    Watch {
        /// The directory.
        path: PathBuf,
        /// Where events come from.
        events: Choice,
    },
    /// A directory that programs use through a mount.
    Mount {
        /// The directory.
        path: PathBuf,
        /// How it is shown.
        show: Show,
        /// Whether files that are only read are checked.
        verify: bool,
    },
    /// A pool.
    Pool {
        /// Its name, `pool:NAME`, or the directory of a target.
        pool: PathBuf,
        /// Where the directory begins if it is relative.
        base: PathBuf,
        /// How it is shown.
        show: Show,
        /// How lost targets are replaced.
        rebuild: RebuildConfig,
    },
}

/// How a source is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Show {
    /// Where.
    pub at: PathBuf,
    /// Threads that serve programs.
    pub threads: usize,
    /// Who may use it.
    pub access: Access,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Setuid bits and capabilities of programs count, if they do in the source.
    pub suid: bool,
    /// Device nodes can be opened, if they can in the source.
    pub dev: bool,
    /// Writes go on while the changelog does not answer.
    pub continue_without_changelog: bool,
}

/// When to scrub and what to do then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubConfig {
    /// Each file as often as its policy says, in place of a share of all files.
    pub by_policy: bool,
    /// When, and how much at a time.
    pub rhythm: Rhythm,
    /// Most bytes read per second.
    pub limit: Option<u64>,
    /// Whether what is damaged is brought back at once. Files that someone wrote to since are left alone.
    pub repair: bool,
}

/// How lost targets of a pool are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildConfig {
    /// How long a target may be gone before it is given up; nothing: until someone asks for it.
    pub after: Option<Nanos>,
    /// Most bytes read per second.
    pub limit: Option<u64>,
    /// How often targets are asked whether they are there.
    pub look: Nanos,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no TOML, or has keys that there are not.
    #[error("{}: {source}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: Box<toml::de::Error>,
    },
    /// It says something that cannot be.
    #[error("{}: line {line}, column {column}: {why}", path.display())]
    Meaning {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
        /// Where, counted from 1.
        column: usize,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    socket: Option<PathBuf>,
    pools: Option<PathBuf>,
    stop_within: Option<Duration>,
    #[serde(default, rename = "source")]
    sources: Vec<Spanned<SourceText>>,
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
    limit: Option<Rate>,
    rescan: Option<Duration>,
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
    every: Option<Duration>,
    percent: Option<u8>,
    hours: Option<String>,
    limit: Option<Rate>,
    #[serde(default)]
    repair: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RebuildText {
    after: Option<Duration>,
    limit: Option<Rate>,
    look: Option<Duration>,
}

/// The defaults, where nothing is said.
const STOP_WITHIN: Nanos = 60 * SECOND;
const RESCAN: Nanos = 3600 * SECOND;
const LOOK: Nanos = 10 * SECOND;

/// How often to look for files whose scrub is due by their policy.
const DUE_LOOK: Nanos = 3600 * SECOND;
const SERVING_THREADS: usize = 16;

impl Config {
    /// Reads a file. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Io { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// Reads text; `path` is where it came from.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let parsed: Text = toml::from_str(text)
            .map_err(|source| ConfigError::Text { path: path.to_owned(), source: Box::new(source) })?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let reader = Reader { text, path, base: absolute.parent().unwrap_or(Path::new("/")) };
        if parsed.sources.is_empty() || parsed.sources.len() > MAX_SOURCES {
            let why =
                format!("there have to be from 1 to {MAX_SOURCES} [[source]]s, not {}", parsed.sources.len());
            return Err(reader.wrong(0, why));
        }
        let (mut names, mut places, mut mounts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut sources = Vec::new();
        for source in parsed.sources {
            let (at, name) = (source.span().start, source.get_ref().name.clone());
            let source = reader.source(source)?;
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
                return Err(reader.wrong(at, format!("two sources are shown at {}", show.at.display())));
            }
            if let (What::Mount { path, .. }, Some(show)) = (&source.what, source.show())
                && (path.starts_with(&show.at) || show.at.starts_with(path))
            {
                let why = format!("{} and {} overlap: mount elsewhere", show.at.display(), path.display());
                return Err(reader.wrong(at, why));
            }
            sources.push(source);
        }
        Ok(Config {
            path: absolute.clone(),
            socket: parsed.socket.map(|path| reader.base.join(path)),
            pools: parsed.pools.map(|path| reader.base.join(path)),
            stop_within: parsed.stop_within.map_or(STOP_WITHIN, |time| time.0),
            sources,
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

    /// How it is shown, if it is.
    pub fn show(&self) -> Option<&Show> {
        match &self.what {
            What::Watch { .. } => None,
            What::Mount { show, .. } | What::Pool { show, .. } => Some(show),
        }
    }

    /// How lost targets are replaced, if it is a pool.
    pub fn rebuild(&self) -> Option<&RebuildConfig> {
        match &self.what {
            What::Pool { rebuild, .. } => Some(rebuild),
            _ => None,
        }
    }

    /// The word for what it is.
    pub fn kind(&self) -> &'static str {
        match self.what {
            What::Watch { .. } => "watch",
            What::Mount { .. } => "mount",
            What::Pool { .. } => "pool",
        }
    }
}

/// Reads with a sense of where it is.
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

    /// A key that says nothing for this kind of source is a mistake, not a wish.
    fn refuse<T>(&self, key: &str, value: Option<&Spanned<T>>, kind: &str) -> Result<(), ConfigError> {
        value.map_or(Ok(()), |value| {
            Err(self.wrong(value.span().start, format!("{key} means nothing for a source with {kind}")))
        })
    }

    fn source(&self, source: Spanned<SourceText>) -> Result<SourceConfig, ConfigError> {
        let begins = source.span().start;
        let text = source.into_inner();
        let name = text.name.get_ref().clone();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let why = format!("{name:?} is no name: up to 64 letters, digits, and any of - _ .");
            return Err(self.wrong(text.name.span().start, why));
        }
        if let (Some(_), Some(code)) = (&text.policy, &text.code) {
            return Err(
                self.wrong(code.span().start, "a code stands in the policy, if there is one".to_owned())
            );
        }
        if let Some(code) = &text.code {
            code.get_ref().parse::<gabion_engine::Code>().map_err(|error| {
                self.wrong(code.span().start, format!("code {}: {error}", code.get_ref()))
            })?;
        }
        let what = self.what(&text, begins)?;
        let workers = match (&what, &text.workers) {
            (What::Watch { .. }, Some(none)) if *none.get_ref() == 0 => {
                return Err(self.wrong(none.span().start, "who watches has to encode as well".to_owned()));
            }
            (_, workers) => workers.as_ref().map_or(1, |workers| *workers.get_ref()),
        };
        let scrub = text.scrub.as_ref().map(|scrub| self.scrub(scrub)).transpose()?;
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
            limit: text.limit.map(|rate| rate.0),
            rescan: text.rescan.map_or(RESCAN, |time| time.0),
            scrub,
        })
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
                    look: rebuild.and_then(|it| it.look).map_or(LOOK, |time| time.0.max(SECOND)),
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
        let missing = || self.wrong(begins, "at = DIR has to say where it is shown".to_owned());
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
