//! How a run ended, and the exit code that says so.

use std::process::ExitCode;

/// How a command ended. The numbers are part of the interface. Outcomes are ordered: of two, the worse one is the larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// 0: all is well.
    Fine,
    /// 1: damage was found that can be repaired, or there was nothing to do.
    Found,
    /// 2: the command could not be carried out, or its output could not be written.
    Failed,
    /// 3: data is lost beyond what the redundancy can restore.
    Unrecoverable,
}

/// Marks an error as loss of data, for the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DataLoss(pub String);

/// What an error says, with its causes: many say what caused them themselves, and nobody wants to read that twice. There may
/// be names in it, of which a terminal must not obey anything.
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
    struct Says {
        path: &'static str,
        source: std::io::Error,
    }

    #[test]
    fn no_cause_is_said_twice() {
        let says = || Says { path: "file", source: std::io::Error::other("torn") };
        assert_eq!(error_message(&says().into()), "file: torn. Look there");
        let outer = Err::<(), _>(says()).context("reading").unwrap_err();
        assert_eq!(error_message(&outer), "reading: file: torn. Look there");
        let silent = Err::<(), _>(std::io::Error::other("torn")).context("reading").unwrap_err();
        assert_eq!(error_message(&silent), "reading: torn");
    }

    #[test]
    fn no_name_commands_the_terminal() {
        assert_eq!(
            error_message(&anyhow::anyhow!("a\x1b[2Jb: torn\nlook there")),
            "a\\u{1b}[2Jb: torn\nlook there"
        );
    }
}
