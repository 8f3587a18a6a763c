//! Blocks of host memory through an OpenCL device: rounds of a part of every block, each in a queue of its own, so that
//! copies and kernels of different rounds can overlap.

use super::call;
use super::kernel::OpenClKernel;
use crate::error::{Api, GpuError};
use crate::rounds::round_bytes;
use crate::shape::BlockCopy;
use gabion_engine::Mode;
use opencl3::command_queue::{
    CommandQueue, enqueue_read_buffer, enqueue_read_buffer_rect, enqueue_write_buffer,
    enqueue_write_buffer_rect,
};
use opencl3::event::Event;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::types::{CL_NON_BLOCKING, cl_event};
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
    let options = &kernel.device.0.options;
    let unit = kernel.round_unit();
    let slots = options.slots.max(1);
    let mut bytes = round_bytes(len, unit, inputs.len() + outputs.len(), options.device_bytes / slots);
    let slots = loop {
        let slots: Result<Vec<Slot>, GpuError> =
            (0..slots.min(len.div_ceil(bytes))).map(|_| Slot::new(kernel, bytes)).collect();
        match slots {
            // Nothing was begun yet.
            Err(GpuError::Memory { .. }) if bytes > unit => bytes = (bytes / 2).next_multiple_of(unit),
            other => break other?,
        }
    };
    let rounds = (0..len).step_by(bytes).enumerate().try_for_each(|(round, start)| {
        let slot = &slots[round % slots.len()];
        // The slot's earlier round has to leave its memory.
        slot.wait()?;
        slot.begin(kernel, start..(start + bytes).min(len), inputs, outputs)
    });
    // Whatever happened, the device is done with the blocks before they are given back.
    let finished: Vec<Result<(), GpuError>> = slots.iter().map(Slot::wait).collect();
    rounds?;
    finished.into_iter().collect()
}

struct Slot {
    queue: CommandQueue,
    inputs: Buffer<u8>,
    outputs: Buffer<u8>,
}

impl Slot {
    fn new(kernel: &OpenClKernel, bytes: usize) -> Result<Slot, GpuError> {
        let opened = &kernel.device.0;
        let stride = kernel.stride(bytes);
        let room = |blocks: usize| {
            let bytes = (blocks * stride).max(1);
            // SAFETY: no host memory is involved.
            let buffer = unsafe {
                Buffer::<u8>::create(&opened.context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut())
            };
            buffer.map_err(|_| GpuError::Memory { api: Api::OpenCl, kind: "device", bytes })
        };
        let (inputs, outputs) = (room(kernel.shape.inputs)?, room(kernel.shape.outputs)?);
        // SAFETY: the device is the context's. OpenCL 1.2 has no other call for this.
        let queue = unsafe { CommandQueue::create(&opened.context, opened.id.0, 0) };
        Ok(Slot { queue: queue.map_err(call("clCreateCommandQueue"))?, inputs, outputs })
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.queue.finish().map_err(call("clFinish"))
    }

    fn begin(
        &self,
        kernel: &OpenClKernel,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let (copy, stride) = (kernel.shape.copy(part.len()), kernel.stride(part.len()));
        for (block, input) in inputs.iter().enumerate() {
            // SAFETY: the buffer has a stride for every block; host and device memory live until `run` has waited.
            unsafe { self.upload(&self.inputs, block * stride, &input[part.clone()], copy)? };
        }
        if kernel.shape.mode == Mode::Add {
            for (block, output) in outputs.iter().enumerate() {
                // SAFETY: as above.
                unsafe { self.upload(&self.outputs, block * stride, &output[part.clone()], copy)? };
            }
        }
        // SAFETY: the queue works in order, and `run` waits for it.
        unsafe { kernel.start(&self.queue, &self.inputs, &self.outputs, stride, part.len())? };
        for (block, output) in outputs.iter_mut().enumerate() {
            // SAFETY: as for the uploads; outputs are borrowed mutably until `run` has waited.
            unsafe { self.download(block * stride, &mut output[part.clone()], copy)? };
        }
        self.queue.flush().map_err(call("clFlush"))
    }

    /// # Safety
    /// The bytes live until the queue has finished.
    unsafe fn upload(
        &self,
        to: &Buffer<u8>,
        at: usize,
        from: &[u8],
        copy: BlockCopy,
    ) -> Result<(), GpuError> {
        let (queue, memory) = (self.queue.get(), ClMem::get(to));
        let address = from.as_ptr().cast_mut().cast();
        let nothing = std::ptr::null();
        if copy.rows == 1 {
            // SAFETY: the bytes lie within the buffer, and outlive the copy by the caller's promise.
            let begun = unsafe {
                enqueue_write_buffer(queue, memory, CL_NON_BLOCKING, at, copy.width, address, 0, nothing)
            };
            return begun.map(drop_event).map_err(|code| call("clEnqueueWriteBuffer")(code.into()));
        }
        let (origin, host, region) = rectangle(at, copy);
        let (origin, host, region) = (origin.as_ptr(), host.as_ptr(), region.as_ptr());
        let (pitch, width) = (copy.pitch, copy.width);
        // SAFETY: as above, for every row.
        let begun = unsafe {
            enqueue_write_buffer_rect(
                queue,
                memory,
                CL_NON_BLOCKING,
                origin,
                host,
                region,
                pitch,
                0,
                width,
                0,
                address,
                0,
                nothing,
            )
        };
        begun.map(drop_event).map_err(|code| call("clEnqueueWriteBufferRect")(code.into()))
    }

    /// # Safety
    /// The bytes live until the queue has finished, and nobody looks at them.
    unsafe fn download(&self, at: usize, to: &mut [u8], copy: BlockCopy) -> Result<(), GpuError> {
        let (queue, memory) = (self.queue.get(), ClMem::get(&self.outputs));
        let address = to.as_mut_ptr().cast();
        let nothing = std::ptr::null();
        if copy.rows == 1 {
            // SAFETY: as in `upload`.
            let begun = unsafe {
                enqueue_read_buffer(queue, memory, CL_NON_BLOCKING, at, copy.width, address, 0, nothing)
            };
            return begun.map(drop_event).map_err(|code| call("clEnqueueReadBuffer")(code.into()));
        }
        let (origin, host, region) = rectangle(at, copy);
        let (origin, host, region) = (origin.as_ptr(), host.as_ptr(), region.as_ptr());
        let (pitch, width) = (copy.pitch, copy.width);
        // SAFETY: as in `upload`.
        let begun = unsafe {
            enqueue_read_buffer_rect(
                queue,
                memory,
                CL_NON_BLOCKING,
                origin,
                host,
                region,
                pitch,
                0,
                width,
                0,
                address,
                0,
                nothing,
            )
        };
        begun.map(drop_event).map_err(|code| call("clEnqueueReadBufferRect")(code.into()))
    }
}

/// The event of a command that nobody waits for.
fn drop_event(event: cl_event) {
    drop(Event::new(event));
}

/// Where a copy of several rows begins on the device, on the host, and its size. Blocks begin at whole rows.
fn rectangle(at: usize, copy: BlockCopy) -> ([usize; 3], [usize; 3], [usize; 3]) {
    ([0, at / copy.pitch, 0], [0; 3], [copy.width, copy.rows, 1])
}
