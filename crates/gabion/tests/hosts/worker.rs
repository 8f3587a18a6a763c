//! A resident worker, a watch or a mount as a process, and what it prints.

use gabion_testkit::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running process that prints JSON lines, mostly `gabion work --follow --json`.
pub(crate) struct Follower {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Follower {
    /// Starts a command; its output goes to files in a directory.
    pub(crate) fn spawn(mut command: Command, directory: &Path, name: &str) -> Follower {
        let (output, errors) = (directory.join(format!("{name}.out")), directory.join(format!("{name}.err")));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        Follower { child, output, errors }
    }

    /// Complete lines of its output.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.output).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub(crate) fn has_event(&self, name: &str) -> bool {
        self.events().iter().any(|event| event["event"] == name)
    }

    pub(crate) fn wait_for(&mut self, name: &str) {
        until(&format!("event {name} of a worker"), || {
            assert!(self.child.try_wait().unwrap().is_none(), "the worker ended: {}", self.errors());
            self.has_event(name)
        });
    }

    /// Number of files that it encoded, by what it printed.
    pub(crate) fn encoded(&self) -> u64 {
        self.sum("encoded") + self.sum("adopted")
    }

    /// Sum of a number over all batches that it printed.
    pub(crate) fn sum(&self, field: &str) -> u64 {
        let batches = self.events().into_iter().filter(|event| event["event"] == "worked");
        batches.map(|event| event[field].as_u64().unwrap()).sum()
    }

    /// Inodes of the files that it has open.
    pub(crate) fn open_inodes(&self) -> Vec<u64> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let inode = |path: PathBuf| std::fs::metadata(path).map(|found| found.ino());
        open.filter_map(|entry| inode(entry.unwrap().path()).ok()).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by SIGTERM and expects exit code 0.
    pub(crate) fn end(&mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.errors());
    }

    /// As [`end`](Follower::end), and a resident worker says so.
    pub(crate) fn stop(&mut self) {
        self.end();
        assert!(self.has_event("stopped"), "{:?}", self.events());
    }

    /// A path as the process sees it, in its mount namespace.
    pub(crate) fn sees(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.child.id());
        Path::new(&root).join(path.strip_prefix("/").unwrap())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
