//! Outcome of a command, its exit code, and the text of its error.

use std::process::ExitCode;

/// Outcome of a command. The exit codes are part of the interface. Outcomes are ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// 0: success.
    Fine,
    /// 1: repairable damage, or something left to do.
    Found,
    /// 2: the command failed, or its output could not be written.
    Failed,
    /// 3: data is lost that the redundancy cannot restore.
    Unrecoverable,
}

/// An error that means loss of data; its exit code is 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DataLoss(pub String);

/// Text of an error with its causes. A cause that the text already contains is not repeated. Control characters, which
/// file names may contain, are escaped.
pub fn error_message(error: &anyhow::Error) -> String {
    let message = error.chain().fold(String::new(), |text, cause| match cause.to_string().trim_end() {
        cause if text.is_empty() => cause.to_owned(),
        cause if text.contains(cause) => text,
        cause => format!("{text}: {cause}"),
    });
    let mut safe = String::new();
    for letter in message.chars() {
        match letter.is_control() && letter != '\n' {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    safe
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
    use super::error_message;
    use anyhow::Context;

    #[derive(Debug, thiserror::Error)]
    #[error("{path}: {source}. Look there")]
    struct FileError {
        path: &'static str,
        source: std::io::Error,
    }

    #[test]
    fn causes_are_not_repeated() {
        let failure = || FileError { path: "file", source: std::io::Error::other("torn") };
        assert_eq!(error_message(&failure().into()), "file: torn. Look there");
        let outer = Err::<(), _>(failure()).context("reading").unwrap_err();
        assert_eq!(error_message(&outer), "reading: file: torn. Look there");
        let silent = Err::<(), _>(std::io::Error::other("torn")).context("reading").unwrap_err();
        assert_eq!(error_message(&silent), "reading: torn");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            error_message(&anyhow::anyhow!("a\x1b[2Jb: torn\nlook there")),
            "a\\u{1b}[2Jb: torn\nlook there"
        );
    }
}
