//! Encoding of the files of a batch, by several threads.

use super::{Job, Worker, lease::Leases, pace::Budget};
use crate::changelog::Kind;
use crate::encode::{EncodeError, EncodeOptions, Encoder, Flushed, Recorded};
use crate::run::{Progress, RunContext};
use crate::team::Team;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of files from which one flush of the whole source replaces a flush per file.
const MANY_FILES: usize = 8;

/// The part of a worker that its threads share during one batch.
pub(super) struct Encoding<'a> {
    encoder: Encoder<'a>,
    run: RunContext<'a>,
    leases: &'a Leases<'a>,
    budget: &'a Budget<'a>,
    flushed: Option<Flushed>,
    team: Option<Team<'a>>,
}

impl<'a> Encoding<'a> {
    /// For a batch with a number of files. Flushes the source once if they are many.
    pub(super) fn new(
        worker: &'a Worker<'a>,
        leases: &'a Leases<'a>,
        budget: &'a Budget<'a>,
        files: usize,
    ) -> Encoding<'a> {
        let encoder =
            Encoder { storage: worker.vault.storage, coders: worker.vault.coders, clock: worker.vault.clock };
        let at = encoder.clock.now();
        let device = (files >= MANY_FILES).then(|| encoder.storage.flush()).flatten();
        let flushed = device.map(|device| Flushed { device, at });
        let team = worker.team();
        Encoding { encoder, run: worker.run, leases, budget, flushed, team }
    }

    /// True if jobs that have not begun are to be given back: the batch's time is spent, or the host is draining.
    pub(super) fn is_over(&self) -> bool {
        self.budget.is_spent() || self.leases.is_draining()
    }

    /// Encodes jobs, one per thread. When the batch is over, each thread finishes its current job and the other
    /// jobs are left.
    pub(super) fn side_by_side(&self, jobs: &[Job]) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                match jobs.get(at) {
                    Some(job) if at < self.run.threads || !self.is_over() => self.encode(job, 1),
                    _ => return,
                }
            }
        };
        std::thread::scope(|scope| {
            (1..self.run.threads.min(jobs.len())).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
    }

    /// Encodes the file of a job with a number of threads, unless the job has a result already.
    pub(super) fn encode(&self, job: &Job, threads: usize) {
        let Some(treatment) = &job.treatment else { return };
        if job.result().is_some() {
            return;
        }
        let progress = |bytes: u64| {
            (self.run.progress)(Progress::Done(0, bytes));
            self.leases.tick();
        };
        // A moved file without known redundancy is read in full, since it may be damaged.
        let moved = job.claim.entry.kind == Kind::Move && (job.former.is_some() || job.found.is_none());
        let options = EncodeOptions {
            threads,
            moved,
            known_elsewhere: job.known_elsewhere,
            known: job.known,
            recorded: Some(Recorded { entry: &job.claim.entry, fenced: job.fenced.as_ref() }),
            flushed: self.flushed,
            progress: &progress,
            team: self.team,
            elsewhere: &|bytes| (self.run.progress)(Progress::Elsewhere(0, bytes)),
            stopped: self.run.stopped,
        };
        let encoder = &self.encoder;
        let encoded = job.names.iter().try_for_each(|name| encoder.refuse_damaged_by(name, options));
        let encoded = encoded.and_then(|()| Ok(encoder.coders.get(&treatment.identity)?));
        let encoded = encoded.and_then(|coder| encoder.encode(job.path(), &coder, treatment.block, options));
        // Damage settles the claim too: the file keeps its redundancy, and the damage is recorded for repair.
        let encoded = match encoded {
            Err(EncodeError::Damaged(kept)) => Ok(*kept),
            encoded => encoded,
        };
        (self.run.progress)(Progress::Done(1, 0));
        *job.result() = Some(encoded);
    }
}
