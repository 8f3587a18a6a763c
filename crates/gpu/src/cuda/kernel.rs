//! Plans as kernels of a CUDA device.

use super::device::CudaDevice;
use super::memory::DeviceMemory;
use super::{driver, pipeline};
use crate::choice::{AUTOMATIC_BYTES, Growing};
use crate::error::GpuError;
use crate::shape::Shape;
use crate::source::{Counts, Dialect, Launch, generic, specialised};
use crate::tuning::{self, Tuning};
use crate::{Choice, Form};
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaFunction, CudaStream};
use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::matrix::bits::BitMatrix;
use gabion_engine::{Error, Layout, Plan};
use std::ffi::c_void;

/// A device that compiles plans.
pub struct CudaBackend {
    device: CudaDevice,
    choice: Choice,
    name: String,
}

impl CudaBackend {
    /// Plans run on `device`, in the form that `choice` says.
    pub fn new(device: CudaDevice, choice: Choice) -> CudaBackend {
        let name = format!("cuda{}{}", device.info().index, choice.suffix());
        CudaBackend { device, choice, name }
    }

    /// The device.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Compiles a plan, as [`Backend::compile`] does, into a kernel that shows more of itself.
    ///
    /// # Errors
    /// What the device's compiler says.
    pub fn kernel(&self, plan: &Plan) -> Result<CudaKernel, GpuError> {
        match self.choice.form(&Shape::of(plan)) {
            Form::Specialised => CudaKernel::specialised(&self.device, plan, None),
            Form::Generic => CudaKernel::generic(&self.device, plan),
        }
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        if self.choice != Choice::Automatic {
            return Ok(Box::new(self.kernel(plan)?));
        }
        let (device, own) = (self.device.clone(), plan.clone());
        let can = Choice::Specialised.form(&Shape::of(plan)) == Form::Specialised;
        let make = move || CudaKernel::specialised(&device, &own, None);
        let make: Option<Box<dyn Fn() -> _ + Send + Sync>> = if can { Some(Box::new(make)) } else { None };
        Ok(Box::new(Growing::new(CudaKernel::generic(&self.device, plan)?, make, AUTOMATIC_BYTES)))
    }
}

/// A plan compiled for a CUDA device.
pub struct CudaKernel {
    pub(super) device: CudaDevice,
    pub(super) plan: Plan,
    pub(super) shape: Shape,
    pub(super) launch: Launch,
    function: CudaFunction,
    counts: Counts,
    /// The matrix as data, for the generic form.
    places: Option<DeviceMemory>,
}

/// Where the blocks of one launch lie: `stride` bytes apart from the addresses on.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) inputs: CUdeviceptr,
    pub(super) outputs: CUdeviceptr,
    pub(super) stride: usize,
}

impl CudaKernel {
    /// The plan's own kernel, cut as `tuning` says or as the cost model does.
    ///
    /// # Errors
    /// A plan too large to be unrolled; what the device's compiler says.
    pub fn specialised(
        device: &CudaDevice,
        plan: &Plan,
        tuning: Option<Tuning>,
    ) -> Result<CudaKernel, GpuError> {
        let shape = Shape::of(plan);
        let tuning = tuning.unwrap_or_else(|| Tuning::of(&shape));
        tuning::check_size(&shape)?;
        let source = specialised::source(Dialect::Cuda, &shape, &BitMatrix::expand(plan.matrix())?, &tuning);
        let function = device.0.modules.function(&source.text)?;
        let (device, plan) = (device.clone(), plan.clone());
        let (launch, counts) = (source.launch, source.counts);
        Ok(CudaKernel { device, plan, shape, launch, function, counts, places: None })
    }

    /// The kernel of all plans, with this plan's matrix as data.
    ///
    /// # Errors
    /// A matrix too large for the device; what the device's compiler says.
    pub fn generic(device: &CudaDevice, plan: &Plan) -> Result<CudaKernel, GpuError> {
        let shape = Shape::of(plan);
        let source = generic::source(Dialect::Cuda, &shape);
        let function = device.0.modules.function(&source.text)?;
        let places = generic::places(&shape, &BitMatrix::expand(plan.matrix())?);
        let memory = DeviceMemory::new(&device.0.context, places.len() * 4)?;
        // SAFETY: the memory has room for all of them, and the call returns when they are copied.
        let copied = unsafe { cudarc::driver::result::memcpy_htod_sync(memory.at(0), &places) };
        copied.map_err(driver("cuMemcpyHtoD"))?;
        let (device, plan) = (device.clone(), plan.clone());
        let (launch, counts) = (source.launch, source.counts);
        Ok(CudaKernel { device, plan, shape, launch, function, counts, places: Some(memory) })
    }

    /// Whether the matrix is in its code.
    pub fn is_specialised(&self) -> bool {
        self.places.is_none()
    }

    /// Instructions of one thread.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Registers of a thread, and bytes that did not fit into them.
    ///
    /// # Errors
    /// What the driver says.
    pub fn registers(&self) -> Result<(usize, usize), GpuError> {
        let registers = self.function.num_regs().map_err(driver("cuFuncGetAttribute"))?;
        let spilled = self.function.local_size_bytes().map_err(driver("cuFuncGetAttribute"))?;
        Ok((registers as usize, spilled as usize))
    }

    /// Bytes from block to block on the device, for blocks of `len` bytes.
    pub(super) fn stride(&self, len: usize) -> usize {
        self.shape.stride(len, self.launch.threads * self.launch.bytes_per_thread)
    }

    /// What rounds are cut at, in bytes of the host's blocks: whole tiles of words, whole groups of packets.
    pub(super) fn round_unit(&self) -> usize {
        match self.plan.layout() {
            Layout::Words => self.launch.threads * self.launch.bytes_per_thread,
            Layout::Packets { .. } => self.plan.granule(),
        }
    }

    /// Starts the kernel over blocks of `len` bytes.
    ///
    /// # Safety
    /// The blocks have [`stride`](Self::stride) bytes each, and until the stream was waited for nothing else writes
    /// them or reads the outputs.
    pub(super) unsafe fn start(
        &self,
        stream: &CudaStream,
        blocks: Blocks,
        len: usize,
    ) -> Result<(), GpuError> {
        let threads = self.shape.threads(len, self.launch.bytes_per_thread);
        let grid = self.launch.grid(threads.div_ceil(self.launch.threads));
        let limit = u32::MAX as usize / 2;
        if threads > limit {
            return Err(GpuError::TooLarge { what: "a block in threads", size: threads, limit });
        }
        let Blocks { inputs, outputs, stride } = blocks;
        let (stride, total) = (stride as u64, threads as u32);
        let (input_count, output_count) = (self.shape.inputs as u32, self.shape.outputs as u32);
        let places = self.places.as_ref().map_or(0, |places| places.at(0));
        fn parameter<T>(value: &T) -> *mut c_void {
            std::ptr::from_ref(value).cast_mut().cast()
        }
        let mut parameters = vec![
            parameter(&inputs),
            parameter(&stride),
            parameter(&outputs),
            parameter(&stride),
            parameter(&total),
        ];
        if self.places.is_some() {
            parameters.extend([parameter(&places), parameter(&input_count), parameter(&output_count)]);
        }
        // SAFETY: the parameters are those of the kernel's head, in its order and sizes, and are copied by the call;
        // the addresses are the caller's promise.
        let got = unsafe {
            sys::cuLaunchKernel(
                self.function.cu_function(),
                grid[0] as u32,
                grid[1] as u32,
                1,
                self.launch.threads as u32,
                1,
                1,
                0,
                stream.cu_stream(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        got.result().map_err(driver("cuLaunchKernel"))?;
        self.device.0.count_launch(self.is_specialised());
        Ok(())
    }
}

impl Kernel for CudaKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.plan.check_buffers(inputs, outputs)?;
        Ok(pipeline::run(self, len, inputs, outputs)?)
    }
}
