//! Fixture: a tree of files, a copy of it, and the program.

use crate::test_rng::TestRng;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) struct Fixture {
    dir: tempfile::TempDir,
}

/// Names repositories that are used whoever owns them.
pub(crate) const TRUST: &str = "GABION_TRUST_REPOSITORY";

impl Fixture {
    /// A tree of files of all sizes.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(fixture.tree()).unwrap();
        let mut seed = TestRng(0x5eed);
        for (name, size) in
            [("a", 5_000_000), ("sub/b", 300_000), ("sub/c", 2000), ("sub/deep/d", 10), ("empty", 0)]
        {
            fixture.write(name, &seed.bytes(size));
        }
        fixture
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.tree().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(self.dir.path()).args(args).stdin(Stdio::null());
        command.env_remove("GABION_REPOSITORY").env_remove(TRUST);
        command.env("GABION_CACHE", self.dir.path().join("cache"));
        command
    }

    /// Runs a command that is killed at a counted system call; whether it was, or came to its end before.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn run_killed(&self, point: gabion_testkit::kill::Point, args: &[&str]) -> bool {
        let mut command = gabion_testkit::kill::killed_at(point, env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(self.dir.path()).args(args).stdin(Stdio::null());
        command.env_remove("GABION_REPOSITORY").env_remove(TRUST);
        command.env("GABION_CACHE", self.dir.path().join("cache"));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        gabion_testkit::kill::was_killed(status)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command and expects this exit code; gives what it printed.
    pub(crate) fn expect(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "gabion {}: {text}{error}", args.join(" "));
        text
    }

    /// Runs a command with `--json`, expects this exit code, and gives the object.
    pub(crate) fn json(&self, code: i32, args: &[&str]) -> Value {
        serde_json::from_str(&self.expect(code, &[args, &["--json"]].concat())).unwrap()
    }

    /// As [`expect`](Playground::expect), with a repository of another user.
    pub(crate) fn expect_trusting(&self, code: i32, args: &[&str]) -> String {
        let output = self.command(args).env(TRUST, self.tree()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "gabion {}: {error}", args.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// All files of the tree with their content, ours left out.
    pub(crate) fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut ahead = vec![self.tree()];
        while let Some(dir) = ahead.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_name() == ".gabion" {
                    continue;
                }
                match entry.file_type().unwrap().is_dir() {
                    true => ahead.push(entry.path()),
                    false => found.push((entry.path(), std::fs::read(entry.path()).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}
