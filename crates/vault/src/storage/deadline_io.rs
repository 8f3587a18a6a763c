//! I/O with a deadline: one thread per target for calls that may never return from a failing disk.
//!
//! After the deadline the caller gets a timeout; the thread keeps its call, which cannot be cancelled. Until the call
//! returns the target counts as unreachable, so a dead disk costs one thread and one deadline for any number of
//! readers.

use crate::redundancy::read_up_to;
use crate::storage::Fault;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Runs calls one after the other. The queue is bounded by the number of callers, since each waits for its result.
#[derive(Debug)]
pub struct DeadlineIo {
    name: String,
    deadline: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runner: Option<Runner>,
    /// Alive while an abandoned thread has not returned from its call.
    stuck: Weak<()>,
}

#[derive(Debug, Clone)]
struct Runner {
    jobs: Sender<Job>,
    alive: Weak<()>,
}

impl DeadlineIo {
    /// For the target of this name.
    pub fn new(name: &str, deadline: Duration) -> DeadlineIo {
        DeadlineIo { name: name.to_owned(), deadline, state: Mutex::default() }
    }

    /// True if a call exceeded the deadline and has not returned since.
    pub fn is_stuck(&self) -> bool {
        self.state().stuck.strong_count() > 0
    }

    /// Runs `work` on the thread of the target and waits for it, up to the deadline.
    ///
    /// # Errors
    /// [`Fault::Timeout`].
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let timeout = Fault::Timeout(self.deadline.as_millis() as u64);
        let (reply, answer) = channel();
        let job: Job = Box::new(move || {
            // The caller may have given up.
            let _ = reply.send(work());
        });
        let alive = {
            let mut state = self.state();
            if state.stuck.strong_count() > 0 {
                return Err(timeout);
            }
            let runner = match state.runner.take() {
                Some(runner) => runner,
                None => self.start()?,
            };
            let alive = runner.alive.clone();
            if runner.jobs.send(job).is_ok() {
                state.runner = Some(runner);
            }
            alive
        };
        match answer.recv_timeout(self.deadline) {
            Ok(done) => Ok(done),
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the target's thread has ended").into())
            }
            Err(RecvTimeoutError::Timeout) => {
                let mut state = self.state();
                // Another caller may have abandoned this thread already, and started a new one.
                if state.runner.as_ref().is_some_and(|runner| runner.alive.ptr_eq(&alive)) {
                    state.runner = None;
                    state.stuck = alive;
                }
                Err(timeout)
            }
        }
    }

    /// Reads until the buffer is full or the file ends. Bytes in the page cache are read directly, without the
    /// deadline.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn read(&self, file: &Arc<File>, buffer: &mut [u8], offset: u64) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let mut vector = [IoSliceMut::new(&mut buffer[done..])];
            match preadv2(file, &mut vector, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) | Err(_) => break,
                Ok(bytes) => done += bytes,
            }
        }
        if done == buffer.len() {
            return Ok(done);
        }
        // An abandoned call keeps its buffer, so it gets a buffer of its own.
        let (mut own, start, file) = (vec![0; buffer.len() - done], offset + done as u64, file.clone());
        let (own, got) = self.run(move || {
            let got = read_up_to(&file, &mut own, start);
            (own, got)
        })?;
        let got = got?;
        buffer[done..done + got].copy_from_slice(&own[..got]);
        Ok(done + got)
    }

    fn start(&self) -> io::Result<Runner> {
        let (jobs, queue) = channel::<Job>();
        let token = Arc::new(());
        let alive = Arc::downgrade(&token);
        std::thread::Builder::new().name(format!("target {}", self.name)).spawn(move || {
            for job in queue {
                job();
            }
            drop(token);
        })?;
        Ok(Runner { jobs, alive })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::DeadlineIo;
    use crate::storage::Fault;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn calls_give_their_results() {
        let deadline_io = DeadlineIo::new("d1", Duration::from_secs(30));
        assert_eq!(deadline_io.run(|| 6 * 7).unwrap(), 42);
        assert_eq!(deadline_io.run(|| "again").unwrap(), "again");
        assert!(!deadline_io.is_stuck());
    }

    /// A call that never returns costs its caller the deadline and later callers nothing. When the disk answers at
    /// last, the target is usable again.
    #[test]
    fn a_stuck_call_times_out_and_later_calls_fail_at_once() {
        let deadline_io = DeadlineIo::new("d1", Duration::from_millis(20));
        let (release, held) = channel::<()>();
        let stuck = deadline_io.run(move || held.recv());
        assert!(matches!(stuck, Err(Fault::Timeout(20))), "{stuck:?}");
        assert!(deadline_io.is_stuck());
        assert!(matches!(deadline_io.run(|| ()), Err(Fault::Timeout(20))));
        drop(release);
        gabion_testkit::until("the deadline_io is free", || !deadline_io.is_stuck());
        // A busy machine may take longer than this deadline for any call.
        gabion_testkit::until("calls are answered", || deadline_io.run(|| ()).is_ok());
    }
}
