//! Two threads: ours against one thread, against ISA-L on two halves, and against the memory bandwidth of two cores.

use std::time::{Duration, Instant};

use gabion_engine::kernel::Threads;

use super::bars::{ISAL, ONE_THREAD};
use super::cases::{Choice, LARGE, Shape};
use super::encode::{LimitedBy, check_encoder, limits};
use super::race::{Contender, Timing, race_in_batches};
use crate::blocks::Blocks;
use crate::isal::{self, Encoder, Path};
use crate::ours::{self, Ours, run_again};

/// Length of a batch: the contender before left blocks in the caches of other cores, and fetching them back must be
/// negligible.
const BATCH: Duration = Duration::from_millis(2);

type Outputs<'a> = Vec<&'a mut [u8]>;

/// Encodes with the default code on two threads and races.
pub(super) fn two_threads((k, m): Shape, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("two threads", k, len);
    let data = stripe.as_slices();
    let mut out = Blocks::zeroed(m, len);
    let mut outputs = out.as_mut_slices();
    let code = ours::code(&Choice::Default.identity((k, m)))?;
    let [two, one] = [2, 1].map(|count| Ours::on_threads(count)?.encoder(&code));
    let (two, one) = (two?, one?);
    check_encoder(&one, &code, &data, &mut outputs)?;
    check_encoder(&two, &code, &data, &mut outputs)?;

    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let isal = Encoder::new(Path::Dispatched, k, m, &rows);
    let workers = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    let pool = Threads::new(2)?;
    let mut contenders = vec![
        Contender::new("gabion", |out: &mut Outputs<'_>| run_again(&two, &data, out)),
        Contender::new(ISAL, |out: &mut Outputs<'_>| on_halves(&workers, &isal, &data, out)),
        Contender::new(ONE_THREAD, |out: &mut Outputs<'_>| run_again(&one, &data, out)),
    ];
    // In cache the limit is twice one thread's speed.
    if len == LARGE {
        contenders.extend(limits((k, m), LimitedBy::Memory, &data, &pool, Vec::as_mut_slice)?);
    }
    Ok(race_in_batches(contenders, &mut outputs, BATCH, end))
}

/// ISA-L called on the two halves of every block, by two threads.
fn on_halves(workers: &rayon::ThreadPool, isal: &Encoder, data: &[&[u8]], out: &mut [&mut [u8]]) {
    // Whole cache lines for each, or the threads would share one.
    let half = (data[0].len() / 2).next_multiple_of(64);
    let (low, high): (Vec<&[u8]>, Vec<&[u8]>) = data.iter().map(|block| block.split_at(half)).unzip();
    let (mut low_out, mut high_out): (Outputs<'_>, Outputs<'_>) =
        out.iter_mut().map(|block| block.split_at_mut(half)).unzip();
    workers.install(|| rayon::join(|| isal.encode(&low, &mut low_out), || isal.encode(&high, &mut high_out)));
}
