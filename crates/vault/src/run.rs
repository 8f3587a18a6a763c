//! Context of a run over many files, which all operations take.

use crate::changelog::tasks::Amounts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Context of a run over many files: threads, rate limit, progress and cancellation.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Number of threads.
    pub threads: usize,
    /// Maximum read rate in bytes per second, overrides the policy.
    pub rate: Option<u64>,
    /// Receives progress.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Polled during work; true stops the run.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A step begins, with the expected numbers of files and bytes where they are known.
    Step(&'static str, Option<(u64, u64)>),
    /// Numbers of files and bytes that were processed.
    Done(u64, u64),
    /// Numbers of files and bytes that other workers processed for this run.
    Elsewhere(u64, u64),
}

/// Numbers of files and bytes that are done, for those who ask.
#[derive(Default)]
pub(crate) struct Counted {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    pub(crate) fn add(&self, step: Progress) {
        if let Progress::Done(files, bytes) | Progress::Elsewhere(files, bytes) = step {
            self.files.fetch_add(files, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, (all_files, all_bytes): (u64, u64)) -> Amounts {
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        Amounts { files, bytes, all_files, all_bytes }
    }
}
