//! Devices that fail when they are told to, so that tests see what happens then.

use crate::error::{Api, GpuError};
use std::sync::{Mutex, PoisonError};

/// A step of a device's work that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A kernel is compiled.
    Compile,
    /// A slot gets memory for its rounds.
    Room,
    /// A round was begun: its copies and its kernel are on their way.
    Begin,
    /// A round was waited for.
    Wait,
}

/// What a step says when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// That there is not enough memory.
    Memory,
    /// That the device is gone.
    Lost,
}

/// Steps that will fail.
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
    /// `step` fails `times` times, after it went well `skip` times.
    pub fn plan(&self, step: Step, skip: u32, times: u32, fault: Fault) {
        let planned = Planned { step, skip, times, fault };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// Whether everything that was planned has happened.
    pub fn are_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|planned| planned.times == 0)
    }

    /// Fails if that is planned.
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
