//! The daemon: one process that keeps many sources protected, scrubs and rebuilds when that is due, and can be spoken to.
//!
//! The rooms, from the bottom up: [`config`] (what to do), [`protocol`] (what is said over the socket), [`notify`] (what the system's
//! own supervisor is told), [`note`] and [`client`] (how other commands find a daemon and speak to it), `job` (one piece of work),
//! `targets` (what to do about targets of a pool), `source` (how a source is, and what is wanted of it), `supervisor` (the thread that
//! sees to it), `socket` (requests). Each source has a thread of its own: one that fails or waits keeps no other from its
//! work.

pub mod client;
pub mod config;
mod job;
pub mod note;
pub mod notify;
pub mod overdue;
pub mod protocol;
mod socket;
mod source;
mod supervisor;
mod targets;

pub use socket::SocketError;

use config::{Config, ConfigError, SourceConfig};
use gabion_platform::sync::lock;
use gabion_vault::monitor::Notice;
use gabion_vault::storage::pool::Registry;
use gabion_vault::world::{Clock, Nanos, Stopwatch};
use notify::{Notifier, Supervisor};
use serde_json::{Value, json};
use socket::Place;
use source::{Source, Surroundings};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often to look for signals.
const LOOK: Duration = Duration::from_millis(100);

/// How long the first try of all sources is waited for before the daemon says that it is ready.
const FIRST_TRY: Duration = Duration::from_secs(20);

/// A source that runs looks at itself several times a second. If it does not for so long, something is wrong.
const MOVES_WITHIN: Duration = Duration::from_secs(60);

/// How long a source that does not run is waited for.
const ABANDONED: Duration = Duration::from_secs(1);

/// Something that people may want to hear of.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// From those who watch and encode.
    Notice(&'a Notice),
    /// All is well.
    Message(&'a str),
    /// Someone should look.
    Warning(&'a str),
}

/// Told what happens, with the name of the source; without one it is about the daemon itself.
pub type Tell = Arc<dyn Fn(&str, Event<'_>) + Send + Sync>;

/// Why a daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be spoken to.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// There is no place for the socket.
    #[error("nobody says where the socket is to be: set socket in the configuration, or XDG_RUNTIME_DIR")]
    NoPlace,
    /// A thread or a socket is not to be had.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// Sources that did not end in time.
    #[error("{} did not end within {seconds} s: what they had in hand is finished by the next run", .sources.join(", "))]
    Late {
        /// Which.
        sources: Vec<String>,
        /// How long they had.
        seconds: i64,
    },
}

/// What a daemon has of its environment.
pub struct Environment {
    /// Where the socket is if the configuration does not say.
    pub socket: Option<PathBuf>,
    /// Where names of pools are if the configuration does not say.
    pub registry: Option<Registry>,
    /// Who wants to be told how we are.
    pub supervisor: Supervisor,
    /// Set by a signal: end.
    pub stop: Arc<AtomicBool>,
    /// Set by a signal: read the configuration again.
    pub reload: Arc<AtomicBool>,
    /// Told what happens.
    pub tell: Tell,
}

/// A daemon.
struct Daemon {
    config: Mutex<Config>,
    surroundings: Surroundings,
    sources: Mutex<Vec<Arc<Source>>>,
    reloading: Mutex<()>,
    began: Nanos,
    stop: Arc<AtomicBool>,
    over: AtomicBool,
}

/// Runs until a signal or a request ends it.
///
/// # Errors
/// See [`DaemonError`]. A source that fails is none: it is shown, and tried again.
pub fn run(config: Config, environment: Environment) -> Result<(), DaemonError> {
    let Environment { socket, registry, supervisor, stop, reload, tell } = environment;
    let notifier = Notifier::new(&supervisor)
        .map_err(|source| DaemonError::Io { doing: "the address of NOTIFY_SOCKET", source })?;
    let socket = config.socket.clone().or(socket).ok_or(DaemonError::NoPlace)?;
    let place = Place::take(&socket)?;
    let half = config.stop_within.unsigned_abs() / 2;
    let registry = config.pools.clone().map(Registry::new).or(registry);
    let surroundings = Surroundings { registry, socket, tell, patience: Duration::from_nanos(half) };
    let daemon = Arc::new(Daemon {
        config: Mutex::new(config.clone()),
        surroundings,
        sources: Mutex::default(),
        reloading: Mutex::default(),
        began: Clock::System.now(),
        stop,
        over: AtomicBool::new(false),
    });
    for source in config.sources {
        daemon.start(source)?;
    }
    let listening = Arc::clone(&daemon);
    let listener = std::thread::Builder::new().name("socket".to_owned());
    let listener = listener
        .spawn(move || socket::listen(&place, &listening))
        .map_err(|source| DaemonError::Io { doing: "starting a thread", source })?;
    daemon.wait(&notifier, &reload);
    notifier.is_stopping();
    daemon.message("stopping");
    let ended = daemon.end();
    daemon.over.store(true, Ordering::Relaxed);
    // It looks at that several times a second, and takes the socket away.
    if listener.join().is_err() {
        daemon.message("the thread of the socket ended unexpectedly");
    }
    ended
}

impl Daemon {
    fn message(&self, text: &str) {
        (self.surroundings.tell)("", Event::Message(text));
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn start(&self, config: SourceConfig) -> Result<(), DaemonError> {
        let source = Arc::new(Source::new(config, self.surroundings.clone()));
        let theirs = Arc::clone(&source);
        std::thread::Builder::new()
            .name(source.name().to_owned())
            .spawn(move || supervisor::run(&theirs))
            .map_err(|source| DaemonError::Io { doing: "starting a thread", source })?;
        lock(&self.sources).push(source);
        Ok(())
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        lock(&self.sources).clone()
    }

    fn source(&self, name: &str) -> Result<Arc<Source>, String> {
        let sources = self.sources();
        let found = sources.iter().find(|source| source.name() == name);
        found.cloned().ok_or_else(|| {
            let known: Vec<&str> = sources.iter().map(|source| source.name()).collect();
            format!("there is no source {name}; there are {}", known.join(", "))
        })
    }

    /// In one line.
    fn words(&self) -> String {
        let sources = self.sources();
        let ill: Vec<&str> =
            sources.iter().filter(|source| !source.is_well()).map(|source| source.name()).collect();
        let mut words = match ill.as_slice() {
            [] if sources.len() == 1 => "1 source, running".to_owned(),
            [] => format!("{} sources, all running", sources.len()),
            _ if sources.len() == 1 => "1 source, which does not run".to_owned(),
            ill => format!("{} of {} sources do not run: {}", ill.len(), sources.len(), ill.join(", ")),
        };
        for source in &sources {
            if let Some(concern) = source.concern() {
                words += &format!("; {} {concern}", source.name());
            }
        }
        words
    }

    /// Sources whose threads have not moved for `limit`, and for how long.
    fn stuck(&self, limit: Duration) -> Vec<(String, Duration)> {
        let sources = self.sources();
        let idle = sources.iter().filter_map(|source| Some((source.name().to_owned(), source.idle()?)));
        idle.filter(|(_, idle)| *idle >= limit).collect()
    }

    /// Sees to signals and to those who want to hear from us, until the end is wanted.
    fn wait(self: &Arc<Self>, notifier: &Notifier, reload: &AtomicBool) {
        let (started, mut beaten, mut last_status) = (Stopwatch::start(), Stopwatch::start(), String::new());
        let mut is_ready = false;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            if let Some(beat) = notifier.beat().filter(|beat| beaten.elapsed() >= *beat) {
                beaten = Stopwatch::start();
                // Who watches us is not told that we live because this thread does. A disk may keep one waiting for a while.
                let stuck = self.stuck(MOVES_WITHIN.max(2 * beat));
                match stuck.is_empty() {
                    true => notifier.is_alive(),
                    false => {
                        let names =
                            stuck.iter().map(|(name, idle)| format!("{name} for {} s", idle.as_secs()));
                        let names = names.collect::<Vec<String>>().join(", ");
                        let text = format!("nothing moves: {names}");
                        notifier.status(&text);
                        (self.surroundings.tell)("", Event::Warning(&text));
                    }
                }
            }
            let tried = || self.sources().iter().all(|source| source.wait_until_tried(Duration::ZERO));
            if !is_ready && (tried() || started.elapsed() >= FIRST_TRY) {
                (is_ready, last_status) = (true, self.words());
                notifier.is_ready(&last_status);
                self.message(&format!("ready: {last_status}"));
            }
            if is_ready && self.words() != last_status {
                last_status = self.words();
                notifier.status(&last_status);
            }
            if reload.swap(false, Ordering::Relaxed) {
                // Sources may take a while to end; that we live has to be said meanwhile.
                let theirs = Arc::clone(self);
                std::thread::spawn(move || match theirs.reload() {
                    Ok(_) => theirs.message("the configuration was read again"),
                    Err(why) => (theirs.surroundings.tell)("", Event::Warning(&why)),
                });
            }
        }
    }

    /// Ends all sources, side by side, within the time that there is.
    fn end(&self) -> Result<(), DaemonError> {
        let within = lock(&self.config).stop_within;
        let late = stop_all(&self.sources(), Duration::from_nanos(within.unsigned_abs()));
        if late.is_empty() {
            return Ok(());
        }
        for source in &late {
            // Nobody is to find a mount that nobody serves.
            if let Some(show) = source.config.show() {
                let _ = rustix::mount::unmount(&show.at, rustix::mount::UnmountFlags::DETACH);
            }
        }
        let sources = late.iter().map(|source| source.name().to_owned()).collect();
        Err(DaemonError::Late { sources, seconds: within / gabion_vault::world::SECOND })
    }

    fn status(&self, source: Option<&str>) -> Result<Value, String> {
        let sources = match source {
            Some(name) => vec![self.source(name)?],
            None => self.sources(),
        };
        let sources: Vec<Value> = sources.iter().map(|source| source.as_json()).collect();
        Ok(json!({
            "process": gabion_vault::world::process(), "host": gabion_vault::world::host(),
            "program": env!("CARGO_PKG_VERSION"), "since": self.began, "now": Clock::System.now(),
            "config": lock(&self.config).path, "socket": self.surroundings.socket, "sources": sources,
        }))
    }

    fn pause(&self, source: Option<&str>, paused: bool) -> Result<Value, String> {
        let sources = match source {
            Some(name) => vec![self.source(name)?],
            None => self.sources(),
        };
        sources.iter().for_each(|source| source.pause(paused));
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        Ok(json!({ "paused": paused, "sources": names }))
    }

    /// Reads the configuration again: sources that are not in it any more, or otherwise, end; new ones begin; others go on.
    fn reload(&self) -> Result<Value, String> {
        let _one_at_a_time = lock(&self.reloading);
        let old = lock(&self.config).clone();
        let new = Config::load(&old.path).map_err(|error| format!("nothing is changed: {error}"))?;
        if (&new.socket, &new.pools) != (&old.socket, &old.pools) {
            return Err(
                "nothing is changed: another socket, or another place of pools, needs a restart".to_owned()
            );
        }
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.sources().into_iter().partition(|source| new.sources.contains(&source.config));
        let late = stop_all(&gone, Duration::from_nanos(new.stop_within.unsigned_abs()));
        let ended: Vec<&str> = gone.iter().map(|source| source.name()).collect();
        let mut troubles = Vec::new();
        for source in &kept {
            if let Err(why) = source.refresh_policy() {
                troubles.push(format!("{}: the policy stays as it was: {why}", source.name()));
            }
        }
        *lock(&self.sources) = kept.clone();
        let mut begun = Vec::new();
        for config in &new.sources {
            if kept.iter().all(|source| source.config != *config) {
                begun.push(config.name.clone());
                self.start(config.clone()).map_err(|error| error.to_string())?;
            }
        }
        troubles.extend(late.iter().map(|source| format!("{} did not end in time", source.name())));
        let names: Vec<&str> = kept.iter().map(|source| source.name()).collect();
        let result = json!({ "ended": ended, "begun": begun, "kept": names, "troubles": troubles });
        *lock(&self.config) = new;
        Ok(result)
    }
}

/// Ends sources side by side. Those that did not end within the time.
fn stop_all(sources: &[Arc<Source>], within: Duration) -> Vec<Arc<Source>> {
    sources.iter().for_each(|source| source.stop());
    let since = Stopwatch::start();
    let is_late = |source: &&Arc<Source>| {
        let left = within.saturating_sub(since.elapsed());
        // One that does not run has nothing in hand: it may wait for a server for as long as it likes.
        !source.wait_until_stopped(left.min(ABANDONED))
            && source.is_alive()
            && !source.wait_until_stopped(left)
    };
    sources.iter().filter(is_late).cloned().collect()
}
