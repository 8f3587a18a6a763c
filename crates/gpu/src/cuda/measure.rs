//! Measurements on a CUDA device: kernels on data in device memory, and the rates they are compared with.

use super::device::CudaDevice;
use super::driver;
use super::kernel::{Blocks, CudaKernel};
use super::memory::{DeviceMemory, PinnedMemory, begin_download, begin_upload};
use crate::choice::Form;
use crate::error::GpuError;
use crate::measure::{Measured, MeasuredKernel, Rates, Transfers, compare, whole};
use crate::shape::BlockCopy;
use crate::source::Counts;
use crate::source::method::Variant;
use crate::source::stages::Stage;
use crate::tuning::Tuning;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaStream, result};
use gabion_engine::Plan;
use gabion_engine::conformance::TestRng;
use std::sync::Arc;

/// Random blocks on the device, with memory for results.
pub struct DeviceBlocks {
    memory: DeviceMemory,
    stream: Arc<CudaStream>,
    stride: usize,
    len: usize,
}

/// Length of the repeated random pattern in device memory: a prime number of words, so that no two blocks are equal.
const PATTERN: usize = 8 * 4_194_301;

/// Larger allocations are rounded up to a multiple of this.
const PLACED: usize = 1 << 30;

impl CudaDevice {
    /// Pinned host memory of `bytes` bytes, all zero.
    ///
    /// # Errors
    /// [`GpuError::Memory`].
    pub fn pinned(&self, bytes: usize) -> Result<PinnedMemory, GpuError> {
        PinnedMemory::new(&self.0.context, bytes)
    }

    /// Seconds of each of `passes` calls of `work` by the device's clock, after a warm-up call.
    fn time(
        &self,
        stream: &CudaStream,
        passes: usize,
        mut work: impl FnMut() -> Result<(), GpuError>,
    ) -> Result<Rates, GpuError> {
        let event = || {
            let event = self.0.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(driver("cuEventCreate"))
        };
        work()?;
        let mut marks = Vec::with_capacity(passes);
        for _ in 0..passes {
            let (before, after) = (event()?, event()?);
            before.record(stream).map_err(driver("cuEventRecord"))?;
            work()?;
            after.record(stream).map_err(driver("cuEventRecord"))?;
            marks.push((before, after));
        }
        stream.synchronize().map_err(driver("cuStreamSynchronize"))?;
        let seconds =
            marks.iter().map(|(before, after)| before.elapsed_ms(after).map(|ms| f64::from(ms) / 1e3));
        let seconds: Result<Vec<f64>, _> = seconds.collect();
        Ok(Rates::of(seconds.map_err(driver("cuEventElapsedTime"))?))
    }
}

impl Measured for CudaDevice {
    type Kernel = CudaKernel;
    type Host = PinnedMemory;

    fn title(&self) -> String {
        self.info().name.clone()
    }

    fn memory_bytes(&self) -> u64 {
        self.info().memory as u64
    }

    fn host_kind(&self) -> &'static str {
        "pinned"
    }

    fn is_cpu(&self) -> bool {
        false
    }

    fn specialised(&self, plan: &Plan, tuning: Option<Tuning>) -> Result<CudaKernel, GpuError> {
        CudaKernel::specialised(self, plan, tuning)
    }

    fn of_form(&self, plan: &Plan, form: Form) -> Result<CudaKernel, GpuError> {
        CudaKernel::of_form(self, plan, form)
    }

    fn at_stage(&self, plan: &Plan, stage: Stage) -> Result<CudaKernel, GpuError> {
        CudaKernel::at_stage(self, plan, stage)
    }

    fn multiplies_bits(&self) -> bool {
        self.has_tensor_cores()
    }

    fn by_method(&self, _: &Plan, variant: Variant) -> Result<CudaKernel, GpuError> {
        let (method, can) = (variant.method.name(), "symbols on OpenCL devices");
        Err(GpuError::Method { method, can, plan: "on CUDA".to_owned() })
    }

    fn host(&self, bytes: usize) -> Result<PinnedMemory, GpuError> {
        self.pinned(bytes)
    }

    fn launch_count(&self) -> u64 {
        Form::ALL.iter().map(|&form| self.launches(form)).sum()
    }

    fn copy_rate(&self, bytes: usize, passes: usize) -> Result<Rates, GpuError> {
        let memory = DeviceMemory::new(&self.0.context, 2 * bytes)?;
        let stream = self.0.context.new_stream().map_err(driver("cuStreamCreate"))?;
        fill(&stream, &memory, 1)?;
        self.time(&stream, passes, || {
            // SAFETY: both halves lie in the memory, which outlives the wait of `time`.
            let copied = unsafe {
                result::memcpy_dtod_async(memory.at(bytes), memory.at(0), bytes, stream.cu_stream())
            };
            copied.map_err(driver("cuMemcpyDtoDAsync"))
        })
    }

    fn transfer_rates(&self, bytes: usize, passes: usize) -> Result<Transfers, GpuError> {
        let memory = DeviceMemory::new(&self.0.context, bytes)?;
        let mut host = PinnedMemory::new(&self.0.context, bytes)?;
        TestRng(9).fill(&mut host);
        let stream = self.0.context.new_stream().map_err(driver("cuStreamCreate"))?;
        let copy = BlockCopy::whole(bytes);
        let up = self.time(&stream, passes, || {
            // SAFETY: both sides have `bytes` bytes and outlive the synchronisation in `time`.
            unsafe { begin_upload(&stream, memory.at(0), host.as_ptr(), copy) }
        })?;
        let place = host.as_mut_ptr();
        let down = self.time(&stream, passes, || {
            // SAFETY: as above, and the host's side is not read meanwhile.
            unsafe { begin_download(&stream, place, memory.at(0), copy) }
        })?;
        let rate = |times: Rates| bytes as f64 / times.median;
        Ok(Transfers { to_device: rate(up), from_device: rate(down) })
    }

    fn both_ways(&self, inward: usize, outward: usize, passes: usize) -> Result<Rates, GpuError> {
        let memory = DeviceMemory::new(&self.0.context, inward + outward)?;
        let mut host = PinnedMemory::new(&self.0.context, inward + outward)?;
        TestRng(10).fill(&mut host);
        let stream = || self.0.context.new_stream().map_err(driver("cuStreamCreate"));
        let (up, down) = (stream()?, stream()?);
        let place = host.as_mut_ptr();
        let whole = |bytes| BlockCopy::whole(bytes);
        let joined = |a: &CudaStream, b: &CudaStream| a.join(b).map_err(driver("cuStreamWaitEvent"));
        self.time(&up, passes, || {
            joined(&down, &up)?;
            // SAFETY: the halves do not overlap and outlive the synchronisation in `time`, which waits for `up`, which
            // waits for `down`.
            unsafe {
                begin_upload(&up, memory.at(0), place, whole(inward))?;
                begin_download(&down, place.add(inward), memory.at(inward), whole(outward))?;
            }
            joined(&up, &down)
        })
    }
}

/// Fills device memory with random bytes.
fn fill(stream: &CudaStream, memory: &DeviceMemory, seed: u64) -> Result<(), GpuError> {
    let mut pattern = vec![0; PATTERN.min(memory.bytes())];
    TestRng(seed).fill(&mut pattern);
    let mut at = 0;
    while at < memory.bytes() {
        let bytes = pattern.len().min(memory.bytes() - at);
        let copy = BlockCopy::whole(bytes);
        // SAFETY: the pattern lives until the synchronisation below, and the memory is large enough.
        unsafe { begin_upload(stream, memory.at(at), pattern.as_ptr(), copy)? };
        at += bytes;
    }
    stream.synchronize().map_err(driver("cuStreamSynchronize"))
}

impl CudaKernel {
    fn start_on(&self, blocks: &DeviceBlocks) -> Result<(), GpuError> {
        let outputs = blocks.memory.at(self.prepared.shape.inputs * blocks.stride);
        let places = Blocks { inputs: blocks.memory.at(0), outputs, stride: blocks.stride };
        // SAFETY: the blocks have this kernel's stride, and dropping their memory waits for the device.
        unsafe { self.start(&blocks.stream, places, blocks.len) }
    }
}

impl MeasuredKernel for CudaKernel {
    type Blocks = DeviceBlocks;

    fn blocks_on_device(&self, len: usize, seed: u64) -> Result<DeviceBlocks, GpuError> {
        let len = whole(&self.prepared, len);
        let stride = self.prepared.stride(len);
        let bytes = self.prepared.blocks() * stride;
        // The address of memory changes the speed by some percent, and depends on the size of the allocation.
        let bytes = if bytes > PLACED { bytes.next_multiple_of(PLACED) } else { bytes };
        let memory = DeviceMemory::new(&self.device.0.context, bytes)?;
        let stream = self.device.0.context.new_stream().map_err(driver("cuStreamCreate"))?;
        fill(&stream, &memory, seed)?;
        Ok(DeviceBlocks { memory, stream, stride, len })
    }

    fn block_bytes(blocks: &DeviceBlocks) -> usize {
        blocks.len
    }

    fn time_on(&self, blocks: &DeviceBlocks, passes: usize) -> Result<Rates, GpuError> {
        assert!(self.prepared.stride(blocks.len) <= blocks.stride, "blocks of another kernel");
        assert!(self.prepared.blocks() * blocks.stride <= blocks.memory.bytes(), "too few blocks");
        self.device.time(&blocks.stream, passes, || self.start_on(blocks))
    }

    fn check_on(&self, blocks: &DeviceBlocks) -> Result<usize, GpuError> {
        self.start_on(blocks)?;
        blocks.stream.synchronize().map_err(driver("cuStreamSynchronize"))?;
        compare(&self.prepared, blocks.len, |block, at, bytes| {
            let mut read = vec![0; bytes];
            let copy = BlockCopy::whole(bytes);
            let from = blocks.memory.at(block * blocks.stride + at);
            // SAFETY: both sides are large enough and live until the synchronisation.
            unsafe { begin_download(&blocks.stream, read.as_mut_ptr(), from, copy)? };
            blocks.stream.synchronize().map_err(driver("cuStreamSynchronize"))?;
            Ok(read)
        })
    }

    fn registers(&self) -> Result<(usize, usize), GpuError> {
        CudaKernel::registers(self)
    }

    fn counts(&self) -> Counts {
        self.prepared.counts
    }

    fn bytes_per_thread(&self) -> usize {
        self.prepared.launch.bytes_per_thread
    }

    fn form(&self) -> Form {
        CudaKernel::form(self)
    }
}
