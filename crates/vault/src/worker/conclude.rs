//! The last step of a batch: results are made durable and published, and the claims are completed.

use super::{Completed, Done, Job, MAX_LISTED, WorkError, Worker, is_overtaken, lease::Leases};
use crate::changelog::{Claim, Kind};
use crate::encode::{EncodeError, Encoded, sync_names};
use crate::redundancy::fence::is_superseded;
use crate::retry::{Failure, Retryable};
use gabion_platform::lock::Lockable;
use std::sync::PoisonError;
use std::thread::Scope;

/// Threads that close replaced files, which are waiting for the disk.
const FREEING: usize = 8;

/// Closes replaced files, side by side if they are many: a file system that discards freed space at once waits for the
/// disk with each file.
fn free<'scope>(scope: &'scope Scope<'scope, '_>, mut replaced: Vec<Lockable>) {
    let share = replaced.len().div_ceil(FREEING);
    while replaced.len() > FREEING {
        let files = replaced.split_off(replaced.len().saturating_sub(share));
        scope.spawn(move || drop(files));
    }
}

impl Worker<'_> {
    /// Makes encoded redundancy durable, publishes it and completes the claims. Gives back jobs that were not begun;
    /// returns their number.
    pub(super) fn conclude(
        &self,
        jobs: Vec<Job>,
        leases: &Leases<'_>,
        done: &mut Done,
    ) -> Result<usize, WorkError> {
        let (mut finished, mut not_begun) = (Vec::new(), Vec::new());
        for job in jobs {
            self.sort_out(job, &mut finished, &mut not_begun, done)?;
        }
        let given_back = self.give_back(not_begun, leases)?;
        // Deletions first, since a deleted file may have been replaced by a directory.
        finished.sort_by_key(|it| it.encoded.is_some());
        self.make_durable(&finished)?;
        let claims: Vec<&Claim> = finished.iter().map(|it| &it.claim).collect();
        let ours = self.vault.changelog.which_are_mine(&claims)?;
        let mut completed = Vec::new();
        for (mut it, ours) in finished.into_iter().zip(ours) {
            if !ours {
                // Either another worker has the claim, whose redundancy may be newer than ours, or the file was renamed
                // again.
                self.undo_move(&it.claim, it.moved)?;
                self.release_now(&it.claim)?;
            } else if self.put_in_place(&mut it, done)? {
                completed.push(it);
            }
        }
        let replaced = |it: &mut Completed| it.encoded.as_mut().map(Encoded::take_replaced);
        let replaced = completed.iter_mut().filter_map(replaced).flatten().collect();
        self.record(&completed, replaced, done)?;
        leases.forget(completed.iter().map(|it| &it.claim));
        Ok(given_back)
    }

    /// Takes the result of a job: to `finished`, to `not_begun`, or released because it failed.
    fn sort_out(
        &self,
        mut job: Job,
        finished: &mut Vec<Completed>,
        not_begun: &mut Vec<Job>,
        done: &mut Done,
    ) -> Result<(), WorkError> {
        let result = std::mem::take(job.result.get_mut().unwrap_or_else(PoisonError::into_inner));
        let is_gone = matches!(result, Some(Err(EncodeError::Gone)));
        let Job { claim, former, moved, .. } = &job;
        match result {
            None if job.treatment.is_some() => not_begun.push(job),
            // The worker ends. The file did not fail.
            Some(Err(EncodeError::Stopped)) => not_begun.push(job),
            Some(Err(_)) if is_gone && self.may_have_moved(claim)? => {
                self.undo_move(claim, *moved)?;
                self.retry_missing(claim, done)?;
            }
            Some(Err(error)) if !is_gone => {
                self.undo_move(claim, *moved)?;
                self.fail(claim, error.into(), done)?;
            }
            result => {
                let encoded = result.and_then(Result::ok);
                let former = former.clone().filter(|_| encoded.is_some());
                finished.push(Completed { claim: job.claim, moved: job.moved, former, encoded });
            }
        }
        Ok(())
    }

    /// Publishes the redundancy of a file, or removes that of a deleted file. Returns false if the claim was released
    /// instead.
    fn put_in_place(&self, it: &mut Completed, done: &mut Done) -> Result<bool, WorkError> {
        let Completed { claim, encoded, moved, .. } = it;
        let Some(encoded) = encoded else {
            let mut left = self.former_paths(claim)?;
            return match left.try_for_each(|path| self.remove_redundancy(path, done)) {
                Err(error @ WorkError::Left(_)) => {
                    self.fail(claim, error.into(), done)?;
                    Ok(false)
                }
                removed => removed.map(|()| true),
            };
        };
        let Err(error) = self.clearing_obstacles(&claim.entry.path, done, || encoded.publish()) else {
            return Ok(true);
        };
        self.undo_move(claim, *moved)?;
        match is_superseded(&error) {
            // Released rather than failed: newer redundancy is in place, so the file may have changed.
            true => self.release_now(claim)?,
            false => {
                let why = format_args!("its redundancy cannot be put in place: {error}");
                self.fail(claim, Failure::new(why, error.retry()), done)?;
            }
        }
        Ok(false)
    }

    /// Makes published names durable, then records the results and completes the claims.
    fn record(
        &self,
        completed: &[Completed],
        replaced: Vec<Lockable>,
        done: &mut Done,
    ) -> Result<(), WorkError> {
        // The names must be durable before the change is removed from the changelog.
        self.sync_repositories(completed.iter().any(|it| it.encoded.is_some()))?;
        let published = completed.iter().filter_map(|it| it.encoded.as_ref());
        sync_names(published).map_err(|source| self.repository_error(source))?;
        std::thread::scope(|scope| {
            free(scope, replaced);
            self.complete(completed, done)
        })
    }

    fn complete(&self, completed: &[Completed], done: &mut Done) -> Result<(), WorkError> {
        self.record_other_links(completed, done)?;
        self.catalogue_results(completed)?;
        // A claim that is refused here stays due and is processed again by its new owner.
        let claims: Vec<&Claim> = completed.iter().map(|it| &it.claim).collect();
        for (it, answer) in completed.iter().zip(self.vault.changelog.complete_all(&claims)?) {
            if is_overtaken(&answer) {
                self.put_back_overtaken(it)?;
            }
        }
        done.succeeded(&claims.iter().map(|claim| &claim.entry.path[..]).collect());
        for Completed { claim, encoded, .. } in completed {
            let moved = claim.entry.kind == Kind::Move;
            let path = &claim.entry.path;
            encoded.iter().for_each(|encoded| done.count(path, encoded, moved, MAX_LISTED));
        }
        Ok(())
    }

    fn make_durable(&self, finished: &[Completed]) -> Result<(), WorkError> {
        let encoded = finished.iter().filter_map(|it| it.encoded.as_ref());
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
        for repository in self.vault.storage.writable_repositories().into_iter().filter(|_| needed) {
            let path = repository.tree.path().to_owned();
            repository.tree.sync_all().map_err(|source| WorkError::Repository { path, source })?;
        }
        Ok(())
    }
}
