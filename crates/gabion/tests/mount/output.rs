//! A mount whose standard output is a full disk.

use super::fixture::{Fixture, can_mount};
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

/// The line that says that the mount is ready panicked: the mount ended, and so did every program that used it. It
/// now serves and protects files until it is told to end, and its exit code says that output is missing.
#[test]
fn a_full_disk_under_the_output_ends_no_mount() {
    if !can_mount("a_full_disk_under_the_output_ends_no_mount") {
        return;
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.source("file"), b"content").unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = fixture.command(&["mount", "source", "mount", "--policy", "policy.toml"]);
    let mut child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let watch = Stopwatch::start();
    while !fixture.at("file").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the mount ended");
        assert!(watch.elapsed() < gabion_testkit::PATIENCE, "nothing is mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(fixture.at("other"), b"written through the mount").unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut output = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{output}");
    assert!(output.contains("standard output: No space left on device"), "{output}");
    assert_eq!(std::fs::read(fixture.source("other")).unwrap(), b"written through the mount");
}
