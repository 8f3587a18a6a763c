//! Pool of the slots of a device, shared by all threads that run kernels on it.
//!
//! The number of slots is limited by the device's options, and each has its share of the memory, so the memory in use
//! is bounded for any number of threads. A thread that finds all slots taken waits for one.

use crate::error::GpuError;
use std::sync::{Condvar, Mutex, PoisonError};

/// All slots of a device, idle or in use.
pub(crate) struct Pool<S> {
    most: usize,
    state: Mutex<State<S>>,
    freed: Condvar,
}

struct State<S> {
    idle: Vec<S>,
    made: usize,
}

impl<S> Pool<S> {
    /// A pool of at most `most` slots, at least one.
    pub(crate) fn new(most: usize) -> Pool<S> {
        let state = State { idle: Vec::new(), made: 0 };
        Pool { most: most.max(1), state: Mutex::new(state), freed: Condvar::new() }
    }

    /// The maximum number of slots.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes between one slot and `wanted`, as many as are free; waits for the first.
    pub(crate) fn take(
        &self,
        wanted: usize,
        make: impl Fn() -> Result<S, GpuError>,
    ) -> Result<Vec<S>, GpuError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = Vec::new();
        loop {
            while slots.len() < wanted.max(1) {
                if let Some(slot) = state.idle.pop() {
                    slots.push(slot);
                } else if state.made < self.most {
                    match make() {
                        Ok(slot) => slots.push(slot),
                        Err(_) if !slots.is_empty() => break,
                        Err(error) => return Err(error),
                    }
                    state.made += 1;
                } else {
                    break;
                }
            }
            if !slots.is_empty() {
                return Ok(slots);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn give_back(&self, slots: Vec<S>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle.extend(slots);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Api;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn there_are_never_more_slots_than_allowed() {
        let pool = Pool::new(3);
        let (made, out) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (pool, made, out) = (&pool, &made, &out);
                scope.spawn(move || {
                    for round in 0..50 {
                        let make = || Ok(made.fetch_add(1, Ordering::Relaxed));
                        let slots = pool.take(1 + (thread + round) % 3, make).unwrap();
                        assert!(out.fetch_add(slots.len(), Ordering::SeqCst) + slots.len() <= 3);
                        std::thread::yield_now();
                        out.fetch_sub(slots.len(), Ordering::SeqCst);
                        pool.give_back(slots);
                    }
                });
            }
        });
        assert!(made.into_inner() <= 3);
    }

    #[test]
    fn a_slot_that_cannot_be_made_is_an_error_and_takes_no_place() {
        let pool: Pool<u8> = Pool::new(1);
        let lost = || GpuError::Memory { api: Api::OpenCl, kind: "device", bytes: 1 };
        assert_eq!(pool.take(2, || Err(lost())), Err(lost()));
        assert_eq!(pool.take(2, || Ok(7)), Ok(vec![7]));
    }
}
