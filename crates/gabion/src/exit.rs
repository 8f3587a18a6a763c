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

/// What an error says, with its causes. Many say what caused them themselves, and nobody wants to read that twice.
pub fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match told.as_str() {
            "" => told = cause,
            so_far if so_far.contains(cause.trim_end()) => {}
            _ => told = format!("{told}: {cause}"),
        }
    }
    told
}

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

#[cfg(test)]
mod tests {
    use super::told;
    use anyhow::Context;

    #[derive(Debug, thiserror::Error)]
    #[error("{path}: {source}. Look there")]
    struct Says {
        path: &'static str,
        source: std::io::Error,
    }

    #[test]
    fn no_cause_is_said_twice() {
        let says = || Says { path: "file", source: std::io::Error::other("torn") };
        assert_eq!(told(&says().into()), "file: torn. Look there");
        let outer = Err::<(), _>(says()).context("reading").unwrap_err();
        assert_eq!(told(&outer), "reading: file: torn. Look there");
        let silent = Err::<(), _>(std::io::Error::other("torn")).context("reading").unwrap_err();
        assert_eq!(told(&silent), "reading: torn");
    }
}
