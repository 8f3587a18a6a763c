//! A daemon without sources.

use super::fixture::Fixture;
use rustix::process::Signal;

/// As after the installation of a package: the daemon waits and says what to do, and a reload gives it sources. Its
/// socket is named by an option.
#[test]
fn a_daemon_without_sources_waits_for_them() {
    let mut fixture = Fixture::new();
    fixture.write("daemon.toml", b"# nothing yet\n");
    let socket = fixture.path("sock");
    let socket = socket.to_str().unwrap();
    fixture.start_with(fixture.command(&["daemon", "run", "daemon.toml", "--socket", socket]));
    fixture.expect(0, &["daemon", "status"]);
    let refusal = fixture.refused(&["daemon", "scrub", "photos"]);
    assert!(refusal.contains("the configuration has no sources"), "{refusal}");
    let checked = fixture.expect(0, &["daemon", "run", "daemon.toml", "--check"]);
    assert!(checked.contains("no sources"), "{checked}");
    let source = fixture.watched("photos", "");
    fixture.write("daemon.toml", source.as_bytes());
    fixture.expect(0, &["daemon", "reload"]);
    fixture.until("photos", "running", |source| source["state"] == "running");
    fixture.until_protected("photos", "photos", 4);
    fixture.write("daemon.toml", b"");
    fixture.expect(0, &["daemon", "reload"]);
    fixture.stop(Signal::TERM);
}
