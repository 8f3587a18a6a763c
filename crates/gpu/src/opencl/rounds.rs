//! Rounds on an OpenCL device, each in its own queue, so that copies and kernels of different rounds overlap.
//!
//! Outputs that are added to are read back into memory of the slot. With [`OpenClTransfer::SharedMemory`] blocks are
//! copied into memory that host and device use alternately.

use super::call;
use super::device::OpenClTransfer;
use super::kernel::{Blocks, OpenClKernel};
use super::memory::{SharedMemory, begin_download, begin_upload, buffer, queue};
use crate::error::{Api, GpuError};
use crate::rounds::{Copies, RoundRun, Slots, copy_in_parallel, round_bytes};
use gabion_engine::Mode;
use opencl3::command_queue::CommandQueue;
use opencl3::memory::Buffer;
use std::ops::Range;

pub(super) fn run(
    kernel: &OpenClKernel,
    len: usize,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), GpuError> {
    if len == 0 || outputs.is_empty() {
        return Ok(());
    }
    let (opened, prepared) = (&kernel.device.0, &kernel.prepared);
    let (unit, most) = (prepared.unit(), opened.pool.most());
    let bytes =
        round_bytes(len, unit, prepared.blocks(), opened.options.device_bytes / most, Copies::OnePerBlock);
    let slots = opened.pool.take(len.div_ceil(bytes), || Ok(Slot { queue: queue(opened, 0)?, memory: None }));
    let mut in_flight = slots.map(|slots| InFlight { kernel, slots });
    let course = RoundRun {
        api: Api::OpenCl,
        plan: &prepared.plan,
        len,
        unit,
        bytes,
        faults: opened.options.faults.as_ref(),
        ledger: &opened.ledger,
    };
    let slots = in_flight.as_mut().map(|slots| slots as &mut dyn Slots).map_err(|error| error.clone());
    course.run(slots, inputs, outputs)
}

struct InFlight<'a> {
    kernel: &'a OpenClKernel,
    slots: Vec<Slot>,
}

/// A queue and the memory of its round.
pub(super) struct Slot {
    queue: CommandQueue,
    /// None before the first round.
    memory: Option<Memory>,
}

enum Memory {
    Buffers {
        inputs: Buffer<u8>,
        outputs: Buffer<u8>,
        /// Bytes of inputs and outputs.
        bytes: (usize, usize),
        /// Results before they are added to the outputs.
        results: Vec<u8>,
    },
    Shared(SharedMemory),
}

impl Memory {
    /// True if the memory is large enough for these inputs, outputs and results.
    fn holds(&self, inputs: usize, outputs: usize, own: usize) -> bool {
        match self {
            Memory::Buffers { bytes, results, .. } => {
                inputs <= bytes.0 && outputs <= bytes.1 && own <= results.len()
            }
            Memory::Shared(memory) => inputs + outputs <= memory.bytes(),
        }
    }
}

impl InFlight<'_> {
    fn adds(&self) -> bool {
        self.kernel.prepared.shape.mode == Mode::Add
    }
}

impl Slots for InFlight<'_> {
    fn count(&self) -> usize {
        self.slots.len()
    }

    fn make_room(&mut self, slot: usize, bytes: usize) -> Result<(), GpuError> {
        let (opened, prepared) = (&self.kernel.device.0, &self.kernel.prepared);
        let (stride, shape) = (prepared.stride(bytes), &prepared.shape);
        let (inputs, outputs) = (shape.inputs * stride, shape.outputs * stride);
        let own = if self.adds() { shape.outputs * bytes } else { 0 };
        let slot = &mut self.slots[slot];
        if slot.memory.as_ref().is_some_and(|memory| memory.holds(inputs, outputs, own)) {
            return Ok(());
        }
        // The previous memory is freed first.
        slot.memory = None;
        slot.memory = Some(match opened.options.transfer {
            OpenClTransfer::Copies => Memory::Buffers {
                inputs: buffer(&opened.context, inputs)?,
                outputs: buffer(&opened.context, outputs)?,
                bytes: (inputs, outputs),
                results: vec![0; own],
            },
            OpenClTransfer::SharedMemory => Memory::Shared(SharedMemory::new(opened, inputs + outputs)?),
        });
        Ok(())
    }

    fn writes_directly(&self) -> bool {
        self.kernel.device.0.options.transfer == OpenClTransfer::Copies && !self.adds()
    }

    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let (kernel, adds, len) = (self.kernel, self.adds(), part.len());
        let (copy, stride) = (kernel.prepared.shape.copy(len), kernel.prepared.stride(len));
        let Slot { queue, memory } = &mut self.slots[slot];
        match memory.as_mut().ok_or_else(no_memory)? {
            Memory::Shared(memory) => {
                let sources = inputs.iter().map(|block| &block[part.clone()]);
                let old = outputs.iter().map(|block| &block[part.clone()]).filter(|_| adds);
                let pairs = memory.map(queue)?.chunks_mut(stride).zip(sources.chain(old));
                copy_in_parallel(pairs.flat_map(|(to, from)| copy.spread(to, from)).collect());
                memory.unmap(queue)?;
                let blocks = Blocks::Shared(memory, inputs.len() * stride);
                // SAFETY: the memory has a stride for every block, it is unmapped from the host, and the slot is
                // synchronised before it is reused or dropped.
                unsafe { kernel.start(queue, blocks, stride, len)? };
            }
            Memory::Buffers { inputs: to_inputs, outputs: to_outputs, results, .. } => {
                for (block, input) in inputs.iter().enumerate() {
                    // SAFETY: the buffer has a stride for every block; the host's bytes live until this slot is
                    // synchronised, at the latest on drop.
                    unsafe { begin_upload(queue, to_inputs, block * stride, &input[part.clone()], copy)? };
                }
                for (block, output) in outputs.iter().enumerate().filter(|_| adds) {
                    // SAFETY: as above.
                    unsafe { begin_upload(queue, to_outputs, block * stride, &output[part.clone()], copy)? };
                }
                let blocks = Blocks::Buffers(to_inputs, to_outputs);
                // SAFETY: the buffers have a stride for every block, and the queue is in order.
                unsafe { kernel.start(queue, blocks, stride, len)? };
                let count = outputs.len();
                let own = results.chunks_mut(len).filter(|_| adds);
                let direct = outputs.iter_mut().map(|block| &mut block[part.clone()]).filter(|_| !adds);
                for (block, place) in own.chain(direct).take(count).enumerate() {
                    // SAFETY: as for the uploads; the outputs and the slot's own memory are not accessed before the
                    // slot is synchronised.
                    unsafe { begin_download(queue, place, to_outputs, block * stride, copy)? };
                }
            }
        }
        queue.flush().map_err(call("clFlush"))
    }

    fn wait(&mut self, slot: usize) -> Result<(), GpuError> {
        self.slots[slot].queue.finish().map_err(super::memory("clFinish", 0))
    }

    fn collect(
        &mut self,
        slot: usize,
        part: Range<usize>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let (adds, prepared) = (self.adds(), &self.kernel.prepared);
        let (copy, stride) = (prepared.shape.copy(part.len()), prepared.stride(part.len()));
        let inputs = prepared.shape.inputs;
        let Slot { queue, memory } = &mut self.slots[slot];
        let places = outputs.iter_mut().map(|block| &mut block[part.clone()]);
        match memory.as_mut().ok_or_else(no_memory)? {
            Memory::Shared(memory) => {
                let pairs = places.zip(memory.map(queue)?.chunks(stride).skip(inputs));
                copy_in_parallel(pairs.flat_map(|(to, from)| copy.gather(to, from)).collect());
                // The results are copied; a failed unmap causes an error when the slot is reused.
                let _ = memory.unmap(queue);
            }
            Memory::Buffers { results, .. } if adds => {
                copy_in_parallel(places.zip(results.chunks(part.len())).collect());
            }
            Memory::Buffers { .. } => {}
        }
        Ok(())
    }
}

/// Not reachable: rounds start after `make_room`.
fn no_memory() -> GpuError {
    GpuError::Memory { api: Api::OpenCl, kind: "device", bytes: 0 }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        for slot in &self.slots {
            // The device must be done with the blocks before they are released. A device that fails to synchronise does
            // no more work.
            let _ = slot.queue.finish();
        }
        self.kernel.device.0.pool.give_back(std::mem::take(&mut self.slots));
    }
}
