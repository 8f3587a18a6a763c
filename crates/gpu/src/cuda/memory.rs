//! Memory of the device, pinned memory of the host, and copies between them.

use super::{driver, memory};
use crate::error::GpuError;
use crate::shape::BlockCopy;
use cudarc::driver::sys::{self, CUdeviceptr, CUmemorytype};
use cudarc::driver::{CudaContext, CudaStream, result};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes on the device, given back with this value.
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<DeviceMemory, GpuError> {
        context.bind_to_thread().map_err(driver("cuCtxSetCurrent"))?;
        // SAFETY: the context is current; what is allocated is freed once, on drop.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = address.map_err(memory("cuMemAlloc", "device", bytes))?;
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`, at most the end.
    pub(super) fn at(&self, offset: usize) -> CUdeviceptr {
        assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.address + offset as CUdeviceptr
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A lost device gives nothing back, and there is nobody left to tell.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed here and nowhere else. cuMemFree waits for what the device does.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// Host memory that the device reads and writes by itself. Copies from and to it run at the speed of the bus.
pub struct PinnedMemory {
    context: Arc<CudaContext>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, as that of a Vec does.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; through a shared reference it can only be read.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedMemory, GpuError> {
        context.bind_to_thread().map_err(driver("cuCtxSetCurrent"))?;
        // SAFETY: the context is current; what is allocated is freed once, on drop.
        let address = unsafe { result::malloc_host(bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE) };
        let address = address.map_err(memory("cuMemHostAlloc", "pinned", bytes))?.cast::<u8>();
        // SAFETY: `bytes` bytes were allocated; they are written before anybody sees them.
        unsafe { address.write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), address, bytes })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed here and nowhere else.
            let _ = unsafe { result::free_host(self.address.cast()) };
        }
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes that were written by `new`.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

/// Whether the driver knows these bytes as pinned ones.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind: u32 = 0;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let address = bytes.as_ptr().addr() as CUdeviceptr;
    // SAFETY: one number is written; the address is only looked up. Memory that the driver does not know is an error.
    let got = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), attribute, address) };
    got.result().is_ok() && kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

/// Begins a copy to the device.
///
/// # Safety
/// `from` and `to` have the bytes of `copy` until the stream was waited for, and nothing changes them.
pub(super) unsafe fn begin_upload(
    stream: &CudaStream,
    to: CUdeviceptr,
    from: *const u8,
    copy: BlockCopy,
) -> Result<(), GpuError> {
    let (host, device) = (CUmemorytype::CU_MEMORYTYPE_HOST, CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let form = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: host,
        srcHost: from.cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: copy.host_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: device,
        dstHost: std::ptr::null_mut(),
        dstDevice: to,
        dstArray: std::ptr::null_mut(),
        dstPitch: copy.pitch,
        WidthInBytes: copy.width,
        Height: copy.rows,
    };
    if copy.rows == 1 {
        // SAFETY: the caller's promise.
        let got = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), copy.width, stream.cu_stream()) };
        return got.result().map_err(driver("cuMemcpyHtoDAsync"));
    }
    // SAFETY: the caller's promise.
    let got = unsafe { sys::cuMemcpy2DAsync_v2(&form, stream.cu_stream()) };
    got.result().map_err(driver("cuMemcpy2DAsync"))
}

/// Begins a copy from the device.
///
/// # Safety
/// `from` and `to` have the bytes of `copy` until the stream was waited for, and nobody else looks at `to`.
pub(super) unsafe fn begin_download(
    stream: &CudaStream,
    to: *mut u8,
    from: CUdeviceptr,
    copy: BlockCopy,
) -> Result<(), GpuError> {
    let (host, device) = (CUmemorytype::CU_MEMORYTYPE_HOST, CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let form = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: device,
        srcHost: std::ptr::null(),
        srcDevice: from,
        srcArray: std::ptr::null_mut(),
        srcPitch: copy.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: host,
        dstHost: to.cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: copy.host_pitch,
        WidthInBytes: copy.width,
        Height: copy.rows,
    };
    if copy.rows == 1 {
        // SAFETY: the caller's promise.
        let got = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, copy.width, stream.cu_stream()) };
        return got.result().map_err(driver("cuMemcpyDtoHAsync"));
    }
    // SAFETY: the caller's promise.
    let got = unsafe { sys::cuMemcpy2DAsync_v2(&form, stream.cu_stream()) };
    got.result().map_err(driver("cuMemcpy2DAsync"))
}
