//! Worker: claims due entries of the changelog, brings the redundancy of their files up to date and completes the
//! claims.
//!
//! One batch of claims passes through these steps:
//!
//! 1. `select`: claims that need no encoding are released or completed; the others become jobs.
//! 2. Redundancy of renamed files is set aside, then moved to the new names.
//! 3. Files up to `SMALL_FILE` are encoded one per thread. Larger files follow in groups of one per thread; the last,
//!    smaller group uses all threads for each file.
//! 4. `conclude`: drafts are made durable together and published, the catalogue is updated, the claims are completed.
//!
//! A file that fails is released for a later attempt and listed in [`Done`]; the rest of the batch continues. After a
//! crash, claims expire and unpublished drafts are ignored, so the work is repeated.

mod admission;
mod done;
mod identity;
mod lease;
mod moving;
mod obstacle;
mod pace;
mod recording;
mod scope;
mod select;

pub use admission::{Admission, AdmissionContext, GuardVerdict};
pub use done::Done;
use identity::is_dead;
pub use identity::name;
use lease::{LEASE, Leases};
use moving::Former;
pub(crate) use moving::recover;
use pace::{Budget, Pace};
pub(crate) use scope::MISSING_RETRY_TIME;
pub use scope::Scanned;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::changelog::{self, Changelog, Claim, Kind, Refusal, Summary, WorkerId};
use crate::coder::Coders;
use crate::displaced::PresentFile;
use crate::encode::{EncodeError, EncodeOptions, Encoded, Encoder, Flushed, sync_names};
use crate::policy::{Policy, Treatment};
use crate::redundancy::InconclusivePart;
use crate::redundancy::fence::is_superseded;
use crate::storage::Storage;
use crate::vault::Vault;
use crate::world::{Clock, Nanos, SECOND};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Largest file that one thread encodes alone, in bytes.
const SMALL_FILE: u64 = 16 << 20;

/// Number of files from which one flush of the whole source replaces a flush per file.
const MANY_FILES: usize = 8;

/// Reason that is reported for a file with an interrupted repair.
const UNFINISHED: &str = "an interrupted repair of it has to be finished first: run `gabion repair` for it. \
    Later changes of the file are kept";

/// Interval at which [`Worker::drain_all`] checks for claims of other workers.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// Default delay before a failed file is tried again.
pub const RETRY: Nanos = SECOND;

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

/// One worker: the vault's parts that it uses, and its options.
pub struct Worker<'a> {
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
    /// Number of threads.
    pub threads: usize,
    /// Scans that have completed. A gap in the changelog is completed once a scan covers it.
    pub scanned: &'a Scanned,
    /// Hold changed or deleted files until the change-set is approved (guards).
    pub hold: bool,
    /// Delay before a failed file is tried again.
    pub retry: Nanos,
    /// True if the caller receives live events. The worker then also reports inodes that may have further hard links.
    pub live_events: bool,
    /// A person approved the changes: a file that has the size and mtime of another one but different content is
    /// accepted.
    pub approved: bool,
    /// Name of this worker in the changelog.
    pub name: WorkerId,
    /// Called with the numbers of files and of data bytes that were processed.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Polled during work; true stops the worker.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// A claim, what is known of its file, and the result of encoding it.
struct Job {
    claim: Claim,
    treatment: Option<Treatment>,
    /// See [`EncodeOptions::known_elsewhere`].
    known_elsewhere: bool,
    /// Other names under which the file is protected.
    names: Vec<Vec<u8>>,
    /// Inode and version of the file, in storage that keeps redundancy by name.
    found: Option<PresentFile>,
    /// Catalogue entry of the file under a former name.
    former: Option<Former>,
    /// True if redundancy was moved to the file's new name. It is set aside again if the claim is not completed.
    moved: bool,
    result: Mutex<Option<Result<Encoded, EncodeError>>>,
}

impl Job {
    fn path(&self) -> &Vec<u8> {
        &self.claim.entry.path
    }
}

/// A claim whose result was published.
struct Completed {
    claim: Claim,
    /// Result of encoding; none if the file was deleted.
    encoded: Option<Encoded>,
    former: Option<Former>,
}

impl<'a> Worker<'a> {
    /// Worker of a vault with default options: one thread, no live events, nothing held, no progress.
    pub fn new(vault: &'a Vault, scanned: &'a Scanned, name: WorkerId) -> Worker<'a> {
        Worker {
            storage: &*vault.storage,
            coders: &vault.coders,
            clock: &vault.clock,
            policy: &vault.policy,
            changelog: &*vault.changelog,
            threads: 1,
            scanned,
            hold: false,
            retry: RETRY,
            live_events: false,
            approved: false,
            name,
            progress: &|_, _| {},
            stopped: &|| false,
        }
    }
}

impl Worker<'_> {
    /// Works until nothing is due or until `admission` refuses the claims. Records results in `catalogue`; without a
    /// catalogue the next scan finds them.
    ///
    /// # Errors
    /// See [`WorkError`].
    pub fn drain(
        &self,
        catalogue: Option<&Catalogue>,
        admission: Option<&Admission<'_>>,
    ) -> Result<Done, WorkError> {
        let mut done = Done::default();
        let mut pace = Pace::new();
        if let Some(catalogue) = catalogue {
            recover(self.storage, self.coders, catalogue).map_err(|source| self.repository_error(source))?;
        }
        while !(self.stopped)() {
            // Counting reads all that is pending, so it is done only while others work.
            let pending = match self.changelog.has_claims()? {
                true => self.changelog.pending()?,
                false => Summary::default(),
            };
            let limit =
                pace.limit(self.threads, pending.entries().saturating_sub(pending.claimed), pending.claimed);
            let claimed_at = self.clock.now();
            let claims = self.changelog.claim(&self.name, limit, LEASE, claimed_at)?;
            let is_admitted = admission.map(|admission| admission.admits(&claims)).transpose()?;
            if is_admitted == Some(false) {
                self.changelog.give_back(&claims.iter().collect::<Vec<_>>(), self.clock.now())?;
                done.refused = true;
                break;
            }
            if !claims.is_empty() {
                let (budget, count) = (Budget::new(self), claims.len());
                let leases = Leases::new(self.changelog, self.clock, &claims, claimed_at);
                let given_back =
                    leases.during(|| self.batch(claims, catalogue, &leases, &budget, &mut done))?;
                pace.took(count - given_back, budget.used());
            } else if self.changelog.expire_dead_workers(&is_dead)? == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// As [`drain`](Worker::drain), then waits for the claims of other workers until they complete, or takes the claims
    /// over when their workers die.
    ///
    /// # Errors
    /// See [`WorkError`].
    pub fn drain_all(
        &self,
        catalogue: Option<&Catalogue>,
        admission: Option<&Admission<'_>>,
    ) -> Result<Done, WorkError> {
        let mut done = self.drain(catalogue, admission)?;
        while !(self.stopped)() && !done.refused && self.changelog.pending()?.claimed > 0 {
            std::thread::sleep(POLL);
            done = done.and(self.drain(catalogue, admission)?);
        }
        Ok(done)
    }

    /// Processes one batch of claims. Jobs that do not begin within the batch's time are given back; returns their
    /// number.
    fn batch(
        &self,
        claims: Vec<Claim>,
        catalogue: Option<&Catalogue>,
        leases: &Leases<'_>,
        budget: &Budget<'_>,
        done: &mut Done,
    ) -> Result<usize, WorkError> {
        let mut selected = self.select(claims, catalogue, done)?;
        let (mut small, mut large) = (Vec::new(), Vec::new());
        let mut describe = || -> Result<(), WorkError> {
            for file in selected.drain(..) {
                let size = file.size();
                let job = self.describe(file, catalogue)?;
                if size > SMALL_FILE { large.push((size, job)) } else { small.push(job) }
            }
            Ok(())
        };
        match catalogue {
            Some(catalogue) => catalogue.as_of_now(describe)?,
            None => describe()?,
        }
        // Moves come before encoding, because moved redundancy may occupy the place of new redundancy. Names may have
        // been exchanged in a cycle, so all redundancy is set aside before any is moved to its new name.
        let jobs = || small.iter().chain(large.iter().map(|(_, job)| job));
        jobs().for_each(|job| self.set_aside_at_other_names(job));
        let keeping = self.keeping();
        let may_move: Vec<bool> = jobs().map(|job| self.may_move(job, &keeping)).collect();
        let moves = may_move.contains(&true);
        if let Some(catalogue) = catalogue {
            let moving = jobs().zip(&may_move).filter(|(_, may_move)| **may_move);
            catalogue.note_moving(&self.name.0, moving.map(|(job, _)| job.path()))?;
        }
        let jobs = small.iter_mut().chain(large.iter_mut().map(|(_, job)| job));
        for (job, may_move) in jobs.zip(may_move) {
            job.moved = self.move_redundancy(job, may_move, catalogue, done);
        }
        let flushed = self.flush(small.len() + large.len());
        self.encode_side_by_side(&small, leases, budget, flushed);
        let mut given_back = self.conclude(small, catalogue, leases, done)?;
        // One file per thread while there are enough files: several threads on one file wait for each other's writes.
        large.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let mut large = large.into_iter().map(|(_, job)| job).peekable();
        while large.peek().is_some() {
            let group: Vec<Job> = large.by_ref().take(self.threads).collect();
            leases.tick();
            match group.len() == self.threads {
                true => self.encode_side_by_side(&group, leases, budget, flushed),
                false => group.iter().for_each(|job| self.encode(job, self.threads, leases, flushed)),
            }
            given_back += self.conclude(group, catalogue, leases, done)?;
            if budget.is_spent() {
                given_back += self.give_back(large.by_ref().collect(), leases)?;
            }
        }
        if let Some(catalogue) = catalogue.filter(|_| moves) {
            catalogue.forget_moving(&self.name.0)?;
        }
        Ok(given_back)
    }

    /// Releases claims on which no work was begun, so that other workers can take them.
    fn give_back(&self, jobs: Vec<Job>, leases: &Leases<'_>) -> Result<usize, WorkError> {
        jobs.iter().try_for_each(|job| self.undo_move(&job.claim, job.moved))?;
        let claims: Vec<&Claim> = jobs.iter().map(|job| &job.claim).collect();
        if !claims.is_empty() {
            leases.forget(claims.iter().copied());
            self.changelog.give_back(&claims, self.clock.now())?;
        }
        Ok(claims.len())
    }

    /// Flushes the source once if the batch has many files, which costs less than one flush per file.
    fn flush(&self, files: usize) -> Option<Flushed> {
        let at = self.clock.now();
        let device = (files >= MANY_FILES).then(|| self.storage.flush()).flatten()?;
        Some(Flushed { device, at })
    }

    /// Encodes jobs, one per thread. When the batch's time is spent, each thread finishes its current job and the other
    /// jobs are left.
    fn encode_side_by_side(
        &self,
        jobs: &[Job],
        leases: &Leases<'_>,
        budget: &Budget<'_>,
        flushed: Option<Flushed>,
    ) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                match jobs.get(at) {
                    Some(job) if at < self.threads || !budget.is_spent() => {
                        self.encode(job, 1, leases, flushed)
                    }
                    _ => return,
                }
            }
        };
        std::thread::scope(|scope| {
            (1..self.threads.min(jobs.len())).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
    }

    fn encode(&self, job: &Job, threads: usize, leases: &Leases<'_>, flushed: Option<Flushed>) {
        let Some(treatment) = &job.treatment else { return };
        if job.result.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let progress = |bytes: u64| {
            (self.progress)(0, bytes);
            leases.tick();
        };
        // A moved file without known redundancy is read in full, since it may be damaged.
        let moved = job.claim.entry.kind == Kind::Move && (job.former.is_some() || job.found.is_none());
        let options = EncodeOptions {
            threads,
            moved,
            known_elsewhere: job.known_elsewhere,
            recorded: Some(&job.claim.entry),
            flushed,
            progress: &progress,
            stopped: self.stopped,
        };
        let encoder = Encoder { storage: self.storage, coders: self.coders, clock: self.clock };
        let encoded = job.names.iter().try_for_each(|name| encoder.refuse_damaged_by(name, options));
        let encoded = encoded.and_then(|()| Ok(self.coders.get(&treatment.identity)?));
        let encoded =
            encoded.and_then(|coder| encoder.encode(&job.claim.entry.path, &coder, treatment.block, options));
        // Damage settles the claim too: the file keeps its redundancy, and the damage is recorded for repair.
        let encoded = match encoded {
            Err(EncodeError::Damaged(kept)) => Ok(*kept),
            encoded => encoded,
        };
        (self.progress)(1, 0);
        *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(encoded);
    }

    /// Makes encoded redundancy durable, publishes it and completes the claims. Gives back jobs that were not begun;
    /// returns their number.
    fn conclude(
        &self,
        jobs: Vec<Job>,
        catalogue: Option<&Catalogue>,
        leases: &Leases<'_>,
        done: &mut Done,
    ) -> Result<usize, WorkError> {
        let (mut finished, mut not_begun) = (Vec::new(), Vec::new());
        for mut job in jobs {
            let result = std::mem::take(job.result.get_mut().unwrap_or_else(PoisonError::into_inner));
            let (claim, moved) = (&job.claim, job.moved);
            match result {
                Some(Ok(encoded)) => finished.push((job.claim, moved, job.former, Some(encoded))),
                None if job.treatment.is_some() => not_begun.push(job),
                Some(Err(EncodeError::Gone)) if self.may_have_moved(claim, catalogue)? => {
                    self.undo_move(claim, moved)?;
                    self.retry_missing(claim, done)?;
                }
                Some(Err(EncodeError::Gone)) | None => finished.push((job.claim, moved, None, None)),
                Some(Err(error)) => {
                    let again = error.is_transient() && claim.entry.attempts < TRIES;
                    self.undo_move(claim, moved)?;
                    self.fail(claim, &error.to_string(), again, done)?;
                }
            }
        }
        let given_back = self.give_back(not_begun, leases)?;
        // Deletions first, since a deleted file may have been replaced by a directory.
        finished.sort_by_key(|(.., encoded)| encoded.is_some());
        self.make_durable(finished.iter().filter_map(|(.., encoded)| encoded.as_ref()))?;
        let mut completed = Vec::new();
        let ours: Vec<&Claim> = finished.iter().map(|(claim, ..)| claim).collect();
        let ours = self.changelog.which_are_mine(&ours)?;
        for ((claim, moved, former, encoded), ours) in finished.into_iter().zip(ours) {
            // Either another worker has the claim, whose redundancy may be newer than ours, or the file was renamed
            // again.
            if !ours {
                self.undo_move(&claim, moved)?;
                ignore_refused(self.changelog.release(&claim, self.clock.now(), self.clock.now()))?;
                continue;
            }
            let settled = match encoded {
                Some(mut encoded) => {
                    let path = &claim.entry.path;
                    match self.clearing_obstacles(path, catalogue, done, || encoded.publish()) {
                        Ok(()) => Some(Some(encoded)),
                        // Released rather than failed: newer redundancy is in place, so the file may have changed.
                        Err(error) if is_superseded(&error) => {
                            self.undo_move(&claim, moved)?;
                            ignore_refused(self.changelog.release(
                                &claim,
                                self.clock.now(),
                                self.clock.now(),
                            ))?;
                            None
                        }
                        Err(error) => {
                            let why = format!("its redundancy cannot be put in place: {error}");
                            self.undo_move(&claim, moved)?;
                            self.fail(&claim, &why, false, done)?;
                            None
                        }
                    }
                }
                None => {
                    let mut left = self.former_paths(&claim, catalogue)?;
                    match left.try_for_each(|path| self.remove_redundancy(path, catalogue, done)) {
                        Err(error @ WorkError::Left(_)) => {
                            self.fail(&claim, &error.to_string(), false, done)?;
                            None
                        }
                        removed => removed.map(|()| Some(None))?,
                    }
                }
            };
            if let Some(encoded) = settled {
                completed.push(Completed { claim, encoded, former });
            }
        }
        // The names must be durable before the change is removed from the changelog.
        self.sync_repositories(completed.iter().any(|it| it.encoded.is_some()))?;
        let published = completed.iter().filter_map(|it| it.encoded.as_ref());
        sync_names(published).map_err(|source| self.repository_error(source))?;
        if let Some(catalogue) = catalogue {
            self.record_other_links(&completed, catalogue, done)?;
            self.catalogue_results(catalogue, &completed)?;
        }
        // A claim that is refused here stays due and is processed again by its new owner.
        let claims: Vec<&Claim> = completed.iter().map(|it| &it.claim).collect();
        for (completed, answer) in completed.iter().zip(self.changelog.complete_all(&claims)?) {
            if is_overtaken(&answer) {
                self.put_back_overtaken(completed, catalogue)?;
            }
        }
        for Completed { claim, encoded, .. } in &completed {
            let moved = claim.entry.kind == Kind::Move;
            let path = &claim.entry.path;
            encoded.iter().for_each(|encoded| done.count(path, encoded, moved, MAX_LISTED));
        }
        leases.forget(completed.iter().map(|it| &it.claim));
        Ok(given_back)
    }

    fn make_durable<'e>(&self, encoded: impl Iterator<Item = &'e Encoded>) -> Result<(), WorkError> {
        let drafts: Vec<&Encoded> = encoded.filter(|it| it.is_draft()).collect();
        match drafts[..] {
            [] => Ok(()),
            [one] => one.sync().map_err(|source| self.repository_error(source)),
            _ => {
                self.sync_repositories(true)?;
                let untrusted = |encoded: &&Encoded| encoded.sync_untrusted();
                drafts.iter().try_for_each(untrusted).map_err(|source| self.repository_error(source))
            }
        }
    }

    fn sync_repositories(&self, needed: bool) -> Result<(), WorkError> {
        for repository in self.storage.writable_repositories().into_iter().filter(|_| needed) {
            let path = repository.tree.path().to_owned();
            repository.tree.sync_all().map_err(|source| WorkError::Repository { path, source })?;
        }
        Ok(())
    }

    fn repository_error(&self, source: io::Error) -> WorkError {
        let path = self.storage.repositories().first().map(|it| it.tree.path().to_owned());
        WorkError::Repository { path: path.unwrap_or_default(), source }
    }

    /// Releases a claim with an error. Also for claims that were taken over: until the release no other worker touches
    /// the files of this one.
    fn fail(&self, claim: &Claim, why: &str, again: bool, done: &mut Done) -> Result<(), WorkError> {
        let now = self.clock.now();
        let retry_at = if again { now } else { now.saturating_add(self.retry) };
        let released = self.changelog.release(claim, retry_at, now);
        // If the file was renamed or deleted meanwhile, a later entry covers it and this is no failure.
        let overtaken = is_overtaken(&released);
        ignore_refused(released)?;
        if !again && !overtaken {
            done.failures += 1;
            if done.failed.len() < MAX_LISTED {
                done.failed.push((claim.entry.path.clone(), why.to_owned()));
            }
        }
        Ok(())
    }
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
