//! Kills a child process at a counted system call (`kill -9` at "the third rename").
//!
//! A test that kills after a time tests another moment on every machine, and on a loaded one always the same: before the program has
//! begun. Here strace delivers SIGKILL when a thread of the child enters its n-th call of one kind; the call itself does not
//! happen. Counting up until the child comes to its end visits every such moment.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// A kind of system call that changes a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Bytes written to a file or a pipe.
    Write,
    /// A file, directory or file system made durable.
    Sync,
    /// A name given to a file, or moved.
    Rename,
    /// A name removed.
    Unlink,
    /// A file opened or made.
    Open,
}

impl Call {
    /// All kinds.
    pub const ALL: [Call; 5] = [Call::Write, Call::Sync, Call::Rename, Call::Unlink, Call::Open];

    /// Names that strace knows; a question mark means: where the architecture has it.
    fn names(self) -> &'static str {
        match self {
            Call::Write => {
                "?write,pwrite64,?writev,?pwritev,?pwritev2,?copy_file_range,?ftruncate,?fallocate"
            }
            Call::Sync => "fsync,?fdatasync,?syncfs,?sync_file_range",
            Call::Rename => "?rename,?renameat,renameat2,?link,?linkat",
            Call::Unlink => "?unlink,unlinkat,?rmdir",
            Call::Open => "?open,openat,?openat2,?mkdir,?mkdirat",
        }
    }
}

/// A moment: the `nth` system call of one kind, from 1, counted per thread and per name of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its kind.
    pub call: Call,
    /// Its number.
    pub nth: u32,
}

/// Whether processes can be killed at counted calls here; a skip of `test` if not.
pub fn can_kill(test: &str) -> bool {
    let traced =
        Command::new("strace").args(["-qqq", "-o", "/dev/null", "-e", "trace=exit_group", "true"]).output();
    let why = match traced {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    crate::skip(test, format!("strace does not run: {why}"));
    false
}

/// A command that runs `program` and kills it at `point`; arguments and redirections are added to it. It must end by itself, or by the kill:
/// it cannot be killed from outside, which would end strace alone.
pub fn killed_at(point: Point, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("strace");
    let inject = format!("inject={}:signal=KILL:when={}", point.call.names(), point.nth);
    command.args(["-f", "-qqq", "-o", "/dev/null", "-e"]).arg(format!("trace={}", point.call.names()));
    command.arg("-e").arg(inject).arg("--").arg(program);
    command
}

/// Whether a child that ended so was killed.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

#[cfg(test)]
mod tests {
    use super::{Call, Point, can_kill, killed_at, was_killed};

    /// The count is exact: of five renames, the ones before the third have happened and no other.
    #[test]
    fn a_child_dies_at_the_call_that_was_counted() {
        if !can_kill("a_child_dies_at_the_call_that_was_counted") {
            return;
        }
        let directory = std::env::temp_dir().join(format!("gabion-testkit-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let moves = "import os\nfor i in range(5): os.rename(str(i), 'moved'+str(i))";
        for (nth, killed) in [(3, true), (6, false)] {
            (0..5).for_each(|i| std::fs::write(directory.join(i.to_string()), "").unwrap());
            let mut command = killed_at(Point { call: Call::Rename, nth }, "python3");
            let status = command.current_dir(&directory).args(["-I", "-B", "-c", moves]).status().unwrap();
            assert_eq!(was_killed(status), killed, "{status}");
            let left = (0..5).filter(|i| directory.join(i.to_string()).exists()).count();
            assert_eq!(left as u32, 6 - nth);
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
