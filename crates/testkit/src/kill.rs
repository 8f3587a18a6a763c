//! Kills a child process at a counted system call (`kill -9` at "the third rename").
//!
//! A test that kills after a delay hits a different point on every machine, and on a loaded one always the same: before
//! the program starts. Here strace delivers SIGKILL when a thread of the child enters its n-th call of one kind; the
//! call itself is not executed. Counting up until the child exits visits every such point of a process with one thread,
//! and a sample for others.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// A kind of system call that changes a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Writes to a file or a pipe.
    Write,
    /// Syncs of a file, directory or file system.
    Sync,
    /// Renames and links.
    Rename,
    /// Removals of names.
    Unlink,
    /// Opens and creations.
    Open,
}

impl Call {
    /// All kinds.
    pub const ALL: [Call; 5] = [Call::Write, Call::Sync, Call::Rename, Call::Unlink, Call::Open];

    /// Names for strace; a question mark means: if the architecture has it.
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

/// A kill point: the `nth` system call of one kind, from 1, counted per thread and per name of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its kind.
    pub call: Call,
    /// Its number.
    pub nth: u32,
}

/// True if strace can inject kills on this machine; otherwise records a skip of `test`.
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

/// A command that runs `program` and kills it at `point`; arguments and redirections are added by the caller. It must
/// end by itself or by the injected kill: a signal from outside would end strace alone.
pub fn killed_at(point: Point, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("strace");
    let inject = format!("inject={}:signal=KILL:when={}", point.call.names(), point.nth);
    command.args(["-f", "-qqq", "-o", "/dev/null", "-e"]).arg(format!("trace={}", point.call.names()));
    command.arg("-e").arg(inject).arg("--").arg(program);
    command
}

/// System calls that change a file system. In a process with one thread, kills at each of them visit every state that
/// the process can leave behind: opens that create a file are covered by the next call. strace counts calls per thread,
/// so in a process with several threads the kills are a sample: the first thread that reaches its n-th call ends the
/// process at any point of the others.
pub const CHANGES: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "copy_file_range",
    "fallocate",
    "ftruncate",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlinkat",
    "mknodat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "utimensat",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "setxattr",
    "fsetxattr",
    "removexattr",
    "fremovexattr",
];

/// A kill point: the `nth` call of one system call, from 1, counted per thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// One of [`CHANGES`].
    pub call: &'static str,
    /// Its number.
    pub nth: u32,
}

fn changes() -> String {
    CHANGES.iter().map(|name| format!("?{name}")).collect::<Vec<_>>().join(",")
}

/// A command that runs `program` to its end and records its file system changes in the file `log`, for [`changes_of`].
pub fn recorded(log: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qqq", "-s", "0", "-o"]).arg(log);
    command.arg("-e").arg(format!("trace={}", changes())).arg("-e").arg("signal=none").arg("--").arg(program);
    command
}

/// All kill points of the run recorded in `log`: for each system call the maximum count of any thread.
///
/// # Panics
/// The log cannot be read.
pub fn changes_of(log: &Path) -> Vec<Change> {
    let text = std::fs::read(log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let mut counts: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        if let Some(known) = CHANGES.iter().find(|known| **known == name) {
            *counts.entry((known, thread.to_owned())).or_default() += 1;
        }
    }
    let mut most: BTreeMap<&'static str, u32> = BTreeMap::new();
    for ((name, _), count) in counts {
        let known = most.entry(name).or_default();
        *known = count.max(*known);
    }
    most.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| Change { call, nth })).collect()
}

/// A command that runs `program` and kills it before `change`, like [`killed_at`].
pub fn killed_before(change: &Change, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("strace");
    let Change { call, nth } = change;
    // Without `--seccomp-bpf`, although that is faster: strace 6.1 injects nothing with it.
    command.args(["-f", "-qqq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
    command.arg("-e").arg("signal=none").arg("-e").arg(format!("inject={call}:signal=KILL:when={nth}"));
    command.arg("--").arg(program);
    command
}

/// Environment variable with the number of kill points that a test visits: `all`, or about this number.
pub const CRASH_POINTS: &str = "GABION_CRASH_POINTS";

/// Environment variable with the seed that selects them.
pub const CRASH_SEED: &str = "GABION_CRASH_SEED";

/// A sample of `all`, about `usual` of them at equal distances, modified by [`CRASH_POINTS`] and [`CRASH_SEED`]. Prints
/// the selection to standard output.
///
/// # Panics
/// A variable is not a number.
pub fn sample(test: &str, all: Vec<Change>, usual: usize) -> Vec<Change> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<usize>().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
    };
    if std::env::var(CRASH_POINTS).is_ok_and(|text| text == "all") {
        println!("{test}: all {} moments", all.len());
        return all;
    }
    let (wanted, seed) = (number(CRASH_POINTS).unwrap_or(usual), number(CRASH_SEED).unwrap_or(1));
    let step = all.len().div_ceil(wanted.max(1)).max(1);
    println!("{test}: every {step}th of {} moments, {CRASH_SEED}={seed}", all.len());
    all.into_iter().skip(seed % step).step_by(step).collect()
}

/// True if the child was killed by SIGKILL.
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

#[cfg(test)]
mod tests {
    use super::{Call, Change, Point, can_kill, changes_of, killed_at, killed_before, recorded, was_killed};

    /// The count is exact: of five renames, those before the third have happened and no others.
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

    /// One run records every change of a program, and a kill before a change leaves the earlier ones.
    #[test]
    fn a_child_dies_before_the_change_that_was_recorded() {
        if !can_kill("a_child_dies_before_the_change_that_was_recorded") {
            return;
        }
        let directory = std::env::temp_dir().join(format!("gabion-testkit-changes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let log = directory.join("log");
        let work =
            "import os\nfor i in range(3): os.mkdir('d'+str(i)); os.rmdir('d'+str(i))\nos.mkdir('last')";
        let status = recorded(&log, "python3")
            .current_dir(&directory)
            .args(["-I", "-B", "-c", work])
            .status()
            .unwrap();
        assert!(status.success());
        let all = changes_of(&log);
        let count = |call: &str| all.iter().filter(|change| change.call == call).count();
        assert_eq!((count("mkdir") + count("mkdirat"), count("rmdir") + count("unlinkat")), (4, 3));
        std::fs::remove_dir(directory.join("last")).unwrap();
        for (call, nth) in all.iter().filter(|it| it.call.starts_with("mkdir")).map(|it| (it.call, it.nth)) {
            let status = killed_before(&Change { call, nth }, "python3")
                .current_dir(&directory)
                .args(["-I", "-B", "-c", work])
                .status()
                .unwrap();
            assert!(was_killed(status), "{status}");
            assert!(!directory.join("last").exists());
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
