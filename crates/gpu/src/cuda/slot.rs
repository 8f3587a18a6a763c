//! Slots: streams with their own memory, each running one round at a time.

use super::driver;
use super::memory::{DeviceMemory, PinnedMemory};
use crate::error::GpuError;
use cudarc::driver::{CudaContext, CudaStream};
use std::sync::Arc;

/// Memory limits of runs from host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on the device.
    pub device_bytes: usize,
    /// Bytes of pinned memory, for blocks that are not pinned themselves.
    pub pinned_bytes: usize,
    /// Rounds in flight: one is copied in while another is computed and a third is copied out.
    pub slots: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { device_bytes: 1 << 30, pinned_bytes: 384 << 20, slots: 3 }
    }
}

/// A stream and its memory.
pub(super) struct Slot {
    pub(super) stream: Arc<CudaStream>,
    device: Option<DeviceMemory>,
    pinned: Option<PinnedMemory>,
}

impl Slot {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Slot, GpuError> {
        let stream = context.new_stream().map_err(driver("cuStreamCreate"))?;
        Ok(Slot { stream, device: None, pinned: None })
    }

    /// Device memory of at least `bytes`; a smaller allocation is freed first.
    pub(super) fn device(
        &mut self,
        context: &Arc<CudaContext>,
        bytes: usize,
    ) -> Result<&DeviceMemory, GpuError> {
        if self.device.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            self.device = None;
            self.device = Some(DeviceMemory::new(context, bytes)?);
        }
        self.device.as_ref().ok_or(GpuError::Memory { api: crate::Api::Cuda, kind: "device", bytes })
    }

    /// Pinned memory of at least `bytes`.
    pub(super) fn pinned(
        &mut self,
        context: &Arc<CudaContext>,
        bytes: usize,
    ) -> Result<&mut PinnedMemory, GpuError> {
        if self.pinned.as_ref().is_none_or(|memory| memory.len() < bytes) {
            self.pinned = None;
            self.pinned = Some(PinnedMemory::new(context, bytes)?);
        }
        self.pinned.as_mut().ok_or(GpuError::Memory { api: crate::Api::Cuda, kind: "pinned", bytes })
    }

    /// The slot's memory; empty before the first round.
    pub(super) fn held(&self) -> (Option<&DeviceMemory>, Option<&PinnedMemory>) {
        (self.device.as_ref(), self.pinned.as_ref())
    }

    /// Synchronises the stream.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.stream.synchronize().map_err(driver("cuStreamSynchronize"))
    }
}
