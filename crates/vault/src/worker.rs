//! Works off the changelog: claims what is due, brings redundancy up to date, completes.
//!
//! A batch of claims is split: small files are encoded side by side, one per thread, and made durable together; large ones
//! follow in groups of one per thread, and the last with all threads. Whatever fails is given back and named; the rest goes on. A crash leaves
//! claims that expire and drafts that nobody reads: the work is done again.

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

pub use admission::{Admission, Judged, Known};
pub use done::Done;
use identity::is_dead;
pub use identity::name;
use lease::{LEASE, Leases};
use moving::Former;
pub(crate) use moving::recover;
use pace::{Budget, Pace};
pub use scope::Scanned;
pub(crate) use scope::WORD_COMES;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::changelog::{self, Changelog, Claim, Kind, Refusal, Summary, WorkerId};
use crate::coder::Coders;
use crate::displaced::Found;
use crate::encode::{EncodeError, EncodeOptions, Encoded, Encoder, Flushed, sync_names};
use crate::policy::{Policy, Treatment};
use crate::redundancy::InconclusivePart;
use crate::redundancy::fence::is_superseded;
use crate::storage::Storage;
use crate::world::{Clock, Nanos, SECOND};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Files up to this size are encoded by one thread each.
const SMALL_FILE: u64 = 16 << 20;

/// Files from which on the source is flushed once for all of them.
const MANY_FILES: usize = 8;

/// Why a file is not protected whose repair was interrupted.
const UNFINISHED: &str = "a repair of it was interrupted and has to be finished first: run `gabion repair` for it. \
    What was written to it since stays";

/// How often to look whether others are done.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// How long a file that failed is left alone, where nobody says otherwise.
pub const RETRY: Nanos = SECOND;

/// How often a file that changes while it is read is tried again at once.
const TRIES: u32 = 3;

/// Failures that are listed; all are counted.
const MAX_LISTED: usize = 10_000;

/// Why work cannot go on at all.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The changelog fails.
    #[error("the changelog: {0}")]
    Changelog(#[from] changelog::Error),
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The repository cannot be made durable.
    #[error("the repository {}: {source}", path.display())]
    Repository {
        /// Where it is.
        path: std::path::PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Redundancy of a file that is gone must not be removed. The rest goes on.
    #[error("{0}: it is left as it is")]
    Left(InconclusivePart),
}

/// One worker process.
pub struct Worker<'a> {
    /// Where files are.
    pub storage: &'a dyn Storage,
    /// Codes made ready.
    pub coders: &'a Coders,
    /// The time.
    pub clock: &'a Clock,
    /// What files shall get.
    pub policy: &'a Policy,
    /// What is due.
    pub changelog: &'a dyn Changelog,
    /// Threads to use.
    pub threads: usize,
    /// What was scanned before: what a gap in it asks for is done.
    pub scanned: &'a Scanned,
    /// Whether files that are known and changed or vanished wait for an approval.
    pub hold: bool,
    /// How long a file that failed is left alone.
    pub retry: Nanos,
    /// Whether whoever sent it hears of what happens: of names that files got or lost. It is told of inodes that may have other names.
    pub links: bool,
    /// A person approved the changes: a file with the size and mtime of another one and other content is meant.
    pub approved: bool,
    /// Our name.
    pub name: WorkerId,
    /// Called with files and bytes of data as they are done.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Asked now and then; true stops.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// A claim with what came of it.
struct Job {
    claim: Claim,
    treatment: Option<Treatment>,
    /// See [`EncodeOptions::elsewhere`].
    elsewhere: bool,
    /// Names by which the file is protected already.
    names: Vec<Vec<u8>>,
    /// The file, where redundancy lies under names.
    found: Option<Found>,
    /// What is known of it by a name that it no longer has.
    former: Option<Former>,
    /// Whether redundancy was moved to the file's new name: it is set aside again unless the claim is completed.
    moved: bool,
    result: Mutex<Option<Result<Encoded, EncodeError>>>,
}

impl Job {
    fn path(&self) -> &Vec<u8> {
        &self.claim.entry.path
    }
}

/// A claim that is completed.
struct Completed {
    claim: Claim,
    /// What was made; nothing for a file that is gone.
    encoded: Option<Encoded>,
    former: Option<Former>,
}

impl Worker<'_> {
    /// Works until nothing is due, or until `admission` refuses what is. Notes in `catalogue` what was done; without one, the next scan finds it.
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

    /// As [`drain`](Worker::drain), and then waits for what other workers have in their hands: until they are done, or
    /// dead, and their work is taken over.
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

    /// Works off some claims. Those that it does not begin within its time it gives back; gives their number.
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
        // Redundancy that only has to go elsewhere goes first: it may be in the way of what is made anew. Names may have changed hands in
        // a circle, so all of it is taken away before any of it gets a new name.
        let jobs = || small.iter().chain(large.iter().map(|(_, job)| job));
        jobs().for_each(|job| self.take_away(job));
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
        // Side by side as long as there is one for each thread: threads on one file wait for each other when they write.
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

    /// Leaves claims on which no work was begun to other workers.
    fn give_back(&self, jobs: Vec<Job>, leases: &Leases<'_>) -> Result<usize, WorkError> {
        jobs.iter().try_for_each(|job| self.undo_move(&job.claim, job.moved))?;
        let claims: Vec<&Claim> = jobs.iter().map(|job| &job.claim).collect();
        if !claims.is_empty() {
            leases.forget(claims.iter().copied());
            self.changelog.give_back(&claims, self.clock.now())?;
        }
        Ok(claims.len())
    }

    /// Flushes the source once for many files, which costs less than to do it for each.
    fn flush(&self, files: usize) -> Option<Flushed> {
        let at = self.clock.now();
        let device = (files >= MANY_FILES).then(|| self.storage.flush()).flatten()?;
        Some(Flushed { device, at })
    }

    /// Encodes jobs, one per thread; what is not begun when the time is spent is left as it is, except for one job of each thread.
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
        // A file of which nothing is known is read: it may be damaged.
        let moved = job.claim.entry.kind == Kind::Move && (job.former.is_some() || job.found.is_none());
        let options = EncodeOptions {
            threads,
            moved,
            elsewhere: job.elsewhere,
            flushed,
            progress: &progress,
            stopped: self.stopped,
        };
        let encoder = Encoder { storage: self.storage, coders: self.coders, clock: self.clock };
        let encoded = job.names.iter().try_for_each(|name| encoder.refuse_damaged_by(name, options));
        let encoded = encoded.and_then(|()| Ok(self.coders.get(&treatment.identity)?));
        let encoded =
            encoded.and_then(|coder| encoder.encode(&job.claim.entry.path, &coder, treatment.block, options));
        // That is settled as well: what it has stays, and repair is told.
        let encoded = match encoded {
            Err(EncodeError::Damaged(kept)) => Ok(*kept),
            encoded => encoded,
        };
        (self.progress)(1, 0);
        *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(encoded);
    }

    /// Makes what was encoded durable and visible, then says so. Gives back what was not begun; gives the number of those.
    fn conclude(
        &self,
        jobs: Vec<Job>,
        catalogue: Option<&Catalogue>,
        leases: &Leases<'_>,
        done: &mut Done,
    ) -> Result<usize, WorkError> {
        let (mut finished, mut untouched) = (Vec::new(), Vec::new());
        for mut job in jobs {
            let result = std::mem::take(job.result.get_mut().unwrap_or_else(PoisonError::into_inner));
            let (claim, moved) = (&job.claim, job.moved);
            match result {
                Some(Ok(encoded)) => finished.push((job.claim, moved, job.former, Some(encoded))),
                None if job.treatment.is_some() => untouched.push(job),
                Some(Err(EncodeError::Gone)) if self.may_be_elsewhere(claim, catalogue)? => {
                    self.undo_move(claim, moved)?;
                    self.look_again(claim, done)?;
                }
                Some(Err(EncodeError::Gone)) | None => finished.push((job.claim, moved, None, None)),
                Some(Err(error)) => {
                    let again = error.is_transient() && claim.entry.attempts < TRIES;
                    self.undo_move(claim, moved)?;
                    self.fail(claim, &error.to_string(), again, done)?;
                }
            }
        }
        let given_back = self.give_back(untouched, leases)?;
        // What goes makes room for what comes: a file may have become a directory.
        finished.sort_by_key(|(.., encoded)| encoded.is_some());
        self.make_durable(finished.iter().filter_map(|(.., encoded)| encoded.as_ref()))?;
        let mut completed = Vec::new();
        let ours: Vec<&Claim> = finished.iter().map(|(claim, ..)| claim).collect();
        let ours = self.changelog.which_are_mine(&ours)?;
        for ((claim, moved, former, encoded), ours) in finished.into_iter().zip(ours) {
            // Another worker has taken it over, and sees to it: what we made may be older than what that worker makes. Or the
            // file was moved on.
            if !ours {
                self.undo_move(&claim, moved)?;
                ignore_refused(self.changelog.release(&claim, self.clock.now(), self.clock.now()))?;
                continue;
            }
            let settled = match encoded {
                Some(mut encoded) => {
                    let path = &claim.entry.path;
                    match self.making_way(path, catalogue, done, || encoded.publish()) {
                        Ok(()) => Some(Some(encoded)),
                        // It is due once more, if it is still ours: the file may have changed since.
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
                    let mut left = self.left_behind(&claim, catalogue)?;
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
        // The names too must be durable before the change is forgotten.
        self.sync_repositories(completed.iter().any(|it| it.encoded.is_some()))?;
        let published = completed.iter().filter_map(|it| it.encoded.as_ref());
        sync_names(published).map_err(|source| self.repository_error(source))?;
        if let Some(catalogue) = catalogue {
            self.note_links(&completed, catalogue, done)?;
            self.catalogue_results(catalogue, &completed)?;
        }
        // A claim that is refused now stays due, and whoever has it does it once more.
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

    /// Gives a claim back, also one that is not ours any more: until then nobody else touches what we may have been writing to.
    fn fail(&self, claim: &Claim, why: &str, again: bool, done: &mut Done) -> Result<(), WorkError> {
        let now = self.clock.now();
        let retry_at = if again { now } else { now.saturating_add(self.retry) };
        let released = self.changelog.release(claim, retry_at, now);
        // What was recorded of a file that was moved or deleted meanwhile sees to it, and nothing has failed.
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

/// Whether what a claim was about got another name, or was deleted, meanwhile.
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
