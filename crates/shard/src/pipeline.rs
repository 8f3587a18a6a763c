//! Pipeline: stripes are processed in parallel and delivered in order, in bounded memory.
//!
//! A worker takes a free buffer, claims the next stripe (one worker at a time, so that a stream can be read there),
//! processes it and hands it over; the caller's thread takes stripes in order and returns the buffer. Reading, coding
//! and writing of different stripes overlap, and a stripe stays on one core and in its cache. The number of buffers
//! bounds memory, whatever the size of the file.

use crate::error::Error;
use gabion_engine::backends::{Backends, PlanKernel};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

/// Most workers: beyond this, disks and page cache are the limit.
const MAX_WORKERS: usize = 16;

/// Bytes of buffers, above which workers are saved, down to two.
const BUFFER_BUDGET: u64 = 256 << 20;

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A new pass over so many bytes, if that is known.
    Pass(&'static str, Option<u64>),
    /// So many bytes more are done.
    Bytes(u64),
}

/// Context of a run: threads, cancellation, progress and back end.
pub struct Run<'a> {
    /// Number of threads, 0 for all there are.
    pub threads: usize,
    /// Set by the caller to stop at the next stripe.
    pub stop: &'a AtomicBool,
    /// Called as work proceeds.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Chooses the back end that computes.
    pub backends: &'a Arc<dyn Backends>,
}

impl Run<'_> {
    /// # Errors
    /// [`Error::Interrupted`] once the stop flag is set.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Workers for stripes of this many bytes; one more than threads, since some wait for disks.
    pub(crate) fn workers(&self, stripe_bytes: u64) -> usize {
        let available = || thread::available_parallelism().map_or(1, |count| count.get());
        let threads = if self.threads == 0 { available() } else { self.threads };
        let affordable = (BUFFER_BUDGET / stripe_bytes.max(1)).saturating_sub(1).max(2);
        (threads + 1).min(MAX_WORKERS).min(usize::try_from(affordable).unwrap_or(MAX_WORKERS))
    }
}

/// State that workers share: the free buffers, the number of the next stripe, and the claim.
struct Claims<B, C> {
    free: Receiver<B>,
    next: u64,
    claim: C,
    closed: bool,
}

/// Runs `claim` in order by one thread at a time, `work` in parallel and `finish` in order on this thread, for the
/// stripes 0, 1, … until `claim` returns false. Returns their number.
///
/// # Errors
/// The first error in the order of stripes; workers end at their next stripe then.
pub(crate) fn for_each_stripe<B: Send>(
    workers: usize,
    new_buffer: impl Fn() -> B,
    claim: impl FnMut(u64, &mut B) -> Result<bool, Error> + Send,
    work: impl Fn(u64, &mut B) -> Result<(), Error> + Sync,
    mut finish: impl FnMut(u64, &mut B) -> Result<(), Error>,
) -> Result<u64, Error> {
    let buffers = workers + 1;
    let (give_back, free) = mpsc::sync_channel(buffers);
    for _ in 0..buffers {
        // Capacity for all: never blocks, and the receiver is right here.
        let _ = give_back.send(new_buffer());
    }
    let claims = Mutex::new(Claims { free, next: 0, claim, closed: false });
    let (claims, work) = (&claims, &work);
    thread::scope(move |scope| {
        let (hand_over, handed_over) = mpsc::sync_channel(buffers + workers);
        for _ in 0..workers {
            let hand_over = hand_over.clone();
            scope.spawn(move || {
                while let Some((stripe, claimed)) = claim_next(claims) {
                    let result = claimed.and_then(|mut buffer| {
                        let worked = catch_unwind(AssertUnwindSafe(|| work(stripe, &mut buffer)));
                        // Otherwise the caller would wait for this stripe for ever.
                        worked.unwrap_or_else(|panic| {
                            let _ = hand_over.send((stripe, Err(Error::Panicked { stripe })));
                            resume_unwind(panic)
                        })?;
                        Ok(buffer)
                    });
                    if hand_over.send((stripe, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(hand_over);
        // Both ends live in this closure: when it returns early, workers find them gone and end.
        let give_back = give_back;
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (stripe, result) in handed_over {
            early.insert(stripe, result);
            while let Some(result) = early.remove(&next) {
                let mut buffer = result?;
                finish(next, &mut buffer)?;
                next += 1;
                let _ = give_back.send(buffer);
            }
        }
        Ok(next)
    })
}

/// The next stripe with its buffer, or the error of its claim; none at the end.
fn claim_next<B, C>(claims: &Mutex<Claims<B, C>>) -> Option<(u64, Result<B, Error>)>
where
    C: FnMut(u64, &mut B) -> Result<bool, Error>,
{
    let mut claims = claims.lock().ok()?;
    if claims.closed {
        return None;
    }
    let mut buffer = claims.free.recv().ok()?;
    let stripe = claims.next;
    match (claims.claim)(stripe, &mut buffer) {
        Ok(true) => {
            claims.next += 1;
            Some((stripe, Ok(buffer)))
        }
        Ok(false) => {
            claims.closed = true;
            None
        }
        Err(error) => {
            claims.closed = true;
            Some((stripe, Err(error)))
        }
    }
}

/// The blocks of one stripe in one allocation, each with room for its seal after it.
pub(crate) struct Slots {
    bytes: Vec<u8>,
    stride: usize,
}

impl Slots {
    /// `count` blocks of up to `longest` bytes. Zeroed by the system when first touched: slots
    /// that are never used cost nothing.
    pub(crate) fn new(count: usize, longest: usize) -> Slots {
        // Room for a seal, and a cache line's alignment from one slot to the next.
        let stride = (longest + crate::frame::SEAL_BYTES).next_multiple_of(64);
        Slots { bytes: vec![0; count * stride], stride }
    }

    /// One slot, longer than any frame.
    pub(crate) fn slot(&mut self, column: usize) -> &mut [u8] {
        &mut self.bytes[column * self.stride..][..self.stride]
    }

    /// The block in a slot.
    pub(crate) fn block(&self, column: usize, len: usize) -> &[u8] {
        &self.bytes[column * self.stride..][..len]
    }

    /// Runs a compiled plan over the slots of its columns.
    pub(crate) fn apply(&mut self, plan: &PlanKernel, len: usize) -> Result<(), gabion_engine::Error> {
        let slots = self.bytes.chunks_mut(self.stride);
        let mut slots: Vec<Option<&mut [u8]>> = slots.map(|slot| Some(&mut slot[..len])).collect();
        let (inputs, outputs) = (plan.plan().inputs(), plan.plan().outputs());
        // Inputs and outputs of a plan are different columns, each named once.
        let mut take = |columns: &[usize]| -> Vec<&mut [u8]> {
            columns.iter().filter_map(|&column| slots.get_mut(column)?.take()).collect()
        };
        let mut written = take(outputs);
        let read = take(inputs);
        let read: Vec<&[u8]> = read.iter().map(|block| &**block).collect();
        plan.run(&read, &mut written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_come_in_order_and_buffers_are_reused() {
        let mut seen = Vec::new();
        let total = for_each_stripe(
            4,
            Vec::new,
            |stripe, buffer: &mut Vec<u64>| {
                buffer.push(stripe);
                Ok(stripe < 1000)
            },
            |stripe, buffer| {
                if stripe % 7 == 0 {
                    thread::yield_now();
                }
                assert_eq!(buffer.last(), Some(&stripe));
                Ok(())
            },
            |stripe, _| {
                seen.push(stripe);
                Ok(())
            },
        );
        assert_eq!(total.unwrap(), 1000);
        assert_eq!(seen, (0..1000).collect::<Vec<u64>>());
    }

    #[test]
    fn errors_of_every_stage_end_the_run() {
        let fail = |at: u64, stripe| if stripe == at { Err(Error::Unsound { stripe }) } else { Ok(()) };
        for (claim, work, finish) in [(5, 99, 99), (99, 5, 99), (99, 99, 5)] {
            let result = for_each_stripe(
                3,
                || (),
                |stripe, ()| fail(claim, stripe).map(|()| true),
                |stripe, ()| fail(work, stripe),
                |stripe, ()| fail(finish, stripe),
            );
            assert!(matches!(result, Err(Error::Unsound { stripe: 5 })), "{result:?}");
        }
    }

    #[test]
    fn a_panic_is_passed_on_and_does_not_hang() {
        let run = || {
            for_each_stripe(
                3,
                || (),
                |_, ()| Ok(true),
                |s, ()| if s == 9 { panic!("as meant") } else { Ok(()) },
                |_, ()| Ok(()),
            )
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }
}
