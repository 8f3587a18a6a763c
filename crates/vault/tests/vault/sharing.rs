//! Several workers on one backlog: they share it, none loses a claim while it is alive, and a stalled one overwrites
//! nothing.

use super::fixture::{Fixture, QUIET, TestRng};
use gabion_vault::catalogue::Catalogue;
use gabion_vault::changelog::{
    Allowance, Change, Changelog, Claim, Completion, Durability, Entry, KnownWorker, Limits, Result,
    Sequence, Summary, Ticket, When, WorkerId,
};
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::vault::Vault;
use gabion_vault::worker::{self, Done, Scanned, WorkedVault, Worker, WorkerOptions};
use gabion_vault::world::{Clock, SECOND, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const FILES: u64 = 1000;
const SIZE: usize = 1000;

/// Rate of a worker in bytes per second: three files.
const RATE: u64 = 3 * SIZE as u64;

/// Time that a worker takes for so many bytes.
fn time_of(bytes: u64) -> Duration {
    Duration::from_nanos(bytes * 1_000_000_000 / RATE)
}

/// Workers in simulated time: the one that is furthest behind runs next and sets the clock.
struct Simulation {
    clock: Clock,
    start: Timestamp,
    times: Mutex<Vec<Timestamp>>,
    changed: Condvar,
}

impl Simulation {
    fn new(clock: &Clock, workers: usize) -> Simulation {
        let start = clock.now();
        let times = Mutex::new(vec![start; workers]);
        Simulation { clock: clock.clone(), start, times, changed: Condvar::new() }
    }

    /// A worker is busy for a time, or ends if none is given. Returns the time since the start.
    fn pass(&self, worker: usize, time: Option<Duration>) -> Duration {
        let mut times = self.times.lock().unwrap();
        let end = times[worker];
        times[worker] = time.map_or(Timestamp::MAX, |time| end + time);
        self.changed.notify_all();
        if time.is_none() {
            return end.since(self.start);
        }
        let times =
            self.changed.wait_while(times, |times| times.iter().any(|&it| it < times[worker])).unwrap();
        self.clock.set(times[worker]);
        times[worker].since(self.start)
    }
}

/// Runs one of several workers. A catalogue belongs to one thread, so each has its own.
fn work(
    parts: &Parts<'_>,
    number: u32,
    changelog: &dyn Changelog,
    progress: &(dyn Fn(Progress) + Sync),
) -> Done {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::open(&directory.path().join("catalogue")).unwrap();
    let Parts { storage, coders, clock, policy, ref scanned, .. } = *parts;
    let worker = Worker {
        vault: WorkedVault { storage, coders, clock, policy, changelog, catalogue: &catalogue },
        run: RunContext { threads: 1, progress, ..QUIET },
        options: WorkerOptions::new(scanned),
        name: worker::name(number),
    };
    worker.drain(None).unwrap()
}

/// Parts of a vault that threads share.
struct Parts<'a> {
    storage: &'a dyn gabion_vault::storage::Storage,
    coders: &'a gabion_vault::coder::Coders,
    clock: &'a Clock,
    policy: &'a gabion_vault::policy::Policy,
    changelog: &'a dyn Changelog,
    scanned: Scanned,
}

impl<'a> Parts<'a> {
    fn of(vault: &'a Vault) -> Parts<'a> {
        Parts {
            storage: &*vault.storage,
            coders: &vault.coders,
            clock: &vault.clock,
            policy: &vault.policy,
            changelog: &*vault.changelog,
            scanned: Scanned::default(),
        }
    }
}

/// Regression: two workers at 1 MiB/s completed 35 of 1000 files in seven minutes: the first claimed all and renewed
/// only the current file's claim, the others expired, the second took them over, and so on. With fewer files than one
/// claim covers, the second had no work.
#[test]
fn slow_workers_share_a_backlog_and_do_each_file_once() {
    for workers in [2, 3, 4] {
        let fixture = Fixture::new("2+1");
        (0..FILES).for_each(|number| fixture.write(&number.to_string(), &TestRng(number).bytes(SIZE)));
        let now = When::now(fixture.clock.now(), 0);
        let changes: Vec<Change> =
            (0..FILES).map(|number| Change::modify_whole(number.to_string(), now)).collect();
        fixture.vault.changelog.record(&changes).unwrap();
        let parts = Parts::of(&fixture.vault);
        let simulation = Simulation::new(&fixture.clock, workers);
        let run = |number: usize| -> (Duration, Done) {
            let progress = |progress: Progress| {
                if let Progress::Done(_, bytes @ 1..) = progress {
                    simulation.pass(number, Some(time_of(bytes)));
                }
            };
            let mut done = Done::default();
            while parts.changelog.pending().unwrap().entries() > 0 {
                done = done.and(work(&parts, number as u32 + 1, parts.changelog, &progress));
                // Others process the rest.
                simulation.pass(number, Some(SECOND / 10));
            }
            (simulation.pass(number, None), done)
        };
        let results: Vec<(Duration, Done)> = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..workers).map(|number| scope.spawn(move || run(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let took = results.iter().map(|(time, _)| *time).max().unwrap();
        let all = results.into_iter().fold(Done::default(), |all, (_, done)| all.and(done));
        assert_eq!((all.encoded, all.adopted, all.failures), (FILES, 0, 0), "{workers} workers");
        let alone = time_of(FILES * SIZE as u64);
        let shared = alone / workers as u32;
        println!("{workers} workers: {} s, {} s by arithmetic", took.as_secs(), shared.as_secs());
        assert!(
            took <= shared * 13 / 10,
            "{workers} workers: {} s for {} s",
            took.as_secs(),
            shared.as_secs()
        );
    }
}

/// A changelog for a worker that is stalled once.
pub(crate) struct Stalled<'a> {
    pub(crate) inner: &'a dyn Changelog,
    pub(crate) at: Moment,
    pub(crate) meanwhile: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

/// Time of the stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Directly after the worker checked that its claims are its own.
    Checked,
    /// After its work is recorded, directly before it completes its claims.
    Completing,
}

impl Stalled<'_> {
    fn stall(&self, at: Moment) {
        if at == self.at
            && let Some(meanwhile) = self.meanwhile.lock().unwrap().take()
        {
            meanwhile();
        }
    }
}

impl Changelog for Stalled<'_> {
    fn record_later(&self, changes: &[Change]) -> Result<Ticket> {
        self.inner.record_later(changes)
    }
    fn claim(&self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Result<Vec<Claim>> {
        self.inner.claim(worker, limit, lease, now)
    }
    fn claim_paths(
        &self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
        self.inner.claim_paths(worker, paths, lease, now)
    }
    fn attend(&self, worker: &WorkerId, now: Timestamp) -> Result<bool> {
        self.inner.attend(worker, now)
    }
    fn is_draining(&self, worker: &WorkerId) -> Result<bool> {
        self.inner.is_draining(worker)
    }
    fn leave(&self, worker: &WorkerId) -> Result<()> {
        self.inner.leave(worker)
    }
    fn workers(&self, now: Timestamp) -> Result<Vec<KnownWorker>> {
        self.inner.workers(now)
    }
    fn set_draining(&self, host: &str, is_draining: bool) -> Result<()> {
        self.inner.set_draining(host, is_draining)
    }
    fn draining_hosts(&self) -> Result<Vec<String>> {
        self.inner.draining_hosts()
    }
    fn set_limits(&self, host: &str, limits: Option<Limits>) -> Result<()> {
        self.inner.set_limits(host, limits)
    }
    fn limits(&self) -> Result<BTreeMap<String, Limits>> {
        self.inner.limits()
    }
    fn allowance(&self, worker: &WorkerId) -> Result<Allowance> {
        self.inner.allowance(worker)
    }
    /// A stopped process renews nothing.
    fn renew(&self, _: &mut Claim, _: Duration, _: Timestamp) -> Result<()> {
        Ok(())
    }
    fn still_mine(&self, claim: &Claim) -> Result<bool> {
        self.inner.still_mine(claim)
    }
    fn which_are_mine(&self, claims: &[&Claim]) -> Result<Vec<bool>> {
        let mine = self.inner.which_are_mine(claims);
        self.stall(Moment::Checked);
        mine
    }
    fn complete_all(&self, claims: &[&Claim]) -> Result<Vec<Result<Completion>>> {
        self.stall(Moment::Completing);
        self.inner.complete_all(claims)
    }
    fn complete(&self, claim: &Claim) -> Result<Completion> {
        self.inner.complete(claim)
    }
    fn release(&self, claim: &Claim, retry_at: Timestamp, now: Timestamp) -> Result<()> {
        self.inner.release(claim, retry_at, now)
    }
    fn pending(&self) -> Result<Summary> {
        self.inner.pending()
    }
    fn entries(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Entry>> {
        self.inner.entries(after, limit)
    }
    fn sequence(&self) -> Result<Sequence> {
        self.inner.sequence()
    }
    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

/// Regression: a worker that was stalled for longer than its lease (a suspended virtual machine, a stopped process),
/// between checking its claim and renaming its draft into place, overwrote redundancy of a newer version that another
/// worker had made. The file was then reported as damaged.
#[test]
fn a_stalled_worker_replaces_no_newer_redundancy() {
    for protected_before in [false, true] {
        let fixture = Fixture::new("4+2");
        if protected_before {
            fixture.write("file", &TestRng(1).bytes(5000));
            fixture.protect_all();
        }
        fixture.write("file", &TestRng(2).bytes(6000));
        let parts = Parts::of(&fixture.vault);
        let record = || {
            let now = When::now(fixture.clock.now(), 0);
            parts.changelog.record(&[Change::modify_whole("file", now)]).unwrap();
        };
        record();
        let (parts, clock, path) = (&parts, fixture.clock.clone(), fixture.path("file"));
        let meanwhile = move || {
            clock.set(clock.now() + 3600 * SECOND);
            std::fs::write(path, TestRng(3).bytes(7000)).unwrap();
            parts.changelog.record(&[Change::modify_whole("file", When::now(clock.now(), 0))]).unwrap();
            let done = work(parts, 2, parts.changelog, &|_| {});
            assert_eq!((done.encoded, done.failures), (1, 0), "the other worker protects the new version");
        };
        let meanwhile = Mutex::new(Some(Box::new(meanwhile) as Box<_>));
        let stalled = Stalled { inner: parts.changelog, at: Moment::Checked, meanwhile };
        let done = work(parts, 1, &stalled, &|_| {});
        assert_eq!((done.encoded, done.failures), (0, 0), "its work is not counted, and nothing has failed");
        let repositories = parts.storage.repositories();
        let part = repositories[0].place(b"file").open(parts.coders).unwrap().unwrap();
        assert_eq!(part.header.generation.size, 7000, "protected before: {protected_before}");
        assert_eq!(parts.changelog.pending().unwrap().entries(), 0);
        drop(part);
        fixture.protect_all();
        fixture.assert_clean();
    }
}
