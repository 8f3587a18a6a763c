//! Fault injection for devices, for tests.

use crate::error::{Api, GpuError};
use std::sync::{Mutex, PoisonError};

/// A step of a run that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Compilation of a kernel.
    Compile,
    /// Memory allocation of a slot.
    Room,
    /// Start of a round, with its copies and kernel.
    Begin,
    /// Synchronisation of a round.
    Wait,
}

/// Error of a failing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Out of memory.
    Memory,
    /// The device is lost.
    Lost,
}

/// Planned failures.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Planned>>);

#[derive(Debug)]
struct Planned {
    step: Step,
    skip: u32,
    times: u32,
    fault: Fault,
}

impl Faults {
    /// Lets `step` fail `times` times after `skip` successes.
    pub fn plan(&self, step: Step, skip: u32, times: u32, fault: Fault) {
        let planned = Planned { step, skip, times, fault };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// True if all planned failures have happened.
    pub fn are_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|planned| planned.times == 0)
    }

    /// Returns an error if a failure is planned.
    pub(crate) fn check(&self, step: Step, api: Api) -> Result<(), GpuError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(planned) = all.iter_mut().find(|planned| planned.step == step && planned.times > 0) else {
            return Ok(());
        };
        if planned.skip > 0 {
            planned.skip -= 1;
            return Ok(());
        }
        planned.times -= 1;
        Err(match (planned.fault, step) {
            (Fault::Memory, _) => GpuError::Memory { api, kind: "device", bytes: 0 },
            (Fault::Lost, Step::Compile) => GpuError::Compile {
                api,
                reason: "as planned".to_owned(),
                log: "line 1: a planned error".to_owned(),
            },
            (Fault::Lost, _) => {
                GpuError::Call { api, call: "a planned call", reason: "the device is gone".to_owned() }
            }
        })
    }
}
