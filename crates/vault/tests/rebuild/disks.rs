//! Real file systems on loop devices: unmounted, failing, mounted again.

use super::fixture::{Fixture, files_below};
use super::loops::{Disks, run};
use gabion_vault::pool_rebuild::survey::FileHealth;
use gabion_vault::storage::{Storage, TargetState};
use std::fs;
use std::process::Command;

/// Seven disks, 3 + 2; none without permission to mount.
fn fixture(test: &str, seed: u64) -> Option<(Disks, Fixture)> {
    let dir = tempfile::tempdir().unwrap();
    match Disks::make(dir.path(), 7, "12M") {
        Ok(disks) => {
            let mut fixture = Fixture::within(dir, &[None; 7], 3, 2);
            fixture.fill(seed);
            Some((disks, fixture))
        }
        Err(why) => {
            gabion_testkit::skip!("{test}: {why}");
            None
        }
    }
}

#[test]
fn an_unmounted_disk_is_noticed_rebuilt_and_taken_back() {
    let Some((disks, mut fixture)) = fixture("an_unmounted_disk_is_noticed_rebuilt_and_taken_back", 40)
    else {
        return;
    };
    let touched = fixture.on(5);
    disks.unmount(5);
    // Also for a process that had the pool open all the time.
    assert_eq!(fixture.named(FileHealth::Degraded), touched);
    let status = fixture.pool.status();
    assert!(status.targets[4].reason.as_ref().unwrap().contains("not mounted"), "{status:?}");
    fixture.assert_right("unmounted");
    fixture.open();
    fixture.rebuild_all("unmounted");
    fixture.assert_whole("unmounted");
    assert_eq!(fs::read_dir(disks.point(5)).unwrap().count(), 0, "nothing is written below a mount point");
    disks.mount(5).unwrap();
    fixture.open();
    let report = fixture.rebuild_all("mounted again");
    assert_eq!(report.reinstated, ["d5"]);
    assert!(report.removed > 0, "{report:?}");
    fixture.assert_whole("mounted again");
}

/// A medium that fails under a mounted file system: names are still listed from memory, reads fail.
#[test]
fn a_dying_disk_is_noticed_by_reading_from_it() {
    let Some((disks, mut fixture)) = fixture("a_dying_disk_is_noticed_by_reading_from_it", 41) else {
        return;
    };
    // Not the disk of the vault, which would fail with it.
    let number = 6;
    run(Command::new("sync").arg("-f").arg(disks.point(number))).unwrap();
    fs::File::options().write(true).open(disks.image(number)).unwrap().set_len(0).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    fixture.pool.probe();
    assert_eq!(fixture.pool.targets()[number - 1].state, TargetState::Offline);
    let reason = fixture.pool.status().targets[number - 1].reason.clone().unwrap();
    assert!(reason.contains("error"), "{reason}");
    assert!(!fixture.named(FileHealth::Degraded).is_empty());
    fixture.assert_right("dying");
    fixture.open();
    fixture.assert_right("dying, opened once more");
    fixture.rebuild_all("dying");
    disks.unmount(number);
    fixture.open();
    fixture.assert_whole("taken out");
}

#[test]
fn a_directory_that_was_removed_is_no_deletion_of_files() {
    let mut fixture = Fixture::filled(42);
    fs::remove_dir_all(fixture.target(3)).unwrap();
    fixture.assert_right("removed");
    fixture.open();
    fixture.rebuild_all("removed");
    fixture.assert_whole("removed");
    // An empty directory in its place is a mount point without its disk.
    fs::create_dir(fixture.target(3)).unwrap();
    fixture.open();
    fixture.assert_whole("empty");
    assert!(files_below(&fixture.target(3)).is_empty());
}
