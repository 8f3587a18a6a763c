//! Pending writes: ranges that programs wrote through a mount and that the changelog does not have yet.
//!
//! A program that writes 4 KiB at a time would make one changelog entry per write. So the ranges of a file are merged
//! while they touch, and a flush thread records them every [`FLUSH_INTERVAL`]. `fsync`, close and synchronous writes
//! record the range of their file before they return.
//!
//! With a range goes its [`Span`]: the versions of the file between which nothing but this range, and those recorded
//! before, was written. A worker in another process reads no more than the ranges if the redundancy is of the first
//! version and the file at the last one. So the last version is named only when it is certain that all its writes are
//! recorded: no write is under way, and a later one would give the file another mtime. Until then the span is held open
//! by a name that no version has, and the flush thread records the last range again when it can be closed. If the mount
//! dies before, the span stays open, and the worker reads the whole file.
//!
//! In a deployment of several hosts windows go with the ranges instead
//! ([`windows`](gabion_vault::changelog::windows)). They name versions at once: whether later writes have the same
//! version is found out by the worker.
//!
//! Invariants: a range is added before the change that wrote it ends. When
//! [`flush_file`](PendingWrites::flush_file) returns, every range that was added for the file before has been handed to
//! the recorder, and spans of a file are recorded in their order: both since the file's lock is held meanwhile.

use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest, Versions};
use gabion_platform::sync::lock;
use gabion_vault::changelog::{Span, Window};
use gabion_vault::world::Timestamp;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which pending ranges are recorded.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Time after which a write would give a file another mtime than the one before.
const NEXT_MTIME: Duration = Duration::from_millis(25);

/// How often, and after which pause, a path is looked for that a rename or removal of this mount may be changing.
const PATH_TRIES: u32 = 10;
const PATH_PAUSE: Duration = Duration::from_millis(10);

/// Versions of files between recorded ranges.
pub(crate) trait Spans: Send + Sync {
    /// The span from the last one to the present version, if no further write can belong to it.
    fn close(&self, number: u64, now: Timestamp) -> Close;

    /// The span from the last one to a name that no version has. None if nothing is known of the file, and if it has
    /// windows.
    fn hold_open(&self, number: u64) -> Option<Span>;
}

/// Says whether a path is that of a file with this number.
pub(crate) type IsAt = Box<dyn Fn(&[u8], u64) -> bool + Send + Sync>;

/// Answer to [`Spans::close`].
pub(crate) enum Close {
    Now(Span),
    /// The windows that have ended.
    Windows(Vec<Window>),
    /// Writes to the present version are possible.
    Later,
    /// The versions of the file are not known.
    Never,
}

/// What was written to a file.
struct Written {
    range: Range<u64>,
    rest: Rest,
    /// The range is recorded, and only the end of its span is not.
    is_open: bool,
}

/// Pending ranges of one mount, by the number of their file.
pub(crate) struct PendingWrites {
    nodes: Arc<Nodes>,
    recorder: Arc<Recorder>,
    spans: Option<Arc<dyn Spans>>,
    /// Where other hosts rename files.
    is_at: Option<IsAt>,
    /// Files share 64 locks.
    files: [Mutex<HashMap<u64, Written>>; 64],
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl PendingWrites {
    pub(crate) fn new(
        nodes: Arc<Nodes>,
        recorder: Arc<Recorder>,
        spans: Option<Arc<dyn Spans>>,
        is_at: Option<IsAt>,
    ) -> PendingWrites {
        let files = std::array::from_fn(|_| Mutex::default());
        let (stopped, wake) = (Mutex::new(false), Condvar::new());
        PendingWrites { nodes, recorder, spans, is_at, files, stopped, wake }
    }

    fn files_like(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Written>> {
        lock(&self.files[number as usize % self.files.len()])
    }

    /// Adds a written range. It is merged with the pending range of the file if they touch; otherwise that one is
    /// recorded now.
    pub(crate) fn add(&self, number: u64, mut range: Range<u64>, rest: Rest) {
        let mut files = self.files_like(number);
        if let Some(before) = files.get_mut(&number).filter(|before| !before.is_open) {
            if before.range.start <= range.end && range.start <= before.range.end {
                range = before.range.start.min(range.start)..before.range.end.max(range.end);
            } else {
                self.record(number, before);
            }
        }
        files.insert(number, Written { range, rest, is_open: false });
    }

    /// Records the pending range of one file.
    pub(crate) fn flush_file(&self, number: u64) {
        let mut files = self.files_like(number);
        if let Some(written) = files.get_mut(&number).filter(|written| !written.is_open) {
            self.check_paths(number);
            if self.record(number, written) {
                files.remove(&number);
            }
        }
    }

    /// Records a gap if another host has renamed the file: nobody would look for its ranges where it was.
    fn check_paths(&self, number: u64) {
        let Some(is_at) = &self.is_at else { return };
        let is_known = || self.nodes.paths(number).iter().all(|path| is_at(path, number));
        // A removal or rename through this mount may be under way.
        let mut tries = PATH_TRIES;
        while !is_known() {
            if tries == 0 {
                self.recorder.record_unknown(Vec::new());
                return;
            }
            tries -= 1;
            std::thread::sleep(PATH_PAUSE);
        }
    }

    /// Records all pending ranges. True if the span of one is still open.
    pub(crate) fn flush_all(&self) -> bool {
        let mut is_open = false;
        for files in &self.files {
            let mut files = lock(files);
            files.retain(|&number, written| {
                self.check_paths(number);
                !self.record(number, written)
            });
            is_open |= !files.is_empty();
        }
        is_open
    }

    /// Records a range under every known path of the file, or the end of the span of one that was recorded before. True
    /// if nothing remains to be recorded.
    fn record(&self, number: u64, written: &mut Written) -> bool {
        let close = self.spans.as_ref().map_or(Close::Never, |it| it.close(number, self.recorder.now()));
        let versions = match close {
            Close::Now(span) => vec![Versions::Span(span)],
            Close::Windows(ref windows) if !windows.is_empty() => {
                windows.iter().map(|window| Versions::Window(*window)).collect()
            }
            _ if written.is_open => return !matches!(close, Close::Later),
            _ => {
                let open = self.spans.as_ref().and_then(|it| it.hold_open(number));
                vec![open.map_or(Versions::Unknown, Versions::Span)]
            }
        };
        if !written.range.is_empty() {
            for path in self.nodes.paths(number) {
                for versions in &versions {
                    self.recorder.record_write(path.clone(), written.range.clone(), *versions, written.rest);
                }
            }
        }
        written.is_open = matches!(close, Close::Later);
        !written.is_open
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
            if pending.flush_all() {
                std::thread::sleep(NEXT_MTIME);
                pending.flush_all();
            }
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
