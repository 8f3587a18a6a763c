//! Workers for calls of some microseconds.
//!
//! A call is a number of *parts*. Whoever calls publishes it and takes parts itself, as do workers that are awake;
//! nobody waits for a worker that is not. A worker that runs out of work looks for more for a moment before it sleeps,
//! so that calls in a row are shared at once: handing a part over then costs a transfer of a cache line, where waking a
//! thread costs as much as coding half a megabyte. From the same two ends every time: a core finds in its cache what it
//! worked on in the call before.
//!
//! ```text
//! state   number of the call | front | back        one word: who moves an end owns the part it has passed
//! caller  writes the call, publishes `state` with part 0 taken, takes parts from the front, waits until all are done
//! worker  takes a part from the back, reads the call, works, counts the part as done
//! ```
//!
//! A line that the other core wrote last takes longer to come than a hundred products, so
//! (1) what callers write for themselves, what workers only read, the call and the count of parts have lines of their
//!     own;
//! (2) the caller waits for no line before its own part: it knows the numbers that it publishes, and counts its parts
//!     itself;
//! (3) a worker asks for what the call captured while it takes its part.

use super::locked;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for work, or for the end of a call, before it sleeps. A few calls' time: longer would take
/// the core from others.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// When a worker that lies down looks once more.
const RECHECK_AFTER: Duration = Duration::from_millis(1);

/// Bytes of what a call captured that are asked for at most.
const MOST_CAPTURED: usize = 1024;

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
    turn: Line<Mutex<Turn>>,
    workers: Line<Workers>,
    bed: Mutex<()>,
    /// There is a call.
    alarm: Condvar,
    /// A part is over, and its caller sleeps.
    over: Condvar,
    panicked: Mutex<Option<Panic>>,
}

/// What the next caller has to know of the calls before.
#[derive(Default)]
struct Turn {
    calls: u64,
    /// Parts that workers have done.
    done: usize,
}

/// Written rarely: all look at it all the time.
struct Workers {
    stop: AtomicBool,
    sleepers: AtomicUsize,
}

/// Cache lines of its own, as the prefetcher brings two.
#[repr(align(128))]
struct Line<T>(T);

/// What a worker needs to begin, in one line.
struct Published {
    state: AtomicU64,
    /// Written by the one caller before it publishes `state`; read only by who has taken a part.
    call: UnsafeCell<Option<Call>>,
    /// Where the work keeps what it captured, and how many bytes: a hint.
    captured: (AtomicPtr<u8>, AtomicUsize),
}

struct Progress {
    /// Parts that workers have done, of all calls.
    done: AtomicUsize,
    caller_sleeps: AtomicBool,
    panicked: AtomicBool,
}

type Call = *const (dyn Fn(usize) + Sync);

// SAFETY: `call` is written while no part of any call is out (its writer holds `turn` and has waited for the call
// before), and read after taking a part, which happens after the writing through `state`. The work behind the pointer
// is Sync.
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
            turn: Line(Mutex::default()),
            workers: Line(Workers { stop: AtomicBool::new(false), sleepers: AtomicUsize::new(0) }),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
            over: Condvar::new(),
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

    /// Runs `work` for every part below `parts`, on this thread and on workers that have time. While another thread has
    /// its call here, this one does all by itself.
    pub(super) fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        let turn = match self.shared.turn.0.try_lock() {
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
        self.shared.workers.0.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.shared.bed));
        self.shared.alarm.notify_all();
        // A worker catches what its work throws, so it ends well.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

impl Shared {
    fn share(&self, parts: usize, work: &(dyn Fn(usize) + Sync), mut turn: MutexGuard<'_, Turn>) {
        let Published { state, call, captured } = &self.published.0;
        captured.0.store((&raw const *work).cast::<u8>().cast_mut(), Ordering::Relaxed);
        captured.1.store(size_of_val(work), Ordering::Relaxed);
        // SAFETY: only the lifetime changes. Who reads the pointer has taken a part, and this function does not return
        // before all parts are done.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: no part is out, so nobody reads; `turn` keeps other writers away.
        unsafe { *call.get() = Some(work) };
        turn.calls = turn.calls.wrapping_add(1);
        state.store(packed(turn.calls, 1, parts), Ordering::Release);
        if self.workers.0.sleepers.load(Ordering::Relaxed) > 0 {
            // Who is about to lie down holds the bed until it lies, and looks at `state` before.
            drop(locked(&self.bed));
            (1..parts).for_each(|_| self.alarm.notify_one());
        }
        let (mut part, mut own) = (Some(0), 0);
        while let Some(index) = part {
            self.do_part(work, index);
            own += 1;
            // Workers that have done all others need not give `state` back to know that none is left.
            let others = turn.done.wrapping_add(parts - own);
            let all_done = self.progress.0.done.load(Ordering::SeqCst) == others;
            part = if all_done { None } else { self.take(End::Front) };
        }
        turn.done = turn.done.wrapping_add(parts - own);
        self.wait_for(turn.done);
        let panicked = &self.progress.0.panicked;
        if panicked.load(Ordering::SeqCst) {
            panicked.store(false, Ordering::SeqCst);
            let panic = locked(&self.panicked).take();
            drop(turn);
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
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
            self.progress.0.panicked.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until workers have done so many parts, of all calls.
    fn wait_for(&self, done: usize) {
        let progress = &self.progress.0;
        let over = || progress.done.load(Ordering::SeqCst) == done;
        if !spin_until(over) {
            let mut bed = locked(&self.bed);
            progress.caller_sleeps.store(true, Ordering::SeqCst);
            while !over() {
                bed = self.over.wait(bed).unwrap_or_else(PoisonError::into_inner);
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
                // SAFETY: this thread has taken a part of the call, so it stays as it is until that part is done.
                let call = unsafe { &*self.published.0.call.get() };
                let Some(work) = call else { continue };
                // SAFETY: the caller keeps the work alive until all parts are done.
                self.do_part(unsafe { &**work }, part);
                self.count_part();
            } else if !spin_until(|| self.has_parts() || self.stops()) {
                self.sleep();
            }
        }
    }

    /// A part is done; from here on its caller may go on.
    fn count_part(&self) {
        let progress = &self.progress.0;
        progress.done.fetch_add(1, Ordering::SeqCst);
        if progress.caller_sleeps.load(Ordering::SeqCst) {
            drop(locked(&self.bed));
            self.over.notify_one();
        }
    }

    /// The captures may be another call's, or gone, when they come: nothing of them is read here.
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
        let mut bed = locked(&self.bed);
        self.workers.0.sleepers.fetch_add(1, Ordering::SeqCst);
        if !awake() {
            // A call that was published at this very moment may not have seen the sleeper, nor the sleeper the call.
            let (again, _) =
                self.alarm.wait_timeout(bed, RECHECK_AFTER).unwrap_or_else(PoisonError::into_inner);
            bed = again;
        }
        while !awake() {
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.workers.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Asks for the cache line at an address, which need not be one that may be read.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program could see and never faults; every x86-64 CPU has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Whether `found` comes true while a thread may look.
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
