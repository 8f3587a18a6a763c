//! Real file systems on loop devices: unmounted, dying, mounted again.

use super::loops::{Disks, run};
use super::playground::{Ground, files_below};
use gabion_vault::pool_rebuild::survey::Standing;
use gabion_vault::storage::{Storage, TargetState};
use std::fs;
use std::process::Command;

/// Seven disks, 3 + 2; nothing without the right to mount.
fn ground(test: &str, seed: u64) -> Option<(Disks, Ground)> {
    let dir = tempfile::tempdir().unwrap();
    match Disks::make(dir.path(), 7, "12M") {
        Ok(disks) => {
            let mut ground = Ground::within(dir, &[None; 7], 3, 2);
            ground.fill(seed);
            Some((disks, ground))
        }
        Err(why) => {
            gabion_testkit::skip!("{test}: {why}");
            None
        }
    }
}

#[test]
fn an_unmounted_disk_is_noticed_rebuilt_and_taken_back() {
    let Some((disks, mut ground)) = ground("an_unmounted_disk_is_noticed_rebuilt_and_taken_back", 40) else {
        return;
    };
    let touched = ground.on(5);
    disks.unmount(5);
    // Also for who had the pool open all the time.
    assert_eq!(ground.named(Standing::Degraded), touched);
    let status = ground.pool.status();
    assert!(status.targets[4].reason.as_ref().unwrap().contains("not mounted"), "{status:?}");
    ground.assert_right("unmounted");
    ground.open();
    ground.rebuild_all("unmounted");
    ground.assert_whole("unmounted");
    assert_eq!(fs::read_dir(disks.point(5)).unwrap().count(), 0, "nothing is written below a mount point");
    disks.mount(5).unwrap();
    ground.open();
    let report = ground.rebuild_all("mounted again");
    assert_eq!(report.taken_back, ["d5"]);
    assert!(report.removed > 0, "{report:?}");
    ground.assert_whole("mounted again");
}

/// A medium that fails under a mounted file system: names are still listed from memory, reads fail.
#[test]
fn a_dying_disk_is_noticed_by_reading_from_it() {
    let Some((disks, mut ground)) = ground("a_dying_disk_is_noticed_by_reading_from_it", 41) else { return };
    // Not the disk that the vault is on: what dies there dies with it.
    let number = 6;
    run(Command::new("sync").arg("-f").arg(disks.point(number))).unwrap();
    fs::File::options().write(true).open(disks.image(number)).unwrap().set_len(0).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    ground.pool.probe();
    assert_eq!(ground.pool.targets()[number - 1].state, TargetState::Offline);
    let reason = ground.pool.status().targets[number - 1].reason.clone().unwrap();
    assert!(reason.contains("error"), "{reason}");
    assert!(!ground.named(Standing::Degraded).is_empty());
    ground.assert_right("dying");
    ground.open();
    ground.assert_right("dying, opened once more");
    ground.rebuild_all("dying");
    disks.unmount(number);
    ground.open();
    ground.assert_whole("taken out");
}

#[test]
fn a_directory_that_was_removed_is_no_deletion_of_files() {
    let mut ground = Ground::filled(42);
    fs::remove_dir_all(ground.target(3)).unwrap();
    ground.assert_right("removed");
    ground.open();
    ground.rebuild_all("removed");
    ground.assert_whole("removed");
    // An empty directory in its place is a mount point without its disk.
    fs::create_dir(ground.target(3)).unwrap();
    ground.open();
    ground.assert_whole("empty");
    assert!(files_below(&ground.target(3)).is_empty());
}
