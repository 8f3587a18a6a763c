//! A plan prepared for a device: text, launch parameters, matrix. Shared by both APIs.

use crate::choice::Form;
use crate::error::GpuError;
use crate::shape::Shape;
use crate::source::{
    Counts, Dialect, Launch, Source, generic, method, products, specialised, stages, transforms,
};
use crate::tuning::{self, Tuning};
use gabion_engine::matrix::bits::BitMatrix;
use gabion_engine::{Layout, Plan};

/// Data of a kernel about its plan.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) shape: Shape,
    pub(crate) launch: Launch,
    #[cfg_attr(not(feature = "measure"), expect(dead_code, reason = "measurements read it"))]
    pub(crate) counts: Counts,
    /// Form of the kernel.
    pub(crate) form: Form,
}

/// A kernel before it is compiled.
pub(crate) struct Written {
    pub(crate) prepared: Prepared,
    pub(crate) text: String,
    /// Matrix and tables, if they are data.
    pub(crate) data: Option<Vec<u32>>,
}

impl Written {
    fn new(plan: &Plan, source: Source, form: Form, data: Option<Vec<u32>>) -> Written {
        let Source { text, launch, counts } = source;
        let prepared = Prepared { plan: plan.clone(), shape: Shape::of(plan), launch, counts, form };
        Written { prepared, text, data }
    }

    /// The plan's own kernel.
    pub(crate) fn specialised(dialect: Dialect, plan: &Plan, tuning: &Tuning) -> Result<Written, GpuError> {
        let shape = Shape::of(plan);
        tuning::check_size(&shape)?;
        let source = match tuning.transformed {
            width @ 1.. => transforms::source(dialect, plan, width).ok_or_else(|| GpuError::Method {
                method: "transforms",
                can: "packets of 4 or 8 bits with up to 16 outputs whose points lie together",
                plan: format!("{} inputs and {} outputs", shape.inputs, shape.outputs),
            })?,
            0 => specialised::source(dialect, &shape, &BitMatrix::expand(plan.matrix()?)?, tuning),
        };
        Ok(Written::new(plan, source, Form::Specialised, None))
    }

    /// The generic kernel, with this plan's matrix as data.
    pub(crate) fn generic(dialect: Dialect, plan: &Plan) -> Result<Written, GpuError> {
        let shape = Shape::of(plan);
        let places = generic::places(&shape, &BitMatrix::expand(plan.matrix()?)?);
        Ok(Written::new(plan, generic::source(dialect, &shape), Form::Generic, Some(places)))
    }

    /// The tensor-core kernel, shared by all plans.
    pub(crate) fn products(plan: &Plan) -> Result<Written, GpuError> {
        let shape = Shape::of(plan);
        if !products::suits(&shape) {
            let plan = format!("a plan of {} bits in words", shape.w);
            return Err(GpuError::Method { method: "products", can: "8 bits in words, and packets", plan });
        }
        let tiles = products::tiles(&shape, &BitMatrix::expand(plan.matrix()?)?);
        Ok(Written::new(plan, products::source(&shape), Form::Products, Some(tiles)))
    }

    /// An unoptimised kernel of the given stage.
    pub(crate) fn at_stage(dialect: Dialect, plan: &Plan, stage: stages::Stage) -> Result<Written, GpuError> {
        let shape = Shape::of(plan);
        if !stages::suits(&shape) {
            let plan = format!("{} rows of outputs", shape.outputs * shape.w);
            return Err(GpuError::Method {
                method: stage.name(),
                can: "packets of up to 32 rows of outputs",
                plan,
            });
        }
        let matrix = stages::matrix(&shape, stage, &BitMatrix::expand(plan.matrix()?)?);
        Ok(Written::new(plan, stages::source(dialect, &shape, stage), Form::Generic, Some(matrix)))
    }

    /// A kernel that multiplies symbols instead of adding bit rows.
    pub(crate) fn by_method(plan: &Plan, variant: method::Variant) -> Result<Written, GpuError> {
        let (source, data) = method::source(plan, variant)?;
        let form = if data.is_some() { Form::Generic } else { Form::Specialised };
        Ok(Written::new(plan, source, form, data))
    }
}

impl Prepared {
    /// Bytes covered by all threads of a thread block.
    fn tile(&self) -> usize {
        self.launch.threads * self.launch.bytes_per_thread
    }

    /// Bytes from block to block on the device, for blocks of `len` bytes.
    pub(crate) fn stride(&self, len: usize) -> usize {
        self.shape.stride(len, self.tile())
    }

    /// Unit of rounds in bytes of host blocks: whole tiles of words, whole groups of packets.
    pub(crate) fn unit(&self) -> usize {
        match self.plan.layout() {
            Layout::Words => self.tile(),
            Layout::Packets { .. } => self.plan.granule(),
        }
    }

    /// Total number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.shape.inputs + self.shape.outputs
    }

    /// Number of threads for blocks of `len` bytes, which a kernel counts in 32 bits, and the grid of thread blocks.
    pub(crate) fn grid(&self, len: usize) -> Result<(usize, [usize; 2]), GpuError> {
        let threads = self.shape.threads(len, self.launch.bytes_per_thread);
        let limit = u32::MAX as usize / 2;
        if threads > limit {
            return Err(GpuError::TooLarge { what: "a block in threads", size: threads, limit });
        }
        Ok((threads, self.launch.grid(threads.div_ceil(self.launch.threads))))
    }
}
