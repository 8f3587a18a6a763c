//! Device memory, pinned host memory, and copies between them.

use super::{driver, memory};
use crate::error::GpuError;
use crate::shape::BlockCopy;
use cudarc::driver::sys::{self, CUdeviceptr, CUmemorytype};
use cudarc::driver::{CudaContext, CudaStream, result};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Device memory, freed on drop.
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<DeviceMemory, GpuError> {
        context.bind_to_thread().map_err(driver("cuCtxSetCurrent"))?;
        // SAFETY: the context is current; the allocation is freed once, on drop.
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
        // For a lost device freeing fails, and the error cannot be reported.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed only here. cuMemFree waits for the device.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// Host memory that the device accesses directly. Copies from and to it run at the speed of the bus.
pub struct PinnedMemory {
    context: Arc<CudaContext>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, like that of a Vec.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; a shared reference only allows reads.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedMemory, GpuError> {
        context.bind_to_thread().map_err(driver("cuCtxSetCurrent"))?;
        // SAFETY: the context is current; the allocation is freed once, on drop.
        let address = unsafe { result::malloc_host(bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE) };
        let address = address.map_err(memory("cuMemHostAlloc", "pinned", bytes))?.cast::<u8>();
        // SAFETY: `bytes` bytes were allocated; they are initialised before the value is returned.
        unsafe { address.write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), address, bytes })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed only here.
            let _ = unsafe { result::free_host(self.address.cast()) };
        }
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes, initialised by `new`.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

/// True if these bytes are pinned memory of the driver.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind: u32 = 0;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let address = bytes.as_ptr().addr() as CUdeviceptr;
    // SAFETY: one integer is written; the address is only looked up. Unknown memory is an error.
    let got = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), attribute, address) };
    got.result().is_ok() && kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

/// Starts a copy to the device.
///
/// # Safety
/// `from` and `to` are large enough for `copy` and are not modified until the stream is synchronised.
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
        // SAFETY: by the caller's contract.
        let got = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), copy.width, stream.cu_stream()) };
        return got.result().map_err(driver("cuMemcpyHtoDAsync"));
    }
    // SAFETY: by the caller's contract.
    let got = unsafe { sys::cuMemcpy2DAsync_v2(&form, stream.cu_stream()) };
    got.result().map_err(driver("cuMemcpy2DAsync"))
}

/// Starts a copy from the device.
///
/// # Safety
/// `from` and `to` are large enough for `copy` until the stream is synchronised, and `to` is not accessed until then.
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
        // SAFETY: by the caller's contract.
        let got = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, copy.width, stream.cu_stream()) };
        return got.result().map_err(driver("cuMemcpyDtoHAsync"));
    }
    // SAFETY: by the caller's contract.
    let got = unsafe { sys::cuMemcpy2DAsync_v2(&form, stream.cu_stream()) };
    got.result().map_err(driver("cuMemcpy2DAsync"))
}
