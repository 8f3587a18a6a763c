//! Compilation of source text to a device function: NVRTC, the disk cache, the driver.

use super::device::DeviceInfo;
use super::{driver, unavailable};
use crate::cache::KernelCache;
use crate::error::{Api, GpuError};
use crate::source::{ENTRY, products};
use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::Ptx;
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::Arc;

/// Version of NVRTC.
pub(super) fn version() -> Result<(i32, i32), GpuError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two local integers.
    let got = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    got.result().map_err(|error| unavailable(format!("nvrtcVersion: {error:?}")))?;
    Ok((major, minor))
}

/// The kernels of one device.
pub(super) struct Modules {
    context: Arc<CudaContext>,
    architecture: String,
    cache: KernelCache<CudaFunction>,
}

impl Modules {
    pub(super) fn new(context: Arc<CudaContext>, info: &DeviceInfo, cache: Option<PathBuf>) -> Modules {
        let (major, minor) = info.capability;
        // The suffix enables architecture-specific instructions, such as those of tensor cores.
        let own = if info.capability == products::CAPABILITY { "a" } else { "" };
        let architecture = format!("sm_{major}{minor}{own}");
        let machine = format!("{} {architecture} {} {:?}", info.name, info.driver, info.compiler);
        Modules { context, architecture, cache: KernelCache::new(cache.as_deref(), &machine) }
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        self.cache.counts()
    }

    /// The function of a text: from memory, from disk, or compiled.
    pub(super) fn function(&self, text: &str) -> Result<CudaFunction, GpuError> {
        self.cache.get(
            text,
            |binary| self.load(binary).ok(),
            || {
                let binary = compile(text, &self.architecture)?;
                Ok((self.load(binary.clone())?, Some(binary)))
            },
        )
    }

    fn load(&self, binary: Vec<u8>) -> Result<CudaFunction, GpuError> {
        let module =
            self.context.load_module(Ptx::from_binary(binary)).map_err(driver("cuModuleLoadData"))?;
        module.load_function(ENTRY).map_err(driver("cuModuleGetFunction"))
    }
}

/// An NVRTC program, destroyed on drop.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created by create_program and is destroyed once. A failure leaks memory.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn failed(call: &str, error: NvrtcError, log: String) -> GpuError {
    GpuError::Compile { api: Api::Cuda, reason: format!("{call}: {error:?}"), log }
}

/// Machine code of a text for one architecture.
fn compile(text: &str, architecture: &str) -> Result<Vec<u8>, GpuError> {
    let text = CString::new(text).map_err(|_| GpuError::Compile {
        api: Api::Cuda,
        reason: "the text has a zero byte".to_owned(),
        log: String::new(),
    })?;
    let program = result::create_program(&text, None);
    let program = Program(program.map_err(|error| failed("nvrtcCreateProgram", error, String::new()))?);
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
    // SAFETY: the program is alive.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    compiled.map_err(|error| {
        // SAFETY: as above; the log ends with a zero byte.
        let log = unsafe { result::get_program_log(program.0) };
        let log = log.map(|log| log.iter().map(|&letter| letter as u8).collect::<Vec<u8>>());
        let log = log
            .ok()
            .and_then(|log| Some(CStr::from_bytes_until_nul(&log).ok()?.to_string_lossy().into_owned()));
        failed("nvrtcCompileProgram", error, log.unwrap_or_default())
    })?;
    let mut size = 0;
    // SAFETY: the program is compiled; one integer is written.
    let got = unsafe { sys::nvrtcGetCUBINSize(program.0, &mut size) };
    got.result().map_err(|error| failed("nvrtcGetCUBINSize", error, String::new()))?;
    let mut binary = vec![0u8; size];
    // SAFETY: the buffer has the size returned above.
    let got = unsafe { sys::nvrtcGetCUBIN(program.0, binary.as_mut_ptr().cast()) };
    got.result().map_err(|error| failed("nvrtcGetCUBIN", error, String::new()))?;
    Ok(binary)
}
