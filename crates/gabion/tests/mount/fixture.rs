//! Fixture: a source, its mount, and the program.

pub(crate) use crate::can_mount::can_mount;
use crate::captured_output::CapturedOutput;
use gabion_vault::world::Stopwatch;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    mount: Option<Child>,
    captured: CapturedOutput,
    printed: Arc<Mutex<String>>,
}

impl Fixture {
    /// A source whose files are protected as soon as they have changed.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture {
            dir: tempfile::tempdir().unwrap(),
            mount: None,
            captured: CapturedOutput::new(),
            printed: Arc::default(),
        };
        for name in ["source", "mount"] {
            std::fs::create_dir(fixture.dir.path().join(name)).unwrap();
        }
        let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n";
        std::fs::write(fixture.dir.path().join("policy.toml"), policy).unwrap();
        fixture
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn source(&self, name: &str) -> PathBuf {
        self.dir.path().join("source").join(name)
    }

    /// A path in the mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("mount").join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(self.dir.path()).args(args).stdin(Stdio::null()).env_remove("GABION_REPOSITORY");
        command.env("GABION_CACHE", self.dir.path().join("cache"));
        command
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

    /// Mounts the source, with more arguments.
    pub(crate) fn mount(&mut self, more: &[&str]) {
        self.mount_source("source", more);
    }

    pub(crate) fn mount_source(&mut self, source: &str, more: &[&str]) {
        let args = [&["mount", source, "mount", "--policy", "policy.toml"], more].concat();
        let command = self.command(&args);
        self.mount_by(command);
    }

    /// Mounts by a command of one's own.
    pub(crate) fn mount_by(&mut self, mut command: Command) {
        assert!(self.mount.is_none(), "it is mounted");
        let mut child = command.stdout(Stdio::piped()).stderr(self.captured.as_stdio()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line:?}");
        // What it says later belongs to what a test that fails shows.
        let printed = Arc::clone(&self.printed);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                eprintln!("{line}");
                printed.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        self.mount = Some(child);
    }

    /// What mounts have said to whoever watches, until now.
    pub(crate) fn captured(&self) -> String {
        self.captured.text()
    }

    /// What mounts have printed after their first line, until now.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// The process that serves the mount.
    pub(crate) fn process(&self) -> rustix::process::Pid {
        let child = self.mount.as_ref().expect("it is mounted");
        rustix::process::Pid::from_raw(child.id() as i32).unwrap()
    }

    /// Unmounts as people do, and expects that the process ends well.
    pub(crate) fn unmount(&mut self) {
        self.unmount_with(0);
    }

    /// Unmounts as people do, and expects an exit code of the process.
    pub(crate) fn unmount_with(&mut self, code: i32) {
        gabion_testkit::unmount(&self.at(""));
        let mut child = self.mount.take().expect("it is mounted");
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }

    /// Ends it by a signal, and expects that it ends well.
    pub(crate) fn end(&mut self) {
        rustix::process::kill_process(self.process(), rustix::process::Signal::TERM).unwrap();
        let mut child = self.mount.take().expect("it is mounted");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    /// As `kill -9` does; what is left of the mount stays.
    pub(crate) fn die(&mut self) {
        let mut child = self.mount.take().expect("it is mounted");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Takes away what is left of a mount whose process died. Whoever still writes there would write to the directory
    /// beneath from then on.
    pub(crate) fn clear_away(&self) {
        let status = Command::new("umount").arg("-l").arg(self.at("")).status().unwrap();
        assert!(status.success(), "umount: {status}");
    }

    pub(crate) fn status(&self) -> Value {
        self.status_of("source")
    }

    pub(crate) fn status_of(&self, source: &str) -> Value {
        let output = self.run(&["status", source, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
        })
    }

    /// Waits until nothing is pending.
    pub(crate) fn wait_until_protected(&self) {
        self.wait_until("source");
    }

    pub(crate) fn wait_until(&self, source: &str) {
        let start = Stopwatch::start();
        loop {
            let status = self.status_of(source);
            let pending = &status["pending"];
            if pending["files"] == 0 && pending["queued"] == 0 {
                return;
            }
            if start.elapsed() > gabion_testkit::PATIENCE {
                let changes = self.run(&["diff", source]);
                panic!("still pending: {status}\n{}", String::from_utf8_lossy(&changes.stdout));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What is protected is what is there, without anyone looking for changes now, and all of it is right.
    pub(crate) fn assert_protected(&self) {
        self.assert_protected_of("source");
    }

    pub(crate) fn assert_protected_of(&self, source: &str) {
        let changes = self.expect(0, &["diff", source, "--json"]);
        let changes: Value = serde_json::from_str(&changes).unwrap();
        let kinds = changes["changes"].as_object().unwrap();
        for (kind, found) in kinds {
            // Another time of the last change of attributes is no other content.
            assert!(found["files"] == 0 || kind == "touched", "{changes}");
        }
        self.expect(0, &["scrub", source, "--json"]);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mut child) = self.mount.take() {
            let _ = Command::new("umount").arg("-l").arg(self.at("")).stderr(Stdio::null()).status();
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ends what others do, also when a test fails.
pub(crate) struct Stopping<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Everything below a directory: paths, and what files hold.
pub(crate) fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != ".gabion" {
            found.push((entry.path(), Vec::new()));
            found.extend(content(&entry.path()));
        } else if kind.is_file() {
            found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
        }
    }
    found
        .into_iter()
        .map(|(path, bytes)| (path.strip_prefix(dir).map_or(path.clone(), Path::to_owned), bytes))
        .collect()
}
