//! The operations of RAID-Z as a table of functions in the shape of OpenZFS: three generate parities, seven reconstruct
//! data columns. Columns may be shorter than the parity, as in a row of RAID-Z; they count as if zeros followed.

use crate::blocks::{Blocks, array, object};
use crate::status::{Failure, reported};
use gabion_engine::raidz::Reconstruction;
use gabion_engine::{Code, Compiled, Engine};
use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

/// `gabion_raidz_row` of the header.
#[repr(C)]
pub struct Row {
    columns: usize,
    sizes: *const usize,
    data: *const *mut u8,
    size: usize,
    parity: *const *mut u8,
}

type Generate = unsafe extern "C" fn(*const Row) -> i32;
type Reconstruct = unsafe extern "C" fn(*const Row, *const usize) -> i32;

/// `gabion_raidz_ops` of the header.
#[repr(C)]
pub struct Operations {
    name: *const c_char,
    generate: [Generate; 3],
    reconstruct: [Reconstruct; 7],
}

// SAFETY: it is never written, and its name is a constant.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations {
    name: c"gabion".as_ptr(),
    generate: [generate::<1>, generate::<2>, generate::<3>],
    reconstruct: [
        reconstruct::<0>,
        reconstruct::<1>,
        reconstruct::<2>,
        reconstruct::<3>,
        reconstruct::<4>,
        reconstruct::<5>,
        reconstruct::<6>,
    ],
};

/// The table.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_raidz_get_ops() -> *const Operations {
    &raw const OPERATIONS
}

/// Number of data columns, parities or index of the reconstruction, lost columns.
type Key = (usize, usize, Vec<usize>);

/// Most compiled plans of the process.
const MAX_PLANS: usize = 256;

/// A plan of the process: compiling takes longer than a row.
fn plan(key: Key, make: impl FnOnce(&Key) -> Result<Compiled, Failure>) -> Result<Arc<Compiled>, Failure> {
    static PLANS: Mutex<Option<HashMap<Key, Arc<Compiled>>>> = Mutex::new(None);
    let known = || PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = known().as_ref().and_then(|plans| plans.get(&key)) {
        return Ok(plan.clone());
    }
    let made = Arc::new(make(&key)?);
    let mut plans = known();
    let plans = plans.get_or_insert_default();
    if plans.len() >= MAX_PLANS {
        plans.clear();
    }
    plans.insert(key, made.clone());
    Ok(made)
}

/// # Safety
/// As the header says.
unsafe extern "C" fn generate<const PARITIES: usize>(row: *const Row) -> i32 {
    reported(|| {
        // SAFETY: the caller's promise.
        let row = unsafe { object(row, "the row") }?;
        let plan = plan((row.columns, PARITIES, Vec::new()), |(columns, parities, _)| {
            let code: Code = format!("raidz:{columns}+{parities}").parse()?;
            Ok(Engine::new(1)?.compile(&code.encode_plan()?)?)
        })?;
        // SAFETY: the caller's promise.
        unsafe { carry_out(row, &plan, PARITIES, &[]) }
    })
}

/// # Safety
/// As the header says.
unsafe extern "C" fn reconstruct<const INDEX: usize>(row: *const Row, lost: *const usize) -> i32 {
    reported(|| {
        let with = Reconstruction::ALL[INDEX];
        // SAFETY: the caller's promise.
        let (row, lost) = unsafe { (object(row, "the row")?, array(lost, with.parities().len(), "lost")?) };
        let plan = plan((row.columns, 3 + INDEX, lost.to_vec()), |(columns, _, lost)| {
            let code: Code = format!("raidz:{columns}+3").parse()?;
            Ok(Engine::new(1)?.compile(&with.plan(&code, lost)?)?)
        })?;
        let parities = with.parities().iter().map(|parity| parity + 1).max().unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe { carry_out(row, &plan, parities, lost) }
    })
}

/// Runs a plan over the parts of a row in which the same columns have bytes.
///
/// # Safety
/// The row has its columns and `parities` parities, each of its size.
unsafe fn carry_out(row: &Row, plan: &Compiled, parities: usize, lost: &[usize]) -> Result<(), Failure> {
    // SAFETY: by contract.
    let (sizes, data, parity) = unsafe {
        (
            array(row.sizes, row.columns, "sizes")?,
            array(row.data, row.columns, "data")?,
            array(row.parity, parities, "parity")?,
        )
    };
    if let Some(long) = sizes.iter().position(|&size| size > row.size) {
        let (have, most) = (sizes[long], row.size);
        return Err(Failure::argument(format!("column {long} has {have} bytes, the parity {most}")));
    }
    let size_of = |column: usize| sizes.get(column).copied().unwrap_or(row.size);
    let start_of = |column: usize| match column.checked_sub(row.columns) {
        None => data[column],
        Some(parity_index) => parity[parity_index],
    };
    let used = plan.plan().inputs().iter().chain(plan.plan().outputs());
    if let Some(&column) = used.clone().find(|&&column| start_of(column).is_null() && size_of(column) > 0) {
        return Err(Failure::argument(format!("column {column} is a null pointer")));
    }
    let mut ends: Vec<usize> = sizes.iter().copied().chain([row.size]).filter(|&end| end > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    // Beyond the longest lost column nothing is missing.
    let most = lost.iter().map(|&column| size_of(column)).max().unwrap_or(row.size);
    ends.retain(|&end| end <= most);
    let longest = ends.iter().scan(0, |start, &end| Some(end - std::mem::replace(start, end))).max();
    let short = used.clone().any(|&column| size_of(column) < most);
    let zeros = vec![0_u8; if short { longest.unwrap_or(0) } else { 0 }];
    let mut ignored = vec![vec![0_u8; zeros.len()]; plan.plan().outputs().len()];
    let mut start = 0;
    for end in ends {
        let there = |column: usize| size_of(column) >= end;
        // SAFETY: by contract, for columns that reach so far.
        let at = |column: usize| unsafe { start_of(column).add(start) };
        let inputs = plan.plan().inputs().iter();
        let inputs: Vec<*const u8> = inputs
            .map(|&column| if there(column) { at(column).cast_const() } else { zeros.as_ptr() })
            .collect();
        let outputs = plan.plan().outputs().iter().zip(&mut ignored);
        let outputs: Vec<*mut u8> = outputs
            .map(|(&column, ignored)| if there(column) { at(column) } else { ignored.as_mut_ptr() })
            .collect();
        // SAFETY: by contract; the memory of this function is as long as the longest part.
        let mut blocks = unsafe { Blocks::new(end - start, &inputs, &outputs) }?;
        plan.run(&blocks.inputs, &mut blocks.outputs)?;
        start = end;
    }
    Ok(())
}
