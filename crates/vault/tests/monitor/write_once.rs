//! Write-once files under a watch.

use super::fixture::{Fixture, QUIET};
use gabion_vault::accept;
use gabion_vault::catalogue::State;
use gabion_vault::monitor::{Choice, Notice};

const POLICY: &str = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\nwrite_once = true\n";

/// Regression: a watch encoded the new content of a write-once file because of its event, and the redundancy of the
/// protected content was lost without a report. Workers now apply the same check as scans. An approval by another
/// process is noticed without an event.
#[test]
fn a_watch_keeps_the_redundancy_of_a_changed_write_once_file_until_it_is_approved() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    fixture.write("film", b"as it was");
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    let vault = fixture.vault();
    let entry = || vault.catalogue.find(b"film").unwrap().unwrap();
    let before = entry();
    fixture.write("film", b"overwritten");
    fixture.until("the change is reported", || {
        fixture
            .notices()
            .iter()
            .any(|notice| matches!(notice, Notice::Worked(done) if done.write_once == [b"film".to_vec()]))
    });
    assert_eq!((entry().generation, entry().state), (before.generation, State::Damaged));
    // New files are protected nevertheless.
    fixture.write("another", b"new");
    fixture.until("another is protected", || vault.catalogue.find(b"another").unwrap().is_some());
    let changed = accept::changed(&vault, b"", QUIET).unwrap();
    assert_eq!(accept::accept(&vault, &changed).unwrap(), [b"film".to_vec()]);
    fixture.until("the change is carried out", || entry().state == State::Protected);
    fixture.until_protected();
    assert!(!vault.catalogue.has_accepted().unwrap());
    fixture.assert_protected();
    fixture.stop(live);
}
