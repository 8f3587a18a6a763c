//! Killed daemons, failing sources, and malformed requests.

use super::fixture::{Fixture, can_mount};
use super::test_rng::TestRng;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;

#[test]
fn mounted_kill_at_any_moment_and_the_next_run_converges() {
    if !can_mount("kill") {
        return;
    }
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    let documents = fixture.mounted("documents", "");
    fixture.configure(&format!("{photos}{documents}"));
    let mut seed = TestRng(3);
    for round in 0..3 {
        fixture.start();
        // What the killed daemon had mounted may be in use for a moment. Then the source fails, and is tried again.
        fixture.until("documents", "it is mounted", |source| source["state"] == "running");
        for number in 0..10 {
            let name = format!("mnt-documents/{round} {number}");
            fixture.write(&name, &seed.bytes(20_000));
            fixture.write(&format!("photos/{round} {number}"), &seed.bytes(20_000));
        }
        // It is killed before it encodes, or while it is at work on one of the two.
        let encoded = |source: &Value| source["live"]["encoded"].as_u64() > Some(0);
        match round {
            0 => {}
            1 => drop(fixture.until("photos", "a file is encoded", encoded)),
            _ => drop(fixture.until("documents", "a file is encoded", encoded)),
        }
        fixture.kill();
        // Nobody hears of this one.
        fixture.write(&format!("photos/alone {round}"), &seed.bytes(5000));
    }
    // The note that is left leads nowhere, and commands are not misled.
    assert!(fixture.path("photos/.gabion/daemon").exists());
    let output = fixture.run(&["status", "photos", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(status["daemon"].is_null());
    fixture.start();
    fixture.until_protected("photos", "photos", 4 + 30 + 3);
    fixture.until_protected("documents", "documents", 30);
    assert_eq!(std::fs::read_dir(fixture.path("mnt-documents")).unwrap().count(), 30);
    fixture.expect(0, &["scrub", "photos"]);
    fixture.expect(0, &["scrub", "documents"]);
    fixture.stop(Signal::TERM);
    assert!(!fixture.path("documents/.gabion/mounted").exists(), "the mark of a mount that ended well");
}

/// A program that never closes its file must not keep a machine from going down.
#[test]
fn mounted_programs_are_waited_for_and_then_left_behind() {
    if !can_mount("programs") {
        return;
    }
    let mut fixture = Fixture::new();
    let documents = fixture.mounted("documents", "");
    // A slow machine needs more time for its work after the programs had theirs.
    for seconds in (1..9).map(|power| 1 << power) {
        let config = format!("socket = 'sock'\nstop_within = '{seconds}s'\n{documents}");
        fixture.write("daemon.toml", config.as_bytes());
        fixture.start();
        let mut file = std::fs::File::create(fixture.path("mnt-documents/open")).unwrap();
        file.write_all(b"written").unwrap();
        rustix::process::kill_process(fixture.process(), Signal::TERM).unwrap();
        let code = fixture.wait();
        assert_eq!(
            std::fs::read_dir(fixture.path("mnt-documents")).unwrap().count(),
            0,
            "it is still mounted"
        );
        assert_eq!(std::fs::read(fixture.path("documents/open")).unwrap(), b"written");
        drop(file);
        // The next run takes over what was left.
        fixture.configure(&documents);
        fixture.start();
        fixture.until_protected("documents", "documents", 1);
        fixture.stop(Signal::TERM);
        if code == Some(0) {
            return;
        }
        let late = format!("documents did not stop within {seconds} s");
        assert!(code == Some(2) && fixture.captured.text().contains(&late), "{code:?}");
    }
    panic!("it waits for the program as long as it may");
}

#[test]
fn one_source_that_fails_keeps_no_other_from_its_work() {
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    let missing = "[[source]]\nname = 'missing'\nwatch = 'not there'\npolicy = 'policy.toml'\n";
    let away = "[[source]]\nname = 'away'\nwatch = 'away'\nchangelog = 'redis://127.0.0.1:1'\n";
    std::fs::create_dir(fixture.path("away")).unwrap();
    fixture.configure(&format!("{missing}{photos}{away}"));
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    let source = fixture.source("missing");
    assert_eq!(source["state"], "failed", "{source:#}");
    let why = source["reason"].as_str().unwrap();
    assert!(why.contains("not there") && why.contains("No such file"), "{why}");
    assert!(source["retry_at"].is_string());
    let source = fixture.until("away", "it has failed", |source| source["state"] == "failed");
    assert!(source["reason"].as_str().unwrap().contains("changelog"), "{source:#}");
    let output = fixture.run(&["daemon", "status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("missing: failed") && text.contains("photos: running"), "{text}");
    assert!(fixture.refused(&["daemon", "scrub", "missing"]).contains("not there"));
    assert!(fixture.refused(&["daemon", "scrub", "nobody"]).contains("photos"));
    // It is tried again by itself.
    fixture.write("not there/file", b"there");
    fixture.until("missing", "it recovers", |source| {
        source["state"] == "running" && source["files"]["known"] == 1
    });
    // And a repository that vanishes under a source is a failure with a name.
    std::fs::rename(fixture.path("not there"), fixture.path("gone again")).unwrap();
    let source = fixture.until("missing", "it fails again", |source| source["state"] == "failed");
    assert!(source["reason"].as_str().unwrap().contains("not there"), "{source:#}");
    fixture.write("photos/more", b"more");
    fixture.until_protected("photos", "photos", 5);
    fixture.stop(Signal::TERM);
}

/// Permissions of the socket were all that kept other users out: where they were changed, everybody could stop the
/// daemon.
#[test]
fn other_users_at_the_socket_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    fixture.configure(&photos);
    fixture.start();
    for (path, mode) in [("", 0o755), ("sock", 0o666)] {
        std::fs::set_permissions(fixture.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for request in ["status", "stop"] {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(env!("CARGO_BIN_EXE_gabion")).args(["daemon", request]);
        let output = command.env("GABION_SOCKET", fixture.path("sock")).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains("user 65534"), "{request}: {output:?}");
    }
    fixture.until_protected("photos", "photos", 4);
    fixture.stop(Signal::TERM);
}

/// A daemon of root keeps the capabilities that its work needs, in all of its threads, and still protects what only
/// its owner may read.
#[test]
fn a_daemon_of_root_gives_up_privileges_that_it_does_not_need() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        gabion_testkit::skip!("a_daemon_of_root_gives_up_privileges: we are not root");
        return;
    }
    let mut fixture = Fixture::new();
    let photos = fixture.watched("photos", "");
    for (file, mode) in [("photos/a", 0o600), ("photos/sub", 0o700)] {
        std::fs::set_permissions(fixture.path(file), std::fs::Permissions::from_mode(mode)).unwrap();
        chown(fixture.path(file), Some(65534), Some(65534)).unwrap();
    }
    fixture.configure(&photos);
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    let process = fixture.daemon.as_ref().unwrap().id();
    // net_admin, sys_module, sys_rawio, sys_ptrace, sys_boot, sys_time, mac_admin, bpf.
    let refused = [12, 16, 17, 19, 22, 25, 33, 39].iter().fold(0_u64, |all, number| all | 1 << number);
    let mut threads = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            assert_eq!(value(set) & refused, 0, "{set} {text}");
        }
        assert_ne!(value("CapEff:") & 1 << 1, 0, "files of other users are read and written: {text}");
        assert_eq!(value("NoNewPrivs:"), 1, "{text}");
        threads += 1;
    }
    assert!(threads > 1, "the threads of a source must be among them: {threads}");
    fixture.stop(Signal::TERM);
}

struct Redis {
    child: std::process::Child,
}

impl Redis {
    fn start(fixture: &Fixture, port: u16) -> Redis {
        std::fs::create_dir_all(fixture.path("redis")).unwrap();
        let child = std::process::Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--dir"])
            .arg(fixture.path("redis"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("this test needs the program redis-server (Debian: apt install redis-server)");
        let redis = Redis { child };
        gabion_testkit::until("redis-server answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_changelog_that_goes_away_is_named_and_found_again() {
    let mut fixture = Fixture::new();
    let port = gabion_testkit::port();
    let redis = Redis::start(&fixture, port);
    let photos = fixture.watched("photos", &format!("changelog = 'redis://127.0.0.1:{port}'"));
    let music = fixture.watched("music", "");
    fixture.configure(&format!("{photos}{music}"));
    fixture.start();
    fixture.until_protected("photos", "photos", 4);
    drop(redis);
    fixture.write("photos/meanwhile", b"meanwhile");
    let source = fixture.until("photos", "it is named", |source| source["state"] == "failed");
    assert!(source["reason"].as_str().unwrap().contains("changelog"), "{source:#}");
    fixture.write("music/meanwhile", b"meanwhile");
    fixture.until_protected("music", "music", 5);
    let _redis = Redis::start(&fixture, port);
    fixture.until_protected("photos", "photos", 5);
    fixture.until("photos", "it recovers", |source| source["state"] == "running");
    fixture.stop(Signal::TERM);
}
