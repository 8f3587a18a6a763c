//! Processing of named files: their entries of the changelog are claimed before they are due, and no others.

use super::{Budget, Done, LEASE, Leases, POLL, Pace, WorkError, Worker, is_dead, recover};
use std::collections::{HashSet, VecDeque};

/// Batches without progress after which the files that are left stay pending. A file that changes while it is read is
/// tried again in the next batch.
const MAX_STALLED: u32 = 8;

impl Worker<'_> {
    /// Processes what is pending at exactly these paths, due or not, and waits for other workers that have claimed some
    /// of them. Returns the number of paths at which something is still pending that did not fail: after a stop, or
    /// because a file changes all the time.
    ///
    /// # Errors
    /// See [`WorkError`].
    pub(crate) fn drain_paths(&self, paths: &[Vec<u8>], done: &mut Done) -> Result<u64, WorkError> {
        let changelog = self.vault.changelog;
        recover(self.vault.storage, self.vault.coders, self.vault.catalogue)
            .map_err(|source| self.repository_error(source))?;
        let (mut pace, mut stalled, mut unfinished) = (Pace::new(self.options.attends), 0, 0);
        let mut todo: VecDeque<Vec<u8>> = paths.iter().cloned().collect();
        // Paths of the last batch, and those that others have claimed.
        let (mut again, mut waiting) = (Vec::new(), VecDeque::new());
        while !(self.run.stopped)() {
            let limit = pace.limit(self.run.threads);
            let mut chunk = std::mem::take(&mut again);
            let repeated: HashSet<Vec<u8>> = chunk.iter().cloned().collect();
            chunk.extend(todo.drain(..limit.saturating_sub(chunk.len()).min(todo.len())));
            if chunk.is_empty() {
                if waiting.is_empty() {
                    return Ok(unfinished);
                }
                if changelog.expire_dead_workers(&is_dead)? == 0 {
                    std::thread::sleep(POLL);
                }
                todo.append(&mut waiting);
                continue;
            }
            let claimed_at = self.vault.clock.now();
            // Where nothing is pending any more, the last batch or another worker has done it.
            let (claims, taken) = changelog.claim_paths(&self.name, &chunk, LEASE, claimed_at)?;
            waiting.extend(taken);
            if claims.is_empty() {
                continue;
            }
            let (budget, count) = (Budget::new(self.vault.clock), claims.len());
            again = claims.iter().map(|claim| claim.entry.path.clone()).collect();
            let leases = Leases::new(self, &claims, claimed_at);
            let given_back = leases.during(|| self.batch(claims, &leases, &budget, done))?;
            pace.took(count - given_back, budget.used());
            let failed: HashSet<&[u8]> = done.failed.iter().map(|(path, _)| &path[..]).collect();
            let is_same = given_back == 0 && again.iter().filter(|&path| repeated.contains(path)).count() > 0;
            again.retain(|path| !failed.contains(&path[..]));
            // Of several names of one file, each batch does one, so that there are fewer of them.
            stalled = if is_same && again.len() >= repeated.len() { stalled + 1 } else { 0 };
            if stalled >= MAX_STALLED {
                unfinished += again.len() as u64;
                again.clear();
            }
        }
        Ok(unfinished + (again.len() + todo.len() + waiting.len()) as u64)
    }
}
