//! Measurements on an OpenCL device by its own clock.

use super::call;
use super::device::OpenClDevice;
use super::kernel::{Blocks, OpenClKernel};
use super::memory::{begin_download, begin_upload, buffer, queue};
use crate::choice::Form;
use crate::error::GpuError;
use crate::measure::{Measured, MeasuredKernel, Rates, Transfers, compare, whole};
use crate::shape::BlockCopy;
use crate::source::Counts;
use crate::source::method::Variant;
use crate::source::stages::Stage;
use crate::tuning::Tuning;
use gabion_engine::Plan;
use gabion_engine::conformance::TestRng;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::event::Event;
use opencl3::memory::Buffer;
use std::time::Instant;

/// Random blocks on the device, with memory for results.
pub struct BufferBlocks {
    inputs: Buffer<u8>,
    outputs: Buffer<u8>,
    queue: CommandQueue,
    stride: usize,
    len: usize,
    /// Capacity in blocks (inputs, outputs).
    room: (usize, usize),
}

/// Length of the repeated random pattern in device memory: a prime number of words, so that no two blocks are equal.
const PATTERN: usize = 8 * 4_194_301;

const fn flat(bytes: usize) -> BlockCopy {
    BlockCopy::whole(bytes)
}

/// Seconds of each of `passes` commands by the device's clock, after a warm-up command.
fn timed(
    queue: &CommandQueue,
    passes: usize,
    work: impl Fn() -> Result<Event, GpuError>,
) -> Result<Rates, GpuError> {
    let mut seconds = Vec::with_capacity(passes);
    for pass in 0..=passes {
        let event = work()?;
        queue.finish().map_err(super::memory("clFinish", 0))?;
        let clock = call("clGetEventProfilingInfo");
        let (start, end) = (
            event.profiling_command_start().map_err(&clock)?,
            event.profiling_command_end().map_err(&clock)?,
        );
        if pass > 0 {
            seconds.push(end.saturating_sub(start) as f64 / 1e9);
        }
    }
    Ok(Rates::of(seconds))
}

/// The same by the host's clock, for sequences of commands.
fn timed_by_host(passes: usize, work: impl Fn() -> Result<(), GpuError>) -> Result<Rates, GpuError> {
    work()?;
    let once = |_| {
        let began = Instant::now();
        work()?;
        Ok(began.elapsed().as_secs_f64())
    };
    Ok(Rates::of((0..passes).map(once).collect::<Result<_, GpuError>>()?))
}

fn fill(queue: &CommandQueue, to: &Buffer<u8>, bytes: usize, seed: u64) -> Result<(), GpuError> {
    let mut pattern = vec![0; PATTERN.min(bytes)];
    TestRng(seed).fill(&mut pattern);
    for at in (0..bytes).step_by(PATTERN) {
        let piece = &pattern[..pattern.len().min(bytes - at)];
        // SAFETY: the buffer has `bytes` bytes, and the pattern lives until the synchronisation.
        unsafe { begin_upload(queue, to, at, piece, flat(piece.len()))? };
    }
    queue.finish().map_err(super::memory("clFinish", bytes))
}

impl Measured for OpenClDevice {
    type Kernel = OpenClKernel;
    type Host = Vec<u8>;

    fn title(&self) -> String {
        format!("{} ({})", self.info().name, self.info().platform)
    }

    fn memory_bytes(&self) -> u64 {
        self.info().memory
    }

    fn host_kind(&self) -> &'static str {
        "host"
    }

    fn is_cpu(&self) -> bool {
        self.info().kind == "cpu"
    }

    fn specialised(&self, plan: &Plan, tuning: Option<Tuning>) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::specialised(self, plan, tuning)
    }

    fn of_form(&self, plan: &Plan, form: Form) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::of_form(self, plan, form)
    }

    fn at_stage(&self, plan: &Plan, stage: Stage) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::at_stage(self, plan, stage)
    }

    fn multiplies_bits(&self) -> bool {
        false
    }

    fn by_method(&self, plan: &Plan, variant: Variant) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::by_method(self, plan, variant)
    }

    fn host(&self, bytes: usize) -> Result<Vec<u8>, GpuError> {
        Ok(vec![0; bytes])
    }

    fn copy_rate(&self, bytes: usize, passes: usize) -> Result<Rates, GpuError> {
        let (from, mut to) = (buffer(&self.0.context, bytes)?, buffer(&self.0.context, bytes)?);
        let queue = queue(&self.0, CL_QUEUE_PROFILING_ENABLE)?;
        fill(&queue, &from, bytes, 1)?;
        fill(&queue, &to, bytes, 2)?;
        let to = std::cell::RefCell::new(&mut to);
        timed(&queue, passes, || {
            // SAFETY: both buffers are large enough and outlive the synchronisation.
            let copied =
                unsafe { queue.enqueue_copy_buffer(&from, &mut **to.borrow_mut(), 0, 0, bytes, &[]) };
            copied.map_err(super::memory("clEnqueueCopyBuffer", bytes))
        })
    }

    fn transfer_rates(&self, bytes: usize, passes: usize) -> Result<Transfers, GpuError> {
        let memory = buffer(&self.0.context, bytes)?;
        let queue = queue(&self.0, 0)?;
        let mut host = vec![0; bytes];
        TestRng(9).fill(&mut host);
        let done = || queue.finish().map_err(super::memory("clFinish", bytes));
        let up = timed_by_host(passes, || {
            // SAFETY: both sides are large enough and outlive the synchronisation.
            unsafe { begin_upload(&queue, &memory, 0, &host, flat(bytes))? };
            done()
        })?;
        let place = std::cell::RefCell::new(vec![0; bytes]);
        let down = timed_by_host(passes, || {
            // SAFETY: as above.
            unsafe { begin_download(&queue, &mut place.borrow_mut(), &memory, 0, flat(bytes))? };
            done()
        })?;
        let rate = |times: Rates| bytes as f64 / times.median;
        Ok(Transfers { to_device: rate(up), from_device: rate(down) })
    }

    fn both_ways(&self, inward: usize, outward: usize, passes: usize) -> Result<Rates, GpuError> {
        let (to, from) = (buffer(&self.0.context, inward)?, buffer(&self.0.context, outward)?);
        let (up, down) = (queue(&self.0, 0)?, queue(&self.0, 0)?);
        let mut host = vec![0; inward];
        TestRng(10).fill(&mut host);
        let place = std::cell::RefCell::new(vec![0; outward]);
        timed_by_host(passes, || {
            // SAFETY: all four are large enough and outlive the synchronisations.
            unsafe {
                begin_upload(&up, &to, 0, &host, flat(inward))?;
                begin_download(&down, &mut place.borrow_mut(), &from, 0, flat(outward))?;
            }
            let done = super::memory("clFinish", inward);
            up.flush().and_then(|()| down.flush()).map_err(&done)?;
            up.finish().and_then(|()| down.finish()).map_err(&done)
        })
    }

    fn launch_count(&self) -> u64 {
        self.launches()
    }
}

impl OpenClKernel {
    fn start_on(&self, blocks: &BufferBlocks) -> Result<Event, GpuError> {
        let places = Blocks::Buffers(&blocks.inputs, &blocks.outputs);
        // SAFETY: the memory holds this kernel's blocks at this stride, as asserted, and the caller synchronises.
        unsafe { self.start(&blocks.queue, places, blocks.stride, blocks.len) }
    }

    fn assert_room(&self, blocks: &BufferBlocks) {
        let shape = &self.prepared.shape;
        assert!(self.prepared.stride(blocks.len) <= blocks.stride, "blocks of another kernel");
        assert!(shape.inputs <= blocks.room.0 && shape.outputs <= blocks.room.1, "too few blocks");
    }
}

impl MeasuredKernel for OpenClKernel {
    type Blocks = BufferBlocks;

    fn blocks_on_device(&self, len: usize, seed: u64) -> Result<BufferBlocks, GpuError> {
        let (len, shape, opened) = (whole(&self.prepared, len), &self.prepared.shape, &self.device.0);
        let stride = self.prepared.stride(len);
        let room = (shape.inputs, shape.outputs);
        let (inputs, outputs) =
            (buffer(&opened.context, room.0 * stride)?, buffer(&opened.context, room.1 * stride)?);
        let queue = queue(opened, CL_QUEUE_PROFILING_ENABLE)?;
        fill(&queue, &inputs, room.0 * stride, seed)?;
        fill(&queue, &outputs, room.1 * stride, seed + 1)?;
        Ok(BufferBlocks { inputs, outputs, queue, stride, len, room })
    }

    fn block_bytes(blocks: &BufferBlocks) -> usize {
        blocks.len
    }

    fn time_on(&self, blocks: &BufferBlocks, passes: usize) -> Result<Rates, GpuError> {
        self.assert_room(blocks);
        timed(&blocks.queue, passes, || self.start_on(blocks))
    }

    fn check_on(&self, blocks: &BufferBlocks) -> Result<usize, GpuError> {
        self.assert_room(blocks);
        self.start_on(blocks)?;
        let inputs = self.prepared.shape.inputs;
        compare(&self.prepared, blocks.len, |block, at, bytes| {
            let mut read = vec![0; bytes];
            let (from, block) = match block.checked_sub(inputs) {
                Some(output) => (&blocks.outputs, output),
                None => (&blocks.inputs, block),
            };
            // SAFETY: both sides are large enough and live until the synchronisation; the queue is in order.
            unsafe {
                begin_download(&blocks.queue, &mut read, from, block * blocks.stride + at, flat(bytes))?
            };
            blocks.queue.finish().map_err(super::memory("clFinish", bytes))?;
            Ok(read)
        })
    }

    fn registers(&self) -> Result<(usize, usize), GpuError> {
        Ok((0, 0))
    }

    fn counts(&self) -> Counts {
        self.prepared.counts
    }

    fn bytes_per_thread(&self) -> usize {
        self.prepared.launch.bytes_per_thread
    }

    fn form(&self) -> Form {
        OpenClKernel::form(self)
    }
}
