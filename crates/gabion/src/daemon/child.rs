//! Commands of the configuration: run with input, a deadline and a bounded output, in a process group of their own.
//!
//! Notifications, hooks and the examination of disks use it. A command gets a small environment: variables of the
//! daemon may hold secrets.

use gabion_vault::world::Stopwatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Variables of the daemon's environment that commands see.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"];

/// `PATH` if the daemon has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Interval at which the end of a process is checked.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Time between SIGTERM and SIGKILL, and after SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// A command to run.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    /// Program and arguments.
    pub(super) command: &'a [OsString],
    /// Directory in which it runs.
    pub(super) directory: &'a Path,
    /// Variables that it gets besides [`INHERITED`].
    pub(super) environment: &'a [(&'static str, OsString)],
    /// Standard input.
    pub(super) input: &'a [u8],
    /// Time after which it is killed.
    pub(super) deadline: Duration,
    /// Most bytes of its output that are kept: of errors the last ones, of standard output the first ones.
    pub(super) most_output: usize,
    /// Returns true if it is to be killed before.
    pub(super) stopped: &'a dyn Fn() -> bool,
}

/// The end of a command.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    /// The beginning of its standard output.
    pub(super) output: Vec<u8>,
    /// The end of its standard error.
    pub(super) errors: Vec<u8>,
}

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    /// It cannot be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Its program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It was killed at its deadline.
    #[error("{program} was killed after {} s", .after.as_secs())]
    Deadline {
        /// Its program.
        program: String,
        /// The deadline.
        after: Duration,
    },
    /// It was killed because the daemon or the source stops.
    #[error("{program} was stopped")]
    Stopped {
        /// Its program.
        program: String,
    },
    /// It returned an exit code other than 0, or a signal ended it.
    #[error("{program}: {status}{}", tail(.errors))]
    Failed {
        /// Its program.
        program: String,
        /// How it ended.
        status: String,
        /// The last line of its errors.
        errors: String,
    },
}

fn tail(errors: &str) -> String {
    if errors.is_empty() { String::new() } else { format!(": {errors}") }
}

impl Finished {
    /// Its standard output, if it succeeded.
    ///
    /// # Errors
    /// [`ChildError::Failed`].
    pub(super) fn success(self, command: &[OsString]) -> Result<Vec<u8>, ChildError> {
        if self.status.success() {
            return Ok(self.output);
        }
        let status = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (_, Some(signal)) => format!("ended by signal {signal}"),
            _ => self.status.to_string(),
        };
        Err(ChildError::Failed { program: program(command), status, errors: last_line(&self.errors) })
    }
}

/// The last line with text, printable and of at most 200 characters.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

fn program(command: &[OsString]) -> String {
    command.first().map(|name| Path::new(name).display().to_string()).unwrap_or_default()
}

/// Runs a command until it ends, its deadline passes or it is stopped. Processes that it left in the background are
/// not waited for.
///
/// # Errors
/// See [`ChildError`]. An exit code other than 0 is no error here.
pub(super) fn run(run: Run<'_>) -> Result<Finished, ChildError> {
    let name = || program(run.command);
    let failed = |source| ChildError::Start { program: name(), source };
    let Pipes { mut input, mut output, mut errors, mut child } = start(run).map_err(failed)?;
    let since = Stopwatch::start();
    let (mut written, mut kept, mut complaints) = (0, Vec::new(), Vec::new());
    loop {
        // Before the pipes are read: what it wrote before its end is then read in full.
        let status = child.try_wait().map_err(failed)?;
        if let Some(pipe) = &mut input
            && (written == run.input.len() || !feed(pipe, run.input, &mut written))
        {
            input = None;
        }
        let open = [
            drain(&mut output, |bytes| {
                let room = run.most_output.saturating_sub(kept.len());
                kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }),
            drain(&mut errors, |bytes| {
                complaints.extend_from_slice(bytes);
                let over = complaints.len().saturating_sub(run.most_output);
                complaints.drain(..over);
            }),
        ];
        if let Some(status) = status {
            return Ok(Finished { status, output: kept, errors: complaints });
        }
        if since.elapsed() >= run.deadline {
            kill(child);
            return Err(ChildError::Deadline { program: name(), after: run.deadline });
        }
        if (run.stopped)() {
            kill(child);
            return Err(ChildError::Stopped { program: name() });
        }
        wait(input.as_ref(), (open[0]).then_some(&output), open[1].then_some(&errors));
    }
}

struct Pipes {
    input: Option<PipeWriter>,
    output: PipeReader,
    errors: PipeReader,
    child: Child,
}

fn start(run: Run<'_>) -> io::Result<Pipes> {
    let (theirs_in, input) = io::pipe()?;
    let (output, theirs_out) = io::pipe()?;
    let (errors, theirs_err) = io::pipe()?;
    for end in [input.as_fd(), output.as_fd(), errors.as_fd()] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    let (program, arguments) =
        run.command.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(run.directory).process_group(0).env_clear();
    command.env("PATH", PATH).envs(inherited());
    command.envs(run.environment.iter().map(|(name, value)| (name, without_nul(value))));
    command.stdin(Stdio::from(theirs_in)).stdout(Stdio::from(theirs_out)).stderr(Stdio::from(theirs_err));
    // Its ends of the pipes are closed here when `command` is dropped.
    Ok(Pipes { input: Some(input), output, errors, child: command.spawn()? })
}

fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| INHERITED.iter().any(|known| OsStr::new(known) == name))
}

/// A variable cannot hold a zero byte.
fn without_nul(value: &OsStr) -> OsString {
    OsString::from_vec(value.as_bytes().iter().copied().filter(|&byte| byte != 0).collect())
}

/// Writes input as far as the pipe takes it. False if there is nothing more to write, or no reader.
fn feed(pipe: &mut PipeWriter, input: &[u8], written: &mut usize) -> bool {
    match pipe.write(&input[*written..]) {
        Ok(count) => {
            *written += count;
            *written < input.len()
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// Reads what is there. False at the end of the output.
fn drain(pipe: &mut PipeReader, mut take: impl FnMut(&[u8])) -> bool {
    let mut buffer = [0; 4096];
    // Bounded: a command that writes faster than this reads must not keep the deadline from being checked.
    for _ in 0..64 {
        match pipe.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => take(&buffer[..count]),
            Err(error) => {
                return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
        }
    }
    true
}

/// Waits until a pipe is ready, or for [`INTERVAL`].
fn wait(input: Option<&PipeWriter>, output: Option<&PipeReader>, errors: Option<&PipeReader>) {
    let mut ends: Vec<PollFd<'_>> = Vec::with_capacity(3);
    ends.extend(input.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
    ends.extend([output, errors].into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    // An error here is a signal; the loop checks again.
    let _ = poll(&mut ends, Some(&INTERVAL));
}

/// Ends a command and the processes that it started. One that the kernel cannot end, since a disk hangs, is left to a
/// thread of its own.
fn kill(mut child: Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::TERM);
    // Its end is not collected yet: until then its number names this group and no other.
    let left = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    until_over(|| !matches!(waitid(WaitId::Pid(group), left), Ok(None)));
    let _ = kill_process_group(group, Signal::KILL);
    if !until_over(|| !matches!(child.try_wait(), Ok(None))) {
        let _ = std::thread::Builder::new().name("child".to_owned()).spawn(move || child.wait());
    }
}

/// Waits for a condition for up to [`GRACE`].
fn until_over(mut is_over: impl FnMut() -> bool) -> bool {
    let since = Stopwatch::start();
    while since.elapsed() < GRACE {
        if is_over() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    is_over()
}

#[cfg(test)]
mod tests {
    use super::{ChildError, Finished, Run, run};
    use std::ffi::OsString;
    use std::path::Path;
    use std::time::Duration;

    fn shell(script: &str, input: &[u8], deadline: Duration) -> Result<Finished, ChildError> {
        let command: Vec<OsString> = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let environment = [("GABION_SOURCE", OsString::from("a\nb\0c"))];
        run(Run {
            command: &command,
            directory: Path::new("/"),
            environment: &environment,
            input,
            deadline,
            most_output: 1000,
            stopped: &|| false,
        })
    }

    #[test]
    fn input_and_output_larger_than_a_pipe_pass() {
        let input = vec![b'x'; 1 << 20];
        let done = shell(
            "wc -c; head -c 300000 /dev/zero | tr '\\0' y; echo no >&2",
            &input,
            gabion_testkit::PATIENCE,
        );
        let done = done.unwrap();
        assert!(done.status.success());
        let output = String::from_utf8(done.output).unwrap();
        assert!(output.starts_with("1048576\n") && output.len() == 1000, "{}", output.len());
        assert_eq!(done.errors, b"no\n");
        // Nobody reads the input.
        assert!(shell("exit 0", &input, gabion_testkit::PATIENCE).unwrap().status.success());
    }

    #[test]
    fn the_environment_is_small_and_values_are_whole() {
        let done = shell("env; echo \"[$GABION_SOURCE]\"", b"", gabion_testkit::PATIENCE).unwrap();
        let output = String::from_utf8(done.output).unwrap();
        assert!(output.contains("[a\nbc]") && !output.contains("CARGO"), "{output}");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script =
            format!("trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > {0}; sleep 1000", file.display());
        let error = shell(&script, b"", Duration::from_millis(1500)).unwrap_err();
        assert!(matches!(error, ChildError::Deadline { .. }), "{error}");
        let process = std::fs::read_to_string(&file).unwrap().trim().to_owned();
        let gone = || match std::fs::read_to_string(format!("/proc/{process}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        gabion_testkit::until("the process in the background ends", gone);
    }

    #[test]
    fn a_process_left_in_the_background_is_not_waited_for() {
        let done = shell("sleep 600 & echo $!", b"", gabion_testkit::PATIENCE).unwrap();
        let process: i32 = String::from_utf8(done.output).unwrap().trim().parse().unwrap();
        let process = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn failures_say_why() {
        let command: Vec<OsString> = vec!["/bin/sh".into()];
        let failed =
            shell("echo first >&2; echo 'disk is \x1b[31m full' >&2; exit 3", b"", gabion_testkit::PATIENCE);
        let why = failed.unwrap().success(&command).unwrap_err().to_string();
        assert!(why.contains("exit code 3: disk is") && !why.contains('\x1b'), "{why}");
        let killed = shell("kill -9 $$", b"", gabion_testkit::PATIENCE).unwrap();
        assert!(killed.success(&command).unwrap_err().to_string().contains("signal 9"));
        let none: Vec<OsString> = vec!["/nonexistent/program".into()];
        let missing = run(Run {
            command: &none,
            directory: Path::new("/"),
            environment: &[],
            input: b"",
            deadline: gabion_testkit::PATIENCE,
            most_output: 10,
            stopped: &|| false,
        });
        assert!(matches!(missing, Err(ChildError::Start { .. })));
    }

    #[test]
    fn it_is_stopped_on_request() {
        let command: Vec<OsString> = vec!["/bin/sleep".into(), "1000".into()];
        let stopped = run(Run {
            command: &command,
            directory: Path::new("/"),
            environment: &[],
            input: b"",
            deadline: gabion_testkit::PATIENCE,
            most_output: 10,
            stopped: &|| true,
        });
        assert!(matches!(stopped, Err(ChildError::Stopped { .. })));
    }
}
