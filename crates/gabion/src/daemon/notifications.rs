//! Notifications: tells people and programs elsewhere what needs attention, what to do, and when it is over.
//!
//! Modules, from the bottom up: [`topic`] (what is told), [`message`] (texts), `observe` (conditions of a source),
//! `ledger` (what a receiver was told, in a file), `deliver` (commands, HTTP, e-mail), `receiver` (one receiver), and
//! here the thread that looks at all sources several times a second. Deliveries run in threads of their own with
//! deadlines: one that hangs blocks nothing.

mod deliver;
mod ledger;
pub mod message;
mod observe;
mod receiver;
pub mod topic;

use super::config::Config;
use super::config::notify::{Channel, NotifyConfig, directory};
use super::events::Events;
use super::source::Source;
use super::{LogEntry, Tell};
use crate::report::notifications::{DeliveryReport, ReceiverReport};
use gabion_platform::lock::Lockable;
use gabion_platform::sync::lock;
use gabion_vault::world::{Clock, Stopwatch, host, unique_id};
use observe::SourceView;
use receiver::{Done, Receiver};
use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval between looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long deliveries under way may take when the daemon stops. The next run repeats those that do not end.
const GRACE: Duration = Duration::from_secs(3);

/// Error of the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// No directory is known.
    #[error("no directory for the state of notifications: set state in the configuration")]
    NoPlace,
    /// It cannot be used.
    #[error("the state directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another daemon uses it.
    #[error("another daemon uses the state directory {}: set state in the configuration", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// The receivers of a daemon.
pub(super) struct Notifications {
    /// Directory of the ledgers; none without receivers.
    state: Mutex<Option<(PathBuf, Lockable)>>,
    default_state: Option<PathBuf>,
    events: Arc<Events>,
    tell: Tell,
    /// A configuration to adopt.
    next: Mutex<Option<(Vec<NotifyConfig>, PathBuf)>>,
    reports: Mutex<Vec<ReceiverReport>>,
    stop: AtomicBool,
}

/// What all receivers use.
struct Context<'a> {
    tell: &'a Tell,
    events: &'a Events,
    host: &'a str,
    done: &'a Sender<Done>,
    state: &'a Path,
}

impl Notifications {
    /// The receivers of a configuration. `default_state` is the state directory if the configuration names none.
    ///
    /// # Errors
    /// See [`StateError`]. Without receivers there is none.
    pub(super) fn new(
        config: &Config,
        default_state: Option<PathBuf>,
        events: Arc<Events>,
        tell: Tell,
    ) -> Result<Notifications, StateError> {
        let notifications = Notifications {
            state: Mutex::default(),
            default_state,
            events,
            tell,
            next: Mutex::default(),
            reports: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        notifications.adopt(config)?;
        Ok(notifications)
    }

    /// Adopts another configuration.
    ///
    /// # Errors
    /// See [`StateError`]: nothing is changed.
    pub(super) fn adopt(&self, config: &Config) -> Result<(), StateError> {
        let mut state = lock(&self.state);
        if state.is_none() && !config.receivers.is_empty() {
            let place =
                config.state.clone().or_else(|| self.default_state.clone()).ok_or(StateError::NoPlace)?;
            *state = Some(take(&place.join("notifications"))?);
        }
        *lock(&self.next) = Some((config.receivers.clone(), directory(&config.path).to_owned()));
        Ok(())
    }

    /// As in `daemon status`.
    pub(super) fn reports(&self) -> Vec<ReceiverReport> {
        lock(&self.reports).clone()
    }

    /// Ends [`run`](Notifications::run).
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Looks at the sources and delivers, until it is stopped.
    pub(super) fn run(&self, sources: &dyn Fn() -> Vec<Arc<Source>>) {
        let (done, results) = mpsc::channel();
        let (host, mut receivers, mut ending) = (host(), Vec::<Receiver>::new(), None::<Stopwatch>);
        loop {
            let state = lock(&self.state).as_ref().map(|(path, _)| path.clone());
            if let Some(state) = &state {
                let context =
                    Context { tell: &self.tell, events: &self.events, host: &host, done: &done, state };
                if let Some((configs, directory)) = lock(&self.next).take() {
                    receivers = replace(receivers, configs, &directory, &context);
                }
                let now = Clock::System.now();
                while let Ok(result) = results.try_recv() {
                    receivers.iter_mut().for_each(|receiver| receiver.collect(&result, now, &context));
                }
                if !receivers.is_empty() {
                    let views: Vec<SourceView> =
                        sources().iter().map(|source| observe::view(source)).collect();
                    receivers.iter_mut().for_each(|receiver| receiver.turn(&views, now, &context));
                }
                *lock(&self.reports) = receivers.iter().map(|receiver| receiver.report(now)).collect();
            }
            if self.stop.load(Ordering::Relaxed) {
                let since = ending.get_or_insert_with(Stopwatch::start);
                if since.elapsed() >= GRACE || receivers.iter().all(|receiver| !receiver.is_delivering()) {
                    return;
                }
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// Creates and locks the state directory.
fn take(path: &Path) -> Result<(PathBuf, Lockable), StateError> {
    let wrong = |source| StateError::Io { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(wrong)?;
    // Links, and directories that other users control, are refused.
    let tree = gabion_vault::tree::Tree::open_owned(path).map_err(wrong)?;
    let file = tree.write_or_create(b"lock", gabion_vault::private::MODE).map_err(wrong)?;
    let file = Lockable::from(file);
    match file.try_lock() {
        Ok(()) => Ok((path.to_owned(), file)),
        Err(TryLockError::WouldBlock) => Err(StateError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(wrong(error)),
    }
}

/// Receivers by a new configuration; those with the same name go on.
fn replace(
    mut old: Vec<Receiver>,
    configs: Vec<NotifyConfig>,
    directory: &Path,
    context: &Context<'_>,
) -> Vec<Receiver> {
    let mut receivers = Vec::new();
    for config in configs {
        let known = old.iter().position(|receiver| receiver.name() == config.name);
        match known.map(|at| old.swap_remove(at)) {
            Some(known) => receivers.push(known.with(config, directory)),
            None => receivers.push(Receiver::load(config, directory, context)),
        }
    }
    for gone in old {
        gone.forget(context);
    }
    receivers
}

/// A new id of a message.
fn id() -> String {
    match unique_id() {
        Ok(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        // The system has no random numbers: the time is unique enough to tell messages of a host apart.
        Err(_) => format!("{:032x}", Clock::System.now().nanoseconds()),
    }
}

/// Sends a test message to each receiver, or to the one with this name.
pub fn test(config: &Config, name: Option<&str>) -> Vec<DeliveryReport> {
    let (host, directory) = (host(), directory(&config.path));
    let chosen = config.receivers.iter().filter(|receiver| name.is_none_or(|name| receiver.name == name));
    chosen
        .map(|receiver| {
            let began = Stopwatch::start();
            let message = message::test(id(), &host, &receiver.name, Clock::System.now());
            let sent = deliver::within_deadline(receiver, directory, message);
            DeliveryReport {
                name: receiver.name.clone(),
                kind: receiver.channel.word(),
                delivered: sent.is_ok(),
                error: sent.err(),
                seconds: began.seconds(),
            }
        })
        .collect()
}

/// Reads the secrets of all receivers, to find out whether that is possible. Gives an error for each that cannot be
/// read.
pub fn check_secrets(config: &Config) -> Vec<String> {
    let of = |receiver: &NotifyConfig| {
        let secrets = receiver.channel.secrets().into_iter().filter_map(|secret| secret.read().err());
        secrets.map(|error| format!("notify {}: {error}", receiver.name)).collect::<Vec<String>>()
    };
    config.receivers.iter().flat_map(of).collect()
}

/// Writes a warning of a receiver to the log.
fn warn(context: &Context<'_>, name: &str, text: &str) {
    (context.tell)("", LogEntry::Warning(&format!("notify {name}: {text}")));
}

/// Writes a message of a receiver to the log.
fn tell(context: &Context<'_>, name: &str, text: &str) {
    (context.tell)("", LogEntry::Message(&format!("notify {name}: {text}")));
}

/// True if a receiver is a heartbeat, and the interval of it.
fn heartbeat(config: &NotifyConfig) -> Option<Duration> {
    match config.channel {
        Channel::Heartbeat(_, every) => Some(every),
        _ => None,
    }
}
