//! Slots: streams with memory of their own, in which rounds of a run are under way.
//!
//! There are as many as [`Limits`] says and each takes its share of the memory, so a device never holds more, however many
//! threads run kernels. Who finds all slots taken waits for one.

use super::driver;
use super::memory::{DeviceMemory, PinnedMemory};
use crate::error::GpuError;
use cudarc::driver::{CudaContext, CudaStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Most memory that runs from host memory take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on the device.
    pub device_bytes: usize,
    /// Bytes of pinned memory, for blocks that are not pinned themselves.
    pub pinned_bytes: usize,
    /// Rounds under way at once: one is copied in while another is computed and a third copied out.
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
    /// Device memory of at least `bytes`; what there was is given back first if it is too small.
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

    /// What the slot has; empty before the first round.
    pub(super) fn held(&self) -> (Option<&DeviceMemory>, Option<&PinnedMemory>) {
        (self.device.as_ref(), self.pinned.as_ref())
    }

    /// Waits until the stream has done everything.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.stream.synchronize().map_err(driver("cuStreamSynchronize"))
    }
}

/// All slots of a device.
pub(super) struct Pool {
    context: Arc<CudaContext>,
    pub(super) limits: Limits,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Slot>,
    made: usize,
}

impl Pool {
    pub(super) fn new(context: Arc<CudaContext>, limits: Limits) -> Pool {
        let limits = Limits { slots: limits.slots.max(1), ..limits };
        Pool { context, limits, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Between one slot and `most`, as many as are free; waits for the first.
    pub(super) fn take(&self, most: usize) -> Result<Vec<Slot>, GpuError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = Vec::new();
        loop {
            while slots.len() < most {
                if let Some(slot) = state.idle.pop() {
                    slots.push(slot);
                } else if state.made < self.limits.slots {
                    let stream = self.context.new_stream().map_err(driver("cuStreamCreate"));
                    match stream {
                        Ok(stream) => slots.push(Slot { stream, device: None, pinned: None }),
                        Err(_) if !slots.is_empty() => break,
                        Err(error) => return Err(error),
                    }
                    state.made += 1;
                } else {
                    break;
                }
            }
            if !slots.is_empty() {
                return Ok(slots);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn give_back(&self, slots: Vec<Slot>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle.extend(slots);
        self.freed.notify_all();
    }
}
