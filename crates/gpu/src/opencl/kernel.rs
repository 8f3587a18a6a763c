//! Kernels of plans on an OpenCL device.

use super::device::OpenClDevice;
use super::memory::SharedMemory;
use super::{call, rounds};
use crate::choice::{Growing, boxed};
use crate::error::GpuError;
use crate::prepared::{Prepared, Written};
use crate::shape::Shape;
use crate::source::Dialect;
use crate::source::method::Variant;
use crate::source::stages::Stage;
use crate::tuning::Tuning;
use crate::{Choice, Form};
use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::{Error, Plan};
use opencl3::command_queue::CommandQueue;
use opencl3::event::Event;
use opencl3::memory::{Buffer, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, ClMem};
use opencl3::program::Program;
use opencl3::types::cl_mem;
use std::sync::Arc;

/// Threads per block, supported by every device.
const THREADS: usize = 128;

/// Maximum rows of outputs for two words per thread.
const MOST_ROWS_OF_TWO: usize = 32;

/// Back end that compiles plans for an OpenCL device.
pub struct OpenClBackend {
    device: OpenClDevice,
    how: How,
    name: String,
}

#[derive(Debug, Clone, Copy)]
enum How {
    ByRows(Choice),
    BySymbols(Variant),
}

impl OpenClBackend {
    /// A back end for `device` that adds bit rows, with the given choice of forms.
    pub fn new(device: OpenClDevice, choice: Choice) -> OpenClBackend {
        let name = format!("opencl{}{}", device.info().index, choice.suffix());
        OpenClBackend { device, how: How::ByRows(choice), name }
    }

    /// A back end for `device` that multiplies symbols. Unsupported plans are refused.
    pub fn by_method(device: OpenClDevice, variant: Variant) -> OpenClBackend {
        let name = format!("opencl{}{}", device.info().index, variant.suffix());
        OpenClBackend { device, how: How::BySymbols(variant), name }
    }

    /// The device.
    pub fn device(&self) -> &OpenClDevice {
        &self.device
    }

    /// Compiles a plan as [`Backend::compile`] does, but returns the concrete kernel type.
    ///
    /// # Errors
    /// Errors of the device's compiler.
    pub fn kernel(&self, plan: &Plan) -> Result<OpenClKernel, GpuError> {
        match self.how {
            How::BySymbols(variant) => OpenClKernel::by_method(&self.device, plan, variant),
            How::ByRows(choice) => {
                OpenClKernel::of_form(&self.device, plan, choice.form(&Shape::of(plan), false))
            }
        }
    }
}

impl Backend for OpenClBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        let (device, own) = (self.device.clone(), plan.clone());
        let compiled = match self.how {
            How::ByRows(Choice::Automatic) => self.kernel(plan).map(|ready| {
                let own = move || OpenClKernel::specialised(&device, &own, None);
                boxed(Growing::on_device(plan, ready, own, self.device.0.ledger.clone(), false))
            }),
            _ => self.kernel(plan).map(boxed),
        };
        self.device.0.ledger.kernel(plan, compiled)
    }
}

/// A plan compiled for an OpenCL device.
pub struct OpenClKernel {
    pub(super) device: OpenClDevice,
    pub(super) prepared: Prepared,
    program: Arc<Program>,
    /// The matrix as data, unless it is in the text.
    data: Option<Buffer<u32>>,
}

/// Memory of the blocks of one launch.
pub(super) enum Blocks<'a> {
    /// Two buffers, inputs and outputs.
    Buffers(&'a Buffer<u8>, &'a Buffer<u8>),
    /// Shared memory, with the offset of the outputs.
    Shared(&'a SharedMemory, usize),
}

impl OpenClKernel {
    /// The plan's own kernel, with the given `tuning` or that of the cost model.
    ///
    /// # Errors
    /// A plan too large to be unrolled; errors of the device's compiler.
    pub fn specialised(
        device: &OpenClDevice,
        plan: &Plan,
        tuning: Option<Tuning>,
    ) -> Result<OpenClKernel, GpuError> {
        let model = || {
            let shape = Shape::of(plan);
            let tuning = Tuning { threads: THREADS, staged: 0, ..Tuning::of(&shape) };
            // OpenCL compilers use fewer registers per thread: two words of many rows were spilled, at a thirtieth of
            // the speed.
            if shape.outputs * shape.w > MOST_ROWS_OF_TWO { Tuning { lanes: 1, ..tuning } } else { tuning }
        };
        let tuning = tuning.unwrap_or_else(model);
        OpenClKernel::new(device, Written::specialised(Dialect::OpenCl, plan, &tuning)?)
    }

    /// The generic kernel, with this plan's matrix as data.
    ///
    /// # Errors
    /// Errors of the device's compiler.
    pub fn generic(device: &OpenClDevice, plan: &Plan) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::new(device, Written::generic(Dialect::OpenCl, plan)?)
    }

    /// A kernel that multiplies symbols.
    ///
    /// # Errors
    /// A plan that the method does not support; errors of the device's compiler.
    pub fn by_method(device: &OpenClDevice, plan: &Plan, variant: Variant) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::new(device, Written::by_method(plan, variant)?)
    }

    fn new(device: &OpenClDevice, written: Written) -> Result<OpenClKernel, GpuError> {
        let program = device.0.program(&written.text)?;
        let upload = |mut data: Vec<u32>| {
            // Empty buffers are not allowed.
            data.resize(data.len().max(1), 0);
            let flags = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
            // SAFETY: the words are copied by the call.
            let buffer =
                unsafe { Buffer::create(&device.0.context, flags, data.len(), data.as_mut_ptr().cast()) };
            buffer.map_err(call("clCreateBuffer"))
        };
        let data = written.data.map(upload).transpose()?;
        Ok(OpenClKernel { device: device.clone(), prepared: written.prepared, program, data })
    }

    /// An unoptimised kernel of the given stage, with its matrix as data.
    ///
    /// # Errors
    /// A plan without such a kernel; errors of the device's compiler.
    pub fn at_stage(device: &OpenClDevice, plan: &Plan, stage: Stage) -> Result<OpenClKernel, GpuError> {
        OpenClKernel::new(device, Written::at_stage(Dialect::OpenCl, plan, stage)?)
    }

    /// Its form.
    pub fn form(&self) -> Form {
        self.prepared.form
    }

    /// The kernel of this form.
    ///
    /// # Errors
    /// [`Form::Products`], which OpenCL does not support; errors of the device's compiler.
    pub fn of_form(device: &OpenClDevice, plan: &Plan, form: Form) -> Result<OpenClKernel, GpuError> {
        match form {
            Form::Specialised => OpenClKernel::specialised(device, plan, None),
            Form::Generic => OpenClKernel::generic(device, plan),
            Form::Products => {
                let plan = "on OpenCL".to_owned();
                Err(GpuError::Method { method: "products", can: "plans on CUDA devices", plan })
            }
        }
    }

    /// Starts the kernel over blocks of `len` bytes, `stride` bytes apart.
    ///
    /// # Safety
    /// The memory holds all blocks, and nothing else writes them or reads the outputs until the queue has finished.
    pub(super) unsafe fn start(
        &self,
        queue: &CommandQueue,
        blocks: Blocks<'_>,
        stride: usize,
        len: usize,
    ) -> Result<Event, GpuError> {
        let (total, grid) = self.prepared.grid(len)?;
        let threads = self.prepared.launch.threads;
        // A kernel object stores its parameters, so every launch creates its own.
        let kernel = opencl3::kernel::Kernel::create(&self.program, crate::source::ENTRY);
        let kernel = kernel.map_err(call("clCreateKernel"))?;
        let set = call("clSetKernelArg");
        let shape = &self.prepared.shape;
        let stride = stride as u64;
        // SAFETY: the parameters match the kernel's signature.
        unsafe {
            match blocks {
                Blocks::Buffers(inputs, outputs) => {
                    let (inputs, outputs): (cl_mem, cl_mem) = (inputs.get(), outputs.get());
                    kernel.set_arg(0, &inputs).map_err(&set)?;
                    kernel.set_arg(2, &outputs).map_err(&set)?;
                }
                Blocks::Shared(memory, outputs) => {
                    kernel.set_arg_svm_pointer(0, memory.at(0).cast()).map_err(&set)?;
                    kernel.set_arg_svm_pointer(2, memory.at(outputs).cast()).map_err(&set)?;
                }
            }
            kernel.set_arg(1, &stride).map_err(&set)?;
            kernel.set_arg(3, &stride).map_err(&set)?;
            kernel.set_arg(4, &(total as u32)).map_err(&set)?;
            if let Some(data) = &self.data {
                kernel.set_arg(5, &data.get()).map_err(&set)?;
                kernel.set_arg(6, &(shape.inputs as u32)).map_err(&set)?;
                kernel.set_arg(7, &(shape.outputs as u32)).map_err(&set)?;
            }
        }
        let (global, local) = ([grid[0] * threads, grid[1]], [threads, 1]);
        // SAFETY: the sizes are those of the kernel; the caller guarantees the memory.
        let started = unsafe {
            queue.enqueue_nd_range_kernel(
                kernel.get(),
                2,
                std::ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                &[],
            )
        };
        let started = started.map_err(super::memory("clEnqueueNDRangeKernel", 0))?;
        self.device.0.count_launch();
        Ok(started)
    }
}

impl Kernel for OpenClKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.prepared.plan.check_buffers(inputs, outputs)?;
        Ok(rounds::run(self, len, inputs, outputs)?)
    }
}
