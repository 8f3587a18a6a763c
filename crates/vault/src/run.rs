//! Context of a run over many files, which all operations take.

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
