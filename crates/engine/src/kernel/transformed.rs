//! Plans that run by [`Transform`]s, where that is faster than their matrix or where no matrix is stored: over GF(2^16)
//! plans too large for the compiler, over GF(2^8) plans until they are compiled, and repairs without a plan.
//!
//! A repair can run in two ways. Its matrix as a whole is one Cauchy matrix, but lost blocks have arbitrary points, and
//! the coset that contains them is soon the whole field. Its factors ([`Structure`]) have rows at the points of the
//! source redundancy, which are close together: with few losses they fill a small coset, and a small matrix remains to
//! be solved.

use super::Kernel;
use super::compiled::dense;
use super::generic::{Buffers, Dense, Isa, Multipliers, Transforming, Work, WorkBuffer};
use super::transform::Transform;
use super::vector::Vector;
use crate::compiler;
use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use crate::matrix::cauchy::CauchyForm;
use crate::plan::{Mode, Plan, Structure};
use crate::tuning::{
    COEFFICIENTS_PER_PRODUCT, COEFFICIENTS_PER_PRODUCT_OF_SUMS, FACTOR_ROW_PART, FACTOR_ROWS_BYTES,
    MAX_PREPARED_COEFFICIENTS, MIN_TRANSFORMED_COEFFICIENTS,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Method of running a plan.
pub(super) enum Way {
    /// As one Cauchy matrix.
    Whole(Transform),
    /// By its factors: the Cauchy matrix, then the second factor of the structure.
    Factored(Transform),
}

impl Way {
    /// The cheapest way for a plan that is too large for the compiler; `None` if its matrix is cheaper.
    pub(super) fn of(plan: &Plan) -> Option<Way> {
        let (rows, columns) = (plan.outputs().len(), plan.inputs().len());
        if !plan.layout().runs_by_points(plan.field()) || compiler::is_considered(rows, columns) {
            return None;
        }
        let coefficients = rows.saturating_mul(columns);
        let (price, way) = Way::cheapest(plan)?;
        (price < coefficients || coefficients > MAX_PREPARED_COEFFICIENTS).then_some(way)
    }

    /// The same for a plan over GF(2^8) that is not compiled yet, or never will be.
    pub(super) fn without_code(plan: &Plan) -> Option<Way> {
        let coefficients = plan.outputs().len() * plan.inputs().len();
        if (plan.field(), plan.layout()) != (Field::GF8, Layout::Words)
            || coefficients < MIN_TRANSFORMED_COEFFICIENTS
        {
            return None;
        }
        let (price, way) = Way::cheapest(plan)?;
        (price < coefficients).then_some(way)
    }

    fn cheapest(plan: &Plan) -> Option<(usize, Way)> {
        Way::all(plan).into_iter().min_by_key(|(price, _)| *price)
    }

    /// All ways, each with its [price].
    pub(super) fn all(plan: &Plan) -> Vec<(usize, Way)> {
        let whole = plan.points().map(|form| {
            let transform = Transform::new(plan.field(), form);
            (price(&transform), Way::Whole(transform))
        });
        let factored = plan.structure().and_then(|structure| {
            let solve = structure.solve.as_ref()?;
            let transform = Transform::new(plan.field(), &structure.cauchy);
            Some((price(&transform) + solve.rows() * solve.columns(), Way::Factored(transform)))
        });
        whole.into_iter().chain(factored).collect()
    }
}

/// Cost of a transform in direct products of coefficients.
fn price(transform: &Transform) -> usize {
    let is_sum = transform.field == Field::GF8 && !transform.is_between_two_cosets();
    let each = if is_sum { COEFFICIENTS_PER_PRODUCT_OF_SUMS } else { COEFFICIENTS_PER_PRODUCT };
    transform.products().saturating_mul(each)
}

/// True if a matrix over GF(2^8) of this many coefficients may be faster by transforms: a lower bound from one
/// transform into and one out of a coset of `bits` bits. For small repairs, creating a [`Transform`] only to reject it
/// would take as long as the repair.
pub(crate) fn may_be_transformed(coefficients: usize, bits: u32) -> bool {
    let products = (bits as usize) << bits;
    coefficients >= MIN_TRANSFORMED_COEFFICIENTS && COEFFICIENTS_PER_PRODUCT * products < coefficients
}

/// The transform in place of a matrix over GF(2^8) given by its points, if it pays.
pub(super) fn worthwhile(form: &CauchyForm) -> Option<Transform> {
    let transform = Transform::new(Field::GF8, form);
    (price(&transform) < form.rows.len() * form.columns.len()).then_some(transform)
}

/// Multiplies blocks by such a matrix.
pub(super) fn multiply<I: Isa>(isa: I, transform: &Transform, buffers: Buffers<'_, '_>) {
    let (multipliers, work) = (&Multipliers::new(Field::GF8), &mut WorkBuffer::default());
    isa.transform(Transforming { transform, multipliers, work, buffers });
}

/// A plan that runs by transforms.
pub(super) struct TransformedPlan<I: Isa> {
    isa: I,
    plan: Plan,
    transform: Transform,
    /// The second factor, if any.
    solve: Option<Dense<'static, I::V>>,
    multipliers: Multipliers<<I::V as Vector>::Map>,
    /// Work buffers, one per concurrent call, reused: page faults of new ones would take as long as some tiles.
    work_buffers: Mutex<Vec<WorkBuffers>>,
}

/// Work buffers of a call.
#[derive(Default)]
struct WorkBuffers {
    work: WorkBuffer,
    /// The rows between two factors.
    between: Vec<u8>,
}

impl<I: Isa> TransformedPlan<I> {
    pub(super) fn new(isa: I, plan: &Plan, way: Way) -> Result<TransformedPlan<I>, Error> {
        let (transform, solve) = match (way, plan.structure()) {
            (Way::Factored(transform), Some(Structure { solve: Some(solve), .. })) => {
                (transform, Some(dense(solve)?))
            }
            (Way::Whole(transform) | Way::Factored(transform), _) => (transform, None),
        };
        let (plan, multipliers, work_buffers) =
            (plan.clone(), Multipliers::new(plan.field()), Mutex::default());
        Ok(TransformedPlan { isa, plan, transform, solve, multipliers, work_buffers })
    }

    fn work_buffers(&self) -> MutexGuard<'_, Vec<WorkBuffers>> {
        self.work_buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs over checked buffers.
    pub(super) fn run_checked(&self, buffers: Buffers<'_, '_>) {
        let mut work_buffers = self.work_buffers().pop().unwrap_or_default();
        match (&self.solve, self.plan.structure()) {
            (Some(solve), Some(structure)) => self.run_factors(solve, structure, &mut work_buffers, buffers),
            _ => self.transform(&mut work_buffers.work, buffers),
        }
        self.work_buffers().push(work_buffers);
    }

    fn transform(&self, work: &mut WorkBuffer, buffers: Buffers<'_, '_>) {
        let (transform, multipliers) = (&self.transform, &self.multipliers);
        self.isa.transform(Transforming { transform, multipliers, work, buffers });
    }

    /// Runs part by part: the rows of the first factor plus the added inputs, then the second factor applied to these.
    fn run_factors(
        &self,
        solve: &Dense<'_, I::V>,
        structure: &Structure,
        work_buffers: &mut WorkBuffers,
        buffers: Buffers<'_, '_>,
    ) {
        let Buffers { inputs, outputs, len, total_len, add } = buffers;
        let added = &structure.added;
        let longest = (FACTOR_ROWS_BYTES / added.len().max(1))
            .clamp(FACTOR_ROW_PART.0, FACTOR_ROW_PART.1)
            .min(len.max(1));
        let longest = longest.next_multiple_of(self.plan.granule());
        for start in (0..len).step_by(longest) {
            let part = start..len.min(start + longest);
            let size = part.len();
            work_buffers.between.resize(added.len() * size, 0);
            for (row, added) in work_buffers.between.chunks_exact_mut(size).zip(added) {
                match added {
                    Some(input) => row.copy_from_slice(&inputs[*input][part.clone()]),
                    None => row.fill(0),
                }
            }
            let first = &inputs[..structure.cauchy.columns.len()];
            let first: Vec<&[u8]> = first.iter().map(|input| &input[part.clone()]).collect();
            let mut rows: Vec<&mut [u8]> = work_buffers.between.chunks_exact_mut(size).collect();
            let sums = Buffers { inputs: &first, outputs: &mut rows, len: size, total_len, add: true };
            self.transform(&mut work_buffers.work, sums);
            let rows: Vec<&[u8]> = work_buffers.between.chunks_exact(size).collect();
            let mut last: Vec<&mut [u8]> =
                outputs.iter_mut().map(|output| &mut output[part.clone()]).collect();
            let solved = Buffers { inputs: &rows, outputs: &mut last, len: size, total_len, add };
            self.isa.run(Work::Words(solve, solved));
        }
    }
}

impl<I: Isa> Kernel for TransformedPlan<I> {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.run_part(0, inputs, outputs)
    }

    fn run_part(&self, total_len: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = self.plan.check_buffers(inputs, outputs)?;
        let add = self.plan.mode() == Mode::Add;
        self.run_checked(Buffers { inputs, outputs, len, total_len: total_len.max(len), add });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
