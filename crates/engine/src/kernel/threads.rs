//! Threads split the bytes of a call into ranges; each runs the whole kernel over its range.

use super::Kernel;
use crate::error::Error;
use std::fmt;

/// Bytes of inputs and outputs together below which a range is not worth another thread: waking one
/// costs some microseconds, the time in which one core codes this much.
const MIN_BYTES_PER_THREAD: usize = 256 << 10;

/// Ranges start at multiples of this, so that threads share no page.
const RANGE_ALIGNMENT: usize = 4096;

/// A pool of worker threads.
pub struct Threads {
    count: usize,
    /// None for a single thread: the caller's.
    pool: Option<rayon::ThreadPool>,
}

impl Threads {
    /// A pool of `count` threads; 0 means as many as the process may run at once.
    ///
    /// # Errors
    /// [`Error::Threads`] where the system gives none.
    pub fn new(count: usize) -> Result<Threads, Error> {
        let available = || std::thread::available_parallelism().map_or(1, |count| count.get());
        let count = if count == 0 { available() } else { count };
        if count == 1 {
            return Ok(Threads { count, pool: None });
        }
        let named = rayon::ThreadPoolBuilder::new()
            .num_threads(count - 1)
            .thread_name(|index| format!("gabion-{index}"));
        let pool = named.build();
        let pool = pool.map_err(|error| Error::Threads { threads: count, reason: error.to_string() })?;
        Ok(Threads { count, pool: Some(pool) })
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `kernel` over the buffers, split into ranges that are multiples of `granule`.
    ///
    /// # Errors
    /// As [`Kernel::run`].
    pub fn run(
        &self,
        kernel: &dyn Kernel,
        granule: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.map_ranges(granule, inputs, outputs, |inputs, outputs| kernel.run(inputs, outputs)).map(drop)
    }

    /// What `work` makes of every range of the buffers, in the order of the ranges; all but the last have one length, a
    /// multiple of `granule`.
    pub(crate) fn map_ranges<T: Send>(
        &self,
        granule: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        work: impl Fn(&[&[u8]], &mut [&mut [u8]]) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let Some(pool) = &self.pool else { return Ok(vec![work(inputs, outputs)?]) };
        let len = inputs.first().map_or(0, |input| input.len());
        let uniform =
            inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
        let total = len.saturating_mul(inputs.len() + outputs.len());
        let parts = self.count.min(total / MIN_BYTES_PER_THREAD);
        // Buffers that do not fit are the kernel's to refuse.
        if !uniform || parts < 2 {
            return Ok(vec![work(inputs, outputs)?]);
        }
        let unit = granule.max(1) * RANGE_ALIGNMENT.div_ceil(granule.max(1));
        let range = len.div_ceil(parts).next_multiple_of(unit);
        let ranges = split(inputs, outputs, range);
        let mut results: Vec<Option<Result<T, Error>>> = ranges.iter().map(|_| None).collect();
        let work = |(inputs, mut outputs): Range<'_>| Some(work(&inputs, &mut outputs));
        pool.in_place_scope(|scope| {
            let mut ranges = ranges.into_iter().zip(&mut results);
            // The calling thread takes a range itself: it would only wait otherwise.
            let own = ranges.next_back();
            for (range, result) in ranges {
                scope.spawn(|_| *result = work(range));
            }
            if let Some((range, result)) = own {
                *result = work(range);
            }
        });
        results.into_iter().flatten().collect()
    }
}

type Range<'a> = (Vec<&'a [u8]>, Vec<&'a mut [u8]>);

/// Cuts all buffers into pieces of `size` bytes; the last may be shorter.
fn split<'a>(inputs: &[&'a [u8]], outputs: &'a mut [&mut [u8]], size: usize) -> Vec<Range<'a>> {
    let mut inputs: Vec<_> = inputs.iter().map(|input| input.chunks(size)).collect();
    let mut outputs: Vec<_> = outputs.iter_mut().map(|output| output.chunks_mut(size)).collect();
    let mut ranges = Vec::new();
    loop {
        let range: Range<'a> = (
            inputs.iter_mut().filter_map(|chunks| chunks.next()).collect(),
            outputs.iter_mut().filter_map(|chunks| chunks.next()).collect(),
        );
        if range.0.is_empty() && range.1.is_empty() {
            return ranges;
        }
        ranges.push(range);
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.count)
    }
}
