//! Ranges that mounts of several hosts recorded: whether they are all that was written
//! ([`crate::changelog::windows`]).

use super::{Job, POLL, WorkError, Worker};
use crate::changelog::windows::Tick;
use crate::changelog::{Kind, Windows};
use crate::encode::{Fenced, SMALL_PART};
use crate::version::SETTLED_AFTER;
use crate::world::{Clock, Stopwatch};
use std::time::Duration;

/// Longest wait for mounts. Then files are read as a whole.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fence that files wait for.
pub(super) struct Fence<'a> {
    windows: &'a dyn Windows,
    tick: Tick,
}

impl<'a> Worker<'a> {
    /// Reads what is recorded of a file, if it is worth it: files with little redundancy are read as a whole.
    pub(super) fn note_windows(&self, job: &mut Job, size: u64) -> Result<(), WorkError> {
        let entry = &job.claim.entry;
        let Some(windows) = self.vault.changelog.windows() else { return Ok(()) };
        if entry.kind == Kind::Modify && !entry.ranges.is_whole() && size > SMALL_PART {
            let written = windows.written(&job.claim)?;
            job.fenced = (!written.windows.is_empty()).then(|| Fenced::claimed(&written));
        }
        Ok(())
    }

    /// Asks mounts to record what they wrote, if any of these jobs waits for it.
    pub(super) fn ask_mounts(&self, jobs: &[(u64, Job)]) -> Result<Option<Fence<'a>>, WorkError> {
        let is_needed = jobs.iter().any(|(_, job)| job.fenced.is_some());
        let Some(windows) = self.vault.changelog.windows().filter(|_| is_needed) else { return Ok(None) };
        // A write after the fence must not make a version that was known before it.
        if matches!(self.vault.clock, Clock::System) {
            std::thread::sleep(SETTLED_AFTER);
        }
        Ok(Some(Fence { windows, tick: windows.fence()? }))
    }

    /// Waits until mounts have recorded what they wrote, and reads it.
    pub(super) fn wait_for_mounts(
        &self,
        fence: Option<Fence<'_>>,
        jobs: &mut [(u64, Job)],
    ) -> Result<(), WorkError> {
        let Some(Fence { windows, tick }) = fence else { return Ok(()) };
        let since = Stopwatch::start();
        while !windows.is_covered(tick)? {
            if since.elapsed() >= PATIENCE || (self.run.stopped)() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        for (_, job) in jobs {
            if let Some(fenced) = &mut job.fenced {
                fenced.pass(windows.written(&job.claim)?);
            }
        }
        Ok(())
    }
}
