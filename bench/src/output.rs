//! Output of the commands. The print macros of the standard library panic when a write fails; here the first failure is
//! kept, and [`finish`] turns it into the exit code. A closed pipe is no failure: its reader has ended on purpose.

use gabion::exit::Outcome;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first write to standard output that failed.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on standard output.
macro_rules! outln {
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
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.to_string().as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILURE.set(error);
    }
}

/// Writes to standard error. A failure is ignored: nothing is left that could report it.
pub(crate) fn print_error(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Reports a failure of standard output, and gives the outcome of the command with it.
pub(crate) fn finish(outcome: Outcome) -> Outcome {
    let Some(error) = FAILURE.get() else { return outcome };
    errln!("gabion-bench: standard output: {error}. Output is missing");
    outcome.max(Outcome::Failed)
}
