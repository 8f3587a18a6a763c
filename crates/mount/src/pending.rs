//! Pending writes: ranges that programs wrote through a mount and that the changelog does not have yet.
//!
//! A program that writes 4 KiB at a time would make one changelog entry per write. So the ranges of a file are merged
//! while they touch, and a flush thread records them every [`FLUSH_INTERVAL`]. `fsync`, close and synchronous writes
//! record the range of their file before they return.
//!
//! Invariant: when [`flush_file`](PendingWrites::flush_file) returns, every range that was added for the file before
//! has been handed to the recorder, by this thread or by another one.

use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest};
use gabion_platform::sync::{self, lock};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which pending ranges are recorded.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Pending ranges of one mount, by the number of their file.
pub(crate) struct PendingWrites {
    nodes: Arc<Nodes>,
    recorder: Arc<Recorder>,
    ranges: Mutex<HashMap<u64, (Range<u64>, Rest)>>,
    /// Held for reading to record one file. Held for writing while all ranges are between `ranges` and the recorder, so
    /// that a close or `fsync` waits for a range that the flush thread has taken.
    flushing: RwLock<()>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl PendingWrites {
    pub(crate) fn new(nodes: Arc<Nodes>, recorder: Arc<Recorder>) -> PendingWrites {
        PendingWrites {
            nodes,
            recorder,
            ranges: Mutex::default(),
            flushing: RwLock::default(),
            stopped: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Adds a written range. It is merged with the pending range of the file if they touch; otherwise that one is
    /// recorded now.
    pub(crate) fn add(&self, number: u64, range: Range<u64>, rest: Rest) {
        let mut ranges = lock(&self.ranges);
        let before = ranges.insert(number, (range.clone(), rest));
        let Some((before, its_rest)) = before else { return };
        if before.start <= range.end && range.start <= before.end {
            let merged = before.start.min(range.start)..before.end.max(range.end);
            ranges.insert(number, (merged, rest));
        } else {
            drop(ranges);
            self.record(number, before, its_rest);
        }
    }

    /// Records the pending range of one file.
    pub(crate) fn flush_file(&self, number: u64) {
        let _flushing = sync::read(&self.flushing);
        let pending = lock(&self.ranges).remove(&number);
        if let Some((range, rest)) = pending {
            self.record(number, range, rest);
        }
    }

    /// Records all pending ranges.
    pub(crate) fn flush_all(&self) {
        let _flushing = sync::write(&self.flushing);
        let pending = std::mem::take(&mut *lock(&self.ranges));
        for (number, (range, rest)) in pending {
            self.record(number, range, rest);
        }
    }

    /// Records a range under every known path of the file.
    fn record(&self, number: u64, range: Range<u64>, rest: Rest) {
        if !range.is_empty() {
            for path in self.nodes.paths(number) {
                self.recorder.record_write(path, range.clone(), rest);
            }
        }
    }
}

/// The flush thread of a mount. It ends when it is dropped, after everything pending was recorded.
pub(crate) struct Flusher {
    pending: Arc<PendingWrites>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread: records pending ranges and then calls `also`, every [`FLUSH_INTERVAL`], and a last time with
    /// `true` at the end.
    pub(crate) fn start(
        pending: Arc<PendingWrites>,
        mut also: impl FnMut(bool) + Send + 'static,
    ) -> io::Result<Flusher> {
        let theirs = Arc::clone(&pending);
        let flush_loop = move || {
            let pending = theirs;
            let mut stopped = lock(&pending.stopped);
            while !*stopped {
                drop(stopped);
                pending.flush_all();
                pending.recorder.collect_results();
                pending.recorder.record_gap();
                also(false);
                stopped = lock(&pending.stopped);
                if !*stopped {
                    let waited = pending.wake.wait_timeout(stopped, FLUSH_INTERVAL);
                    stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
            drop(stopped);
            pending.flush_all();
            also(true);
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(flush_loop)?;
        Ok(Flusher { pending, thread: Some(thread) })
    }

    /// Ends the thread, and waits until everything is recorded.
    pub(crate) fn end(&mut self) {
        *lock(&self.pending.stopped) = true;
        self.pending.wake.notify_all();
        // If the thread panicked, it has printed why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}
