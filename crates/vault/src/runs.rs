//! Distribution of a file's runs over threads.

use crate::geometry::{Cut, Run};
use crate::storage::Content;
use gabion_platform::mapping::LARGE_PAGE;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

/// Bytes of data in a run: the unit of work of a thread.
const RUN_BYTES: u64 = 8 << 20;

/// Maximum number of columns whose pieces have the size of huge pages; more would need too much memory at once.
const LARGE_COLUMNS: usize = 16;

/// Maximum number of bytes that threads on all cores map through huge pages at once: the system counts them as the
/// process's memory.
const LARGE_BYTES: u64 = 128 << 20;

/// Maximum size of a run of [`large_pieces`].
pub const MAX_RUN_BYTES: u64 = (LARGE_COLUMNS * LARGE_PAGE) as u64;

/// Bytes of a run per column.
pub fn pieces(columns: usize) -> u64 {
    RUN_BYTES / columns.max(1) as u64
}

/// The same for data that is encoded in the page cache: complete huge pages while columns and cores are few.
pub fn large_pieces(columns: usize) -> u64 {
    static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get));
    large_pieces_on(*CORES, columns)
}

fn large_pieces_on(cores: usize, columns: usize) -> u64 {
    let (usual, large) = (pieces(columns), pieces(columns).next_multiple_of(LARGE_PAGE as u64));
    let all = large.saturating_mul(columns as u64).saturating_mul(cores as u64);
    if columns <= LARGE_COLUMNS && all <= LARGE_BYTES { large } else { usual }
}

/// Calls `work` for every run of a file, with `piece` bytes of each column, on up to `threads` threads. Each thread has
/// a state of its own; returns the states. Following runs are prefetched.
///
/// # Errors
/// As [`each_run_of`].
pub fn each_run<S: Send, E: Send>(
    cut: &Cut,
    piece: u64,
    content: Option<&dyn Content>,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&Run, &mut S) -> Result<(), E> + Sync,
) -> Result<Vec<S>, E> {
    each_run_of(cut, 0..cut.stripes(), piece, content, threads, state, work)
}

/// As [`each_run`], for a range of stripes.
///
/// # Errors
/// The first error of `work`; the other threads finish their present run.
pub fn each_run_of<S: Send, E: Send>(
    cut: &Cut,
    stripes: Range<u64>,
    piece: u64,
    content: Option<&dyn Content>,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&Run, &mut S) -> Result<(), E> + Sync,
) -> Result<Vec<S>, E> {
    let (next, stripes) = (AtomicU64::new(stripes.start), stripes.end);
    let limit = |from: u64| (piece / cut.block(from).max(1)).clamp(1, stripes.saturating_sub(from).max(1));
    let thread = || -> Result<S, E> {
        let mut state = state();
        let mut taken = None;
        while next
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |stripe| {
                taken = (stripe < stripes).then(|| cut.run(stripe, limit(stripe)));
                taken.map(|run| run.first + run.count)
            })
            .is_ok()
        {
            let Some(run) = taken else { break };
            let after = run.first + run.count;
            if let Some(content) = content.filter(|_| after < stripes) {
                content.prefetch(&cut.run(after, limit(after)));
            }
            if let Err(error) = work(&run, &mut state) {
                next.store(stripes, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(state)
    };
    let useful = cut.size().div_ceil(RUN_BYTES).max(1);
    let threads = (threads as u64).clamp(1, useful);
    if threads == 1 {
        return Ok(vec![thread()?]);
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(thread)).collect();
        let mine = thread();
        let others = others.into_iter().map(|other| match other.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        [mine].into_iter().chain(others).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{LARGE_BYTES, LARGE_PAGE, MAX_RUN_BYTES, large_pieces_on, pieces};

    #[test]
    fn pieces_are_large_pages_while_all_threads_together_have_few() {
        assert_eq!(large_pieces_on(2, 8), LARGE_PAGE as u64);
        assert_eq!(large_pieces_on(2, 1), pieces(1));
        assert_eq!(large_pieces_on(2, 17), pieces(17));
        assert_eq!(large_pieces_on(64, 8), pieces(8));
        for (cores, columns) in (1..200).flat_map(|cores| (1..300).map(move |columns| (cores, columns))) {
            let run = large_pieces_on(cores, columns) * columns as u64;
            let is_usual = large_pieces_on(cores, columns) == pieces(columns);
            assert!(run <= MAX_RUN_BYTES, "{cores} {columns}");
            assert!(is_usual || run * cores as u64 <= LARGE_BYTES, "{cores} {columns}");
        }
    }
}
