//! Output of the commands: every line for standard output and standard error is written here, by [`outln!`], [`out!`]
//! and [`errln!`].
//!
//! The macros of the standard library panic when a write fails. A full disk under a log file would then end a repair
//! before it has repaired anything, and the exit code of the panic would hide damage that a scrub found. Here a failed
//! write never stops a command: the first failure is kept, the command goes on, and [`finish`] turns the failure into
//! the exit code. The rules are:
//!
//! - A failed write to standard output makes the exit code 2, unless data is lost: 3 stays 3 (the larger code wins).
//! - A closed pipe is no failure. Its reader has ended on purpose (`gabion scrub | head`); the exit code is that of the
//!   work.
//! - Failed writes to standard error are ignored: nothing is left that could report them.

use gabion::exit::Outcome;
use gabion::report;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first write to standard output that failed.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on standard output.
macro_rules! outln {
    () => { $crate::output::print(format_args!("\n")) };
    ($($argument:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($argument)*))) };
}

/// Prints text without a line feed on standard output, and flushes it.
macro_rules! out {
    ($($argument:tt)*) => { $crate::output::print(format_args!($($argument)*)) };
}

/// Prints a line on standard error.
macro_rules! errln {
    ($($argument:tt)*) => { $crate::output::print_error(format_args!("{}\n", format_args!($($argument)*))) };
}

/// Writes to standard output; a failure is kept for [`finish`].
pub(crate) fn print(text: Arguments<'_>) {
    // One write for the whole text: lines of several threads and processes do not mix.
    let text = text.to_string();
    let mut stdout = io::stdout().lock();
    keep(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Prints a report as one line of JSON on standard output.
pub(crate) fn print_json(report: &impl Serialize) {
    outln!("{}", report::line(report));
}

/// Writes to standard error, which nobody may be reading.
pub(crate) fn print_error(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Keeps the first failure of a write to standard output.
pub(crate) fn keep(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILURE.set(error);
    }
}

/// Reports a failure of standard output, and gives the outcome of the command with it.
pub(crate) fn finish(outcome: Outcome) -> Outcome {
    keep(io::stdout().flush());
    let Some(error) = FAILURE.get() else { return outcome };
    errln!(
        "gabion: standard output: {error}. Output is missing; the command itself was carried out as its messages here say"
    );
    outcome.max(Outcome::Failed)
}
