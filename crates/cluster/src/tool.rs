//! Foreign programs with a deadline and bounded output.
//!
//! A child that waits for a FUSE file system whose servers are gone cannot be killed. It is sent SIGKILL with its whole
//! process group and, if it still does not end, abandoned: the caller never waits for it, nor for the end of its
//! output, which a grandchild may hold open.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Interval at which the end of a child is looked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// How long a killed child may take to end before it is abandoned.
const GRACE: Duration = Duration::from_millis(500);

/// Bytes of standard error that are kept.
const MAX_MESSAGE: usize = 4 << 10;

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time until the program is killed.
    pub deadline: Duration,
    /// Bytes of output that are accepted.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { deadline: Duration::from_secs(10), output: 4 << 20 }
    }
}

/// Why a program gave no output.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not installed.
    #[error("{0} is not installed")]
    Missing(String),
    /// It could not be started or its output could not be read.
    #[error("{program}: {source}")]
    Io {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{program} did not answer within {} ms{}", deadline.as_millis(), if *abandoned { "; it cannot be killed, its file system is stuck" } else { "" })]
    Deadline {
        /// Name of the program.
        program: String,
        /// The deadline.
        deadline: Duration,
        /// True if it did not even end when it was killed.
        abandoned: bool,
    },
    /// It printed too much.
    #[error("{program} printed more than {limit} bytes")]
    TooMuch {
        /// Name of the program.
        program: String,
        /// The limit.
        limit: usize,
    },
    /// It ended with an error.
    #[error("{program} failed ({status}){}{message}", if message.is_empty() { "" } else { ": " })]
    Failed {
        /// Name of the program.
        program: String,
        /// Exit status as text.
        status: String,
        /// First line of what it printed, control characters escaped.
        message: String,
    },
}

/// Runs `command` and returns its standard output.
///
/// # Errors
/// See [`ToolError`].
pub fn run(command: &mut Command, limits: Limits) -> Result<Vec<u8>, ToolError> {
    let program = name_of(command.get_program());
    let failed = |source| ToolError::Io { program: program.clone(), source };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Texts in English; away from directories that may be stuck; killed together with its children.
    command.env("LC_ALL", "C").current_dir("/").process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(ToolError::Missing(program)),
        Err(error) => return Err(failed(error)),
    };
    let collected = collect(&mut child, limits);
    let Ok(Collected::Ended(status, output, errors)) = collected else {
        let abandoned = !end(&mut child);
        return Err(match collected {
            Err(error) => failed(error),
            Ok(Collected::TooMuch) => ToolError::TooMuch { program, limit: limits.output },
            Ok(_) => ToolError::Deadline { program, deadline: limits.deadline, abandoned },
        });
    };
    if status.success() {
        return Ok(output);
    }
    let status = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    };
    let message = first_line(if errors.is_empty() { &output } else { &errors });
    Err(ToolError::Failed { program, status, message })
}

/// Outcome of waiting for a child.
enum Collected {
    /// It ended.
    Ended(ExitStatus, Vec<u8>, Vec<u8>),
    /// It printed more than it may.
    TooMuch,
    /// The deadline passed.
    Deadline,
}

/// Reads both outputs until the child ends.
fn collect(child: &mut Child, limits: Limits) -> io::Result<Collected> {
    let began = Instant::now();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    for end in [stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
    }
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    loop {
        // Asked before the pipes are read: what an ended child printed is in them.
        let status = child.try_wait()?;
        drain(&mut stdout, &mut output, limits.output)?;
        drain(&mut stderr, &mut errors, MAX_MESSAGE)?;
        if output.len() > limits.output {
            return Ok(Collected::TooMuch);
        }
        if let Some(status) = status {
            return Ok(Collected::Ended(status, output, errors));
        }
        let Some(left) = limits.deadline.checked_sub(began.elapsed()) else { return Ok(Collected::Deadline) };
        wait_for_input(
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
            left.min(INTERVAL),
        )?;
    }
}

/// Waits until one of the pipes has input, or until the time is over.
fn wait_for_input(
    stdout: Option<std::os::fd::BorrowedFd<'_>>,
    stderr: Option<std::os::fd::BorrowedFd<'_>>,
    time: Duration,
) -> io::Result<()> {
    let mut pipes: Vec<PollFd<'_>> = [stdout, stderr]
        .into_iter()
        .flatten()
        .map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN))
        .collect();
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut pipes, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads what a pipe has now, and closes it at its end. Keeps a byte more than `limit` at most; the rest is dropped, so
/// that the child does not block.
fn drain(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, limit: usize) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    // Bounded: a child that prints without end must not keep its reader here past the deadline.
    for _ in 0..64 {
        let Some(open) = pipe else { return Ok(()) };
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(bytes) => {
                let room = (limit + 1).saturating_sub(kept.len());
                kept.extend_from_slice(&buffer[..bytes.min(room)]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Kills a child with its process group. Returns false if it does not end.
fn end(child: &mut Child) -> bool {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let began = Instant::now();
    while began.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(INTERVAL);
    }
    false
}

/// Name of a program without its directory.
fn name_of(program: &OsStr) -> String {
    let path = std::path::Path::new(program);
    path.file_name().unwrap_or(program).to_string_lossy().into_owned()
}

/// The first line that is not empty, at most 200 characters of it, without control characters.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(200).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests;
