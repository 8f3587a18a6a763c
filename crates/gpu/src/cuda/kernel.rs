//! Kernels of plans on a CUDA device.

use super::device::CudaDevice;
use super::memory::DeviceMemory;
use super::{driver, pipeline};
use crate::choice::{Growing, boxed, unrolled_tuning};
use crate::error::GpuError;
use crate::prepared::{Prepared, Written};
use crate::shape::Shape;
use crate::source::Dialect;
use crate::source::stages::Stage;
use crate::tuning::Tuning;
use crate::{Choice, Form};
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaFunction, CudaStream};
use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::{Error, Plan};
use std::ffi::c_void;

/// Back end that compiles plans for a CUDA device.
pub struct CudaBackend {
    device: CudaDevice,
    choice: Choice,
    name: String,
}

impl CudaBackend {
    /// A back end for `device` with the given choice of forms.
    pub fn new(device: CudaDevice, choice: Choice) -> CudaBackend {
        let name = format!("cuda{}{}", device.info().index, choice.suffix());
        CudaBackend { device, choice, name }
    }

    /// The device.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Compiles a plan as [`Backend::compile`] does, but returns the concrete kernel type.
    ///
    /// # Errors
    /// Errors of the device's compiler.
    pub fn kernel(&self, plan: &Plan) -> Result<CudaKernel, GpuError> {
        CudaKernel::of_form(
            &self.device,
            plan,
            self.choice.form(&Shape::of(plan), self.device.has_tensor_cores()),
        )
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        let (device, own) = (self.device.clone(), plan.clone());
        let compiled = match self.choice {
            Choice::Automatic => self.kernel(plan).map(|ready| {
                let tensor_cores = device.has_tensor_cores();
                let own = move || CudaKernel::specialised(&device, &own, None);
                boxed(Growing::on_device(plan, ready, own, self.device.0.ledger.clone(), tensor_cores))
            }),
            _ => self.kernel(plan).map(boxed),
        };
        self.device.0.ledger.kernel(plan, compiled)
    }
}

/// A plan compiled for a CUDA device.
pub struct CudaKernel {
    pub(super) device: CudaDevice,
    pub(super) prepared: Prepared,
    function: CudaFunction,
    /// The matrix as data, for the generic form.
    places: Option<DeviceMemory>,
}

/// Addresses of the blocks of one launch, `stride` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) inputs: CUdeviceptr,
    pub(super) outputs: CUdeviceptr,
    pub(super) stride: usize,
}

impl CudaKernel {
    /// The plan's own kernel, with the given `tuning` or that of the cost model.
    ///
    /// # Errors
    /// A plan too large to be unrolled; errors of the device's compiler.
    pub fn specialised(
        device: &CudaDevice,
        plan: &Plan,
        tuning: Option<Tuning>,
    ) -> Result<CudaKernel, GpuError> {
        let tuning = tuning.unwrap_or_else(|| unrolled_tuning(plan).0);
        CudaKernel::new(device, Written::specialised(Dialect::Cuda, plan, &tuning)?)
    }

    /// The kernel of this form.
    ///
    /// # Errors
    /// A plan or a device without such a kernel; errors of the device's compiler.
    pub fn of_form(device: &CudaDevice, plan: &Plan, form: Form) -> Result<CudaKernel, GpuError> {
        match form {
            Form::Specialised => CudaKernel::specialised(device, plan, None),
            Form::Generic => CudaKernel::generic(device, plan),
            Form::Products => CudaKernel::products(device, plan),
        }
    }

    /// The tensor-core kernel, shared by all plans.
    ///
    /// # Errors
    /// A plan or a device without such a kernel; errors of the device's compiler.
    pub fn products(device: &CudaDevice, plan: &Plan) -> Result<CudaKernel, GpuError> {
        if !device.has_tensor_cores() {
            let (major, minor) = device.info().capability;
            let plan = format!("compute capability {major}.{minor}");
            return Err(GpuError::Method { method: "products", can: "compute capability 9.0", plan });
        }
        CudaKernel::new(device, Written::products(plan)?)
    }

    /// The generic kernel, with this plan's matrix as data.
    ///
    /// # Errors
    /// A matrix too large for the device; errors of the device's compiler.
    pub fn generic(device: &CudaDevice, plan: &Plan) -> Result<CudaKernel, GpuError> {
        CudaKernel::new(device, Written::generic(Dialect::Cuda, plan)?)
    }

    fn new(device: &CudaDevice, written: Written) -> Result<CudaKernel, GpuError> {
        let function = device.0.function(&written.text)?;
        let upload = |places: Vec<u32>| -> Result<DeviceMemory, GpuError> {
            let memory = DeviceMemory::new(&device.0.context, places.len() * 4)?;
            // SAFETY: the memory is large enough, and the call returns after the copy.
            let copied = unsafe { cudarc::driver::result::memcpy_htod_sync(memory.at(0), &places) };
            copied.map_err(driver("cuMemcpyHtoD"))?;
            Ok(memory)
        };
        let places = written.data.map(upload).transpose()?;
        Ok(CudaKernel { device: device.clone(), prepared: written.prepared, function, places })
    }

    /// An unoptimised kernel of the given stage, with its matrix as data.
    ///
    /// # Errors
    /// A plan without such a kernel; errors of the device's compiler.
    pub fn at_stage(device: &CudaDevice, plan: &Plan, stage: Stage) -> Result<CudaKernel, GpuError> {
        CudaKernel::new(device, Written::at_stage(Dialect::Cuda, plan, stage)?)
    }

    /// Its form.
    pub fn form(&self) -> Form {
        self.prepared.form
    }

    /// Registers per thread, and spilled bytes.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn registers(&self) -> Result<(usize, usize), GpuError> {
        let registers = self.function.num_regs().map_err(driver("cuFuncGetAttribute"))?;
        let spilled = self.function.local_size_bytes().map_err(driver("cuFuncGetAttribute"))?;
        Ok((registers as usize, spilled as usize))
    }

    /// Starts the kernel over blocks of `len` bytes.
    ///
    /// # Safety
    /// The blocks have [`stride`](Prepared::stride) bytes each; until the stream is synchronised nothing else writes
    /// them or reads the outputs.
    pub(super) unsafe fn start(
        &self,
        stream: &CudaStream,
        blocks: Blocks,
        len: usize,
    ) -> Result<(), GpuError> {
        let (threads, grid) = self.prepared.grid(len)?;
        let Blocks { inputs, outputs, stride } = blocks;
        let (stride, total) = (stride as u64, threads as u32);
        let shape = &self.prepared.shape;
        let (input_count, output_count) = (shape.inputs as u32, shape.outputs as u32);
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
        // SAFETY: the parameters match the kernel's signature and are copied by the call; the caller guarantees the
        // addresses.
        let got = unsafe {
            sys::cuLaunchKernel(
                self.function.cu_function(),
                grid[0] as u32,
                grid[1] as u32,
                1,
                self.prepared.launch.threads as u32,
                1,
                1,
                0,
                stream.cu_stream(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        got.result().map_err(driver("cuLaunchKernel"))?;
        self.device.0.count_launch(self.prepared.form);
        Ok(())
    }
}

impl Kernel for CudaKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.prepared.plan.check_buffers(inputs, outputs)?;
        Ok(pipeline::run(self, len, inputs, outputs)?)
    }
}
