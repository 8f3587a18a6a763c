//! One thread per target for calls that a dying disk may never return from.
//!
//! Who waits gives up after the deadline; the thread stays with its call, since nothing can take it back. Until it returns
//! the target counts as gone, so a dead disk costs one thread and one deadline, however many readers come.

use crate::redundancy::read_up_to;
use crate::storage::Fault;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Runs calls one after the other. The queue is bounded by the callers: each waits for its answer.
#[derive(Debug)]
pub struct Lane {
    name: String,
    deadline: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runner: Option<Runner>,
    /// Alive while a thread that was given up has not come back.
    stuck: Weak<()>,
}

#[derive(Debug, Clone)]
struct Runner {
    jobs: Sender<Job>,
    alive: Weak<()>,
}

impl Lane {
    /// A lane for the target of this name.
    pub fn new(name: &str, deadline: Duration) -> Lane {
        Lane { name: name.to_owned(), deadline, state: Mutex::default() }
    }

    /// Whether a call has not come back in time, and still has not.
    pub fn is_stuck(&self) -> bool {
        self.state().stuck.strong_count() > 0
    }

    /// Runs `work` on the lane's thread and waits for it, up to the deadline.
    ///
    /// # Errors
    /// [`Fault::Timeout`].
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let timeout = Fault::Timeout(self.deadline.as_millis() as u64);
        let (reply, answer) = channel();
        let job: Job = Box::new(move || {
            // Who asked may have given up.
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
                // Someone else may have given this thread up already, and another one be at work.
                if state.runner.as_ref().is_some_and(|runner| runner.alive.ptr_eq(&alive)) {
                    state.runner = None;
                    state.stuck = alive;
                }
                Err(timeout)
            }
        }
    }

    /// Reads until the buffer is full or the file ends. What is in memory can be had without waiting, and so without a deadline.
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
        // Who is given up keeps its buffer, so it must be one of its own.
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
        // It is whole whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Lane;
    use crate::storage::Fault;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn calls_give_their_results() {
        let lane = Lane::new("d1", Duration::from_secs(30));
        assert_eq!(lane.run(|| 6 * 7).unwrap(), 42);
        assert_eq!(lane.run(|| "again").unwrap(), "again");
        assert!(!lane.is_stuck());
    }

    /// A call that never comes back must cost its caller the deadline, the next callers nothing, and must not be
    /// forgotten: when the disk answers at last, the target is there again.
    #[test]
    fn a_stuck_call_is_given_up_and_remembered() {
        let lane = Lane::new("d1", Duration::from_millis(20));
        let (release, held) = channel::<()>();
        let stuck = lane.run(move || held.recv());
        assert!(matches!(stuck, Err(Fault::Timeout(20))), "{stuck:?}");
        assert!(lane.is_stuck());
        assert!(matches!(lane.run(|| ()), Err(Fault::Timeout(20))));
        drop(release);
        gabion_testkit::until("the lane is free", || !lane.is_stuck());
        // A busy machine may take longer than this deadline for any call.
        gabion_testkit::until("calls are answered", || lane.run(|| ()).is_ok());
    }
}
