//! Plans as kernels of an OpenCL device.

use super::device::OpenClDevice;
use super::{call, rounds};
use crate::choice::{AUTOMATIC_BYTES, Growing};
use crate::error::GpuError;
use crate::shape::Shape;
use crate::source::{Dialect, Launch, generic, specialised};
use crate::tuning::{self, Tuning};
use crate::{Choice, Form};
use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::matrix::bits::BitMatrix;
use gabion_engine::{Error, Layout, Plan};
use opencl3::command_queue::CommandQueue;
use opencl3::memory::{Buffer, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, ClMem};
use opencl3::program::Program;
use opencl3::types::cl_mem;
use std::sync::Arc;

/// Threads of a block, which every device allows.
const THREADS: usize = 128;

/// A device that compiles plans.
pub struct OpenClBackend {
    device: OpenClDevice,
    choice: Choice,
    name: String,
}

impl OpenClBackend {
    /// Plans run on `device`, in the form that `choice` says.
    pub fn new(device: OpenClDevice, choice: Choice) -> OpenClBackend {
        let name = format!("opencl{}{}", device.info().index, choice.suffix());
        OpenClBackend { device, choice, name }
    }

    /// The device.
    pub fn device(&self) -> &OpenClDevice {
        &self.device
    }

    /// Compiles a plan, as [`Backend::compile`] does, into a kernel that shows more of itself.
    ///
    /// # Errors
    /// What the device's compiler says.
    pub fn kernel(&self, plan: &Plan) -> Result<OpenClKernel, GpuError> {
        match self.choice.form(&Shape::of(plan)) {
            Form::Specialised => OpenClKernel::specialised(&self.device, plan, None),
            Form::Generic => OpenClKernel::generic(&self.device, plan),
        }
    }
}

impl Backend for OpenClBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        if self.choice != Choice::Automatic {
            return Ok(Box::new(self.kernel(plan)?));
        }
        let (device, own) = (self.device.clone(), plan.clone());
        let can = Choice::Specialised.form(&Shape::of(plan)) == Form::Specialised;
        let make = move || OpenClKernel::specialised(&device, &own, None);
        let make: Option<Box<dyn Fn() -> _ + Send + Sync>> = if can { Some(Box::new(make)) } else { None };
        Ok(Box::new(Growing::new(OpenClKernel::generic(&self.device, plan)?, make, AUTOMATIC_BYTES)))
    }
}

/// A plan compiled for an OpenCL device.
pub struct OpenClKernel {
    pub(super) device: OpenClDevice,
    pub(super) plan: Plan,
    pub(super) shape: Shape,
    pub(super) launch: Launch,
    pub(super) program: Arc<Program>,
    /// The matrix as data, for the generic form.
    data: Option<Buffer<u32>>,
}

impl OpenClKernel {
    /// The plan's own kernel, cut as `tuning` says or as the cost model does.
    ///
    /// # Errors
    /// A plan too large to be unrolled; what the device's compiler says.
    pub fn specialised(
        device: &OpenClDevice,
        plan: &Plan,
        tuning: Option<Tuning>,
    ) -> Result<OpenClKernel, GpuError> {
        let shape = Shape::of(plan);
        let model = || Tuning { threads: THREADS, staged: 0, ..Tuning::of(&shape) };
        let tuning = tuning.unwrap_or_else(model);
        tuning::check_size(&shape)?;
        let source =
            specialised::source(Dialect::OpenCl, &shape, &BitMatrix::expand(plan.matrix())?, &tuning);
        let program = device.0.program(&source.text)?;
        let (device, plan, launch) = (device.clone(), plan.clone(), source.launch);
        Ok(OpenClKernel { device, plan, shape, launch, program, data: None })
    }

    /// The kernel of all plans, with this plan's matrix as data.
    ///
    /// # Errors
    /// What the device's compiler says.
    pub fn generic(device: &OpenClDevice, plan: &Plan) -> Result<OpenClKernel, GpuError> {
        let shape = Shape::of(plan);
        let source = generic::source(Dialect::OpenCl, &shape);
        let program = device.0.program(&source.text)?;
        // An empty buffer is none.
        let mut places = generic::places(&shape, &BitMatrix::expand(plan.matrix())?);
        places.resize(places.len().max(1), 0);
        let flags = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
        // SAFETY: the places are copied by the call.
        let data =
            unsafe { Buffer::create(&device.0.context, flags, places.len(), places.as_mut_ptr().cast()) };
        let data = data.map_err(call("clCreateBuffer"))?;
        let (device, plan, launch) = (device.clone(), plan.clone(), source.launch);
        Ok(OpenClKernel { device, plan, shape, launch, program, data: Some(data) })
    }

    /// Whether the matrix is in its code.
    pub fn is_specialised(&self) -> bool {
        self.data.is_none()
    }

    /// Bytes from block to block on the device, for blocks of `len` bytes.
    pub(super) fn stride(&self, len: usize) -> usize {
        self.shape.stride(len, self.launch.threads * self.launch.bytes_per_thread)
    }

    /// What rounds are cut at, in bytes of the host's blocks.
    pub(super) fn round_unit(&self) -> usize {
        match self.plan.layout() {
            Layout::Words => self.launch.threads * self.launch.bytes_per_thread,
            Layout::Packets { .. } => self.plan.granule(),
        }
    }

    /// Starts the kernel over blocks of `len` bytes, `stride` bytes apart in the two buffers.
    ///
    /// # Safety
    /// Each buffer holds its blocks, and nothing else writes them or reads the outputs until the queue has finished.
    pub(super) unsafe fn start(
        &self,
        queue: &CommandQueue,
        inputs: &Buffer<u8>,
        outputs: &Buffer<u8>,
        stride: usize,
        len: usize,
    ) -> Result<(), GpuError> {
        let Launch { threads, bytes_per_thread, .. } = self.launch;
        let total = self.shape.threads(len, bytes_per_thread);
        let limit = u32::MAX as usize / 2;
        if total > limit {
            return Err(GpuError::TooLarge { what: "a block in threads", size: total, limit });
        }
        // A kernel object holds its parameters, so every launch has one of its own.
        let kernel = opencl3::kernel::Kernel::create(&self.program, crate::source::ENTRY);
        let kernel = kernel.map_err(call("clCreateKernel"))?;
        let set = call("clSetKernelArg");
        let (stride, tiles) = (stride as u64, total.div_ceil(threads));
        let (in_memory, out_memory): (cl_mem, cl_mem) = (inputs.get(), outputs.get());
        // SAFETY: these are the parameters of the kernel's head, in its order and sizes.
        unsafe {
            kernel.set_arg(0, &in_memory).map_err(&set)?;
            kernel.set_arg(1, &stride).map_err(&set)?;
            kernel.set_arg(2, &out_memory).map_err(&set)?;
            kernel.set_arg(3, &stride).map_err(&set)?;
            kernel.set_arg(4, &(total as u32)).map_err(&set)?;
            if let Some(data) = &self.data {
                kernel.set_arg(5, &data.get()).map_err(&set)?;
                kernel.set_arg(6, &(self.shape.inputs as u32)).map_err(&set)?;
                kernel.set_arg(7, &(self.shape.outputs as u32)).map_err(&set)?;
            }
        }
        let grid = self.launch.grid(tiles);
        let (global, local) = ([grid[0] * threads, grid[1]], [threads, 1]);
        // SAFETY: the sizes are those the kernel was written for; the memory is the caller's promise.
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
        started.map_err(call("clEnqueueNDRangeKernel"))?;
        self.device.0.count_launch();
        Ok(())
    }
}

impl Kernel for OpenClKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.plan.check_buffers(inputs, outputs)?;
        Ok(rounds::run(self, len, inputs, outputs)?)
    }
}
