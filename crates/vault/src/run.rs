//! Context of a run over many files, which all operations take.

/// Context of a run over many files: threads, rate limit, progress and cancellation.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Threads to use.
    pub threads: usize,
    /// Most bytes read per second, in place of the policy's bound.
    pub rate: Option<u64>,
    /// Called as work is done.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Asked now and then; true stops.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A step begins, with so many files and bytes ahead where that is known.
    Step(&'static str, Option<(u64, u64)>),
    /// So many files and bytes more are done.
    Done(u64, u64),
}
