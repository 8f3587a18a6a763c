//! Thread pool for kernels: a call is split into byte ranges, and each thread runs the kernel over its range.

mod pool;

use super::Kernel;
use crate::error::Error;
use crate::tuning::{
    HANDOVER_BYTES, MANY_BLOCKS, MIN_BYTES_PER_THREAD, RANGE_ALIGNMENT, RANGE_ALIGNMENT_OF_MANY,
};
use pool::Pool;
use std::fmt;
use std::ops::Range;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum threads of a pool; a larger number is a mistake on any machine.
pub const MAX_THREADS: usize = 4096;

/// A pool of worker threads.
pub struct Threads {
    count: usize,
    /// `None` for a single thread, the caller's.
    pool: Option<Pool>,
}

impl Threads {
    /// Creates a pool of `count` threads; 0 means the available parallelism of the process.
    ///
    /// # Errors
    /// [`Error::Threads`] if the threads cannot be started, or above [`MAX_THREADS`].
    pub fn new(count: usize) -> Result<Threads, Error> {
        let available = || std::thread::available_parallelism().map_or(1, |count| count.get());
        let count = if count == 0 { available() } else { count };
        if count == 1 {
            return Ok(Threads { count, pool: None });
        }
        let refused = |reason| Error::Threads { threads: count, reason };
        if count > MAX_THREADS {
            return Err(refused(format!("a pool has at most {MAX_THREADS}")));
        }
        let pool = Pool::new(count - 1).map_err(|error| refused(error.to_string()))?;
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
    #[inline]
    pub fn run(
        &self,
        kernel: &dyn Kernel,
        granule: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        match self.pool {
            None => kernel.run_part(0, inputs, outputs),
            Some(_) => self.run_ranges(kernel, granule, inputs, outputs),
        }
    }

    fn run_ranges(
        &self,
        kernel: &dyn Kernel,
        granule: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let ranges = self.ranges(granule, HANDOVER_BYTES, inputs, outputs);
        let total_len = ranges.total_len;
        let failure = Mutex::new(None);
        // Only a failing range accesses shared state.
        let failed = &failure;
        self.for_ranges(ranges, inputs, outputs, move |_, inputs, outputs| {
            if let Err(error) = kernel.run_part(total_len, inputs, outputs) {
                locked(failed).get_or_insert(error);
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// The results of `work` for every range of the buffers, in order. All ranges but the last have the same length, a
    /// multiple of `granule`.
    pub(crate) fn map_ranges<T: Send>(
        &self,
        granule: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        work: impl Fn(&[&[u8]], &mut [&mut [u8]]) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let ranges = self.ranges(granule, 0, inputs, outputs);
        let results: Vec<Mutex<Option<Result<T, Error>>>> =
            (0..ranges.count).map(|_| Mutex::default()).collect();
        self.for_ranges(ranges, inputs, outputs, |index, inputs, outputs| {
            *locked(&results[index]) = Some(work(inputs, outputs));
        });
        let results =
            results.into_iter().map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner));
        results.flatten().collect()
    }

    /// One range per thread, the first one longer by about `lead` bytes over all blocks; or a single range.
    fn ranges(&self, granule: usize, lead: usize, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Ranges {
        let mut lengths =
            inputs.iter().map(|input| input.len()).chain(outputs.iter().map(|output| output.len()));
        let total_len = lengths.next().unwrap_or(0);
        let blocks = inputs.len() + outputs.len();
        let total = total_len.saturating_mul(blocks);
        let threads = self.count.min(total / MIN_BYTES_PER_THREAD);
        // The kernel refuses buffers that do not fit.
        if threads < 2 || lengths.any(|length| length != total_len) {
            return Ranges { total_len, first: total_len, size: total_len, count: 1 };
        }
        let alignment = if blocks < MANY_BLOCKS { RANGE_ALIGNMENT } else { RANGE_ALIGNMENT_OF_MANY };
        let unit = granule.max(1) * alignment.div_ceil(granule.max(1));
        // Rounded to the nearest multiple, which is 0 for a large unit.
        let lead = (lead / blocks + unit / 2) / unit * unit;
        let size = total_len.saturating_sub(lead).div_ceil(threads).next_multiple_of(unit).max(unit);
        let first = total_len.min(lead + size);
        Ranges { total_len, first, size, count: 1 + (total_len - first).div_ceil(size) }
    }

    fn for_ranges(
        &self,
        ranges: Ranges,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        work: impl Fn(usize, &[&[u8]], &mut [&mut [u8]]) + Sync,
    ) {
        let Some(pool) = self.pool.as_ref().filter(|_| ranges.count > 1) else {
            return work(0, inputs, outputs);
        };
        let (count, blocks) = (inputs.len(), Blocks::new(inputs, outputs));
        // All captured by value: prefetching the closure gives a worker everything except the blocks.
        pool.run(ranges.count, &move |index| {
            let range = ranges.at(index);
            let (inputs, outputs) = blocks.starts().split_at(count);
            // SAFETY: all buffers have `total_len` bytes and stay borrowed by the caller, inputs for reading and
            // outputs for writing; ranges are disjoint and each runs once.
            let input =
                |start: &Start| unsafe { slice::from_raw_parts(start.0.add(range.start), range.len()) };
            let output = |start: &Start| {
                // SAFETY: as above.
                unsafe { slice::from_raw_parts_mut(start.0.add(range.start), range.len()) }
            };
            let mut few: ([&[u8]; FEW_BLOCKS], [&mut [u8]; FEW_BLOCKS]) =
                (std::array::from_fn(|_| &[][..]), std::array::from_fn(|_| &mut [][..]));
            if let (Some(of_inputs), Some(of_outputs)) =
                (few.0.get_mut(..inputs.len()), few.1.get_mut(..outputs.len()))
            {
                of_inputs.iter_mut().zip(inputs).for_each(|(slice, start)| *slice = input(start));
                of_outputs.iter_mut().zip(outputs).for_each(|(slice, start)| *slice = output(start));
                return work(index, of_inputs, of_outputs);
            }
            let inputs: Vec<&[u8]> = inputs.iter().map(input).collect();
            let mut outputs: Vec<&mut [u8]> = outputs.iter().map(output).collect();
            work(index, &inputs, &mut outputs);
        });
    }
}

/// Blocks whose addresses are stored inline in a call.
const FEW_BLOCKS: usize = 32;

/// Start address of a block.
#[derive(Clone, Copy)]
struct Start(*mut u8);

// SAFETY: threads read inputs and create slices of disjoint ranges of outputs only.
unsafe impl Sync for Start {}

/// Start addresses of the blocks of a call, inputs first.
struct Blocks {
    count: usize,
    few: [Start; FEW_BLOCKS],
    /// All addresses, if they are more.
    many: Vec<Start>,
}

impl Blocks {
    fn new(inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Blocks {
        let count = inputs.len() + outputs.len();
        let inputs = inputs.iter().map(|input| Start(input.as_ptr().cast_mut()));
        let starts = inputs.chain(outputs.iter_mut().map(|output| Start(output.as_mut_ptr())));
        let (mut few, mut many) = ([Start(std::ptr::null_mut()); FEW_BLOCKS], Vec::new());
        match few.get_mut(..count) {
            Some(few) => few.iter_mut().zip(starts).for_each(|(place, start)| *place = start),
            None => many.extend(starts),
        }
        Blocks { count, few, many }
    }

    fn starts(&self) -> &[Start] {
        self.few.get(..self.count).unwrap_or(&self.many)
    }
}

/// Partition of the bytes of a call into `count` ranges: the first of `first` bytes, the others of `size`, the last
/// possibly shorter. More than one only if all buffers have `total_len` bytes.
#[derive(Clone, Copy)]
struct Ranges {
    total_len: usize,
    first: usize,
    size: usize,
    count: usize,
}

impl Ranges {
    fn at(&self, index: usize) -> Range<usize> {
        let end = self.first + index * self.size;
        let start = if index == 0 { 0 } else { end - self.size };
        start..end.min(self.total_len)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.count)
    }
}

#[cfg(test)]
mod tests;
