//! Scans what only a scan can tell, and works off what has rested.

mod memory;
mod vanished;

use super::batch::rested;
use super::status::WIDE;
use super::{Notice, Options, Scan, Shared};
use crate::catalogue::{Change as Found, Class};
use crate::changelog::{self, Change, When};
use crate::displaced::Awaited;
use crate::guard::{self, Held};
use crate::protect::renamed;
use crate::protect::{self, ProtectError, Terms, admission, change_at, order, purge_displaced, with_worker};
use crate::run::RunContext;
use crate::tree::Generation;
use crate::vault::Vault;
use crate::worker::{Done, Judged, Scanned};
use crate::world::{Nanos, SECOND, Stopwatch};
use crate::write_once;
use memory::Remembered;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use vanished::{Vanished, is_absent};

/// How often to look whether an approval came, or another policy.
const LOOK: Nanos = SECOND;

/// A scan is followed by a pause of so many times its length: a storm of gaps must not become one of scans.
const PAUSE: u32 = 5;

/// Longest pause after a scan.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// How often, at least and at most, to look at the changelog while something is pending, in parts of the shortest quiet period.
const LOOKS_PER_QUIET: Nanos = 4;
const MIN_LOOK: Nanos = SECOND / 10;
const MAX_LOOK: Nanos = 5 * SECOND;

/// How long to wait after something failed that is not about one file.
const AFTER_TROUBLE: Nanos = 10 * SECOND;

/// A file that failed is left alone for so many quiet periods, at least [`crate::worker::RETRY`].
const RETRY_QUIETS: Nanos = 2;

/// How often redundancy is purged that was set aside.
const PURGE: Duration = Duration::from_secs(600);

/// The thread that keeps a tree protected.
pub(super) struct Keeper {
    vault: Vault,
    options: Options,
    shared: Arc<Shared>,
    /// Whether someone calls when there is something to look at; otherwise it is looked for.
    is_called: bool,
    scanned: Scanned,
    /// What waits for an approval.
    held: Option<Held>,
    /// When the last scan of everything ended, and how long a pause the last scan asks for.
    last_scan: Option<Stopwatch>,
    pause: (Stopwatch, Duration),
    /// When redundancy was purged last that had been set aside.
    purged: Option<Stopwatch>,
    policy: Option<Generation>,
    /// Paths that wait for a scan.
    for_scan: Vec<Vec<u8>>,
    /// What scans did not find.
    vanished: Vanished,
    wants_scan: bool,
    /// What was recorded before a scan of everything that the guard let pass.
    passed: changelog::Sequence,
    /// By what it is noticed that the server of the changelog lost its memory.
    remembered: Remembered,
    /// What the catalogue says of [`Status::wide`](super::Status::wide), if it was told.
    noted: Option<Option<String>>,
}

impl Keeper {
    pub(super) fn new(vault: Vault, options: Options, shared: Arc<Shared>, is_called: bool) -> Keeper {
        Keeper {
            policy: vault.policy_version().ok().flatten(),
            vault,
            options,
            shared,
            is_called,
            scanned: Scanned::default(),
            held: None,
            last_scan: None,
            pause: (Stopwatch::start(), Duration::ZERO),
            purged: None,
            for_scan: Vec::new(),
            vanished: Vanished::default(),
            wants_scan: true,
            passed: 0,
            remembered: Remembered::default(),
            noted: None,
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_stopping() {
            self.note_width();
            if self.shared.is_resting() {
                self.rest();
                continue;
            }
            let next = match self.turn() {
                Ok(next) => {
                    self.shared.status().trouble = None;
                    next
                }
                Err(ProtectError::Scan(crate::scan::ScanError::Stopped)) => continue,
                Err(error) => {
                    let why = error.to_string();
                    self.shared.status().trouble = Some(why.clone());
                    (self.shared.tell)(&Notice::Trouble(why));
                    Some(self.vault.clock.now().saturating_add(AFTER_TROUBLE))
                }
            };
            self.sleep(next);
        }
        // Nobody hears of anything any more. A note that stays is removed by the next one.
        let _ = self.vault.catalogue.set_note(WIDE, None);
    }

    /// Leaves a note of what the source costs, for others who are asked how the vault is.
    fn note_width(&mut self) {
        let wide = self.shared.status().wide.clone();
        let is_noted = self.noted.as_ref() == Some(&wide);
        if !is_noted && self.vault.catalogue.set_note(WIDE, wide.as_deref()).is_ok() {
            self.noted = Some(wide);
        }
    }

    /// Does what is to be done now. When to come again, if nobody calls before.
    fn turn(&mut self) -> Result<Option<Nanos>, ProtectError> {
        let is_due = {
            let mut due = self.shared.due();
            let now = self.vault.clock.now();
            due.take_if(|due| *due <= now).is_some()
        };
        // A person accepted a changed write-once file in another process, which cannot call.
        let is_due = is_due || (self.held.is_none() && self.vault.catalogue.has_accepted()?);
        self.follow_policy();
        self.check_memory(is_due)?;
        let old = self.last_scan.is_none_or(|since| since.elapsed().as_nanos() as i64 >= self.options.rescan);
        let may_scan = self.pause.0.elapsed() >= self.pause.1;
        // What is held may have been undone, and is another change-set if not.
        let held = self.held.is_some() && is_due && may_scan;
        let all = self.wants_scan || old || held || self.is_approved();
        if all {
            self.scan_all()?;
        } else if !self.for_scan.is_empty() && may_scan {
            self.scan_parts()?;
        } else if !is_due && !self.vanished.is_any_late() {
            // Within quiet periods nothing competes with those who write.
            return Ok(None);
        }
        self.record_gone()?;
        // What a scan of everything lets pass needs no second look.
        let mut judged = all || self.vault.changelog.sequence()? == self.passed;
        if !judged && self.held.is_none() && admission(&self.vault, Judged::No)?.is_exceeded() {
            self.scan_all()?;
            judged = true;
        }
        let done = self.work(judged)?;
        let pending = self.vault.changelog.pending()?;
        {
            let mut status = self.shared.status();
            (status.pending, status.oldest) = (pending.entries(), pending.oldest);
        }
        if self.purged.is_none_or(|since| since.elapsed() >= PURGE) {
            let settled = pending.entries() == 0 && self.held.is_none() && done.for_scan.is_empty();
            purge_displaced(&self.vault, if settled { Awaited::Perhaps } else { Awaited::Likely });
            self.purged = Some(Stopwatch::start());
        }
        self.for_scan.extend(done.for_scan);
        self.vanished.seek(done.vanished, false);
        self.for_scan.sort();
        self.for_scan.dedup();
        let now = self.vault.clock.now();
        let again = if self.for_scan.is_empty() && !done.refused { self.look() } else { MIN_LOOK };
        let look = pending.entries() > 0 || !self.is_called;
        Ok(look.then(|| now.saturating_add(again)))
    }

    fn sleep(&self, next: Option<Nanos>) {
        let mut due = self.shared.due();
        if let Some(next) = next {
            *due = Some(due.map_or(next, |due| due.min(next)));
        }
        let slept = Stopwatch::start();
        loop {
            let now = self.vault.clock.now();
            let waited = slept.elapsed().as_nanos() as i64;
            if self.shared.is_stopping() || due.is_some_and(|due| due <= now) || waited >= LOOK {
                return;
            }
            let left = due.map_or(LOOK, |due| due.saturating_sub(now)).clamp(1_000_000, LOOK);
            let left = Duration::from_nanos(left.unsigned_abs());
            due = self.shared.wake.wait_timeout(due, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits a while, whatever is due.
    fn rest(&self) {
        let due = self.shared.due();
        if self.shared.is_resting() && !self.shared.is_stopping() {
            let look = Duration::from_nanos(LOOK.unsigned_abs());
            drop(self.shared.wake.wait_timeout(due, look));
        }
    }

    /// How long until the changelog is looked at again while something is pending.
    fn look(&self) -> Nanos {
        (self.shortest_quiet() / LOOKS_PER_QUIET).clamp(MIN_LOOK, MAX_LOOK)
    }

    fn shortest_quiet(&self) -> Nanos {
        let policy = &self.vault.policy;
        let rules = policy.rules().filter_map(|(_, treatment)| treatment);
        rules.chain([&policy.default]).map(|treatment| treatment.quiet).min().unwrap_or(0)
    }

    /// Takes another policy over when someone sets one; what it says of files that are there, a scan finds.
    fn follow_policy(&mut self) {
        let Ok(version) = self.vault.policy_version() else { return };
        if version == self.policy {
            return;
        }
        match (self.vault.read_policy(), self.vault.read_policy()) {
            (Ok(policy), Ok(same)) => {
                self.vault.policy = policy;
                *self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(same);
                self.policy = version;
                self.wants_scan = true;
                (self.shared.tell)(&Notice::Policy);
            }
            // It may be half written; the old one is in force until it can be read.
            (Err(error), _) | (_, Err(error)) => {
                self.policy = version;
                (self.shared.tell)(&Notice::Trouble(format!("the policy stays as it was: {error}")));
            }
        }
    }

    /// Whether someone approved something while changes are held.
    fn is_approved(&self) -> bool {
        self.held.is_some() && guard::is_any_approved(&self.vault.repository)
    }

    fn scan_all(&mut self) -> Result<(), ProtectError> {
        self.wants_scan = false;
        self.for_scan.clear();
        if let Err(error) = self.scan(vec![Vec::new()]) {
            self.wants_scan = true;
            return Err(error);
        }
        self.last_scan = Some(Stopwatch::start());
        self.shared.status().last_scan = Some(self.vault.clock.now());
        Ok(())
    }

    fn scan_parts(&mut self) -> Result<(), ProtectError> {
        let parts = std::mem::take(&mut self.for_scan);
        // Everything is in the root.
        if parts.iter().any(Vec::is_empty) {
            return self.scan_all();
        }
        let scanned = self.scan(parts.clone());
        if scanned.is_err() {
            self.for_scan.extend(parts);
        }
        scanned
    }

    /// Looks at parts of the tree and records what is different there.
    fn scan(&mut self, within: Vec<Vec<u8>>) -> Result<(), ProtectError> {
        let whole = within.iter().any(Vec::is_empty);
        let began = Stopwatch::start();
        let upto = self.vault.changelog.sequence()?;
        let shared = Arc::clone(&self.shared);
        let stopped = || shared.is_resting();
        let seen = protect::scan_within(&self.vault, &within, self.context(&stopped))?;
        write_once::note(&self.vault.catalogue, &seen.write_once)?;
        let held = protect::held(&self.vault, &seen)?;
        if held.is_some() && !whole {
            // An approval is for all that is different, so all of it has to be known.
            return self.scan_all();
        }
        let approved = whole && self.held.is_some() && held.is_none();
        // A part that is fine says nothing of the rest.
        if whole {
            self.passed = if held.is_none() { upto } else { 0 };
            self.tell_held(held);
        }
        // Names that changed hands while nobody watched.
        if self.held.is_none() {
            renamed::follow(&self.vault)?;
        }
        self.record_found(approved)?;
        self.seek_vanished(whole, approved)?;
        self.pause = (Stopwatch::start(), (began.elapsed() * PAUSE).min(MAX_PAUSE));
        self.shared.status().scans += 1;
        let scan = Scan {
            within: within.clone(),
            files: seen.files,
            changes: seen.changes.files(),
            unreadable: seen.unreadable,
            write_once: seen.write_once,
            seconds: began.seconds(),
        };
        self.scanned.note(upto, within);
        (self.shared.tell)(&Notice::Scanned(scan));
        Ok(())
    }

    fn tell_held(&mut self, held: Option<Held>) {
        match (&self.held, &held) {
            (Some(_), None) => (self.shared.tell)(&Notice::Released),
            (was, Some(now)) if was.as_ref() != Some(now) => (self.shared.tell)(&Notice::Held(now.clone())),
            _ => {}
        }
        self.shared.status().held.clone_from(&held);
        self.held = held;
    }

    /// Records the change-set of the last scan. One that was approved is carried out as it was then; of others
    /// what vanished is no part.
    fn record_found(&self, approved: bool) -> Result<(), ProtectError> {
        let when = |found: &Found| match approved {
            true => When::now(self.vault.clock.now(), found.priority),
            false => self.when(found),
        };
        let is_part = |found: &&Found| {
            approved || found.class != Class::Removed || !is_absent(&*self.vault.storage, &found.path)
        };
        for class in order(self.held.is_some()) {
            self.vault.catalogue.each_change(class, |page| -> Result<(), ProtectError> {
                let found = page.iter().filter(is_part);
                let changes: Vec<_> = found.map(|found| change_at(found, when(found))).collect();
                self.vault.changelog.record(&changes)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What rested before anybody looked is due at once.
    fn when(&self, found: &Found) -> When {
        let now = self.vault.clock.now();
        let at_once = |priority| When::now(now, priority);
        if matches!(found.class, Class::Removed | Class::Moved) {
            return at_once(u8::MAX);
        }
        let Ok(Some(stat)) = self.vault.storage.find(&found.path) else { return at_once(found.priority) };
        let decision = self.vault.policy.decide(&found.path, &stat, now);
        let quiet = decision.treatment.map_or(0, |treatment| treatment.quiet);
        // A time that lies ahead says nothing: by it the file would begin to rest anew with every scan.
        let changed = [stat.mtime, stat.ctime].into_iter().filter(|&time| time <= now).max();
        let due = changed.map_or(now, |changed| changed.saturating_add(quiet));
        match due > now {
            true => When { due, ..rested(now, quiet, found.priority) },
            false => at_once(found.priority),
        }
    }

    fn context<'a>(&self, stopped: &'a (dyn Fn() -> bool + Sync)) -> RunContext<'a> {
        RunContext { threads: self.options.threads, rate: self.options.rate, progress: &|_| {}, stopped }
    }

    /// Works off what is due. `judged`: the guard saw all of it.
    fn work(&mut self, judged: bool) -> Result<Done, ProtectError> {
        let shared = Arc::clone(&self.shared);
        let stopped = || shared.is_resting();
        let retry = self.shortest_quiet().saturating_mul(RETRY_QUIETS).max(crate::worker::RETRY);
        let hold = self.held.is_some();
        let approved = !hold && guard::is_any_approved(&self.vault.repository);
        let judged = match (judged, approved) {
            (_, true) => Judged::Approved,
            (true, false) => Judged::Passed,
            (false, false) => Judged::No,
        };
        let admission = (!hold).then(|| admission(&self.vault, judged)).transpose()?;
        let terms = Terms { scanned: &self.scanned, hold, retry, links: true, approved };
        let done = with_worker(&self.vault, self.context(&stopped), terms, |worker| {
            worker.drain(Some(&self.vault.catalogue), admission.as_ref())
        })?;
        // It was for one change-set, and that has been carried out.
        if self.held.is_none() && guard::is_any_approved(&self.vault.repository) {
            let Vault { repository, catalogue, policy, clock, .. } = &self.vault;
            guard::clear(repository, catalogue, &policy.guard, clock.now())?;
        }
        self.look_at_links(&done.inodes)?;
        if done.is_something() {
            self.shared.status().add(&done);
            (self.shared.tell)(&Notice::Worked(Box::new(done.clone())));
        }
        Ok(done)
    }

    /// Other names of files that changed or lost a name: no event tells of them.
    fn look_at_links(&self, inodes: &[u64]) -> Result<(), ProtectError> {
        let now = self.vault.clock.now();
        let mut changes = Vec::new();
        for &inode in inodes {
            for (path, known) in self.vault.catalogue.names_of(inode)? {
                let stat = self.vault.storage.find(&path).ok().flatten();
                if stat.is_some_and(|stat| stat.inode == inode && stat.generation() != known) {
                    changes
                        .push(Change::modify_whole(path, When::now(now, self.vault.policy.default.priority)));
                }
            }
        }
        if !changes.is_empty() {
            self.vault.changelog.record(&changes)?;
            self.shared.call_keeper(now);
        }
        Ok(())
    }
}
