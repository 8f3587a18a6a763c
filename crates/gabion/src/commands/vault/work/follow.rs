//! `gabion work --follow`: a worker that stays.
//!
//! A round asks the changelog whether anything is due, which is also the worker's sign of life, and works it off.
//! Between rounds without work the worker sleeps. Whatever fails ends a round, never the worker: it closes the vault,
//! says why once, and opens the vault again after a pause. Files that fail stay pending, and the changelog says when
//! they are due again.

use super::Args;
use crate::commands::device;
use crate::output::{bytes, files, print_json};
use anyhow::Context;
use gabion::compute::Compute;
use gabion::daemon::notify::{Notifier, Supervisor};
use gabion::exit::{Outcome, error_message};
use gabion::privileges;
use gabion::report::work::WorkEvent;
use gabion_platform::display_path::DisplayPath;
use gabion_platform::sync::lock;
use gabion_vault::changelog::{Ask, WorkerId};
use gabion_vault::protect::work_attending;
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::tree::Generation;
use gabion_vault::vault::{Vault, VaultError};
use gabion_vault::worker::{self, Batch, Done};
use gabion_vault::world::Stopwatch;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which the changelog is asked while nothing is due.
const POLL: Duration = Duration::from_millis(500);

/// Time for workers that start at the same moment to get to know each other.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// Pauses after errors: the first one, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(50);

/// Time without a sign of the working thread after which the service manager is told no more that it is alive. A server
/// that does not answer takes up to two minutes; a file that is read tells of its progress.
const STUCK_AFTER: Duration = Duration::from_secs(180);

/// Most files whose reasons are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// An open vault, and what shows that it is still the one at its path.
struct Opened {
    vault: Vault,
    places: [(u64, u64); 2],
    policy: Option<Generation>,
}

/// Identity of the directories of a vault.
fn places(vault: &Vault) -> std::io::Result<[(u64, u64); 2]> {
    let place = |path: &std::path::Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    Ok([place(&vault.root)?, place(vault.repository.path())?])
}

/// A worker that stays.
struct Follower<'a> {
    args: &'a Args,
    compute: &'a Compute,
    context: RunContext<'a>,
    notifier: &'a Notifier,
    name: WorkerId,
    pulse: &'a Pulse,
    total: Mutex<Batch>,
    /// Files that failed, and the reasons that were printed.
    failed: BTreeMap<Vec<u8>, String>,
    held: u64,
    is_draining: bool,
    has_started: bool,
}

/// Runs until a signal arrives.
pub(super) fn follow(args: &Args) -> anyhow::Result<Outcome> {
    privileges::drop_unneeded().context("giving up privileges")?;
    let supervisor = Supervisor {
        socket: args.notify_socket.clone(),
        watchdog: args.watchdog_usec,
        watched: args.watchdog_pid,
    };
    let notifier = Notifier::new(&supervisor).context("the service manager's socket")?;
    let compute = args.device.open_for_long(args.output.json, args.output.quiet)?;
    let (pulse, is_over) = (Pulse::new(), AtomicBool::new(false));
    let outcome = args.output.run(&args.effort, |context| {
        std::thread::scope(|scope| {
            if let Some(interval) = notifier.watchdog_interval() {
                let (notifier, pulse, is_over) = (&notifier, &pulse, &is_over);
                scope.spawn(move || feed_watchdog(notifier, interval, pulse, is_over));
            }
            let _over = Over(&is_over);
            let progress = |step: Progress| {
                pulse.beat();
                (context.progress)(step);
            };
            Follower {
                args,
                compute: &compute,
                context: RunContext { progress: &progress, ..context },
                notifier: &notifier,
                name: worker::unique_name()?,
                pulse: &pulse,
                total: Mutex::default(),
                failed: BTreeMap::new(),
                held: 0,
                is_draining: false,
                has_started: false,
            }
            .run()
        })
    })?;
    device::print_warning(&compute);
    outcome
}

/// Signs of the working thread.
struct Pulse {
    last: Mutex<Stopwatch>,
    /// It reads the journal of a vault, or makes the catalogue. No time is too long for that with many files: a worker
    /// that is killed over it would begin again.
    is_catching_up: AtomicBool,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse { last: Mutex::new(Stopwatch::start()), is_catching_up: AtomicBool::new(false) }
    }

    fn beat(&self) {
        *lock(&self.last) = Stopwatch::start();
    }

    fn is_alive(&self) -> bool {
        self.is_catching_up.load(Ordering::Relaxed) || lock(&self.last).elapsed() < STUCK_AFTER
    }

    fn while_catching_up<T>(&self, work: impl FnOnce() -> T) -> T {
        self.is_catching_up.store(true, Ordering::Relaxed);
        let result = work();
        self.beat();
        self.is_catching_up.store(false, Ordering::Relaxed);
        result
    }
}

/// Ends the thread of the watchdog, also on panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn feed_watchdog(notifier: &Notifier, interval: Duration, pulse: &Pulse, is_over: &AtomicBool) {
    let mut fed = Stopwatch::start();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if fed.elapsed() >= interval && pulse.is_alive() {
            notifier.is_alive();
            fed = Stopwatch::start();
        }
    }
}

impl Follower<'_> {
    fn run(mut self) -> anyhow::Result<Outcome> {
        let mut opened: Option<Opened> = None;
        let mut interrupted: Option<(Stopwatch, Duration)> = None;
        while !(self.context.stopped)() {
            match self.round(&mut opened) {
                Ok(pause) => {
                    if let Some((since, _)) = interrupted.take() {
                        errln!("gabion: working again after {:.0} s", since.seconds());
                        self.event(&WorkEvent::Continued { seconds: since.seconds() }, || None);
                        self.notifier.status("working");
                    }
                    self.wait(pause);
                }
                Err(error) if !self.has_started && !is_away(&error) => return Err(error),
                Err(error) => {
                    if interrupted.is_none() {
                        let why = error_message(&error);
                        errln!("gabion: cannot work, trying again: {why}");
                        self.notifier.is_ready(&format!("cannot work: {why}"));
                        self.event(&WorkEvent::Interrupted { why }, || None);
                    }
                    opened = None;
                    let (_, pause) = interrupted.get_or_insert_with(|| (Stopwatch::start(), PAUSES.0));
                    let pause = std::mem::replace(pause, (*pause * 2).min(PAUSES.1));
                    self.wait(pause);
                }
            }
        }
        self.notifier.is_stopping();
        if let Some(opened) = opened {
            // If that fails, the others forget this worker after a while.
            let _ = opened.vault.changelog.leave(&self.name);
        }
        let total = *lock(&self.total);
        self.event(&WorkEvent::Stopped(total.into()), || Some(format!("stopped after {}", words(total))));
        Ok(Outcome::Fine)
    }

    /// Sleeps until the pause is over or a signal arrives.
    fn wait(&self, pause: Duration) {
        let began = Stopwatch::start();
        while began.elapsed() < pause && !(self.context.stopped)() {
            self.pulse.beat();
            std::thread::sleep(LOOK.min(pause));
        }
    }

    /// Works off what is due. Returns the pause before the next round.
    fn round(&mut self, opened: &mut Option<Opened>) -> anyhow::Result<Duration> {
        self.pulse.beat();
        let is_new = opened.is_none();
        let Opened { vault, places: known, policy } = match opened {
            Some(opened) => opened,
            None => opened.insert(self.pulse.while_catching_up(|| self.open())?),
        };
        // Through the old handles a worker would go on in a directory that was moved away or unmounted.
        let found = places(vault).context("the vault is not there")?;
        anyhow::ensure!(
            found == *known,
            "another directory is in the place of {}",
            DisplayPath::path(&vault.root)
        );
        let version = vault.policy_version()?;
        if version != *policy {
            vault.policy = vault.read_policy()?;
            *policy = version;
        }
        self.pulse.while_catching_up(|| vault.follow())?;
        let ask = Ask {
            worker: &self.name,
            limit: 0,
            threads: self.context.threads,
            lease: Duration::ZERO,
            attends: true,
            insists: false,
            heeds_drain: true,
        };
        let share = vault.changelog.claim_share(&ask, vault.clock.now())?;
        vault.refuse_if_moved()?;
        if is_new && !self.has_started {
            self.has_started = true;
            self.notifier.is_ready("working");
            let shown = DisplayPath::path(&vault.root).to_string();
            self.event(&WorkEvent::started(vault), || Some(format!("working on {shown}")));
            return Ok(SETTLE);
        }
        if share.is_draining != self.is_draining {
            self.is_draining = share.is_draining;
            let (event, text) = match share.is_draining {
                true => (WorkEvent::Draining, "draining: claiming nothing until --resume"),
                false => (WorkEvent::Resumed, "resumed"),
            };
            self.notifier.status(text);
            self.event(&event, || Some(text.to_owned()));
        }
        let expired = if share.has_others { worker::expire_dead(&*vault.changelog)? } else { 0 };
        let is_idle = share.due + expired == 0 && !has_portions(vault)?;
        if share.is_draining || share.is_limited || is_idle {
            return Ok(POLL);
        }
        let done = work_attending(vault, self.context, &self.name, &|batch| self.worked(batch))?;
        self.report(&done);
        Ok(POLL)
    }

    fn open(&self) -> anyhow::Result<Opened> {
        let (mut vault, _) = self.args.which.open()?;
        vault.coders = self.compute.coders(self.args.effort.threads())?;
        let (places, policy) = (places(&vault)?, vault.policy_version()?);
        Ok(Opened { vault, places, policy })
    }

    fn worked(&self, batch: Batch) {
        let mut total = lock(&self.total);
        *total = total.and(batch);
        self.event(&WorkEvent::Worked(batch.into()), || Some(words(batch)));
    }

    /// Prints what needs a person, once.
    fn report(&mut self, done: &Done) {
        for (path, why) in &done.failed {
            let why = why.to_string();
            if self.failed.get(path) != Some(&why) {
                errln!("gabion: {}: {why}", DisplayPath::bytes(path));
                self.event(&WorkEvent::failed(path, why.clone()), || None);
                if self.failed.len() >= MAX_REMEMBERED {
                    self.failed.clear();
                }
                self.failed.insert(path.clone(), why);
            }
        }
        for damage in &done.damaged {
            errln!(
                "gabion: {}: damaged, its redundancy is kept: `gabion repair`",
                DisplayPath::bytes(&damage.path)
            );
            self.event(&WorkEvent::damaged(&damage.path), || None);
        }
        for path in &done.write_once {
            errln!("gabion: {}: write-once and changed, its redundancy is kept", DisplayPath::bytes(path));
            self.event(&WorkEvent::write_once_changed(path), || None);
        }
        if done.held != self.held && done.held > 0 {
            errln!(
                "gabion: HELD: {} disappeared or changed, more than the policy's guard allows: `gabion protect` prints \
                 the digest to approve",
                files(done.held)
            );
            self.event(&WorkEvent::Held { files: done.held }, || None);
        }
        self.held = done.held;
    }

    /// Prints an event as JSON, or the text.
    fn event(&self, event: &WorkEvent, text: impl FnOnce() -> Option<String>) {
        match self.args.output.json {
            true => print_json(event),
            false => text().into_iter().for_each(|text| self.args.output.print_line(text)),
        }
    }
}

/// True if other workers share work of which nobody does a part yet.
fn has_portions(vault: &Vault) -> anyhow::Result<bool> {
    let Some(tasks) = vault.changelog.tasks() else { return Ok(false) };
    Ok(tasks.known_tasks()?.iter().any(|task| task.finished + task.taken < task.portions))
}

/// What was encoded of files that other workers have claimed.
pub(super) fn help(portions: u64, size: u64) -> String {
    match portions {
        0 => String::new(),
        _ => format!(", parts of other workers' files: {}", bytes(size)),
    }
}

fn words(batch: Batch) -> String {
    let (encoded, size) = (files(batch.encoded), bytes(batch.encoded_bytes));
    let (moved, removed) = (batch.moved + batch.adopted, batch.removed);
    format!(
        "encoded {encoded} ({size}), moved {moved}, removed {removed}{}",
        help(batch.helped, batch.helped_bytes)
    )
}

/// True if the changelog's server is away, which passes.
fn is_away(error: &anyhow::Error) -> bool {
    let of_vault = error.downcast_ref::<VaultError>();
    matches!(of_vault, Some(VaultError::Changelog(error)) if error.is_transient())
}
