//! One receiver: its ledger, the delivery under way, and what went wrong.

use super::super::config::notify::NotifyConfig;
use super::super::events::EventKind;
use super::ledger::Ledger;
use super::message::Message;
use super::observe::{SourceView, happened};
use super::{Context, deliver, heartbeat, id, tell, warn};
use crate::report::Time;
use crate::report::notifications::ReceiverReport;
use gabion_vault::private;
use gabion_vault::tree::Tree;
use gabion_vault::world::{Stopwatch, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Deliveries that did not end by their deadline and whose threads are left behind. With more, nothing is sent.
const MAX_HANGING: usize = 4;

/// Shortest time between two signals of a heartbeat, and longest time to the next one after a failure.
const SHORTEST_BEAT: Duration = Duration::from_secs(10);
const BEAT_RETRY: Duration = Duration::from_secs(60);

/// Events of memory that are read at once.
const EVENTS: usize = 1024;

/// End of a delivery.
pub(super) struct Done {
    name: String,
    number: u64,
    result: Result<(), String>,
}

/// A delivery under way.
struct Flight {
    number: u64,
    since: Stopwatch,
}

/// A receiver.
pub(super) struct Receiver {
    config: NotifyConfig,
    directory: PathBuf,
    ledger: Ledger,
    /// The bytes of its file.
    written: Vec<u8>,
    write_error: Option<String>,
    /// Events of each source that were considered, also if they are not for this receiver.
    seen: BTreeMap<String, u64>,
    flight: Option<Flight>,
    flights: u64,
    hanging: usize,
    beat: Beat,
}

/// State of a heartbeat.
#[derive(Default)]
struct Beat {
    last: Option<Stopwatch>,
    /// The signal that was sent last, or is under way.
    was_well: Option<bool>,
    failed: bool,
}

fn file(name: &str) -> String {
    format!("{name}.json")
}

impl Receiver {
    /// With the ledger of an earlier run, if there is one.
    pub(super) fn load(config: NotifyConfig, directory: &Path, context: &Context<'_>) -> Receiver {
        let read = match heartbeat(&config) {
            Some(_) => Ok(None),
            None => private::read(context.state, &file(&config.name)),
        };
        let ledger = match read {
            Ok(None) => None,
            Ok(Some(text)) => {
                let ledger = Ledger::parse(&text);
                if ledger.is_none() {
                    warn(context, &config.name, "its state cannot be understood: what lasts is told again");
                }
                ledger
            }
            Err(error) => {
                warn(context, &config.name, &format!("its state cannot be read: {error}"));
                None
            }
        };
        Receiver {
            config,
            directory: directory.to_owned(),
            ledger: ledger.unwrap_or_default(),
            written: Vec::new(),
            write_error: None,
            seen: BTreeMap::new(),
            flight: None,
            flights: 0,
            hanging: 0,
            beat: Beat::default(),
        }
    }

    /// With another configuration.
    pub(super) fn with(mut self, config: NotifyConfig, directory: &Path) -> Receiver {
        if config != self.config {
            // The reason of a failure may be gone: it is tried at once.
            self.ledger.retry_at = Timestamp::EPOCH;
        }
        (self.config, self.directory) = (config, directory.to_owned());
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Removes the file of a receiver that is no longer configured.
    pub(super) fn forget(self, context: &Context<'_>) {
        let removed =
            Tree::open_owned(context.state).and_then(|tree| tree.remove(file(self.name()).as_bytes()));
        if let Err(error) = removed {
            warn(context, self.name(), &format!("its state is not removed: {error}"));
        }
    }

    pub(super) fn is_delivering(&self) -> bool {
        self.flight.is_some()
    }

    /// Looks at the sources, and sends what is due.
    pub(super) fn turn(&mut self, views: &[SourceView], now: Timestamp, context: &Context<'_>) {
        self.ledger.observe(&self.config, views, now);
        self.give_up(now, context);
        if let Some(every) = heartbeat(&self.config) {
            return self.turn_heartbeat(views, every, now, context);
        }
        self.read_events(views, context);
        if self.ledger.compose(&self.config, context.host, &id(), now) {
            tell(context, self.name(), "a message is composed");
        }
        // Before it is sent: after a crash it is sent again, and what it tells is not composed again.
        self.save(context);
        if self.flight.is_none()
            && let Some(message) = self.ledger.due(now).cloned()
        {
            let (config, directory) = (self.config.clone(), self.directory.clone());
            self.start(now, context, move || {
                deliver::deliver(&config, &directory, &message).map_err(|error| error.to_string())
            });
        }
    }

    /// Notes repairs since the last look.
    fn read_events(&mut self, views: &[SourceView], context: &Context<'_>) {
        let last = context.events.last();
        for view in views.iter().filter(|view| view.is_settled) {
            let name = &view.name;
            // A new receiver is not told of what was before.
            let cursor = *self.ledger.cursors.entry(name.clone()).or_insert(last);
            let first_look = !self.seen.contains_key(name);
            let after = self.seen.get(name).map_or(cursor, |&seen| seen.max(cursor));
            if after >= last && !first_look {
                continue;
            }
            let found = match context.events.recent_after(after, EVENTS).filter(|_| !first_look) {
                Some(recent) => recent,
                None => context.events.history(name, after, &[EventKind::Repaired]),
            };
            let reached =
                if found.len() < EVENTS { last } else { found.last().map_or(last, |it| it.sequence) };
            for event in found.iter().filter(|event| event.source.as_ref() == Some(name)) {
                if let Some(condition) = happened(event) {
                    self.ledger.note(&self.config, condition, event.time.0);
                    self.ledger.cursors.insert(name.clone(), event.sequence);
                }
            }
            self.seen.insert(name.clone(), reached);
        }
    }

    /// Sends the signal that all is well at each interval, and the other one when it is not.
    fn turn_heartbeat(
        &mut self,
        views: &[SourceView],
        every: Duration,
        now: Timestamp,
        context: &Context<'_>,
    ) {
        let watched =
            |view: &&SourceView| self.config.sources.is_empty() || self.config.sources.contains(&view.name);
        let is_known = views.iter().filter(watched).all(|view| view.is_settled);
        let is_well = match (self.ledger.open(), self.ledger.lasting(self.config.collect, now)) {
            (0, _) if is_known => true,
            (_, 1..) => false,
            // It starts, or something has just begun that may be over in a moment.
            _ => return,
        };
        let pause = match (self.beat.failed, self.beat.was_well == Some(is_well)) {
            (true, _) => BEAT_RETRY.min(every),
            (false, true) => every,
            (false, false) => SHORTEST_BEAT.min(every),
        };
        if self.flight.is_some() || self.beat.last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        (self.beat.last, self.beat.was_well) = (Some(Stopwatch::start()), Some(is_well));
        let (config, text) = (self.config.clone(), self.ledger.summaries().join("\n"));
        self.start(now, context, move || {
            deliver::beat(&config, is_well, &text).map_err(|error| error.to_string())
        });
    }

    fn start(
        &mut self,
        now: Timestamp,
        context: &Context<'_>,
        work: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) {
        if self.hanging >= MAX_HANGING {
            let why = format!("{} earlier deliveries still hang", self.hanging);
            return self.failed(&why, now, context);
        }
        self.flights += 1;
        let (number, name, done) = (self.flights, self.name().to_owned(), context.done.clone());
        let thread = std::thread::Builder::new().name(format!("notify {name}"));
        let spawned = thread.spawn(move || {
            let result = work();
            // Nobody listens if the daemon has ended meanwhile.
            let _ = done.send(Done { name, number, result });
        });
        match spawned {
            Ok(_) => self.flight = Some(Flight { number, since: Stopwatch::start() }),
            Err(error) => self.failed(&format!("cannot start a thread: {error}"), now, context),
        }
    }

    /// Stops waiting for a delivery that does not end. Its thread is left behind.
    fn give_up(&mut self, now: Timestamp, context: &Context<'_>) {
        let deadline = self.config.timeout;
        if self
            .flight
            .take_if(|flight| flight.since.elapsed() > deadline.saturating_add(deliver::SLACK))
            .is_some()
        {
            self.hanging += 1;
            let why = format!("the delivery did not end within {} s", deadline.as_secs());
            self.failed(&why, now, context);
        }
    }

    /// Takes the end of a delivery, if it is one of its own.
    pub(super) fn collect(&mut self, done: &Done, now: Timestamp, context: &Context<'_>) {
        if done.name != self.config.name {
            return;
        }
        if self.flight.take_if(|flight| flight.number == done.number).is_none() {
            self.hanging = self.hanging.saturating_sub(1);
            return;
        }
        match &done.result {
            Ok(()) => {
                if self.ledger.error.is_some() {
                    tell(context, self.name(), "messages arrive again");
                }
                self.ledger.arrived(now);
                self.beat.failed = false;
                self.save(context);
            }
            Err(why) => self.failed(why, now, context),
        }
    }

    fn failed(&mut self, why: &str, now: Timestamp, context: &Context<'_>) {
        let is_new = self.ledger.error.as_deref() != Some(why);
        if heartbeat(&self.config).is_some() {
            self.beat.failed = true;
            self.ledger.error = Some(why.to_owned());
            if is_new {
                warn(context, self.name(), why);
            }
            return;
        }
        let is_discarded = self.ledger.failed(why, now);
        if is_discarded {
            warn(context, self.name(), &format!("a message is discarded after a week: {why}"));
        } else if is_new {
            let pause = self.ledger.retry_at.since(now).as_secs();
            warn(context, self.name(), &format!("{why}; tried again in {pause} s"));
        }
        self.save(context);
    }

    /// Writes its file if something changed.
    fn save(&mut self, context: &Context<'_>) {
        if heartbeat(&self.config).is_some() {
            return;
        }
        let bytes = self.ledger.bytes();
        if bytes == self.written {
            return;
        }
        match private::replace(context.state, &file(self.name()), &bytes) {
            Ok(()) => (self.written, self.write_error) = (bytes, None),
            Err(error) => {
                let why = format!("its state is not written, and would be forgotten by a restart: {error}");
                if self.write_error.as_ref() != Some(&why) {
                    warn(context, self.name(), &why);
                }
                self.write_error = Some(why);
            }
        }
    }

    /// As in `daemon status`.
    pub(super) fn report(&self, now: Timestamp) -> ReceiverReport {
        let ledger = &self.ledger;
        let is_heartbeat = heartbeat(&self.config).is_some();
        let waiting = ledger.message.as_ref().map(|message: &Message| message.time);
        ReceiverReport {
            name: self.config.name.clone(),
            kind: self.config.channel.word(),
            state: match (&ledger.error, self.flight.is_some()) {
                (Some(_), _) => "failing",
                (None, true) => "delivering",
                (None, false) => "fine",
            },
            open: ledger.open(),
            untold: if is_heartbeat { 0 } else { ledger.untold(&self.config, now) },
            waiting_since: waiting,
            attempts: ledger.attempts,
            retry_at: waiting.filter(|_| ledger.error.is_some()).map(|_| Time(ledger.retry_at)),
            error: ledger.error.clone().or_else(|| self.write_error.clone()),
            delivered: ledger.delivered.map(Time),
            discarded: ledger.discarded,
        }
    }
}
