//! Plans of any matrix over GF(2^8), and the operations of RAID-Z.

use crate::blocks::{self, array, object, with_slices};
use crate::status::{Failure, reported};
use gabion_engine::matrix::Matrix;
use gabion_engine::raidz::Reconstruction;
use gabion_engine::{Code, Compiled, Engine, Field, Layout, Mode, Plan};

/// `gabion_plan` of the header.
pub struct CompiledPlan(Compiled);

/// Most coefficients of a matrix.
const MAX_COEFFICIENTS: usize = 1 << 20;

/// Operations of RAID-Z that generate parities: P, PQ, PQR. Reconstructions follow.
const GENERATIONS: i32 = 3;

/// Makes a plan of a matrix.
///
/// # Safety
/// As the header says; there are rows · columns coefficients.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_new(
    rows: usize,
    columns: usize,
    coefficients: *const u8,
    add: i32,
    threads: usize,
    plan: *mut *mut CompiledPlan,
) -> i32 {
    let make = || {
        let count = rows.checked_mul(columns).filter(|count| (1..=MAX_COEFFICIENTS).contains(count));
        let count = count.ok_or_else(|| Failure::argument(format!("a matrix of {rows} x {columns}")))?;
        // SAFETY: the caller's promise.
        let coefficients = unsafe { array(coefficients, count, "coefficients") }?;
        let value = |row: usize, column: usize| coefficients[row * columns + column].into();
        let matrix = Matrix::from_fn(Field::GF8, rows, columns, value)?;
        let mode = if add == 0 { Mode::Write } else { Mode::Add };
        Ok(CompiledPlan(Engine::new(threads)?.compile(&Plan::new(matrix, Layout::Words, mode)?)?))
    };
    // SAFETY: the caller's promise.
    reported(|| unsafe { blocks::store(plan, make) })
}

/// Makes a plan of an operation of RAID-Z.
///
/// # Safety
/// As the header says; `lost` has as many columns as the operation uses parities, or is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_raidz(
    k: usize,
    operation: i32,
    lost: *const usize,
    threads: usize,
    plan: *mut *mut CompiledPlan,
) -> i32 {
    let make = || {
        let code = |m: i32| format!("raidz:{k}+{m}").parse::<Code>();
        let of_operation = match operation {
            0..GENERATIONS => code(operation + 1)?.encode_plan()?,
            _ => {
                let index = usize::try_from(operation - GENERATIONS).ok();
                let reconstruction = index.and_then(|index| Reconstruction::ALL.get(index));
                let reconstruction = reconstruction
                    .ok_or_else(|| Failure::argument(format!("{operation} is no operation of RAID-Z")))?;
                // SAFETY: the caller's promise.
                let lost = unsafe { array(lost, reconstruction.parities().len(), "lost") }?;
                reconstruction.plan(&code(GENERATIONS)?, lost)?
            }
        };
        Ok(CompiledPlan(Engine::new(threads)?.compile(&of_operation)?))
    };
    // SAFETY: the caller's promise.
    reported(|| unsafe { blocks::store(plan, make) })
}

/// Frees a plan.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_free(plan: *mut CompiledPlan) {
    // SAFETY: the caller's promise.
    unsafe { blocks::free(plan) };
}

/// Number of inputs.
///
/// # Safety
/// `plan` is a plan or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_inputs(plan: *const CompiledPlan) -> usize {
    // SAFETY: the caller's promise.
    unsafe { plan.as_ref() }.map_or(0, |plan| plan.0.plan().inputs().len())
}

/// Number of outputs.
///
/// # Safety
/// `plan` is a plan or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_outputs(plan: *const CompiledPlan) -> usize {
    // SAFETY: the caller's promise.
    unsafe { plan.as_ref() }.map_or(0, |plan| plan.0.plan().outputs().len())
}

/// Column of an input.
///
/// # Safety
/// `plan` is a plan or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_input(plan: *const CompiledPlan, index: usize) -> usize {
    // SAFETY: the caller's promise.
    let plan = unsafe { plan.as_ref() };
    plan.and_then(|plan| plan.0.plan().inputs().get(index).copied()).unwrap_or(usize::MAX)
}

/// Runs a plan.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_plan_run(
    plan: *const CompiledPlan,
    len: usize,
    inputs: *const *const u8,
    outputs: *const *mut u8,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let plan = &object(plan, "the plan")?.0;
        let inputs = array(inputs, plan.plan().inputs().len(), "inputs")?;
        let outputs = array(outputs, plan.plan().outputs().len(), "outputs")?;
        with_slices(len, inputs, outputs, |inputs, outputs| Ok(plan.run(inputs, outputs)?))
    })
}
