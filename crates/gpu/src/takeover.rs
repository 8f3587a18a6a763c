//! Whether the CPU may do what a device could not, and how often it did.

use crate::error::GpuError;
use gabion_engine::kernel::{Backend, Kernel, KernelSet};
use gabion_engine::{Error, Plan};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens to work that a device fails at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// It is an error.
    #[default]
    Refused,
    /// The CPU does it, and it is counted.
    Allowed,
}

/// What the CPU took over from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Runs, or kernels that the device's compiler refused.
    pub times: u64,
    /// Why, the first time.
    pub reason: String,
}

/// The book of one device.
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

    /// What was taken over so far.
    pub(crate) fn taken(&self) -> Option<TakenOver> {
        let times = self.times.load(Ordering::Relaxed);
        self.reason.get().map(|reason| TakenOver { times, reason: reason.clone() })
    }

    /// A device's kernel, or the CPU's where the device has none and that is allowed.
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

    /// What becomes of a run that ended early, with `done` bytes of every output right and, if `touched`, others
    /// perhaps written.
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

/// Where a run ended early.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Bytes of every output that are right.
    pub(crate) done: usize,
    /// Whether bytes beyond those may have been written. Outputs that are added to are never written
    /// before they are right.
    pub(crate) touched: bool,
    pub(crate) error: GpuError,
}
