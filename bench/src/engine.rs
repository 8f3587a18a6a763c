//! Bench of the engine in memory, beside limits of the machine.
//!
//! A [`Case`] is one operation on buffers of one size. The selected kernels and the [`Limit`]s run in it in turn on the
//! same buffers, after the output of every kernel was checked. Rates are 1e9 bytes per second; [`Operation`] defines
//! which bytes count. Plans are compiled before, as a user of the engine keeps them too. Buffers stay the same from
//! pass to pass, so blocks that fit into a cache are read from there.

mod case;
mod charts;
mod explain;
mod limits;
pub(crate) mod memory;
mod report;
pub(crate) mod rounds;
mod stage;
mod verify;

pub use case::{Case, Operation, short};
pub use charts::{operations_over_shapes, over_blocks, over_shapes};
pub use explain::{Compilation, ExplainLine, Explained, Runs};
pub use limits::Limit;
pub use memory::{available_memory, meminfo};
pub use report::{Line, Measurement};
pub use rounds::Timing;
pub use verify::{Expected, check_blocks, check_signature};

use gabion::machine::fastest;
use gabion_engine::Error;
use gabion_engine::kernel::{KernelSet, Threads};
use memory::Memory;
use rounds::{Budget, take_turns};
use stage::{Stage, blocks_of};
use std::ops::ControlFlow;
use std::time::Duration;

/// Reason why a case is not measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Unknown operation.
    #[error("no operation '{name}'; there are: {known}")]
    UnknownOperation {
        /// The name given.
        name: String,
        /// The known names.
        known: String,
    },
    /// A block that the layout of the code cannot fill.
    #[error("blocks of {block} bytes are no multiple of {granule}, the smallest unit of {code}")]
    Granule {
        /// The code.
        code: String,
        /// Bytes of a block.
        block: usize,
        /// Bytes of which the block must be a multiple.
        granule: usize,
    },
    /// Nothing to encode, repair or update.
    #[error("{code} has no redundancy blocks")]
    NoRedundancy {
        /// The code.
        code: String,
    },
    /// More losses than the code survives, or none.
    #[error("{code} can repair 1 to {limit} lost blocks, not {lost}")]
    Lost {
        /// The code.
        code: String,
        /// Requested losses.
        lost: usize,
        /// Largest number of losses.
        limit: usize,
    },
    /// Blocks that do not fit into memory.
    #[error("cannot get {bytes} bytes of memory for the blocks")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The output of a kernel differs from that of the reference.
    #[error("{case}: output {output} is wrong at byte {offset}: {found:#04x} instead of {expected:#04x}")]
    Wrong {
        /// Name of the case.
        case: String,
        /// Number of the output.
        output: usize,
        /// Offset of the first difference.
        offset: usize,
        /// Byte of the reference.
        expected: u8,
        /// Byte of the kernel.
        found: u8,
    },
    /// A signature differs from its definition.
    #[error("{case}: the signature is {found:#x} instead of {expected:#x}")]
    WrongSignature {
        /// Name of the case.
        case: String,
        /// By definition.
        expected: u64,
        /// As computed.
        found: u64,
    },
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Time limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// For one case with all its kernels and limits.
    pub per_case: Duration,
    /// For all cases; those that do not fit in are left out.
    pub total: Option<Duration>,
}

/// Measures `cases` one after the other. `report` receives the results of each, one per kernel, or none if there was no
/// time for the case; it decides whether to continue.
///
/// # Errors
/// The first case that cannot be measured, before anything is run; the first kernel with a wrong output.
pub fn measure(
    cases: &[Case],
    time: Time,
    mut report: impl FnMut(&Case, &[Measurement]) -> ControlFlow<()>,
) -> Result<(), BenchError> {
    cases.iter().try_for_each(Case::check)?;
    let mut memory = Memory::for_most(cases.iter().map(|case| (blocks_of(case), case.block)))?;
    let mut budget = Budget::new(time.per_case, time.total, cases.len());
    let mut pool = Threads::new(1)?;
    for case in cases {
        if pool.count() != case.threads {
            pool = Threads::new(case.threads)?;
        }
        let Some(begun) = budget.begin() else {
            if report(case, &[]).is_break() {
                break;
            }
            continue;
        };
        let mut stage = Stage::new(case, &mut memory)?;
        let mut passes = Vec::new();
        for row in &case.rows {
            let mut pass = stage::pass(case, row, &pool)?;
            stage.verify(&case.name(row), &mut pass)?;
            passes.push(pass);
        }
        let streams = case.counted() / case.block;
        for limit in Limit::ALL {
            passes.push(limit.pass(fastest(), &pool, streams)?);
        }
        let timings = take_turns(&mut passes, &stage.inputs, &mut stage.outputs, begun.end())?;
        let (kernels, limits) = timings.split_at(case.rows.len());
        let limits: Vec<(Limit, Timing)> = Limit::ALL.into_iter().zip(limits.iter().copied()).collect();
        let measurement = |(row, &timing): (&&'static KernelSet, &Timing)| Measurement {
            name: case.name(row),
            row,
            case: case.clone(),
            timing,
            limits: limits.clone(),
        };
        let measurements: Vec<Measurement> = case.rows.iter().zip(kernels).map(measurement).collect();
        if report(case, &measurements).is_break() {
            break;
        }
    }
    Ok(())
}
