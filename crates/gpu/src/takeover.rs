//! Takeover: work of a failed device that the CPU may do, and its statistics.

use crate::error::GpuError;
use gabion_engine::kernel::{Backend, Kernel, KernelSet};
use gabion_engine::{Error, Plan};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handling of work at which a device fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// Return the error.
    #[default]
    Refused,
    /// The CPU does the work, and it is counted.
    Allowed,
}

/// Statistics of work taken over by the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Number of runs, or of kernels that the device's compiler rejected.
    pub times: u64,
    /// Reason of the first takeover.
    pub reason: String,
}

/// Takeover record of one device.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    takeover: Takeover,
    times: AtomicU64,
    reason: OnceLock<String>,
}

impl Ledger {
    pub(crate) fn new(takeover: Takeover) -> Ledger {
        Ledger { takeover, ..Ledger::default() }
    }

    pub(crate) fn allows(&self) -> bool {
        self.takeover == Takeover::Allowed
    }

    fn enter(&self, error: &GpuError) {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.reason.get_or_init(|| error.to_string());
    }

    /// Statistics so far.
    pub(crate) fn taken(&self) -> Option<TakenOver> {
        let times = self.times.load(Ordering::Relaxed);
        self.reason.get().map(|reason| TakenOver { times, reason: reason.clone() })
    }

    /// The device's kernel, or a CPU kernel if compilation failed and takeover is allowed.
    pub(crate) fn kernel(
        &self,
        plan: &Plan,
        compiled: Result<Box<dyn Kernel>, GpuError>,
    ) -> Result<Box<dyn Kernel>, Error> {
        match compiled {
            Err(error) if self.allows() => {
                self.enter(&error);
                KernelSet::chosen()?.compile(plan)
            }
            other => Ok(other?),
        }
    }

    /// Completes a run that ended early, with `done` correct bytes of every output and, if `touched`, possibly others
    /// written.
    pub(crate) fn settle(
        &self,
        plan: &Plan,
        stopped: Stopped,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let Stopped { done, touched, error } = stopped;
        if !touched && !self.allows() {
            return Err(error);
        }
        let len = outputs.first().map_or(0, |output| output.len());
        let rest: Vec<&[u8]> = inputs.iter().map(|block| &block[done..]).collect();
        let mut unfinished: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[done..]).collect();
        KernelSet::chosen()?.compile(plan)?.run(&rest, &mut unfinished)?;
        if self.allows() {
            self.enter(&error);
            return Ok(());
        }
        Err(GpuError::Interrupted { done, len, reason: error.to_string() })
    }
}

/// State of a run that ended early.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Correct bytes of every output.
    pub(crate) done: usize,
    /// Whether bytes beyond those may have been written. Outputs that are added to are never written
    /// before they are right.
    pub(crate) touched: bool,
    pub(crate) error: GpuError,
}
