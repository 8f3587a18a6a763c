//! Memory of an OpenCL device, copies to and from it, and shared virtual memory.

use super::device::Opened;
use super::{call, memory};
use crate::error::{Api, GpuError};
use crate::shape::BlockCopy;
use opencl3::command_queue::{
    CommandQueue, enqueue_read_buffer, enqueue_read_buffer_rect, enqueue_svm_map, enqueue_svm_unmap,
    enqueue_write_buffer, enqueue_write_buffer_rect,
};
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::memory::{Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_READ_WRITE, ClMem, svm_alloc, svm_free};
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_context, cl_event, cl_int};

/// An in-order queue, with the only call of OpenCL 1.2 for it.
pub(super) fn queue(opened: &Opened, properties: u64) -> Result<CommandQueue, GpuError> {
    // SAFETY: the device belongs to the context.
    let queue = unsafe { CommandQueue::create(&opened.context, opened.id.0, properties) };
    queue.map_err(call("clCreateCommandQueue"))
}

/// A buffer of at least one byte.
pub(super) fn buffer(context: &Context, bytes: usize) -> Result<Buffer<u8>, GpuError> {
    let bytes = bytes.max(1);
    // SAFETY: no host memory is involved.
    let buffer = unsafe { Buffer::<u8>::create(context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) };
    buffer.map_err(|_| GpuError::Memory { api: Api::OpenCl, kind: "device", bytes })
}

fn begun(name: &'static str, bytes: usize) -> impl Fn(cl_int) -> GpuError {
    move |code| memory(name, bytes)(ClError(code))
}

/// Releases the event of a command without waiting for it.
fn drop_event(event: cl_event) {
    drop(Event::new(event));
}

/// Origins on device and host and the region of a copy of several rows. Blocks start at whole rows.
fn rectangle(at: usize, copy: BlockCopy) -> ([usize; 3], [usize; 3], [usize; 3]) {
    ([0, at / copy.pitch, 0], [0; 3], [copy.width, copy.rows, 1])
}

/// Starts a copy to the device.
///
/// # Safety
/// The buffer is large enough for `copy` at offset `at`; `from` lives until the queue has finished.
pub(super) unsafe fn begin_upload(
    queue: &CommandQueue,
    to: &Buffer<u8>,
    at: usize,
    from: &[u8],
    copy: BlockCopy,
) -> Result<(), GpuError> {
    let (queue, to, bytes) = (queue.get(), ClMem::get(to), from.len());
    let address = from.as_ptr().cast_mut().cast();
    let nothing = std::ptr::null();
    if copy.rows == 1 {
        // SAFETY: by the caller's contract.
        let sent =
            unsafe { enqueue_write_buffer(queue, to, CL_NON_BLOCKING, at, copy.width, address, 0, nothing) };
        return sent.map(drop_event).map_err(begun("clEnqueueWriteBuffer", bytes));
    }
    let (origin, host, region) = rectangle(at, copy);
    let (origin, host, region) = (origin.as_ptr(), host.as_ptr(), region.as_ptr());
    let (pitch, width) = (copy.pitch, copy.width);
    // SAFETY: as above, for every row.
    let sent = unsafe {
        enqueue_write_buffer_rect(
            queue,
            to,
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
    sent.map(drop_event).map_err(begun("clEnqueueWriteBufferRect", bytes))
}

/// Starts a copy from the device.
///
/// # Safety
/// As for [`begin_upload`], and `to` is not accessed until the queue has finished.
pub(super) unsafe fn begin_download(
    queue: &CommandQueue,
    to: &mut [u8],
    from: &Buffer<u8>,
    at: usize,
    copy: BlockCopy,
) -> Result<(), GpuError> {
    let (queue, from, bytes) = (queue.get(), ClMem::get(from), to.len());
    let address = to.as_mut_ptr().cast();
    let nothing = std::ptr::null();
    if copy.rows == 1 {
        // SAFETY: by the caller's contract.
        let sent =
            unsafe { enqueue_read_buffer(queue, from, CL_NON_BLOCKING, at, copy.width, address, 0, nothing) };
        return sent.map(drop_event).map_err(begun("clEnqueueReadBuffer", bytes));
    }
    let (origin, host, region) = rectangle(at, copy);
    let (origin, host, region) = (origin.as_ptr(), host.as_ptr(), region.as_ptr());
    let (pitch, width) = (copy.pitch, copy.width);
    // SAFETY: as above, for every row.
    let sent = unsafe {
        enqueue_read_buffer_rect(
            queue,
            from,
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
    sent.map(drop_event).map_err(begun("clEnqueueReadBufferRect", bytes))
}

/// Coarse-grained shared virtual memory, used by host and device alternately.
pub(super) struct SharedMemory {
    /// Outlives this value, which is owned by the device's pool or by a holder of the device.
    context: cl_context,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, like that of a Vec, and contexts may be used by every thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    pub(super) fn new(opened: &Opened, bytes: usize) -> Result<SharedMemory, GpuError> {
        let bytes = bytes.max(1);
        // SAFETY: support was checked when the device was opened; the allocation is freed once, on drop. Alignment 0
        // selects the default.
        let address = unsafe { svm_alloc(opened.context.get(), CL_MEM_READ_WRITE, bytes, 0) };
        let address =
            address.map_err(|_| GpuError::Memory { api: Api::OpenCl, kind: "shared", bytes })?.cast();
        Ok(SharedMemory { context: opened.context.get(), address, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`, at most the end.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.address.wrapping_add(offset)
    }

    /// Maps all of it for the host after the queued commands.
    pub(super) fn map(&mut self, queue: &CommandQueue) -> Result<&mut [u8], GpuError> {
        let flags = CL_MAP_READ | CL_MAP_WRITE;
        // SAFETY: the memory was allocated for this context; the call is blocking.
        let mapped = unsafe {
            enqueue_svm_map(
                queue.get(),
                CL_BLOCKING,
                flags,
                self.address.cast(),
                self.bytes,
                0,
                std::ptr::null(),
            )
        };
        mapped.map(drop_event).map_err(begun("clEnqueueSVMMap", self.bytes))?;
        // SAFETY: `bytes` bytes were allocated, are mapped and borrowed exclusively. Every value of a byte is valid.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) })
    }

    /// Unmaps it for the next commands of the queue.
    pub(super) fn unmap(&mut self, queue: &CommandQueue) -> Result<(), GpuError> {
        // SAFETY: the memory was allocated for this context.
        let unmapped = unsafe { enqueue_svm_unmap(queue.get(), self.address.cast(), 0, std::ptr::null()) };
        unmapped.map(drop_event).map_err(begun("clEnqueueSVMUnmap", self.bytes))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` for this context, which is still alive; freed only here. All users have finished
        // their queues.
        let _ = unsafe { svm_free(self.context, self.address.cast()) };
    }
}
