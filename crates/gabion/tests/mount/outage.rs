//! The changelog's server is unavailable for a while.

use crate::fixture::{Fixture, can_mount};
use crate::ordinary::pooled;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start(dir: &Path, port: u16) -> Redis {
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("this test needs the program redis-server (Debian: apt install redis-server)");
        let redis = Redis { child, port };
        gabion_testkit::until("redis-server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        redis
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Durability waits for the server, or goes on without it; in both cases everything is protected in the end.
fn away_for_a_while(mut fixture: Fixture, source: &str, go_on: bool) {
    let files = tempfile::tempdir().unwrap();
    let mut redis = Redis::start(files.path(), gabion_testkit::port());
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let mut args = vec!["--changelog", url.as_str(), "--workers", "0"];
    args.extend(go_on.then_some("--continue-without-changelog"));
    fixture.mount_source(source, &args);
    write_durably(&fixture.at("before"), b"before").unwrap();
    redis.kill();
    let (sender, receiver) = mpsc::channel();
    let path = fixture.at("meanwhile");
    let writer = std::thread::spawn(move || {
        let result = write_durably(&path, b"meanwhile");
        sender.send(()).unwrap();
        result
    });
    let done = receiver.recv_timeout(if go_on { gabion_testkit::PATIENCE } else { Duration::from_secs(6) });
    assert_eq!(done.is_ok(), go_on, "{source}: writes go on: {go_on}");
    // Reading waits for nobody.
    assert_eq!(std::fs::read(fixture.at("before")).unwrap(), b"before");
    let mut redis = Redis::start(files.path(), redis.port);
    writer.join().unwrap().unwrap();
    write_durably(&fixture.at("after"), b"after").unwrap();
    for name in ["before", "meanwhile", "after"] {
        assert_eq!(std::fs::read(fixture.at(name)).unwrap(), name.as_bytes());
    }
    fixture.unmount();
    let status = fixture.status_of(source);
    let pending = status["pending"]["queued"].as_u64().unwrap();
    assert!(pending >= 1, "{source}: {status}");
    fixture.expect(0, &["protect", source]);
    fixture.assert_protected_of(source);
    let status = fixture.status_of(source);
    assert_eq!(status["matrix"][0]["files"], 3, "{source}: {status}");
    redis.kill();
}

#[test]
fn mounted_a_server_that_is_away_loses_no_change() {
    if !can_mount("outage") {
        return;
    }
    for go_on in [false, true] {
        away_for_a_while(Fixture::new(), "source", go_on);
        away_for_a_while(pooled(), "t1", go_on);
    }
}

/// A mount ends without its server soon after it is unmounted, and says what that means: it waited for the server to
/// come back. What was written is found by a scan.
#[test]
fn mounted_a_server_that_is_gone_keeps_no_mount() {
    if !can_mount("outage") {
        return;
    }
    for workers in ["0", "1"] {
        let mut fixture = Fixture::new();
        let files = tempfile::tempdir().unwrap();
        let mut redis = Redis::start(files.path(), gabion_testkit::port());
        let url = format!("redis://127.0.0.1:{}", redis.port);
        fixture.mount_source("source", &["--changelog", &url, "--workers", workers]);
        write_durably(&fixture.at("before"), b"before").unwrap();
        redis.kill();
        std::fs::write(fixture.at("after"), b"nobody was told").unwrap();
        fixture.unmount_with(2);
        let said = fixture.captured();
        assert!(said.contains("has not answered for") && said.contains("EXPOSED"), "{workers}: {said}");
        let mut redis = Redis::start(files.path(), redis.port);
        fixture.expect(0, &["protect", "source"]);
        fixture.assert_protected_of("source");
        assert_eq!(fixture.status_of("source")["matrix"][0]["files"], 2);
        redis.kill();
    }
}
