//! How a run ended, and the exit code that says so.

use std::process::ExitCode;

/// How a command ended. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// 0: all is well.
    Fine,
    /// 1: damage was found that can be repaired, or there was nothing to do.
    Found,
    /// 2: the command could not be carried out.
    Failed,
    /// 3: data is lost beyond what the redundancy can restore.
    Unrecoverable,
}

/// Marks an error as loss of data, for the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DataLoss(pub String);

impl Outcome {
    /// The outcome of a command's result: an error that carries [`DataLoss`] is unrecoverable.
    pub fn of(result: anyhow::Result<Outcome>) -> Outcome {
        match result {
            Ok(outcome) => outcome,
            Err(error) if error.chain().any(|cause| cause.is::<DataLoss>()) => Outcome::Unrecoverable,
            Err(_) => Outcome::Failed,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(match outcome {
            Outcome::Fine => 0,
            Outcome::Found => 1,
            Outcome::Failed => 2,
            Outcome::Unrecoverable => 3,
        })
    }
}
