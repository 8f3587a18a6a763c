//! A changelog server that loses the entries of a watch.

use super::fixture::{Fixture, TestRng};
use super::server::TestServer;
use gabion_vault::monitor::{Choice, Notice};

/// Regression: after a server restarted without its files, pending changes were protected only by the next full scan,
/// one hour later. A gap recorded then counted as scanned, because its sequence number was smaller than earlier ones.
#[test]
fn a_watch_scans_when_its_server_comes_back_empty() {
    let fixture = Fixture::new();
    let mut server = TestServer::start();
    let policy = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n";
    fixture.create_on(Some(&server.server("unused").url), policy);
    for (number, name) in ["changed", "moved", "removed"].iter().enumerate() {
        fixture.write(name, &TestRng(number as u64).bytes(20_000));
    }
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    // Changes stay pending until the server has lost them.
    live.pause(true);
    let before = fixture.whole_scans();
    fixture.write("changed", &TestRng(7).bytes(20_000));
    std::fs::rename(fixture.path("moved"), fixture.path("there")).unwrap();
    std::fs::remove_file(fixture.path("removed")).unwrap();
    fixture.write("new", &TestRng(8).bytes(3000));
    let vault = fixture.vault();
    fixture.until("all changes are recorded", || vault.changelog.pending().unwrap().entries() >= 4);
    server.forget();
    server.restart();
    live.pause(false);
    let monitors = vault.changelog.monitors().unwrap();
    fixture.until("the watch has its mark again", || monitors.known_monitors().is_ok_and(|it| it.len() == 1));
    fixture.until_protected();
    let lost = |notice: &Notice| matches!(notice, Notice::Trouble(why) if why.contains("has lost recorded"));
    assert_eq!(fixture.notices().iter().filter(|notice| lost(notice)).count(), 1);
    // The loss of the mark is a reason of its own: it is noticed before this scan, or a moment after.
    let scans = fixture.whole_scans();
    assert!((before + 1..=before + 2).contains(&scans), "{scans}");
    fixture.assert_protected();
    // Later changes are recorded as usual.
    fixture.write("later", &TestRng(9).bytes(5000));
    fixture.until_protected();
    assert_eq!(fixture.whole_scans(), scans);
    fixture.stop(live);
}

/// A server that was only offline has lost nothing.
#[test]
fn a_watch_does_not_scan_when_its_server_was_away() {
    let fixture = Fixture::new();
    let mut server = TestServer::start();
    fixture.create_on(Some(&server.server("unused").url), "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n");
    fixture.write("file", &TestRng(1).bytes(20_000));
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    live.pause(true);
    fixture.write("file", &TestRng(2).bytes(20_000));
    let vault = fixture.vault();
    fixture.until("the change is recorded", || vault.changelog.pending().unwrap().entries() > 0);
    let before = fixture.whole_scans();
    server.kill();
    server.restart();
    live.pause(false);
    fixture.until_protected();
    assert_eq!(fixture.whole_scans(), before);
    fixture.assert_protected();
    fixture.stop(live);
}
