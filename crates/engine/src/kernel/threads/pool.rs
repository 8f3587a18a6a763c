//! Workers for calls of some microseconds.
//!
//! A call is a number of *parts*. Whoever calls publishes it and takes parts itself, as do workers that are awake; nobody
//! waits for a worker that is not. A worker that runs out of work looks for more for a moment before it sleeps, so that calls
//! in a row are shared at once: handing a part over then costs a transfer of a cache line, where waking a thread costs as
//! much as coding half a megabyte. From the same two ends every time: a core finds in its cache what it worked on in the call before.
//!
//! ```text
//! state   number of the call | front | back        one word: who moves an end owns the part it has passed
//! caller  writes the call, publishes `state` with part 0 taken, takes parts from the front, waits until all are done
//! worker  takes a part from the back, reads the call, works, counts the part as done
//! ```

use super::locked;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for work, or for the end of a call, before it sleeps. A few calls' time: longer would take the
/// core from others.
const LOOKING: Duration = Duration::from_micros(50);

/// Parts of a call at most.
const MOST_PARTS: usize = u16::MAX as usize;

/// Threads that share the parts of one call at a time.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

type Panic = Box<dyn std::any::Any + Send>;

struct Shared {
    published: Line<Published>,
    progress: Line<Progress>,
    /// Held by the caller as long as its call runs.
    busy: Mutex<()>,
    panicked: Mutex<Option<Panic>>,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    /// There is a call.
    alarm: Condvar,
    /// A part is over, and its caller sleeps.
    over: Condvar,
}

/// Cache lines of its own, as the prefetcher brings two.
#[repr(align(128))]
struct Line<T>(T);

/// What a worker needs to begin, in one line.
struct Published {
    state: AtomicU64,
    /// Written by the one caller before it publishes `state`; read only by who has taken a part.
    call: UnsafeCell<Option<Call>>,
}

struct Progress {
    /// Parts of the call that are over.
    done: AtomicUsize,
    caller_sleeps: AtomicBool,
}

type Call = *const (dyn Fn(usize) + Sync);

// SAFETY: `call` is written while no part of any call is out (its writer holds `busy` and has waited for the call before), and
// read after taking a part, which happens after the writing through `state`. The work behind the pointer is Sync.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The ends of a call's parts that nobody has taken.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

/// The three numbers of `state`.
fn packed(call: u64, front: usize, back: usize) -> u64 {
    call << 32 | (front as u64) << 16 | back as u64
}

fn unpacked(state: u64) -> (u64, usize, usize) {
    (state >> 32, (state >> 16) as usize & MOST_PARTS, state as usize & MOST_PARTS)
}

impl Pool {
    /// A pool of `workers` threads beside the callers.
    pub(super) fn new(workers: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            published: Line(Published { state: AtomicU64::new(0), call: UnsafeCell::new(None) }),
            progress: Line(Progress { done: AtomicUsize::new(0), caller_sleeps: AtomicBool::new(false) }),
            busy: Mutex::new(()),
            panicked: Mutex::new(None),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
            over: Condvar::new(),
        });
        let mut pool = Pool { shared, workers: Vec::with_capacity(workers) };
        for index in 0..workers {
            let shared = pool.shared.clone();
            let named = std::thread::Builder::new().name(format!("gabion-{index}"));
            pool.workers.push(named.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// Runs `work` for every part below `parts`, on this thread and on workers that have time. While another thread has its
    /// call here, this one does all by itself.
    pub(super) fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        let turn = match self.shared.busy.try_lock() {
            Ok(turn) => Some(turn),
            // Somebody's work threw something, long after it was shared.
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match turn {
            Some(turn) if (2..=MOST_PARTS).contains(&parts) => self.shared.share(parts, work, turn),
            _ => (0..parts).for_each(work),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.shared.bed));
        self.shared.alarm.notify_all();
        // A worker catches what its work throws, so it ends well.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

impl Shared {
    fn share(&self, parts: usize, work: &(dyn Fn(usize) + Sync), _turn: MutexGuard<'_, ()>) {
        // SAFETY: only the lifetime changes. Who reads the pointer has taken a part, and this function does not return
        // before all parts are done.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: no part is out, so nobody reads; `_turn` keeps other writers away.
        unsafe { *self.published.0.call.get() = Some(work) };
        self.progress.0.done.store(0, Ordering::Relaxed);
        let state = &self.published.0.state;
        let (last, _, _) = unpacked(state.load(Ordering::Relaxed));
        state.store(packed(last.wrapping_add(1), 1, parts), Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Who is about to lie down holds the bed until it lies, and looks at `state` before.
            drop(locked(&self.bed));
            (1..parts).for_each(|_| self.alarm.notify_one());
        }
        let mut part = Some(0);
        while let Some(own) = part {
            self.do_part(work, own);
            part = self.take(End::Front);
        }
        self.wait_for(parts);
        let panicked = locked(&self.panicked).take();
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// A part of the call that runs, if there is one left.
    fn take(&self, end: End) -> Option<usize> {
        let without = |state| {
            let (call, front, back) = unpacked(state);
            (front < back).then(|| match end {
                End::Front => packed(call, front + 1, back),
                End::Back => packed(call, front, back - 1),
            })
        };
        let state = &self.published.0.state;
        let before = state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, without).ok()?;
        let (_, front, back) = unpacked(before);
        Some(match end {
            End::Front => front,
            End::Back => back - 1,
        })
    }

    fn do_part(&self, work: &(dyn Fn(usize) + Sync), part: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(part))) {
            locked(&self.panicked).get_or_insert(panic);
        }
        let progress = &self.progress.0;
        progress.done.fetch_add(1, Ordering::SeqCst);
        if progress.caller_sleeps.load(Ordering::SeqCst) {
            drop(locked(&self.bed));
            self.over.notify_one();
        }
    }

    fn wait_for(&self, parts: usize) {
        let progress = &self.progress.0;
        let over = || progress.done.load(Ordering::SeqCst) == parts;
        if !looked_for(over) {
            let mut bed = locked(&self.bed);
            progress.caller_sleeps.store(true, Ordering::SeqCst);
            while !over() {
                bed = self.over.wait(bed).unwrap_or_else(PoisonError::into_inner);
            }
            progress.caller_sleeps.store(false, Ordering::SeqCst);
        }
    }

    fn serve(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            if let Some(part) = self.take(End::Back) {
                // SAFETY: this thread has taken a part of the call, so it stays as it is until that part is done.
                let call = unsafe { &*self.published.0.call.get() };
                let Some(work) = call else { continue };
                // SAFETY: the caller keeps the work alive until all parts are done.
                self.do_part(unsafe { &**work }, part);
            } else if !looked_for(|| self.has_work()) {
                self.sleep();
            }
        }
    }

    fn has_work(&self) -> bool {
        let (_, front, back) = unpacked(self.published.0.state.load(Ordering::SeqCst));
        front < back || self.stop.load(Ordering::SeqCst)
    }

    fn sleep(&self) {
        let mut bed = locked(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !self.has_work() {
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether `found` comes true while a thread may look.
fn looked_for(found: impl Fn() -> bool) -> bool {
    const LOOKS_PER_GLANCE_AT_THE_CLOCK: usize = 32;
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_GLANCE_AT_THE_CLOCK {
            if found() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > LOOKING {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(parts: usize) -> Vec<AtomicUsize> {
        (0..parts).map(|_| AtomicUsize::new(0)).collect()
    }

    #[test]
    fn every_part_runs_once_whether_workers_look_or_sleep() {
        for workers in [0, 1, 3] {
            let pool = Pool::new(workers).unwrap();
            for round in 0..2000 {
                let ran = counts(round % 7);
                pool.run(ran.len(), &|part| {
                    ran[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(ran.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{workers} {round}");
                if round % 500 == 0 {
                    // Long enough that all lie down.
                    std::thread::sleep(2 * LOOKING);
                }
            }
        }
    }

    #[test]
    fn callers_at_the_same_time_get_their_own_results() {
        let pool = Pool::new(2).unwrap();
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let ran = counts(1 + (caller + round) % 5);
                        pool.run(ran.len(), &|part| {
                            ran[part].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(ran.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn a_worker_takes_part_and_its_panic_reaches_the_caller() {
        let pool = Pool::new(1).unwrap();
        let both = std::sync::Barrier::new(2);
        pool.run(2, &|_| {
            both.wait();
        });
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            pool.run(2, &|part| {
                both.wait();
                assert!(part == 0, "thrown by part {part}");
            });
        }));
        assert_eq!(*thrown.unwrap_err().downcast::<String>().unwrap(), "thrown by part 1");
        pool.run(2, &|_| {
            both.wait();
        });
    }

    #[test]
    fn a_long_part_lets_its_caller_sleep() {
        let pool = Pool::new(1).unwrap();
        let both = std::sync::Barrier::new(2);
        let start = Instant::now();
        pool.run(2, &|part| {
            both.wait();
            if part == 1 {
                std::thread::sleep(200 * LOOKING);
            }
        });
        assert!(start.elapsed() >= 200 * LOOKING);
    }
}
