//! What a device can do: kernels on data that is already there, and the rates they are compared with.

use super::device::CudaDevice;
use super::driver;
use super::kernel::{Blocks, CudaKernel};
use super::memory::{DeviceMemory, PinnedMemory, begin_download, begin_upload};
use crate::error::GpuError;
use crate::shape::BlockCopy;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaStream, result};
use gabion_engine::conformance::Random;
use gabion_engine::kernel::{Backend, Row};
use gabion_engine::{Layout, Mode};
use std::sync::Arc;

/// Seconds of one pass, out of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The shortest.
    pub best: f64,
    /// The middle one.
    pub median: f64,
}

impl Rates {
    fn of(mut seconds: Vec<f64>) -> Rates {
        seconds.sort_by(f64::total_cmp);
        let first = seconds.first().copied().unwrap_or(f64::NAN);
        Rates { best: first, median: seconds.get(seconds.len() / 2).copied().unwrap_or(first) }
    }
}

/// Bytes per second between pinned host memory and the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfers {
    /// To the device, nothing coming back.
    pub to_device: f64,
    /// From the device alone.
    pub from_device: f64,
}

/// Random blocks on the device, and room for results.
pub struct DeviceBlocks {
    memory: DeviceMemory,
    stream: Arc<CudaStream>,
    stride: usize,
    len: usize,
}

/// Random bytes that fill device memory, over and over: a prime number of words, so that no two blocks are alike.
const PATTERN: usize = 8 * 4_194_301;

impl CudaDevice {
    /// Pinned host memory of `bytes` bytes, all zero.
    ///
    /// # Errors
    /// [`GpuError::Memory`].
    pub fn pinned(&self, bytes: usize) -> Result<PinnedMemory, GpuError> {
        PinnedMemory::new(&self.0.context, bytes)
    }

    /// Seconds of each of `passes` calls of `work`, by the device's own clock, after one that does not count.
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

    /// Copies `bytes` bytes from one place of the device to another; counts as twice as many, read and written.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    pub fn copy_rate(&self, bytes: usize, passes: usize) -> Result<Rates, GpuError> {
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

    /// The speed of the bus, each way alone.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    pub fn transfer_rates(&self, bytes: usize, passes: usize) -> Result<Transfers, GpuError> {
        let memory = DeviceMemory::new(&self.0.context, bytes)?;
        let mut host = PinnedMemory::new(&self.0.context, bytes)?;
        Random(9).fill(&mut host);
        let stream = self.0.context.new_stream().map_err(driver("cuStreamCreate"))?;
        let copy = BlockCopy { width: bytes, pitch: bytes, rows: 1 };
        let up = self.time(&stream, passes, || {
            // SAFETY: both sides have `bytes` bytes and outlive the wait of `time`.
            unsafe { begin_upload(&stream, memory.at(0), host.as_ptr(), copy) }
        })?;
        let place = host.as_mut_ptr();
        let down = self.time(&stream, passes, || {
            // SAFETY: as above, and nobody reads the host's side meanwhile.
            unsafe { begin_download(&stream, place, memory.at(0), copy) }
        })?;
        let rate = |times: Rates| bytes as f64 / times.median;
        Ok(Transfers { to_device: rate(up), from_device: rate(down) })
    }

    /// Seconds to bring `inward` bytes to the device while `outward` bytes come back, on two streams: what no
    /// pipeline that moves these bytes can undercut.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    pub fn both_ways(&self, inward: usize, outward: usize, passes: usize) -> Result<Rates, GpuError> {
        let memory = DeviceMemory::new(&self.0.context, inward + outward)?;
        let mut host = PinnedMemory::new(&self.0.context, inward + outward)?;
        Random(10).fill(&mut host);
        let stream = || self.0.context.new_stream().map_err(driver("cuStreamCreate"));
        let (up, down) = (stream()?, stream()?);
        let place = host.as_mut_ptr();
        let whole = |bytes| BlockCopy { width: bytes, pitch: bytes, rows: 1 };
        let joined = |a: &CudaStream, b: &CudaStream| a.join(b).map_err(driver("cuStreamWaitEvent"));
        self.time(&up, passes, || {
            joined(&down, &up)?;
            // SAFETY: the halves do not overlap and outlive the wait of `time`, which waits for `up`, which waits for
            // `down`.
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
    Random(seed).fill(&mut pattern);
    let mut at = 0;
    while at < memory.bytes() {
        let bytes = pattern.len().min(memory.bytes() - at);
        let copy = BlockCopy { width: bytes, pitch: bytes, rows: 1 };
        // SAFETY: the pattern lives until the wait below, the memory has the bytes.
        unsafe { begin_upload(stream, memory.at(at), pattern.as_ptr(), copy)? };
        at += bytes;
    }
    stream.synchronize().map_err(driver("cuStreamSynchronize"))
}

impl CudaKernel {
    /// Random blocks of about `len` bytes, a whole number of tiles, on the device.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    pub fn blocks_on_device(&self, len: usize, seed: u64) -> Result<DeviceBlocks, GpuError> {
        let unit = self.round_unit();
        let len = (len / unit).max(1) * unit;
        let stride = self.stride(len);
        let count = self.shape.inputs + self.shape.outputs;
        let memory = DeviceMemory::new(&self.device.0.context, count * stride)?;
        let stream = self.device.0.context.new_stream().map_err(driver("cuStreamCreate"))?;
        fill(&stream, &memory, seed)?;
        Ok(DeviceBlocks { memory, stream, stride, len })
    }

    fn start_on(&self, blocks: &DeviceBlocks) -> Result<(), GpuError> {
        let outputs = blocks.memory.at(self.shape.inputs * blocks.stride);
        let places = Blocks { inputs: blocks.memory.at(0), outputs, stride: blocks.stride };
        // SAFETY: the blocks were made for this kernel's stride, and their memory waits for the device when it goes.
        unsafe { self.start(&blocks.stream, places, blocks.len) }
    }

    /// Times the kernel over blocks that were made by [`blocks_on_device`](Self::blocks_on_device) of a kernel of the same plan.
    ///
    /// # Errors
    /// What the driver says.
    pub fn time_on(&self, blocks: &DeviceBlocks, passes: usize) -> Result<Rates, GpuError> {
        assert!(self.stride(blocks.len) <= blocks.stride, "blocks of another kernel");
        self.device.time(&blocks.stream, passes, || self.start_on(blocks))
    }

    /// Runs the kernel once and compares samples of the results with the CPU's: the first and the last bytes, and some
    /// between. Only for plans that replace their outputs. Returns the bytes compared.
    ///
    /// # Errors
    /// What the driver says, and [`GpuError::Wrong`] at the first difference.
    pub fn check_on(&self, blocks: &DeviceBlocks) -> Result<usize, GpuError> {
        assert_eq!(self.shape.mode, Mode::Write, "old contents are not kept");
        let (inputs, outputs) = (self.shape.inputs, self.shape.outputs);
        self.start_on(blocks)?;
        blocks.stream.synchronize().map_err(driver("cuStreamSynchronize"))?;
        let unit = match self.plan.layout() {
            Layout::Words => 4096,
            Layout::Packets { .. } => self.plan.granule(),
        };
        let units = blocks.len / unit;
        let cpu = Row::chosen()?.compile(&self.plan)?;
        let mut compared = 0;
        for place in [0, units / 3, units / 2, units - 1] {
            let read = |block: usize| -> Result<Vec<u8>, GpuError> {
                let mut bytes = vec![0; unit];
                let copy = BlockCopy { width: unit, pitch: unit, rows: 1 };
                let from = blocks.memory.at(block * blocks.stride + place * unit);
                // SAFETY: both sides have `unit` bytes and live until the wait.
                unsafe { begin_download(&blocks.stream, bytes.as_mut_ptr(), from, copy)? };
                blocks.stream.synchronize().map_err(driver("cuStreamSynchronize"))?;
                Ok(bytes)
            };
            let sources: Vec<Vec<u8>> = (0..inputs).map(read).collect::<Result<_, _>>()?;
            let found: Vec<Vec<u8>> = (inputs..inputs + outputs).map(read).collect::<Result<_, _>>()?;
            let mut wanted = vec![vec![0; unit]; outputs];
            let sources: Vec<&[u8]> = sources.iter().map(|block| &block[..]).collect();
            cpu.run(&sources, &mut wanted.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>())?;
            for (output, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                if let Some(byte) = found.iter().zip(wanted).position(|(a, b)| a != b) {
                    return Err(GpuError::Wrong { output, byte: place * unit + byte });
                }
                compared += unit;
            }
        }
        Ok(compared)
    }
}

impl DeviceBlocks {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.len
    }
}
