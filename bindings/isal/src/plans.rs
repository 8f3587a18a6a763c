//! Compiled plans by the expanded tables that they apply.
//!
//! A program passes tables by their address, and may change them or reuse the memory. So a plan is found by the
//! content: each thread remembers the plans of the tables that it used last, by address and shape, and compares all
//! bytes. Tables that are not there are looked up in a cache of the process, which holds a bounded number of plans and
//! bytes and drops the one used longest ago.

use crate::field::inv;
use crate::gate::{self, Gate};
use crate::tables::{self, BYTES};
use gabion_engine::kernel::{Backend, KernelSet, Tier};
use gabion_engine::matrix::Matrix;
use gabion_engine::matrix::cauchy::{CauchyForm, Point};
use gabion_engine::{Code, Compiled, Engine, Field, Layout, Mode, Plan};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Plans that the process keeps, and the bytes of their tables.
const MAX_PLANS: usize = 256;
const MAX_BYTES: usize = 16 << 20;

/// Tables that a thread remembers, a power of two.
const RECENT: usize = 16;

/// Largest tables that a thread remembers: it keeps them in memory after the process dropped them.
const MAX_RECENT_BYTES: usize = 256 << 10;

/// A use of tables: sums of `inputs` products for each of `rows` outputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Shape {
    pub(crate) inputs: usize,
    pub(crate) rows: usize,
    /// Tables from one row to the next; `inputs`, or more if a single input is added.
    pub(crate) stride: usize,
    pub(crate) add: bool,
}

impl Shape {
    /// Bytes of the tables in use; `None` beyond the address space.
    fn bytes(self) -> Option<usize> {
        self.inputs.checked_mul(self.rows)?.checked_mul(BYTES)
    }

    /// The tables of row `row`.
    ///
    /// # Safety
    /// There are tables for all rows at `tables`.
    unsafe fn row<'a>(self, tables: *const u8, row: usize) -> &'a [u8] {
        // SAFETY: by contract.
        unsafe { std::slice::from_raw_parts(tables.add(row * self.stride * BYTES), self.inputs * BYTES) }
    }

    /// True if the tables at `tables` have the content `known`.
    ///
    /// # Safety
    /// There are tables for all rows at `tables`.
    unsafe fn is_at(self, tables: *const u8, known: &[u8]) -> bool {
        if self.stride == self.inputs {
            // SAFETY: by contract; the rows are consecutive.
            return unsafe { std::slice::from_raw_parts(tables, known.len()) } == known;
        }
        // SAFETY: by contract.
        known
            .chunks(self.inputs * BYTES)
            .enumerate()
            .all(|(row, known)| unsafe { self.row(tables, row) } == known)
    }
}

/// The plan of some tables. `plan` is `None` if a table belongs to no coefficient, or if the engine refused the plan.
struct Known {
    shape: Shape,
    tables: Box<[u8]>,
    plan: Option<Compiled>,
}

/// Tables that this thread used.
struct Recent {
    address: usize,
    known: Arc<Known>,
}

thread_local! {
    static USED: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

/// Calls `work` with the plan of the tables; `None` without a plan.
///
/// # Safety
/// Tables for all rows of the shape can be read at `tables`.
pub(crate) unsafe fn with_plan<R>(
    shape: Shape,
    tables: *const u8,
    work: impl FnOnce(&Compiled) -> R,
) -> Option<R> {
    let address = tables.addr();
    let place = ((address / BYTES) ^ shape.inputs.wrapping_mul(5) ^ shape.rows.wrapping_mul(3)) % RECENT;
    let mut work = Some(work);
    let done = USED.try_with(|used| {
        // Borrowed already in a signal handler that interrupted this function.
        let mut used = used.try_borrow_mut().ok()?;
        let place = &mut used[place];
        let is_here = |recent: &&mut Recent| {
            let known = &recent.known;
            // SAFETY: by contract.
            recent.address == address && known.shape == shape && unsafe { shape.is_at(tables, &known.tables) }
        };
        let known = match place.as_mut().filter(is_here) {
            Some(recent) => &recent.known,
            None => {
                // SAFETY: by contract.
                let known = unsafe { look_up(shape, tables) }?;
                if known.tables.len() > MAX_RECENT_BYTES {
                    return Some(known.plan.as_ref().and_then(|plan| work.take().map(|work| work(plan))));
                }
                &place.insert(Recent { address, known }).known
            }
        };
        Some(known.plan.as_ref().and_then(|plan| work.take().map(|work| work(plan))))
    });
    match done {
        Ok(Some(done)) => done,
        // The thread ends, and its memory is gone already.
        _ => {
            // SAFETY: by contract.
            let known = unsafe { look_up(shape, tables) }?;
            known.plan.as_ref().and_then(|plan| work.take().map(|work| work(plan)))
        }
    }
}

/// The shape of a call, and the bytes of its tables.
type TableKey = (Shape, Box<[u8]>);

/// Plans of the process.
struct Plans {
    /// With the logical time of the last use.
    known: Option<HashMap<TableKey, (Arc<Known>, u64)>>,
    bytes: usize,
    clock: u64,
}

static PLANS: Gate<Plans> = Gate::new(Plans { known: None, bytes: 0, clock: 0 });

unsafe extern "C" fn before_fork() {
    PLANS.lock();
}

unsafe extern "C" fn after_fork() {
    // SAFETY: `before_fork` took the lock in this thread, and nothing ran in between that uses the value.
    unsafe { PLANS.unlock() };
}

/// Calls `work` with the lock held under which everything is compiled.
fn compiling<R>(work: impl FnOnce(&mut Plans) -> R) -> R {
    gate::register(before_fork, after_fork);
    PLANS.with(work)
}

/// `None` for tables beyond the address space.
///
/// # Safety
/// As for [`with_plan`].
#[cold]
unsafe fn look_up(shape: Shape, tables: *const u8) -> Option<Arc<Known>> {
    let mut content = Vec::with_capacity(shape.bytes()?);
    // SAFETY: by contract.
    (0..shape.rows).for_each(|row| content.extend_from_slice(unsafe { shape.row(tables, row) }));
    Some(compiling(|plans| plans.find(shape, content.into_boxed_slice())))
}

impl Plans {
    fn find(&mut self, shape: Shape, tables: Box<[u8]>) -> Arc<Known> {
        self.clock += 1;
        let clock = self.clock;
        let key = (Shape { stride: 0, ..shape }, tables);
        let map = self.known.get_or_insert_default();
        if let Some((known, used)) = map.get_mut(&key) {
            *used = clock;
            if known.shape == shape {
                return known.clone();
            }
        }
        let plan = tables::coefficients(&key.1).and_then(|coefficients| compile(shape, &coefficients));
        let known = Arc::new(Known { shape, tables: key.1.clone(), plan });
        let bytes = key.1.len();
        if bytes <= MAX_BYTES {
            self.make_room(bytes);
            let map = self.known.get_or_insert_default();
            if map.insert(key, (known.clone(), clock)).is_none() {
                self.bytes += bytes;
            }
        }
        known
    }

    /// Drops the plans used longest ago until another one with `bytes` of tables fits.
    fn make_room(&mut self, bytes: usize) {
        let map = self.known.get_or_insert_default();
        while map.len() >= MAX_PLANS || (self.bytes + bytes > MAX_BYTES && !map.is_empty()) {
            let oldest = map.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.bytes -= oldest.1.len();
            map.remove(&oldest);
        }
    }
}

/// The engine, on the calling thread. `None` only if no kernel set runs on this CPU.
fn engine() -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    let start = || {
        // An invalid name in GABION_KERNEL cannot be reported here.
        let set = KernelSet::chosen().unwrap_or_else(|_| KernelSet::fastest());
        // Everything that the compiler initialises once is initialised here, with the lock held.
        for code in ["4+2", "raidz:3+2"] {
            let plan = code.parse::<Code>().and_then(|code| code.encode_plan());
            plan.and_then(|plan| set.at(Tier::Code).compile(&plan)).ok()?;
        }
        Engine::with_kernel_set(set, 1).ok()
    };
    ENGINE.get_or_init(start).as_ref()
}

fn compile(shape: Shape, coefficients: &[u8]) -> Option<Compiled> {
    let mode = if shape.add { Mode::Add } else { Mode::Write };
    let (rows, inputs) = (shape.rows, shape.inputs);
    let at = |row: usize, column: usize| coefficients[row * inputs + column];
    let plan = match cauchy_points(rows, inputs, at) {
        Some(form) => Plan::of_points(Field::GF8, &form, Layout::Words, mode),
        None => Matrix::from_fn(Field::GF8, rows, inputs, |row, column| at(row, column).into())
            .and_then(|matrix| Plan::new(matrix, Layout::Words, mode)),
    };
    engine()?.compile(&plan.ok()?).ok()
}

/// The points of a plain Cauchy matrix such as the lower part of `gf_gen_cauchy1_matrix`: entry (i, j) is the inverse
/// of x_i + y_j.
fn cauchy_points(rows: usize, inputs: usize, at: impl Fn(usize, usize) -> u8) -> Option<CauchyForm> {
    if rows < 2 || inputs < 2 || rows + inputs > 256 {
        return None;
    }
    // Any number can be added to all points. With this one ISA-L's own matrix has its own points, k + i and j.
    let distance = |i, j| Some(inv(at(i, j))).filter(|&distance| distance != 0);
    let base = inputs as u8;
    let y: Vec<u8> = (0..inputs).map(|j| Some(distance(0, j)? ^ base)).collect::<Option<_>>()?;
    let x: Vec<u8> = (0..rows).map(|i| Some(distance(i, 0)? ^ y[0])).collect::<Option<_>>()?;
    let holds = (0..rows).all(|i| (0..inputs).all(|j| distance(i, j) == Some(x[i] ^ y[j])));
    let mut seen = [false; 256];
    let differ = x.iter().chain(&y).all(|&point| !std::mem::replace(&mut seen[usize::from(point)], true));
    let points = |points: Vec<u8>| points.into_iter().map(|point| Point::plain(point.into())).collect();
    (holds && differ).then(|| CauchyForm { rows: points(x), columns: points(y) })
}

/// Kinds of RAID parity.
#[derive(Clone, Copy)]
pub(crate) enum Parity {
    /// The sum.
    Xor,
    /// P and Q; the inputs in reverse order.
    PQ,
}

/// Most data blocks of a RAID stripe with a plan.
const MAX_RAID: usize = 253;

/// The plan of a RAID parity of `k` blocks.
pub(crate) fn raid(parity: Parity, k: usize) -> Option<&'static Compiled> {
    static RAID: [[OnceLock<Option<Compiled>>; MAX_RAID + 1]; 2] =
        [const { [const { OnceLock::new() }; MAX_RAID + 1] }; 2];
    let cell = RAID[parity as usize].get(k)?;
    if let Some(plan) = cell.get() {
        return plan.as_ref();
    }
    compiling(|_| {
        let m = match parity {
            Parity::Xor => 1,
            Parity::PQ => 2,
        };
        let compile = || {
            let plan = format!("raidz:{k}+{m}").parse::<Code>().and_then(|code| code.encode_plan()).ok()?;
            engine()?.compile(&plan).ok()
        };
        cell.get_or_init(compile).as_ref()
    })
}

#[cfg(test)]
mod tests;
