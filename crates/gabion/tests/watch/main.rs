//! `gabion watch` as a process: events, kills, concurrent commands, missing privileges.

#[path = "../vault/captured_output.rs"]
mod captured_output;
#[path = "../vault/fixture.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod fixture;
#[path = "../vault/test_rng.rs"]
mod test_rng;

use captured_output::CapturedOutput;
use fixture::Fixture;
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use test_rng::TestRng;

/// How long a busy machine may take for what takes a second.
const PATIENCE: Duration = gabion_testkit::PATIENCE;

/// A watch, with what it prints.
struct Watch {
    child: Child,
    lines: Receiver<Value>,
    _captured: CapturedOutput,
}

impl Watch {
    fn start(fixture: &Fixture, args: &[&str]) -> Watch {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(fixture.dir()).args(["watch", "tree", "--json"]).args(args);
        Watch::of(command)
    }

    fn of(mut command: Command) -> Watch {
        let captured = CapturedOutput::new();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(captured.as_stdio());
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens to one that was killed.
                let _ = send.send(serde_json::from_str(&line).unwrap());
            }
        });
        Watch { child, lines, _captured: captured }
    }

    /// Waits for an event that fits.
    fn until(&self, event: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Stopwatch::start();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| panic!("no {event}: {error}"));
            if line["event"] == event && fits(&line) {
                return line;
            }
        }
    }

    fn stop(mut self, signal: Signal) -> Value {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
        let last = self.until("stopped", |_| true);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        last
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn policy(fixture: &Fixture, quiet: &str) {
    let text = format!("[default]\ncode = \"4+2\"\nquiet = \"{quiet}\"\n[guard]\nat_least = 100000\n");
    std::fs::write(fixture.dir().join("policy.toml"), text).unwrap();
}

/// Waits until everything is protected and nothing pending.
fn until_protected(fixture: &Fixture) {
    let began = Stopwatch::start();
    loop {
        // Its exit code says the same.
        let output = fixture.run(&["status", "tree", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let pending = &status["pending"];
        if pending["files"] == 0 && pending["queued"] == 0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{pending}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Changes a tree at random: content, names, deletions, directories.
fn storm(fixture: &Fixture, seed: &mut TestRng) {
    for _ in 0..30 {
        let name = format!("storm {}/{}", seed.below(3), seed.below(20));
        let other = format!("storm {}/{}", seed.below(3), seed.below(20));
        // What fails, fails because a name is not there now.
        match seed.below(7) {
            0 => drop(std::fs::remove_file(fixture.path(&name))),
            1 => drop(std::fs::rename(fixture.path(&name), fixture.path(&other))),
            2 => {
                let (from, to) = (format!("storm {}", seed.below(3)), format!("storm {}", seed.below(5)));
                drop(std::fs::rename(fixture.path(&from), fixture.path(&to)));
            }
            _ => {
                let size = 1 << seed.below(18);
                fixture.write(&name, &seed.bytes(size));
            }
        }
    }
}

#[test]
fn kill_at_any_moment_loses_nothing() {
    let fixture = Fixture::new();
    policy(&fixture, "0s");
    let mut seed = TestRng(0xdead);
    for round in 0..8 {
        storm(&fixture, &mut seed);
        let watch = Watch::start(&fixture, &["--policy", "policy.toml"]);
        storm(&fixture, &mut seed);
        // It dies as soon as it is started, or at work after one of these.
        if let Some(event) = [None, Some("watch_started"), Some("scanned"), Some("worked")][round % 4] {
            watch.until(event, |_| true);
        }
        storm(&fixture, &mut seed);
        watch.kill();
    }
    storm(&fixture, &mut seed);
    let content = fixture.content();
    let watch = Watch::start(&fixture, &[]);
    watch.until("scanned", |_| true);
    until_protected(&fixture);
    // It does not have the vault, so this needs no waiting.
    let scrub = fixture.json(0, &["scrub", "tree"]);
    assert_eq!(scrub["files"].as_u64(), Some(content.len() as u64));
    let last = watch.stop(Signal::TERM);
    assert_eq!(last["done"]["failures"], 0, "{last}");
    assert_eq!(fixture.content(), content);
    assert_eq!(std::fs::read_dir(fixture.path(".gabion/staging")).unwrap().count(), 0);
}

/// Protects by hand. What the watch records meanwhile may be pending afterwards.
fn protect(fixture: &Fixture) {
    let output = fixture.run(&["protect", "tree", "--wait"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
}

#[test]
fn other_commands_work_beside_it() {
    let fixture = Fixture::new();
    policy(&fixture, "1h");
    let watch = Watch::start(&fixture, &["--policy", "policy.toml", "--workers", "1"]);
    watch.until("scanned", |_| true);
    fixture.write("more", &TestRng(5).bytes(500_000));
    watch.until("recorded", |_| true);
    // By hand nothing has to rest.
    protect(&fixture);
    fixture.expect(0, &["scrub", "tree", "--wait"]);
    // Damage is brought back; the watch hears of both, and waits.
    let path = fixture.path("more");
    let content = std::fs::read(&path).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"rot", 1000).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    fixture.expect(0, &["repair", "tree", "--yes", "--wait"]);
    assert!(std::fs::read(&path).unwrap() == content);
    watch.until("recorded", |_| true);
    protect(&fixture);
    fixture.expect(0, &["scrub", "tree", "--wait"]);
    // A second one is told who watches.
    let second = fixture.run(&["watch", "tree"]);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2));
    assert!(error.contains("watched already") && error.contains(&watch.child.id().to_string()), "{error}");
    watch.stop(Signal::INT);
    // What the watch recorded of the repair rests for an hour; the files themselves are protected as they are.
    protect(&fixture);
    let output = fixture.run(&["status", "tree", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["pending"]["files"], 0, "{status}");
    fixture.expect(0, &["scrub", "tree"]);
}

#[test]
fn without_rights_inotify_is_used_and_said_so() {
    let fixture = Fixture::new();
    policy(&fixture, "0s");
    for path in [fixture.dir(), &fixture.tree()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_gabion")]);
    command.current_dir(fixture.dir()).args(["watch", "tree", "--json", "--policy", "policy.toml"]);
    if !can_drop_rights() {
        gabion_testkit::skip!("without_rights_inotify_is_used: rights cannot be dropped here");
        return;
    }
    let watch = Watch::of(command);
    let started = watch.until("watch_started", |_| true);
    assert_eq!(started["source"], "inotify");
    assert!(started["instead"].as_str().unwrap().contains("root"), "{started}");
    watch.until("worked", |done| done["encoded"].as_u64() >= Some(5));
    fixture.write("sub/new directory/new", b"new");
    watch.until("worked", |done| done["encoded"] == 1);
    watch.stop(Signal::TERM);
    // Fanotify by name is refused with the reason.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_gabion")]);
    let args = ["watch", "tree", "--source", "fanotify"];
    let output = command.current_dir(fixture.dir()).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs to be root"), "{output:?}");
}

/// What a mount in the tree costs those who write elsewhere is said when it begins, and to whoever asks.
#[test]
fn a_mount_below_makes_the_watch_filesystem_wide() {
    let fixture = Fixture::new();
    policy(&fixture, "1h");
    let point = fixture.path("mounted here");
    std::fs::create_dir(&point).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status();
    if !mounted.is_ok_and(|status| status.success()) {
        gabion_testkit::skip!("a_mount_below_is_said: nothing can be mounted here");
        return;
    }
    let asked = || -> Value {
        let output = fixture.run(&["status", "tree", "--json", "--no-scan"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["filesystem_wide"].clone()
    };
    let watch = Watch::start(&fixture, &["--policy", "policy.toml", "--source", "fanotify"]);
    let wide = watch.until("filesystem_wide", |_| true);
    assert_eq!(wide["why"], "something is mounted at mounted here");
    let began = Stopwatch::start();
    while asked() != wide["why"] {
        assert!(began.elapsed() < PATIENCE, "{}", asked());
        std::thread::sleep(Duration::from_millis(50));
    }
    let people = String::from_utf8(fixture.run(&["status", "tree", "--no-scan"]).stdout).unwrap();
    assert!(people.contains("receives events for every write on the whole file system"), "{people}");
    assert_eq!(watch.stop(Signal::TERM)["filesystem_wide"], wide["why"]);
    assert_eq!(asked(), Value::Null, "it is over");
    gabion_testkit::unmount(&point);
    // Without the mount there is nothing to say.
    let watch = Watch::start(&fixture, &["--source", "fanotify"]);
    watch.until("scanned", |_| true);
    assert_eq!(watch.stop(Signal::TERM)["filesystem_wide"], Value::Null);
}

/// Whether this test can run a command as someone without rights.
fn can_drop_rights() -> bool {
    let binary = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(binary).arg("--version");
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn its_output_names_events_and_limits() {
    let fixture = Fixture::new();
    let help = fixture.expect(0, &["watch", "--help"]);
    for word in ["--rescan", "--source", "--workers", "quiet", "approve", "memory maps", "Examples"] {
        assert!(help.contains(word), "no {word} in {help}");
    }
    let output = fixture.run(&["watch", "tree/a"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a directory"));
    let output = fixture.run(&["watch", "tree", "--rescan", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    // For people: what it found, and how it ended.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.current_dir(fixture.dir()).args(["watch", "tree"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("watching with") {
        assert!(output.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains("stopped:"), "{text}");
}
