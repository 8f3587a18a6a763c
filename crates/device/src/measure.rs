//! Rate of a back end for a job: every thread codes stripes of its own, as the shard tool and the vault do.

use super::DeviceError;
use gabion_engine::Plan;
use gabion_engine::backends::Job;
use gabion_engine::kernel::{Backend, Kernel};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Result of a measurement.
pub(super) struct Measured {
    /// Bytes of data per second.
    pub(super) rate: f64,
    /// Seconds from the plan to a first result.
    pub(super) startup: f64,
}

/// Duration of a measurement: some hundred stripes.
const TIME: Duration = Duration::from_millis(200);

/// Runs `work`; returns its result and the seconds it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed().as_secs_f64())
}

/// Compiles the plan and runs it on all threads of the job for [`TIME`].
pub(super) fn measure(backend: &dyn Backend, plan: &Plan, job: &Job<'_>) -> Result<Measured, DeviceError> {
    let began = Instant::now();
    let kernel = backend.compile(plan)?;
    let mut stripes: Vec<Stripe> = (0..job.threads.max(1)).map(|seed| Stripe::new(plan, job, seed)).collect();
    // The first run includes page faults and lazily compiled code.
    stripes[0].run(&*kernel)?;
    let startup = began.elapsed().as_secs_f64();
    stripes.iter_mut().try_for_each(|stripe| stripe.run(&*kernel))?;
    let (stop, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let failed: Mutex<Option<gabion_engine::Error>> = Mutex::new(None);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for stripe in &mut stripes {
            scope.spawn(|| {
                // A thread that starts late runs once, so that no rate is 0.
                loop {
                    match stripe.run(&*kernel) {
                        Ok(()) => runs.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            return stop.store(true, Ordering::Relaxed);
                        }
                    };
                    if stop.load(Ordering::Relaxed) || began.elapsed() >= TIME {
                        return;
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    let bytes = runs.into_inner() as f64 * (plan.inputs().len() * block(plan, job)) as f64;
    Ok(Measured { rate: bytes / seconds, startup })
}

fn block(plan: &Plan, job: &Job<'_>) -> usize {
    job.block.max(1).next_multiple_of(plan.granule())
}

/// The blocks of one thread.
struct Stripe {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Stripe {
    fn new(plan: &Plan, job: &Job<'_>, seed: usize) -> Stripe {
        // Times do not depend on the bytes.
        let blocks = |count: usize| -> Vec<Vec<u8>> {
            (0..count).map(|column| vec![(seed * count + column) as u8; block(plan, job)]).collect()
        };
        Stripe { inputs: blocks(plan.inputs().len()), outputs: blocks(plan.outputs().len()) }
    }

    fn run(&mut self, kernel: &dyn Kernel) -> Result<(), gabion_engine::Error> {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(|block| &block[..]).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(|block| &mut block[..]).collect();
        kernel.run(&inputs, &mut outputs)
    }
}
