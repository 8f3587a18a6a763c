//! Plans compiled for one instruction set.

use super::Kernel;
use super::generic::{Buffers, Dense, Isa, Parities, Rows, Steps, SumConstrained, Work};
use super::transformed::{TransformedPlan, Way};
use super::vector::Vector;
use crate::bytemap::{LinearMap, MapForm};
use crate::compiler::{CodeKernel, Purpose, Ready, Slot, Target};
use crate::division::{SignaturePoints, TrailingQuotients};
use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::matrix::bits::BitMatrix;
use crate::plan::{Mode, Plan};
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

/// Coefficients of a single-use matrix whose maps fit on the stack.
const FEW_COEFFICIENTS: usize = 64;

enum Program<I: Isa> {
    Dense(Dense<'static, I::V>),
    Transformed(Box<TransformedPlan<I>>),
    Rows(Rows),
    Horner(Parities),
}

struct CompiledPlan<I: Isa> {
    isa: I,
    plan: Plan,
    program: Program<I>,
    slot: Option<Arc<Slot>>,
    /// Cache slots of code that also signs, one per set of points, created on first use.
    signing_slots: [OnceLock<Arc<Slot>>; SignaturePoints::ALL.len()],
    tier: Tier,
    /// The steps of the slot, prepared for this instruction set, if it has no machine code.
    steps: OnceLock<Steps<I::V>>,
}

/// When a plan is compiled to machine code, on instruction sets with a compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Never: the generic kernels run.
    Generic,
    /// Before the first call.
    Code,
    /// Once the plan has processed enough bytes.
    Adaptive,
}

/// Compiles `plan` for the instruction set of `isa`.
pub(super) fn compile<I: Isa>(isa: I, plan: &Plan, tier: Tier) -> Result<Box<dyn Kernel>, Error> {
    if let Some(way) = Way::of(plan) {
        return Ok(Box::new(TransformedPlan::new(isa, plan, way)?));
    }
    let program = match plan.layout() {
        Layout::Packets { bytes } => {
            let bits = BitMatrix::expand(plan.matrix()?)?;
            Program::Rows(Rows::new(&bits, plan.field().w() as usize, bytes))
        }
        Layout::Words => match horner_parities(plan)? {
            Some(parities) => Program::Horner(parities),
            None => match Way::without_code(plan) {
                Some(way) => Program::Transformed(Box::new(TransformedPlan::new(isa, plan, way)?)),
                None => Program::Dense(dense(plan.matrix()?)?),
            },
        },
    };
    // SAFETY: `isa` proves the instruction set, and the target belongs to it.
    let slot = (tier != Tier::Generic).then(|| unsafe { Slot::of(plan, I::TARGET, Purpose::Code) });
    if let (Tier::Code, Some(slot)) = (tier, &slot) {
        slot.ready();
    }
    Ok(Box::new(CompiledPlan {
        isa,
        plan: plan.clone(),
        program,
        slot,
        signing_slots: SignaturePoints::ALL.map(|_| OnceLock::new()),
        tier,
        steps: OnceLock::new(),
    }))
}

/// Compiles a matrix for the planar layout: the blocks of the kernel are the planes of the matrix's inputs, then those
/// of its outputs.
pub(super) fn compile_planar<I: Isa>(isa: I, matrix: &Matrix, mode: Mode) -> Option<Box<dyn Kernel>> {
    // SAFETY: `isa` proves the instruction set, and the target belongs to it.
    let ready = unsafe { Ready::planar(matrix, mode, I::TARGET) };
    // Without executable pages the same program is interpreted. SAFETY: interpreted programs need no instruction set.
    let ready = ready
        .or_else(|| unsafe { Ready::planar(matrix, mode, Target::interpreted(<I::V as Vector>::BYTES)) })?;
    let work = match ready {
        Ready::Code(code) => PlanarWork::Code(code),
        Ready::Steps(allocated) => PlanarWork::Steps(Steps::new(&allocated, Layout::Words, 1)),
        Ready::SigningCode(_) => return None,
    };
    Some(Box::new(CompiledPlanes { isa, work }))
}

enum PlanarWork<V: Vector> {
    Code(Box<CodeKernel>),
    Steps(Steps<V>),
}

/// Kernel for the planar layout. The caller has checked number and equal lengths of the buffers.
struct CompiledPlanes<I: Isa> {
    isa: I,
    work: PlanarWork<I::V>,
}

impl<I: Isa> Kernel for CompiledPlanes<I> {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.run_part(0, inputs, outputs)
    }

    fn run_part(&self, total_len: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = inputs.first().map_or(0, |input| input.len());
        let total_len = total_len.max(len);
        match &self.work {
            PlanarWork::Code(code) => code.run(inputs, outputs, len, total_len),
            PlanarWork::Steps(steps) => {
                let buffers = Buffers { inputs, outputs, len, total_len, add: false };
                self.isa.run(Work::Steps(steps, buffers));
            }
        }
        Ok(())
    }
}

/// Multiplies blocks by a matrix over GF(2^8), given row by row.
pub(super) fn multiply<I: Isa>(isa: I, coefficients: &[u8], buffers: Buffers<'_, '_>) {
    let (inputs, outputs) = (buffers.inputs, buffers.outputs.len());
    assert!(coefficients.len() == inputs.len() * outputs, "the caller checks the number of buffers");
    if let Some(sum_constrained) = SumConstrained::new(coefficients, inputs.len()) {
        return isa.run(Work::SumConstrained(sum_constrained, buffers));
    }
    let products = <I::V as Vector>::Map::gf8_products();
    let product = |output, input| products[coefficients[output * inputs.len() + input] as usize];
    let mut few = [const { MaybeUninit::uninit() }; FEW_COEFFICIENTS];
    let dense = match few.get_mut(..coefficients.len()) {
        Some(storage) => Dense::new_in(storage, inputs.len(), outputs, product),
        None => Dense::new(1, inputs.len(), outputs, |output, input| [product(output, input)]),
    };
    isa.run(Work::Words(&dense, buffers));
}

/// # Errors
/// [`Error::MatrixTooLarge`] beyond [`Layout::max_coefficients`].
pub(super) fn dense<V: Vector>(matrix: &Matrix) -> Result<Dense<'static, V>, Error> {
    let field = matrix.field();
    let (inputs, outputs) = (matrix.columns(), matrix.rows());
    if field == Field::GF8 {
        let products = V::Map::gf8_products();
        let prepared = |output, input| [products[matrix.at(output, input) as usize]];
        return Ok(Dense::new(1, inputs, outputs, prepared));
    }
    let bytes = field.word_bytes()?;
    let limit = Layout::Words.max_coefficients(field)?;
    if inputs.saturating_mul(outputs) > limit {
        return Err(Error::MatrixTooLarge { rows: outputs, columns: inputs, limit });
    }
    let prepared = |output, input| {
        let map = LinearMap::multiplication(field, matrix.at(output, input));
        map.prepare().collect::<Vec<V::Map>>()
    };
    Ok(Dense::new(bytes, inputs, outputs, prepared))
}

/// P, Q and R are the only rows over GF(2^8) that need doublings alone: row e has (2^e)^(k-1-j) at column j. They are
/// recognised by their coefficients in any plan.
fn horner_parities(plan: &Plan) -> Result<Option<Parities>, Error> {
    if plan.field() != Field::GF8 {
        return Ok(None);
    }
    Ok(horner_rows(plan.matrix()?))
}

fn horner_rows(matrix: &Matrix) -> Option<Parities> {
    let field = matrix.field();
    let inputs = matrix.columns();
    let exponent_of = |row: usize| {
        (0..3).find(|e| (0..inputs).all(|j| matrix.at(row, j) == field.exp((e * (inputs - 1 - j)) as u64)))
    };
    let exponents: Vec<usize> = (0..matrix.rows()).map(exponent_of).collect::<Option<_>>()?;
    let ascending = exponents.is_sorted_by(|a, b| a < b);
    ascending.then(|| Parities {
        p: exponents.contains(&0),
        q: exponents.contains(&1),
        r: exponents.contains(&2),
    })
}

impl<I: Isa> Kernel for CompiledPlan<I> {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.run_part(0, inputs, outputs)
    }

    fn run_part(&self, total_len: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.plan.check_buffers(inputs, outputs)?;
        let total_len = total_len.max(len);
        let add = self.plan.mode() == Mode::Add;
        let ready = self.slot.as_ref().and_then(|slot| slot.get(len));
        if let Some(Ready::Code(code)) = ready {
            code.run(inputs, outputs, len, total_len);
            return Ok(());
        }
        let buffers = Buffers { inputs, outputs, len, total_len, add };
        if let Some(Ready::Steps(allocated)) = ready {
            let steps =
                self.steps.get_or_init(|| Steps::new(allocated, self.plan.layout(), self.plan.granule()));
            self.isa.run(Work::Steps(steps, buffers));
            return Ok(());
        }
        self.isa.run(match &self.program {
            Program::Dense(dense) => Work::Words(dense, buffers),
            Program::Transformed(transformed) => {
                transformed.run_checked(buffers);
                return Ok(());
            }
            Program::Rows(rows) => Work::Rows(rows, buffers),
            Program::Horner(parities) => Work::Horner(*parities, buffers),
        });
        Ok(())
    }

    fn run_dividing(
        &self,
        points: SignaturePoints,
        total_len: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Option<TrailingQuotients> {
        if self.tier == Tier::Generic || !I::TARGET.native {
            return None;
        }
        let slot = &self.signing_slots[points as usize];
        let len = self.plan.check_buffers(inputs, outputs).ok()?;
        // SAFETY: `isa` proves the instruction set, and the target belongs to it.
        let of_plan = || unsafe { Slot::of(&self.plan, I::TARGET, Purpose::SignedCode { points }) };
        let slot = slot.get_or_init(of_plan);
        let ready = match self.tier {
            Tier::Code => slot.ready(),
            _ => slot.get(len),
        };
        match ready {
            Some(Ready::SigningCode(code)) => code.run(inputs, outputs, len, total_len.max(len)),
            _ => None,
        }
    }
}
