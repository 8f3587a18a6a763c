//! Fixture: a directory with a configuration, and a daemon running in it.

pub(crate) use super::can_mount::can_mount;
use super::captured_output::CapturedOutput;
pub(crate) use super::corruption::rot;
use super::http::{Answer, exchange, request};
use super::test_rng::TestRng;
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long a busy machine may take for what takes a second.
pub(crate) const PATIENCE: Duration = gabion_testkit::PATIENCE;

pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    pub(crate) daemon: Option<Child>,
    mounts: Vec<PathBuf>,
    pub(crate) captured: CapturedOutput,
}

impl Fixture {
    /// Files in these directories are protected as soon as they have changed. They are on a file system of their own:
    /// other programs can fill the queue of a watch, which then scans everything.
    pub(crate) fn new() -> Fixture {
        let (dir, captured) = (tempfile::tempdir().unwrap(), CapturedOutput::new());
        let mut fixture = Fixture { dir, daemon: None, mounts: Vec::new(), captured };
        if rustix::process::geteuid().is_root() {
            let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(fixture.dir.path()).status();
            assert!(done.unwrap().success());
            fixture.mounts.push(fixture.dir.path().to_owned());
        }
        fixture.write("policy.toml", b"[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes a configuration; `sources` is what follows the socket.
    pub(crate) fn configure(&self, sources: &str) {
        self.write("daemon.toml", format!("socket = 'sock'\nstop_within = '30s'\n{sources}").as_bytes());
    }

    /// A directory that is watched, with files in it.
    pub(crate) fn watched(&self, name: &str, more: &str) -> String {
        let mut seed = TestRng(11);
        for (file, size) in [("a", 300_000), ("sub/b", 70_000), ("sub/c", 2000), ("empty", 0)] {
            self.write(&format!("{name}/{file}"), &seed.bytes(size));
        }
        format!("[[source]]\nname = '{name}'\nwatch = '{name}'\npolicy = 'policy.toml'\n{more}\n")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(self.dir.path()).args(args).stdin(Stdio::null());
        command.env_remove("GABION_REPOSITORY").env("GABION_POOLS", self.path("pools"));
        command.env("GABION_CACHE", self.path("cache"));
        command.env("GABION_SOCKET", self.path("sock")).env_remove("NOTIFY_SOCKET");
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

    /// What a command that fails says.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "gabion {}: {output:?}", args.join(" "));
        error
    }

    /// Starts a daemon and waits until it is ready.
    pub(crate) fn start(&mut self) {
        let command = self.command(&["daemon", "run", "daemon.toml"]);
        self.start_with(command);
    }

    pub(crate) fn start_with(&mut self, mut command: Command) {
        assert!(self.daemon.is_none(), "it runs");
        let mut child = command.stdout(Stdio::piped()).stderr(self.captured.as_stdio()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut captured = String::new();
        while !captured.contains("ready: ") {
            let got = output.read_line(&mut captured).unwrap();
            assert!(got > 0, "the daemon ended: {captured}");
        }
        eprint!("{captured}");
        // What it says later belongs to what a test that fails shows.
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        self.daemon = Some(child);
    }

    pub(crate) fn process(&self) -> Pid {
        Pid::from_raw(self.daemon.as_ref().expect("it runs").id() as i32).unwrap()
    }

    /// Ends the daemon with a signal, and expects that it ends well and leaves nothing behind.
    pub(crate) fn stop(&mut self, signal: Signal) {
        kill_process(self.process(), signal).unwrap();
        assert_eq!(self.wait(), Some(0));
        assert!(!self.path("sock").exists(), "the socket is left");
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.daemon.take().expect("it runs").wait().unwrap().code()
    }

    /// As `kill -9` does. What is mounted stays, and nobody serves it.
    pub(crate) fn kill(&mut self) {
        let mut child = self.daemon.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// How the daemon says that it is.
    pub(crate) fn status(&self) -> Value {
        let output = self.run(&["daemon", "status", "--json"]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// How a source is.
    pub(crate) fn source(&self, name: &str) -> Value {
        let status = self.status();
        let mut sources = status["sources"].as_array().unwrap().iter();
        sources
            .find(|source| source["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {status}"))
            .clone()
    }

    /// Waits until a source is as it should be.
    pub(crate) fn until(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Stopwatch::start();
        loop {
            let source = self.source(name);
            if fits(&source) {
                return source;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {source:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until so many files are protected, and nothing is pending.
    pub(crate) fn until_protected(&self, name: &str, path: &str, files: u64) {
        self.until(name, "files are known", |source| source["files"]["known"] == files);
        let began = Stopwatch::start();
        loop {
            let output = self.run(&["status", path, "--json"]);
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let pending = &status["pending"];
            if pending["files"] == 0 && pending["queued"] == 0 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A pool of eight directories, 3 + 2, shown at `mnt`.
    pub(crate) fn pool(&mut self, more: &str) -> String {
        let targets: Vec<String> = (1..=8).map(|number| format!("t{number}")).collect();
        let create =
            ["pool", "create", "tank", "--stripe", "3", "--redundancy", "2", "--block", "4KiB", "--targets"];
        let create: Vec<&str> = create.into_iter().chain(targets.iter().map(String::as_str)).collect();
        self.expect(0, &create);
        self.mounts.push(self.path("mnt"));
        std::fs::create_dir(self.path("mnt")).unwrap();
        self.write("pool-policy.toml", b"[default]\ncode = \"3+2\"\nquiet = \"0s\"\n");
        format!("[[source]]\nname = 'tank'\npool = 'tank'\nat = 'mnt'\npolicy = 'pool-policy.toml'\n{more}\n")
    }

    /// A directory that is mounted at `mnt-NAME`.
    pub(crate) fn mounted(&mut self, name: &str, more: &str) -> String {
        let at = format!("mnt-{name}");
        self.mounts.push(self.path(&at));
        std::fs::create_dir(self.path(&at)).unwrap();
        std::fs::create_dir(self.path(name)).unwrap();
        format!(
            "[[source]]\nname = '{name}'\nmount = '{name}'\nat = '{at}'\npolicy = 'policy.toml'\n{more}\n"
        )
    }

    /// Sends bytes to the socket as they are; what comes back until the other side hangs up.
    pub(crate) fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let stream = UnixStream::connect(self.path("sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        exchange(stream, bytes)
    }

    /// Asks as programs do.
    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> Answer {
        Answer::parse(&self.send(&request(method, path, &[], body)))
    }

    /// Reads something that is there.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.http("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// The description of the API.
    pub(crate) fn get_document(&self) -> Value {
        self.get("/api/v1/openapi.json")
    }

    /// Starts a job, and waits until it has ended.
    pub(crate) fn job(&self, path: &str, body: &str) -> Value {
        let answer = self.http("POST", path, body);
        assert_eq!(answer.status, 202, "{path}: {answer:?}");
        let id = answer.json()["job"]["id"].as_u64().unwrap();
        let began = Stopwatch::start();
        loop {
            let job = self.get(&format!("/api/v1/jobs/{id}?wait=10"))["job"].take();
            if job["state"] == "ended" || job["state"] == "failed" {
                return job;
            }
            assert!(began.elapsed() < PATIENCE, "{job}");
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for mount in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(mount).stderr(Stdio::null()).status();
        }
    }
}

/// All files below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}
