//! Worker: claims due entries of the changelog, brings the redundancy of their files up to date and completes the
//! claims.
//!
//! A worker repeats this until nothing is due ([`Worker::drain`]):
//!
//! 1. It claims a batch of entries. Their number follows from how long the last batch took (`pace`), and from the
//!    changelog, which leaves other workers their shares. A claim is a lease, which is renewed during the batch
//!    (`lease`). With an [`Admission`], the guard may refuse the claims (`admission`).
//! 2. `select`: claims that need no encoding are released or completed, for example those that wait for a scan or an
//!    approval (`scope`). The others become jobs, with what the catalogue knows of their files.
//! 3. `moving`: redundancy of renamed files is set aside, then moved to the new names.
//! 4. `encoding`: files up to `SMALL_FILE` are encoded one per thread. Larger files follow in groups of one per thread;
//!    the last, smaller group uses all threads for each file.
//! 5. `conclude`, after the small files and after each group: drafts are made durable together and published, the
//!    catalogue is updated (`recording`), the claims are completed.
//!
//! A file that fails is released for a later attempt and listed in [`Done`]; the rest of the batch continues. After a
//! crash, claims expire and unpublished drafts are ignored, so the work is repeated.
//!
//! Only step 4 uses several threads. The catalogue belongs to one thread, so `encoding` gets its own part of a worker.

mod admission;
mod conclude;
mod done;
mod encoding;
mod fencing;
mod helping;
mod lease;
mod moving;
mod named;
mod obstacle;
mod pace;
mod recording;
mod scope;
mod select;

use crate::identity::is_dead;
pub use crate::identity::{name, unique_name};
pub use admission::{Admission, AdmissionContext, GuardVerdict};
pub use done::{Batch, Done};
use encoding::Encoding;
pub use helping::OtherWork;
use lease::Leases;
use moving::Former;
pub(crate) use moving::recover;
use pace::{Budget, Pace, Patience};
pub(crate) use scope::MISSING_RETRY_TIME;
pub use scope::Scanned;
use std::time::Duration;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::changelog::{self, Ask, Changelog, Claim, Refusal, WorkerId};
use crate::coder::Coders;
use crate::displaced::PresentFile;
use crate::encode::{EncodeError, Encoded, Fenced, Known};
use crate::policy::{Policy, Treatment};
use crate::redundancy::InconclusivePart;
use crate::retry::{Failure, Retry, Retryable};
use crate::run::RunContext;
use crate::storage::Storage;
use crate::team::LEASE;
use crate::vault::{Vault, VaultError};
use crate::world::{Clock, SECOND};
use select::Selected;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest file that one thread encodes alone, in bytes.
const SMALL_FILE: u64 = 16 << 20;

/// Interval at which [`Worker::drain_all`] checks for claims of other workers.
const POLL: Duration = Duration::from_millis(100);

/// Default delay before a failed file is tried again.
pub const RETRY: Duration = SECOND;

/// Factor of the delay for a file that fails until somebody changes something.
const LONG_RETRY: u32 = 10;

/// Immediate attempts for a file that changes while it is read.
const TRIES: u32 = 3;

/// Maximum number of failures that are listed. All are counted.
const MAX_LISTED: usize = 10_000;

/// Error that stops the worker, not only one file.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The changelog failed.
    #[error("the changelog: {0}")]
    Changelog(#[from] changelog::Error),
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The catalogue could not be made.
    #[error(transparent)]
    Vault(#[from] Box<VaultError>),
    /// The repository could not be made durable.
    #[error("the repository {}: {source}", path.display())]
    Repository {
        /// Path of the repository.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Redundancy of a file that is gone must not be removed. The rest goes on.
    #[error("{0}: it is not removed")]
    Left(InconclusivePart),
}

impl Retryable for WorkError {
    fn retry(&self) -> Retry {
        match self {
            WorkError::Changelog(error) if !error.is_transient() => Retry::AfterChange,
            WorkError::Changelog(_) | WorkError::Catalogue(_) | WorkError::Vault(_) => Retry::Later,
            WorkError::Repository { source, .. } => source.retry(),
            WorkError::Left(part) => part.retry(),
        }
    }
}

/// The parts of a vault that a worker uses.
#[derive(Clone, Copy)]
pub struct WorkedVault<'a> {
    /// Storage of the files.
    pub storage: &'a dyn Storage,
    /// Prepared codes.
    pub coders: &'a Coders,
    /// Clock.
    pub clock: &'a Clock,
    /// Policy: decides which files are protected and with which code.
    pub policy: &'a Policy,
    /// Changelog that the claims come from.
    pub changelog: &'a dyn Changelog,
    /// Catalogue in which results are recorded.
    pub catalogue: &'a Catalogue,
}

impl<'a> WorkedVault<'a> {
    /// The parts of an open vault.
    pub fn of(vault: &'a Vault) -> WorkedVault<'a> {
        let Vault { storage, coders, clock, policy, changelog, catalogue, .. } = vault;
        WorkedVault { storage: &**storage, coders, clock, policy, changelog: &**changelog, catalogue }
    }
}

/// What a worker may do, and when it tries again.
#[derive(Clone, Copy)]
pub struct WorkerOptions<'a> {
    /// Scans that have completed. A gap in the changelog is completed once a scan covers it.
    pub scanned: &'a Scanned,
    /// Hold changed or deleted files until the change-set is approved (guards).
    pub hold: bool,
    /// Delay before a failed file is tried again.
    pub retry: Duration,
    /// True if the caller receives live events. The worker then also reports inodes that may have further hard links.
    pub live_events: bool,
    /// A person approved the changes: a file that has the size and mtime of another one but different content is
    /// accepted.
    pub approved: bool,
    /// Other workers leave this one its share of what is due, also while it waits.
    pub attends: bool,
    /// Claim nothing, and give back what has not begun, while this host is draining.
    pub heeds_drain: bool,
    /// Portions of tasks of other workers that this one does besides encoding.
    pub other_work: Option<&'a dyn OtherWork>,
    /// Called after each batch that did something.
    pub on_batch: &'a (dyn Fn(Batch) + Sync),
}

impl<'a> WorkerOptions<'a> {
    /// Nothing held or approved, no live events; a worker that heeds drains, and is known by its claims only.
    pub fn new(scanned: &'a Scanned) -> WorkerOptions<'a> {
        WorkerOptions {
            scanned,
            hold: false,
            retry: RETRY,
            live_events: false,
            approved: false,
            attends: false,
            heeds_drain: true,
            other_work: None,
            on_batch: &|_| {},
        }
    }
}

/// One worker.
pub struct Worker<'a> {
    /// What it works on.
    pub vault: WorkedVault<'a>,
    /// Threads, progress and cancellation. The caller limits the rate.
    pub run: RunContext<'a>,
    /// Options.
    pub options: WorkerOptions<'a>,
    /// Name of this worker in the changelog.
    pub name: WorkerId,
}

/// A claim, what is known of its file, and the result of encoding it.
struct Job {
    claim: Claim,
    treatment: Option<Treatment>,
    /// See [`EncodeOptions::known_elsewhere`].
    known_elsewhere: bool,
    /// See [`EncodeOptions::known`].
    known: Option<Known>,
    /// Other names under which the file is protected.
    names: Vec<Vec<u8>>,
    /// Inode and version of the file, in storage that keeps redundancy by name.
    found: Option<PresentFile>,
    /// Catalogue entry of the file under a former name.
    former: Option<Former>,
    /// True if redundancy was moved to the file's new name. It is set aside again if the claim is not completed.
    moved: bool,
    /// What mounts of several hosts have recorded.
    fenced: Option<Fenced>,
    result: Mutex<Option<Result<Encoded, EncodeError>>>,
}

impl Job {
    fn path(&self) -> &Vec<u8> {
        &self.claim.entry.path
    }

    fn result(&self) -> MutexGuard<'_, Option<Result<Encoded, EncodeError>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim with a result.
struct Completed {
    claim: Claim,
    /// Result of encoding; none if the file was deleted.
    encoded: Option<Encoded>,
    /// See [`Job::former`].
    former: Option<Former>,
    /// See [`Job::moved`].
    moved: bool,
}

impl Worker<'_> {
    /// Works until nothing is due or until `admission` refuses the claims.
    ///
    /// # Errors
    /// See [`WorkError`].
    pub fn drain(&self, admission: Option<&Admission<'_>>) -> Result<Done, WorkError> {
        let WorkedVault { storage, coders, clock, changelog, catalogue, .. } = self.vault;
        let (mut done, mut pace, mut patience) =
            (Done::default(), Pace::new(self.options.attends), Patience::default());
        let mut failed_tasks = Vec::new();
        recover(storage, coders, catalogue).map_err(|source| self.repository_error(source))?;
        while !(self.run.stopped)() {
            let ask = Ask {
                worker: &self.name,
                limit: pace.limit(self.run.threads),
                threads: self.run.threads,
                lease: LEASE,
                attends: self.options.attends,
                insists: patience.is_over(clock),
                heeds_drain: self.options.heeds_drain,
            };
            let claimed_at = clock.now();
            let share = changelog.claim_share(&ask, claimed_at)?;
            if share.is_draining {
                done.draining = true;
                break;
            }
            if share.is_limited {
                // A dead worker of this host leaves its place at once.
                if changelog.expire_dead_workers(&is_dead)? > 0 {
                    continue;
                }
                done.limited = true;
                break;
            }
            let (claims, before) = (share.claims, done.batch());
            let is_admitted = admission.map(|admission| admission.admits(&claims)).transpose()?;
            if is_admitted == Some(false) {
                changelog.give_back(&claims.iter().collect::<Vec<_>>(), clock.now())?;
                done.refused = true;
                break;
            }
            if !claims.is_empty() {
                patience.end();
                let (budget, count) = (Budget::new(clock), claims.len());
                let leases = Leases::new(self, &claims, claimed_at);
                let given_back = leases.during(|| self.batch(claims, &leases, &budget, &mut done))?;
                pace.took(count - given_back, budget.used());
                self.tell(before, &done);
                self.help_urgent(&mut failed_tasks, &mut done)?;
            } else if self.help(0, &mut failed_tasks, &mut done)? {
                patience.end();
            } else if share.is_reserved {
                // A dead worker of this host needs no share.
                if !patience.is_new() || changelog.expire_dead_workers(&is_dead)? == 0 {
                    patience.wait();
                }
            } else if changelog.expire_dead_workers(&is_dead)? == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Tells the caller what was done since `before`.
    fn tell(&self, before: Batch, done: &Done) {
        let batch = done.batch().since(before);
        if batch != Batch::default() {
            (self.options.on_batch)(batch);
        }
    }

    /// As [`drain`](Worker::drain), then waits for the claims of other workers until they complete, or takes the claims
    /// over when their workers die.
    ///
    /// # Errors
    /// See [`WorkError`].
    pub fn drain_all(&self, admission: Option<&Admission<'_>>) -> Result<Done, WorkError> {
        let mut done = self.drain(admission)?;
        while !(self.run.stopped)() && !done.refused && self.vault.changelog.pending()?.claimed > 0 {
            std::thread::sleep(POLL);
            done = done.and(self.drain(admission)?);
        }
        Ok(done)
    }

    /// Processes one batch of claims. Jobs that do not begin within the batch's time are given back; returns their
    /// number.
    fn batch(
        &self,
        claims: Vec<Claim>,
        leases: &Leases<'_>,
        budget: &Budget<'_>,
        done: &mut Done,
    ) -> Result<usize, WorkError> {
        let mut selected: Vec<Selected> = self.select(claims, done)?;
        let (mut small, mut large) = (Vec::new(), Vec::new());
        let described = self.vault.catalogue.as_of_now(|| {
            let describe = |file: Selected| Ok((file.size(), self.describe(file)?));
            selected.drain(..).map(describe).collect::<Result<Vec<_>, CatalogueError>>()
        })?;
        for (size, mut job) in described {
            self.note_windows(&mut job, size)?;
            let is_large = size > SMALL_FILE || job.fenced.is_some();
            if is_large { large.push((size, job)) } else { small.push(job) }
        }
        let mut jobs: Vec<&mut Job> = small.iter_mut().chain(large.iter_mut().map(|(_, job)| job)).collect();
        let moves = self.move_all(&mut jobs, done)?;
        let fence = self.ask_mounts(&large)?;
        let encoding = Encoding::new(self, leases, budget, small.len() + large.len());
        encoding.side_by_side(&small);
        let mut given_back = self.conclude(small, leases, done)?;
        self.wait_for_mounts(fence, &mut large)?;
        // One file per thread while there are enough files: several threads on one file wait for each other's writes.
        large.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let mut large = large.into_iter().map(|(_, job)| job).peekable();
        while large.peek().is_some() {
            let group: Vec<Job> = large.by_ref().take(self.run.threads).collect();
            leases.tick();
            match group.len() == self.run.threads {
                true => encoding.side_by_side(&group),
                false => group.iter().for_each(|job| encoding.encode(job, self.run.threads)),
            }
            given_back += self.conclude(group, leases, done)?;
            if encoding.is_over() {
                given_back += self.give_back(large.by_ref().collect(), leases)?;
            }
        }
        if moves {
            self.vault.catalogue.forget_moving(&self.name.0)?;
        }
        Ok(given_back)
    }

    /// Releases claims on which no work was begun, so that other workers can take them. Returns their number.
    fn give_back(&self, jobs: Vec<Job>, leases: &Leases<'_>) -> Result<usize, WorkError> {
        jobs.iter().try_for_each(|job| self.undo_move(&job.claim, job.moved))?;
        let claims: Vec<&Claim> = jobs.iter().map(|job| &job.claim).collect();
        if !claims.is_empty() {
            leases.forget(claims.iter().copied());
            self.vault.changelog.give_back(&claims, self.vault.clock.now())?;
        }
        Ok(claims.len())
    }

    /// Releases a claim that is due again at once, for this worker or another one.
    fn release_now(&self, claim: &Claim) -> Result<(), WorkError> {
        let now = self.vault.clock.now();
        Ok(ignore_refused(self.vault.changelog.release(claim, now, now))?)
    }

    fn repository_error(&self, source: io::Error) -> WorkError {
        let path = self.vault.storage.repositories().first().map(|it| it.tree.path().to_owned());
        WorkError::Repository { path: path.unwrap_or_default(), source }
    }

    /// Releases a claim with an error. Also for claims that were taken over: until the release no other worker touches
    /// the files of this one.
    fn fail(&self, claim: &Claim, why: Failure, done: &mut Done) -> Result<(), WorkError> {
        let now = self.vault.clock.now();
        let again = why.retry() == Retry::Now && claim.entry.attempts < TRIES;
        let pause = match why.retry() {
            _ if again => Duration::ZERO,
            Retry::Now | Retry::Later => self.options.retry,
            // A change is an event, which makes the entry due again; this is for changes without one.
            Retry::AfterChange | Retry::Never => self.options.retry.saturating_mul(LONG_RETRY),
        };
        let retry_at = now + pause;
        let released = self.vault.changelog.release(claim, retry_at, now);
        // If the file was renamed or deleted meanwhile, a later entry covers it and this is no failure.
        let overtaken = is_overtaken(&released);
        ignore_refused(released)?;
        if !again && !overtaken {
            done.fail(claim.entry.path.clone(), why, MAX_LISTED);
        }
        Ok(())
    }
}

/// Ends the claims of workers of this host whose processes are gone. Returns their number.
///
/// # Errors
/// The changelog's.
pub fn expire_dead(changelog: &dyn Changelog) -> changelog::Result<u64> {
    changelog.expire_dead_workers(&is_dead)
}

/// True if the claim's file was renamed or deleted after the claim was made.
fn is_overtaken<T>(answer: &changelog::Result<T>) -> bool {
    matches!(answer, Err(changelog::Error::Refused { why: Refusal::Overtaken, .. }))
}

/// Treats a refused claim as success: another worker has it.
fn ignore_refused(answer: changelog::Result<()>) -> changelog::Result<()> {
    match answer {
        Err(changelog::Error::Refused { .. }) => Ok(()),
        answer => answer,
    }
}
