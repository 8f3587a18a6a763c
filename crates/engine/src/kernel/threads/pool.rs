//! Worker threads for calls of some microseconds.
//!
//! A call is a number of *parts*. The caller publishes it and takes parts itself, as do the workers that are awake; no
//! call waits for a sleeping worker. A worker without work spins for a moment before it sleeps, so that consecutive
//! calls are shared at once: handing over a part then costs one cache-line transfer, while waking a thread costs as
//! much as coding half a megabyte. Parts are taken from the same two ends in every call, so a core finds the data of
//! its previous call in its cache.
//!
//! ```text
//! state   number of the call | front | back     one word: the thread that moves an end owns the part it has passed
//! caller  writes the call, publishes `state` with part 0 taken, takes parts from the front, waits for all parts
//! worker  takes a part from the back, reads the call, runs it, counts the part as complete
//! ```
//!
//! Fetching a line that another core wrote last takes longer than a hundred products, so (1) state private to callers,
//! state that workers only read, the call and the count of parts have separate cache lines; (2) the caller waits for no
//! line before its own part: it knows the numbers that it publishes, and counts its parts itself; (3) a worker
//! prefetches the captures of the call while it takes its part.

use super::locked;
use crate::tuning::{RECHECK_AFTER, SPIN_TIME};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Maximum bytes of captures that are prefetched.
const MOST_CAPTURED: usize = 1024;

/// Maximum parts of a call.
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
    /// Held by the caller while its call runs.
    call_state: Line<Mutex<CallState>>,
    workers: Line<Workers>,
    sleep_lock: Mutex<()>,
    /// Signals a new call.
    work_ready: Condvar,
    /// Signals a completed part to a sleeping caller.
    part_done: Condvar,
    panicked: Mutex<Option<Panic>>,
}

/// State passed from one caller to the next.
#[derive(Default)]
struct CallState {
    calls: u64,
    /// Parts completed by workers.
    done: usize,
}

/// Written rarely, read often by all threads.
struct Workers {
    stop: AtomicBool,
    sleepers: AtomicUsize,
}

/// Padding to separate cache lines; two, because the adjacent-line prefetcher fetches pairs.
#[repr(align(128))]
struct Line<T>(T);

/// Everything a worker needs to start, in one line.
struct Published {
    state: AtomicU64,
    /// Written by the caller before it publishes `state`; read only by a thread that has taken a part.
    call: UnsafeCell<Option<Call>>,
    /// Address and size of the captures of the work, as a prefetch hint.
    captured: (AtomicPtr<u8>, AtomicUsize),
}

struct Progress {
    /// Parts completed by workers, over all calls.
    done: AtomicUsize,
    caller_sleeps: AtomicBool,
    panicked: AtomicBool,
}

type Call = *const (dyn Fn(usize) + Sync);

// SAFETY: `call` is written while no part of any call is outstanding (its writer holds `call_state` and has waited for
// the previous call), and read after taking a part, which happens after the write through `state`. The work behind the
// pointer is Sync.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The two ends of the remaining parts of a call.
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
    /// Creates a pool of `workers` threads in addition to the callers.
    pub(super) fn new(workers: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            published: Line(Published {
                state: AtomicU64::new(0),
                call: UnsafeCell::new(None),
                captured: (AtomicPtr::default(), AtomicUsize::new(0)),
            }),
            progress: Line(Progress {
                done: AtomicUsize::new(0),
                caller_sleeps: AtomicBool::new(false),
                panicked: AtomicBool::new(false),
            }),
            call_state: Line(Mutex::default()),
            workers: Line(Workers { stop: AtomicBool::new(false), sleepers: AtomicUsize::new(0) }),
            sleep_lock: Mutex::new(()),
            work_ready: Condvar::new(),
            part_done: Condvar::new(),
            panicked: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::with_capacity(workers) };
        for index in 0..workers {
            let shared = pool.shared.clone();
            let named = std::thread::Builder::new().name(format!("gabion-{index}"));
            pool.workers.push(named.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// Runs `work` for every part below `parts`, on this thread and on idle workers. While another thread's call runs,
    /// this one runs all parts itself.
    pub(super) fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        let call_state = match self.shared.call_state.0.try_lock() {
            Ok(call_state) => Some(call_state),
            // A previous call panicked after it had published its parts.
            Err(TryLockError::Poisoned(call_state)) => Some(call_state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match call_state {
            Some(call_state) if (2..=MOST_PARTS).contains(&parts) => {
                self.shared.share(parts, work, call_state)
            }
            _ => (0..parts).for_each(work),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.workers.0.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.shared.sleep_lock));
        self.shared.work_ready.notify_all();
        // Workers catch panics of their work, so they end normally.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

impl Shared {
    fn share(&self, parts: usize, work: &(dyn Fn(usize) + Sync), mut call_state: MutexGuard<'_, CallState>) {
        let Published { state, call, captured } = &self.published.0;
        captured.0.store((&raw const *work).cast::<u8>().cast_mut(), Ordering::Relaxed);
        captured.1.store(size_of_val(work), Ordering::Relaxed);
        // SAFETY: only the lifetime changes. A reader of the pointer has taken a part, and this function does not
        // return before all parts are complete.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: no part is outstanding, so there is no reader; `call_state` excludes other writers.
        unsafe { *call.get() = Some(work) };
        call_state.calls = call_state.calls.wrapping_add(1);
        state.store(packed(call_state.calls, 1, parts), Ordering::Release);
        if self.workers.0.sleepers.load(Ordering::Relaxed) > 0 {
            // A worker that goes to sleep holds this mutex until it waits, and checks `state` before.
            drop(locked(&self.sleep_lock));
            (1..parts).for_each(|_| self.work_ready.notify_one());
        }
        let (mut part, mut own) = (Some(0), 0);
        while let Some(index) = part {
            self.do_part(work, index);
            own += 1;
            // If workers have completed all other parts, `state` need not be fetched to know that none is left.
            let others = call_state.done.wrapping_add(parts - own);
            let all_done = self.progress.0.done.load(Ordering::SeqCst) == others;
            part = if all_done { None } else { self.take(End::Front) };
        }
        call_state.done = call_state.done.wrapping_add(parts - own);
        self.wait_for(call_state.done);
        let panicked = &self.progress.0.panicked;
        if panicked.load(Ordering::SeqCst) {
            panicked.store(false, Ordering::SeqCst);
            let panic = locked(&self.panicked).take();
            drop(call_state);
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
        }
    }

    /// Takes a part of the current call, if one is left.
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
            self.progress.0.panicked.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until workers have completed this many parts over all calls.
    fn wait_for(&self, done: usize) {
        let progress = &self.progress.0;
        let over = || progress.done.load(Ordering::SeqCst) == done;
        if !spin_until(over) {
            let mut sleep_lock = locked(&self.sleep_lock);
            progress.caller_sleeps.store(true, Ordering::SeqCst);
            while !over() {
                sleep_lock = self.part_done.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
            }
            progress.caller_sleeps.store(false, Ordering::SeqCst);
        }
    }

    fn serve(&self) {
        while !self.stops() {
            if self.has_parts() {
                self.prefetch_captured();
            }
            if let Some(part) = self.take(End::Back) {
                // SAFETY: this thread has taken a part of the call, so it is not changed until that part is complete.
                let call = unsafe { &*self.published.0.call.get() };
                let Some(work) = call else { continue };
                // SAFETY: the caller keeps the work alive until all parts are complete.
                self.do_part(unsafe { &**work }, part);
                self.count_part();
            } else if !spin_until(|| self.has_parts() || self.stops()) {
                self.sleep();
            }
        }
    }

    /// Counts a completed part; the caller may continue from here on.
    fn count_part(&self) {
        let progress = &self.progress.0;
        progress.done.fetch_add(1, Ordering::SeqCst);
        if progress.caller_sleeps.load(Ordering::SeqCst) {
            drop(locked(&self.sleep_lock));
            self.part_done.notify_one();
        }
    }

    /// The captures may belong to another call, or be freed, by the time of the prefetch: nothing is read here.
    fn prefetch_captured(&self) {
        let (place, bytes) = &self.published.0.captured;
        let (place, bytes) = (place.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        (0..bytes.min(MOST_CAPTURED)).step_by(64).for_each(|at| prefetch(place.wrapping_add(at)));
    }

    fn has_parts(&self) -> bool {
        let (_, front, back) = unpacked(self.published.0.state.load(Ordering::Acquire));
        front < back
    }

    fn stops(&self) -> bool {
        self.workers.0.stop.load(Ordering::SeqCst)
    }

    fn sleep(&self) {
        let awake = || self.has_parts() || self.stops();
        let mut sleep_lock = locked(&self.sleep_lock);
        self.workers.0.sleepers.fetch_add(1, Ordering::SeqCst);
        if !awake() {
            // A call published at the same moment may not have seen the sleeper, nor the sleeper the call.
            let (again, _) = self
                .work_ready
                .wait_timeout(sleep_lock, RECHECK_AFTER)
                .unwrap_or_else(PoisonError::into_inner);
            sleep_lock = again;
        }
        while !awake() {
            sleep_lock = self.work_ready.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.workers.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Prefetches the cache line at an address, which need not be readable.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect and never faults; every x86-64 CPU has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Spins until `found` is true or the spin time is over; returns whether it became true.
fn spin_until(found: impl Fn() -> bool) -> bool {
    const SPINS_PER_CLOCK_READ: usize = 32;
    let mut start = None;
    loop {
        for _ in 0..SPINS_PER_CLOCK_READ {
            if found() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN_TIME {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
