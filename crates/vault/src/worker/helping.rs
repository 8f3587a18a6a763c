//! Portions of tasks of other workers.

use super::{Done, WorkError, Worker};
use crate::changelog::tasks::{Portion, TaskId, TaskKind};
use crate::encode::{ENCODE, EncodeError, EncodeOptions, Encoder};
use crate::run::{Progress, RunContext};
use crate::team::{Help, Team, help};
use std::sync::atomic::{AtomicU64, Ordering};

/// Work on portions that are not encoding.
pub trait OtherWork {
    /// Kinds of tasks.
    fn kinds(&self) -> &[TaskKind];

    /// Does a portion.
    fn work(&self, portion: &Portion, run: RunContext<'_>) -> Help;
}

impl<'a> Worker<'a> {
    /// The workers with which this one shares its tasks.
    pub(super) fn team(&'a self) -> Option<Team<'a>> {
        self.vault.changelog.tasks().map(|tasks| Team { tasks, worker: &self.name })
    }

    /// Does urgent portions of other workers until there are none, or the host is draining.
    pub(super) fn help_urgent(&self, failed: &mut Vec<TaskId>, done: &mut Done) -> Result<(), WorkError> {
        let heeds = self.options.heeds_drain;
        while !(self.run.stopped)() && self.help(1, failed, done)? {
            if heeds && self.vault.changelog.is_draining(&self.name)? {
                break;
            }
        }
        Ok(())
    }

    /// Does a portion of a task of another worker with at least this priority. False if there is none. `failed` are
    /// tasks at which this worker failed before.
    pub(super) fn help(
        &self,
        priority: u8,
        failed: &mut Vec<TaskId>,
        done: &mut Done,
    ) -> Result<bool, WorkError> {
        let Some(team) = self.team() else { return Ok(false) };
        let others = self.options.other_work.map_or(&[][..], |other| other.kinds());
        let kinds = [&[ENCODE], others].concat();
        let (before, read) = (done.batch(), AtomicU64::new(0));
        let progress = |step: Progress| {
            if let Progress::Done(_, bytes) = step {
                read.fetch_add(bytes, Ordering::Relaxed);
            }
            (self.run.progress)(step);
        };
        let helped = help(team, (&kinds, priority), failed, |portion, is_lost| {
            let stopped = || is_lost() || (self.run.stopped)();
            let run = RunContext { progress: &progress, stopped: &stopped, ..self.run };
            match self.options.other_work {
                Some(other) if portion.kind != ENCODE => other.work(portion, run),
                _ => self.encode_portion(portion, run),
            }
        })?;
        if helped == Some(true) {
            done.helped += 1;
            done.helped_bytes += read.into_inner();
            self.tell(before, done);
        }
        Ok(helped.is_some())
    }

    fn encode_portion(&self, portion: &Portion, run: RunContext<'_>) -> Help {
        let encoder =
            Encoder { storage: self.vault.storage, coders: self.vault.coders, clock: self.vault.clock };
        let options = EncodeOptions {
            threads: run.threads,
            moved: false,
            known_elsewhere: false,
            known: None,
            recorded: None,
            flushed: None,
            progress: &|bytes| (run.progress)(Progress::Done(0, bytes)),
            team: None,
            elsewhere: &|_| {},
            stopped: run.stopped,
        };
        match encoder.encode_portion(&portion.about, portion.number, options) {
            Ok(result) => Help::Done(result),
            Err(EncodeError::Stopped) => Help::Stopped,
            Err(_) => Help::Failed,
        }
    }
}
