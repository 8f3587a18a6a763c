//! Output of the commands: options for its form, progress bars, tables, sizes and times for people. Every line for
//! standard output and standard error is written here, by [`outln!`], [`out!`] and [`errln!`].
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
use gabion_platform::sync;
use gabion_vault::world::{SECOND, Timestamp};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

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
    outln!("{}", report::document(report));
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

/// Options for the form of the output.
#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: before it, print a line for each step of the work, and for each second of it
    #[arg(long, requires = "json")]
    pub(crate) progress: bool,
    /// Print errors and warnings only
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What a progress bar counts, with the total if it is known.
#[derive(Clone, Copy)]
pub(crate) enum Amount {
    Bytes(Option<u64>),
    Files(Option<u64>),
}

impl OutputArgs {
    /// Prints a line of text, except with `--json` or `--quiet`.
    pub(crate) fn print_line(&self, line: impl AsRef<str>) {
        if !self.json && !self.quiet {
            outln!("{}", line.as_ref());
        }
    }

    fn shows_progress(&self) -> bool {
        !self.json && !self.quiet && stderr().is_terminal()
    }

    /// A progress bar; hidden where standard error is no terminal.
    pub(crate) fn bar(&self, name: &'static str, amount: Amount) -> ProgressBar {
        if !self.shows_progress() {
            return ProgressBar::hidden();
        }
        let (total, template) = match amount {
            Amount::Bytes(Some(total)) => (
                Some(total),
                "{prefix} {wide_bar} {bytes}/{total_bytes}{msg} {binary_bytes_per_sec} eta {eta}",
            ),
            Amount::Bytes(None) => (None, "{prefix} {spinner} {bytes}{msg} {binary_bytes_per_sec}"),
            Amount::Files(Some(total)) => (Some(total), "{prefix} {wide_bar} {pos}/{len} files eta {eta}"),
            Amount::Files(None) => (None, "{prefix} {spinner} {human_pos} files {per_sec}"),
        };
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.with_style(style).with_prefix(name)
    }

    /// Progress bars for the steps of a command, one after another.
    pub(crate) fn steps(&self) -> Steps<'_> {
        Steps { output: self.shows_progress().then_some(self), bar: Mutex::default() }
    }
}

/// A step with its bar.
struct Step {
    bar: ProgressBar,
    amount: Amount,
    files: u64,
}

/// Shows how many files are done beside a bar of bytes: many small ones move it little.
pub(crate) fn show_files(bar: &ProgressBar, done: u64) {
    bar.set_message(format!(", {}", files(done)));
}

/// Progress bars for the steps of a command.
pub(crate) struct Steps<'a> {
    /// None if no bar is visible.
    output: Option<&'a OutputArgs>,
    bar: Mutex<Option<Step>>,
}

impl Steps<'_> {
    /// Ends the step at hand and begins another one.
    pub(crate) fn begin(&self, name: &'static str, amount: Amount) {
        self.end();
        if let Some(output) = self.output {
            *sync::lock(&self.bar) = Some(Step { bar: output.bar(name, amount), amount, files: 0 });
        }
    }

    /// Counts what is done.
    pub(crate) fn advance(&self, files: u64, bytes: u64) {
        if self.output.is_none() {
            return;
        }
        let mut step = sync::lock(&self.bar);
        let Some(Step { bar, amount, files: done }) = step.as_mut() else { return };
        *done += files;
        match amount {
            Amount::Bytes(_) => {
                bar.inc(bytes);
                if files > 0 {
                    show_files(bar, *done);
                }
            }
            Amount::Files(_) => bar.inc(files),
        }
    }

    fn end(&self) {
        if let Some(step) = sync::lock(&self.bar).take() {
            step.bar.finish_and_clear();
        }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A signal ended the work of this command early.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Records that a signal ended the work early.
pub(crate) fn note_interruption() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// True if a signal ended the work early, and so left something undone that `outcome` tells of.
pub(crate) fn left_undone(outcome: Outcome) -> bool {
    outcome != Outcome::Fine && INTERRUPTED.load(Ordering::Relaxed)
}

/// The outcome of a command that may have been interrupted: if so, what is left to do makes it a failure.
pub(crate) fn unless_interrupted(outcome: Outcome) -> Outcome {
    match left_undone(outcome) {
        true => outcome.max(Outcome::Failed),
        false => outcome,
    }
}

/// Set by SIGINT and SIGTERM, which end the program no longer.
pub(crate) fn stopped_by_signal() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Lines of a table with columns as wide as their widest cell. Columns of numbers are right-aligned.
pub(crate) fn table(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match is_number(at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

pub(crate) fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

pub(crate) fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

/// A number of files, with the noun.
pub(crate) fn files(count: u64) -> String {
    format!("{} file{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

/// A time in seconds.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        7200.0..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86400.0),
    }
}

/// Age of a time.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    if then >= now + SECOND {
        return "in the future".to_owned();
    }
    match now.since(then).as_secs() {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86400),
    }
}
