//! Write-once files under a watch.

use super::playground::{Playground, QUIET};
use gabion_vault::accept;
use gabion_vault::catalogue::State;
use gabion_vault::monitor::{Choice, Notice};

const POLICY: &str = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\nwrite_once = true\n";

/// A scan reported a changed write-once file, but a watch was told of the write by the kernel and encoded the new content: the redundancy of the
/// content that should have stayed was gone, and every report was green. Workers now ask the same question as scans. An approval in another
/// process is noticed without an event.
#[test]
fn a_watch_keeps_the_redundancy_of_a_changed_write_once_file_until_it_is_approved() {
    let ground = Playground::new();
    ground.create(POLICY);
    ground.write("film", b"as it was");
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    let vault = ground.vault();
    let entry = || vault.catalogue.find(b"film").unwrap().unwrap();
    let before = entry();
    ground.write("film", b"overwritten");
    ground.until("the change is reported", || {
        ground
            .notices()
            .iter()
            .any(|notice| matches!(notice, Notice::Worked(done) if done.write_once == [b"film".to_vec()]))
    });
    assert_eq!((entry().generation, entry().state), (before.generation, State::Damaged));
    // What is new is protected all the same.
    ground.write("another", b"new");
    ground.until("another is protected", || vault.catalogue.find(b"another").unwrap().is_some());
    let changed = accept::changed(&vault, b"", QUIET).unwrap();
    assert_eq!(accept::accept(&vault, &changed).unwrap(), [b"film".to_vec()]);
    ground.until("the change is carried out", || entry().state == State::Protected);
    ground.until_protected();
    assert!(!vault.catalogue.has_accepted().unwrap());
    ground.assert_protected();
    ground.stop(live);
}
