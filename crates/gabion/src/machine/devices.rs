//! Devices beside the CPU.

use serde::Serialize;

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceState {
    /// Its number among those of its library.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Further properties as text.
    pub details: String,
    /// Bytes of its memory.
    pub memory: u64,
}

/// The devices of one library.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Devices {
    /// `cuda` or `opencl`.
    pub api: &'static str,
    /// The devices.
    pub found: Vec<DeviceState>,
    /// Reason why there are none.
    pub missing: Option<String>,
}

/// All libraries that this build knows.
#[cfg(feature = "gpu")]
pub(super) fn all() -> Vec<Devices> {
    use gabion_gpu::{Api, GpuError, cuda, opencl};
    fn of<T>(api: Api, found: Result<Vec<T>, GpuError>, shown: impl Fn(T) -> DeviceState) -> Devices {
        match found {
            Ok(found) => {
                Devices { api: api.name(), found: found.into_iter().map(shown).collect(), missing: None }
            }
            Err(error) => {
                let reason = match error {
                    GpuError::Unavailable { reason, .. } => reason,
                    other => other.to_string(),
                };
                Devices { api: api.name(), found: Vec::new(), missing: Some(reason) }
            }
        }
    }
    let cuda = of(Api::Cuda, cuda::devices(), |device| DeviceState {
        index: device.index,
        details: format!(
            "{} multiprocessors, compute {}.{}, driver {}",
            device.multiprocessors, device.capability.0, device.capability.1, device.driver
        ),
        memory: device.memory as u64,
        name: device.name,
    });
    let opencl = of(Api::OpenCl, opencl::devices(), |device| DeviceState {
        index: device.index,
        details: format!(
            "{}, {} units, {}, driver {}",
            device.kind, device.units, device.platform, device.driver
        ),
        memory: device.memory,
        name: device.name,
    });
    vec![cuda, opencl]
}

/// Without the feature `gpu` there is none.
#[cfg(not(feature = "gpu"))]
pub(super) fn all() -> Vec<Devices> {
    Vec::new()
}
