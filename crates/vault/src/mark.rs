//! Mark of a monitor of this process on the changelog's server, renewed by a thread of its own.
//!
//! The mark is set before the monitor sees its first change, and removed when all changes are recorded. If the process
//! dies, or cannot reach the server for longer than the lease, another process gives the mark up, and a scan finds what
//! was not recorded ([`crate::changelog::monitors`]). From then on nobody would notice if this monitor died: so changes
//! can wait until the mark is certainly there ([`Mark::wait_until_valid`]).

use crate::changelog::monitors::{MARK_LEASE, Monitor, MonitorKind, Renewed};
use crate::changelog::{self, Changelog, When};
use crate::identity::{is_dead, unique_name};
use crate::world::{Clock, Stopwatch};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

/// Interval of renewals, and the pause after one that failed.
const RENEWAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(1);

/// Time since the begin of the last renewal for which the mark is certainly there. The rest of the lease is for a
/// change that began just before.
const VALID: Duration = MARK_LEASE.checked_sub(Duration::from_secs(5)).expect("a lease of more than 5 s");

/// What a thread tells of a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkNotice {
    /// The mark was given up while the server was out of reach, or the server lost it: a gap was recorded.
    Again,
    /// Marks of other monitors were given up: gaps were recorded.
    Lost(Vec<Monitor>),
}

impl fmt::Display for MarkNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkNotice::Again => f.write_str(
                "the changelog's server had no mark of this process: it was out of reach, or lost data. A scan is needed",
            ),
            MarkNotice::Lost(monitors) => {
                let names: Vec<String> = monitors.iter().map(described).collect();
                write!(f, "lost: {}. What they changed last may be unknown: a scan is needed", names.join(", "))
            }
        }
    }
}

/// A monitor in words.
pub fn described(monitor: &Monitor) -> String {
    let process = monitor.name.process().map_or(String::new(), |process| format!(", process {process}"));
    format!("{} on {}{process}", monitor.kind.word(), monitor.name.host())
}

/// Receives notices.
pub type OnNotice = Box<dyn Fn(&MarkNotice) + Send + Sync>;

/// A mark; when it is dropped, it stays on the server and is lost after its lease.
pub struct Mark {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Tells how long a server has not answered, also after the mark is gone.
pub struct Pulse(Arc<Shared>);

impl Pulse {
    /// Time since the begin of the last renewal that succeeded.
    pub fn silent_for(&self) -> Duration {
        self.0.state().renewed.elapsed()
    }
}

struct Shared {
    changelog: Arc<dyn Changelog>,
    monitor: Monitor,
    clock: Clock,
    notice: OnNotice,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Begin of the last renewal that succeeded.
    renewed: Stopwatch,
    is_over: bool,
}

impl Mark {
    /// Sets the mark of a monitor. None if the changelog has no marks, since it is for one host.
    ///
    /// # Errors
    /// The changelog fails, or the thread cannot be started.
    pub fn begin(
        changelog: &Arc<dyn Changelog>,
        kind: MonitorKind,
        clock: &Clock,
        notice: OnNotice,
    ) -> io::Result<Option<Mark>> {
        let Some(monitors) = changelog.monitors() else { return Ok(None) };
        let monitor = Monitor { name: unique_name()?, kind, since: clock.now() };
        let renewed = Stopwatch::start();
        monitors.begin_monitor(&monitor, MARK_LEASE).map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            changelog: Arc::clone(changelog),
            monitor,
            clock: clock.clone(),
            notice,
            state: Mutex::new(State { renewed, is_over: false }),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("mark".to_owned()).spawn(move || theirs.keep())?;
        Ok(Some(Mark { shared, thread: Some(thread) }))
    }

    /// The monitor.
    pub fn monitor(&self) -> &Monitor {
        &self.shared.monitor
    }

    /// Waits until the mark is certainly on the server.
    pub fn wait_until_valid(&self) {
        let mut state = self.shared.state();
        while state.renewed.elapsed() >= VALID && !state.is_over {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells how long the server has not answered.
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::clone(&self.shared))
    }

    /// Removes the mark: everything is recorded.
    ///
    /// # Errors
    /// The changelog fails; then the mark is lost after its lease.
    pub fn finish(mut self) -> changelog::Result<()> {
        self.end_thread();
        self.shared.changelog.monitors().map_or(Ok(()), |it| it.end_monitor(&self.shared.monitor))
    }

    fn end_thread(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        // If the thread panicked, it has printed why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.end_thread();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) {
        let mut pause = RENEWAL;
        loop {
            let state = self.state();
            let waited = self.changed.wait_timeout_while(state, pause, |state| !state.is_over);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
            pause = if self.renew().is_ok() { RENEWAL } else { RETRY };
        }
    }

    fn renew(&self) -> changelog::Result<()> {
        let Some(monitors) = self.changelog.monitors() else { return Ok(()) };
        let began = Stopwatch::start();
        let renewed = monitors.renew_monitor(&self.monitor, MARK_LEASE, gap_now(&self.clock))?;
        self.state().renewed = began;
        self.changed.notify_all();
        if renewed == Renewed::Again {
            (self.notice)(&MarkNotice::Again);
        }
        let lost = give_up_lost(&*self.changelog, &self.clock)?;
        if !lost.is_empty() {
            (self.notice)(&MarkNotice::Lost(lost));
        }
        Ok(())
    }
}

fn gap_now(clock: &Clock) -> When {
    When::now(clock.now(), u8::MAX)
}

/// Gives up marks of monitors that died or are out of reach, and records gaps for them. Returns these monitors.
///
/// # Errors
/// The changelog's.
pub fn give_up_lost(changelog: &dyn Changelog, clock: &Clock) -> changelog::Result<Vec<Monitor>> {
    let give_up =
        |monitors: &dyn changelog::Monitors| monitors.give_up_monitors(&is_dead, MARK_LEASE, gap_now(clock));
    changelog.monitors().map_or(Ok(Vec::new()), give_up)
}
