//! The daemon: one process that keeps many sources protected, runs scrubs and rebuilds when they are due, and accepts
//! requests on a socket.
//!
//! Modules, from the bottom up: [`config`] (the configuration file), [`events`] (what happens, for the log, histories
//! and subscribers), `secret` (passwords), `child` (commands with a deadline), `refusal` (why a request is refused),
//! `message` (requests and answers), [`notify`] (`sd_notify`), [`note`] and [`client`] (how other commands find a
//! daemon and talk to it), `job` (one task on a source), `targets` (decisions about targets of a pool), `affected`
//! (names of damaged files), `source` (state and queue of a source), `announce` (its events), `hooks` (commands
//! around a job), [`notifications`] (messages to people), `supervisor` (the thread of a source), `metrics` (numbers
//! for Prometheus), [`api`] (serves requests). Each source has a thread of its own, so that one that fails or waits
//! does not delay the others.

mod affected;
mod announce;
pub mod api;
mod child;
pub mod client;
pub mod config;
pub mod events;
mod hooks;
mod job;
mod message;
mod metrics;
pub mod note;
pub mod notifications;
pub mod notify;
mod overdue;
mod refusal;
mod secret;
mod source;
mod supervisor;
mod targets;
mod web;

pub use api::SocketError;

use crate::report::daemon::DaemonStatus;
use crate::report::{PathName, Time};
use api::{Api, Place, Settings};
use config::{Config, ConfigError, SourceConfig};
use events::{EventData, EventKind, Events};
use gabion_platform::display_path::DisplayPath;
use gabion_platform::sync::lock;
use gabion_vault::monitor::Notice;
use gabion_vault::storage::pool::Registry;
use gabion_vault::world::{Clock, Stopwatch, Timestamp};
use job::Job;
use message::Reloaded;
use notifications::{Notifications, StateError};
use notify::{Notifier, Supervisor};
use refusal::{ErrorCode, Refusal};
use source::{DaemonContext, Source};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for the first start of all sources before the daemon reports that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running source takes a turn several times a second. Without one for this long, its thread is considered stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Longest wait for the thread of a source that is not running.
const GRACE: Duration = Duration::from_secs(1);

/// An entry of the log.
#[derive(Debug, Clone, Copy)]
pub enum LogEntry<'a> {
    /// From the monitor of a source.
    Notice(&'a Notice),
    /// Information.
    Message(&'a str),
    /// A problem.
    Warning(&'a str),
}

/// Receives log entries with the name of their source; the name is empty for those of the daemon itself.
pub type Tell = Arc<dyn Fn(&str, LogEntry<'_>) + Send + Sync>;

/// Error that ends a daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The state of notifications cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// No path for the socket is known.
    #[error("no path for the socket: set socket in the configuration, or XDG_RUNTIME_DIR")]
    NoPlace,
    /// A thread or socket cannot be created.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Sources did not stop in time.
    #[error("{} did not stop within {seconds} s: the next run finishes their work", .sources.join(", "))]
    Late {
        /// Their names.
        sources: Vec<String>,
        /// The time limit.
        seconds: u64,
    },
}

/// What a daemon takes from its environment.
pub struct Environment {
    /// Path of the socket in place of that of the configuration.
    pub named_socket: Option<PathBuf>,
    /// Default path of the socket.
    pub socket: Option<PathBuf>,
    /// Default registry of pool names.
    pub registry: Option<Registry>,
    /// The service manager to notify.
    pub supervisor: Supervisor,
    /// Set by a signal: stop.
    pub stop: Arc<AtomicBool>,
    /// Set by a signal: reload the configuration.
    pub reload: Arc<AtomicBool>,
    /// Receives log entries.
    pub tell: Tell,
    /// Where measured speeds and compiled kernels of devices are kept.
    pub device_cache: Option<PathBuf>,
    /// Default directory of what outlasts the daemon.
    pub state: Option<PathBuf>,
}

/// A daemon.
struct Daemon {
    config: Mutex<Config>,
    context: DaemonContext,
    sources: Mutex<Vec<Arc<Source>>>,
    /// Tokens, certificates and readers of the API.
    settings: Mutex<Arc<Settings>>,
    notifications: Notifications,
    reloading: Mutex<()>,
    began: Timestamp,
    stop: Arc<AtomicBool>,
    over: AtomicBool,
}

/// Runs until a signal or a request ends it.
///
/// # Errors
/// See [`DaemonError`]. A failed source is no error: it is reported, and started again.
pub fn run(config: Config, environment: Environment) -> Result<(), DaemonError> {
    let Environment { named_socket, socket, registry, supervisor, stop, reload, tell, device_cache, state } =
        environment;
    let notifier = Notifier::new(&supervisor)
        .map_err(|source| DaemonError::Io { doing: "the address of NOTIFY_SOCKET", source })?;
    let socket = named_socket.or_else(|| config.socket.clone()).or(socket).ok_or(DaemonError::NoPlace)?;
    let settings = Settings::load(&config.api).map_err(SocketError::Api)?;
    let place = Place::take(&socket, settings.readers())?;
    let tcp = api::bind(&config.api).map_err(SocketError::Api)?;
    let registry = config.pools.clone().map(Registry::new).or(registry);
    let patience = config.stop_within / 2;
    let events = Events::new(Arc::clone(&tell));
    let context = DaemonContext {
        registry,
        socket,
        tell,
        events,
        jobs: Arc::new(AtomicU64::new(1)),
        patience,
        device_cache,
    };
    let notifications =
        Notifications::new(&config, state, Arc::clone(&context.events), Arc::clone(&context.tell))?;
    let daemon = Arc::new(Daemon {
        config: Mutex::new(config.clone()),
        notifications,
        context,
        sources: Mutex::default(),
        settings: Mutex::new(Arc::new(settings)),
        reloading: Mutex::default(),
        began: Clock::System.now(),
        stop,
        over: AtomicBool::new(false),
    });
    for source in config.sources {
        daemon.start(source)?;
    }
    let listening = Arc::clone(&daemon);
    let serve = move || {
        let api = Arc::new(Api::new(Arc::clone(&listening)));
        if let Err(error) = api::serve(&place, tcp, api) {
            (listening.context.tell)("", LogEntry::Warning(&format!("the API is not served: {error}")));
        }
    };
    let listener = std::thread::Builder::new()
        .name("api".to_owned())
        .spawn(serve)
        .map_err(|source| DaemonError::Io { doing: "starting a thread", source })?;
    let telling = Arc::clone(&daemon);
    let teller = std::thread::Builder::new().name("notifications".to_owned());
    let teller = teller
        .spawn(move || telling.notifications.run(&|| telling.sources()))
        .map_err(|source| DaemonError::Io { doing: "starting a thread", source })?;
    daemon.wait(&notifier, &reload);
    notifier.is_stopping();
    daemon.publish(EventKind::DaemonStopping, "stopping");
    let ended = daemon.end();
    daemon.notifications.stop();
    if teller.join().is_err() {
        daemon.message("the thread of notifications ended unexpectedly");
    }
    daemon.over.store(true, Ordering::Relaxed);
    daemon.context.events.close();
    // The thread polls `over` several times a second, and removes the socket.
    if listener.join().is_err() {
        daemon.message("the thread of the socket ended unexpectedly");
    }
    ended
}

impl Daemon {
    fn message(&self, text: &str) {
        (self.context.tell)("", LogEntry::Message(text));
    }

    fn publish(&self, kind: EventKind, text: &str) {
        self.context.events.publish(None, kind, text, EventData::default());
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn start(&self, config: SourceConfig) -> Result<(), DaemonError> {
        let source = Arc::new(Source::new(config, self.context.clone()));
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

    fn source(&self, name: &str) -> Result<Arc<Source>, Refusal> {
        let sources = self.sources();
        let found = sources.iter().find(|source| source.name() == name);
        found.cloned().ok_or_else(|| {
            let known: Vec<&str> = sources.iter().map(|source| source.name()).collect();
            let why = match known.is_empty() {
                true => format!("there is no source {name}: the configuration has no sources"),
                false => format!("there is no source {name}; there are {}", known.join(", ")),
            };
            Refusal::new(ErrorCode::NotFound, why)
        })
    }

    /// A job and the name of its source.
    fn job(&self, id: u64) -> Result<(String, Arc<Job>), Refusal> {
        let of_source = |source: &Arc<Source>| {
            let job = source.jobs().into_iter().find(|job| job.id == id)?;
            Some((source.name().to_owned(), job))
        };
        let missing =
            || Refusal::new(ErrorCode::NotFound, format!("there is no job {id}, or it ended long ago"));
        self.sources().iter().find_map(of_source).ok_or_else(missing)
    }

    /// Summary in one line.
    fn words(&self) -> String {
        let sources = self.sources();
        let failed: Vec<&str> =
            sources.iter().filter(|source| !source.is_healthy()).map(|source| source.name()).collect();
        let mut words = match failed.as_slice() {
            [] if sources.is_empty() => self.idle_words(),
            [] if sources.len() == 1 => "1 source, running".to_owned(),
            [] => format!("{} sources, all running", sources.len()),
            _ if sources.len() == 1 => "1 source, which does not run".to_owned(),
            failed => {
                format!("{} of {} sources do not run: {}", failed.len(), sources.len(), failed.join(", "))
            }
        };
        for source in &sources {
            if let Some(notice) = source.notice() {
                words += &format!("; {} {notice}", source.name());
            }
        }
        words
    }

    /// What to do about a configuration without sources.
    fn idle_words(&self) -> String {
        let config = lock(&self.config);
        format!(
            "no sources: add a [[source]] to {}, then reload the daemon (`gabion daemon reload`)",
            DisplayPath::path(&config.path)
        )
    }

    /// Sources whose threads have not taken a turn for `limit`, and for how long.
    fn stuck(&self, limit: Duration) -> Vec<(String, Duration)> {
        let sources = self.sources();
        let idle = sources.iter().filter_map(|source| Some((source.name().to_owned(), source.idle()?)));
        idle.filter(|(_, idle)| *idle >= limit).collect()
    }

    /// Main loop: handles signals and notifies the service manager, until the daemon is to stop.
    fn wait(self: &Arc<Self>, notifier: &Notifier, reload: &AtomicBool) {
        let (started, mut last_beat, mut last_status) =
            (Stopwatch::start(), Stopwatch::start(), String::new());
        let mut is_ready = false;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
            if let Some(interval) =
                notifier.watchdog_interval().filter(|interval| last_beat.elapsed() >= *interval)
            {
                last_beat = Stopwatch::start();
                // The watchdog is fed only while all sources take turns. A slow disk may delay one for a while.
                let stuck = self.stuck(STUCK_AFTER.max(2 * interval));
                match stuck.is_empty() {
                    true => notifier.is_alive(),
                    false => {
                        let names =
                            stuck.iter().map(|(name, idle)| format!("{name} for {} s", idle.as_secs()));
                        let names = names.collect::<Vec<String>>().join(", ");
                        let text = format!("stuck: {names}");
                        notifier.status(&text);
                        (self.context.tell)("", LogEntry::Warning(&text));
                    }
                }
            }
            let tried = || self.sources().iter().all(|source| source.wait_until_tried(Duration::ZERO));
            if !is_ready && (tried() || started.elapsed() >= START_TIMEOUT) {
                (is_ready, last_status) = (true, self.words());
                notifier.is_ready(&last_status);
                let text = format!("ready: {last_status}");
                self.publish(EventKind::DaemonStarted, &text);
            }
            if is_ready && self.words() != last_status {
                last_status = self.words();
                notifier.status(&last_status);
            }
            if reload.swap(false, Ordering::Relaxed) {
                // In a thread of its own: sources may take long to stop, and the watchdog has to be fed meanwhile.
                let theirs = Arc::clone(self);
                std::thread::spawn(move || match theirs.reload() {
                    Ok(_) => {}
                    Err(why) => (theirs.context.tell)("", LogEntry::Warning(&why)),
                });
            }
        }
    }

    /// Stops all sources in parallel, within the configured time.
    fn end(&self) -> Result<(), DaemonError> {
        let within = lock(&self.config).stop_within;
        let late = stop_all(&self.sources(), within);
        if late.is_empty() {
            return Ok(());
        }
        for source in &late {
            // A mount that is no longer served would block its users.
            if let Some(show) = source.config.show() {
                let _ = rustix::mount::unmount(&show.at, rustix::mount::UnmountFlags::DETACH);
            }
        }
        Err(DaemonError::Late { sources: names(&late), seconds: within.as_secs() })
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus {
            config: PathName::system(&lock(&self.config).path),
            host: gabion_vault::world::host(),
            process: gabion_vault::world::process(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            since: Time(self.began),
            now: Time(Clock::System.now()),
            socket: PathName::system(&self.context.socket),
            last_sequence: self.context.events.last(),
            notifications: self.notifications.reports(),
            sources: self.sources().iter().map(|source| source.status()).collect(),
        }
    }

    /// Reloads the configuration: removed and changed sources stop, new ones start, the others go on.
    fn reload(&self) -> Result<Reloaded, String> {
        let _one_at_a_time = lock(&self.reloading);
        let old = lock(&self.config).clone();
        let new = Config::load(&old.path).map_err(|error| format!("nothing is changed: {error}"))?;
        let fixed = |config: &Config| (config.socket.clone(), config.pools.clone(), config.api.listen);
        if fixed(&new) != fixed(&old) {
            let why =
                "nothing is changed: another socket or address, or another place of pools, needs a restart";
            return Err(why.to_owned());
        }
        let settings =
            Settings::load(&new.api).map_err(|error| format!("nothing is changed: [api]: {error}"))?;
        self.notifications.adopt(&new).map_err(|error| format!("nothing is changed: {error}"))?;
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.sources().into_iter().partition(|source| new.sources.contains(&source.config));
        let late = stop_all(&gone, new.stop_within);
        let mut troubles = Vec::new();
        for source in &kept {
            if let Err(why) = source.refresh_policy() {
                troubles.push(format!("{}: the policy stays as it was: {why}", source.name()));
            }
        }
        *lock(&self.sources) = kept.clone();
        *lock(&self.settings) = Arc::new(settings);
        for source in gone.iter().filter(|source| new.sources.iter().all(|it| it.name != source.name())) {
            self.context.events.detach(source.name());
        }
        let mut begun = Vec::new();
        for config in &new.sources {
            if kept.iter().all(|source| source.config != *config) {
                begun.push(config.name.clone());
                self.start(config.clone()).map_err(|error| error.to_string())?;
            }
        }
        troubles.extend(late.iter().map(|source| format!("{} did not end in time", source.name())));
        *lock(&self.config) = new;
        self.publish(EventKind::ConfigurationReloaded, "the configuration was read again");
        Ok(Reloaded { ended: names(&gone), begun, kept: names(&kept), troubles })
    }
}

fn names(sources: &[Arc<Source>]) -> Vec<String> {
    sources.iter().map(|source| source.name().to_owned()).collect()
}

/// Stops sources in parallel. Returns those that did not stop in time.
fn stop_all(sources: &[Arc<Source>], within: Duration) -> Vec<Arc<Source>> {
    sources.iter().for_each(|source| source.stop());
    let since = Stopwatch::start();
    let is_late = |source: &&Arc<Source>| {
        let left = within.saturating_sub(since.elapsed());
        // A source that is not running has no work to finish; its thread may be waiting for a server.
        !source.wait_until_stopped(left.min(GRACE)) && source.is_alive() && !source.wait_until_stopped(left)
    };
    sources.iter().filter(is_late).cloned().collect()
}
