//! Answers fences of workers on other hosts: when this mount hears of a new tick, it records everything that was
//! written before, and tells the server so ([`gabion_vault::changelog::windows`]).

use super::history::History;
use crate::pending::PendingWrites;
use crate::recorder::Recorder;
use gabion_platform::sync;
use gabion_vault::changelog::windows::Tick;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the server is asked for the tick. A worker waits about as long.
const INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which changes that are under way are waited for.
const POLL: Duration = Duration::from_millis(10);

/// The thread; it ends when this is dropped.
pub(super) struct Coverage {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_over: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    /// Sleeps; true if it is over.
    fn sleep(&self, time: Duration) -> bool {
        let is_over = sync::lock(&self.is_over);
        let waited = self.told.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Coverage {
    /// Starts the thread.
    pub(super) fn start(
        history: Arc<History>,
        pending: Arc<PendingWrites>,
        recorder: Arc<Recorder>,
    ) -> io::Result<Coverage> {
        let stop: Arc<Stop> = Arc::default();
        let theirs = Arc::clone(&stop);
        // Windows that begin before a tick was heard of may not count.
        recorder.cover(None).into_iter().for_each(|tick| history.under_way().hear(tick));
        let run = move || {
            let mut covered = Tick::default();
            while !theirs.sleep(INTERVAL) {
                let Some(tick) = recorder.cover(None) else { continue };
                history.under_way().hear(tick);
                if tick <= covered || !history.under_way().part() {
                    continue;
                }
                while !history.under_way().has_ended() {
                    if theirs.sleep(POLL) {
                        return;
                    }
                }
                pending.flush_all();
                if recorder.is_complete() && recorder.cover(Some(tick)).is_some() {
                    covered = tick;
                }
            }
        };
        let thread = std::thread::Builder::new().name("coverage".to_owned()).spawn(run)?;
        Ok(Coverage { stop, thread: Some(thread) })
    }
}

impl Drop for Coverage {
    fn drop(&mut self) {
        *sync::lock(&self.stop.is_over) = true;
        self.stop.told.notify_all();
        // If the thread panicked, it has printed why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
