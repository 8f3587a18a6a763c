//! Identification of versions: stores into mapped pages, coarse timestamps, copies, file systems without stable inodes.

use super::fixture::{QUIET, TestRng, flip};
use gabion_platform::mapping::SharedMapping;
use gabion_vault::catalogue::State;
use gabion_vault::protect::{self, Report};
use gabion_vault::repair;
use gabion_vault::scrub::{self, Options, Selection};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A tree with a vault that uses the system clock.
struct Fixture {
    root: PathBuf,
    vault: Vault,
}

impl Fixture {
    fn new(root: PathBuf) -> Fixture {
        fs::create_dir_all(&root).unwrap();
        let mut vault = Vault::create(&Location::of(&root, None), None, Clock::System).unwrap();
        vault.set_policy("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n").unwrap();
        Fixture { root, vault }
    }

    fn protect(&self) -> Report {
        let _lock = self.vault.lock("test").unwrap();
        let report = protect::protect(&self.vault, QUIET).unwrap();
        assert_eq!(report.done.failed, []);
        report
    }

    fn scrub(&self) -> scrub::Report {
        let options = Options { selection: Selection::All, from_medium: false, resume: false };
        scrub::scrub(&self.vault, b"", options, QUIET).unwrap()
    }

    /// Repairs unmodified files as the daemon does.
    fn repair_unchanged(&self) {
        let _lock = self.vault.lock("test").unwrap();
        let options = repair::Options { keep_changed: true, ..repair::Options::default() };
        for damage in repair::plan(&self.vault, b"", options, QUIET).unwrap().files {
            repair::repair(&self.vault, &damage.path, QUIET).unwrap();
        }
    }
}

/// A loop-mounted file system image, unmounted on drop.
struct LoopDisk {
    dir: tempfile::TempDir,
}

impl LoopDisk {
    /// None without the right to mount or without mkfs.
    fn new(test: &str, make: &[&str]) -> Option<LoopDisk> {
        let disk = LoopDisk { dir: tempfile::tempdir().unwrap() };
        let image = disk.dir.path().join("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(disk.point()).unwrap();
        let mut mkfs = Command::new(make[0]);
        let mut mount = Command::new("mount");
        mkfs.args(&make[1..]).arg(&image);
        mount.args(["-o", "loop"]).arg(&image).arg(disk.point());
        for command in [&mut mkfs, &mut mount] {
            match command.output() {
                Ok(output) if output.status.success() => {}
                output => {
                    gabion_testkit::skip!("{test}: {command:?}: {output:?}");
                    return None;
                }
            }
        }
        Some(disk)
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("disk")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.point()).output();
    }
}

fn file_of(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Regression: a program stores into a mapped page, the file is protected, and the program stores into the same page,
/// which is still dirty: the kernel updates the mtime only once. `protect` saw no change, `scrub` reported damage, and
/// the daemon's repair reverted the store. The file is now flushed before it is read, so that every later store changes
/// the mtime.
fn stores_into_mapped_pages_are_changes(root: &Path) {
    let fixture = Fixture::new(root.join("tree"));
    let path = fixture.root.join("database");
    fs::write(&path, TestRng(1).bytes(64 << 10)).unwrap();
    let file = file_of(&path);
    let mut mapping = SharedMapping::new(&file, 64 << 10).unwrap();
    for round in 0..10u8 {
        mapping.store(5000, round);
        // As if the first store had been long ago.
        file.set_modified(
            SystemTime::UNIX_EPOCH + Duration::from_millis(1_500_000_000_123 + u64::from(round)),
        )
        .unwrap();
        fixture.protect();
        mapping.store(5001, round.wrapping_add(100));
        mapping.sync().unwrap();
        fixture.scrub();
        fixture.repair_unchanged();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(
            bytes[5000..5002],
            [round, round.wrapping_add(100)],
            "round {round}: the store was reverted"
        );
        fixture.protect();
        assert_eq!(fixture.scrub().worst(), State::Protected, "round {round}: the store is not protected");
    }
}

#[test]
fn stores_into_mapped_pages_are_changes_on_this_disk() {
    let dir = tempfile::tempdir().unwrap();
    stores_into_mapped_pages_are_changes(dir.path());
}

#[test]
fn stores_into_mapped_pages_are_changes_on_xfs() {
    let name = "stores_into_mapped_pages_are_changes_on_xfs";
    // The smallest image of mkfs.xfs is larger than those of the other tests.
    let dir = tempfile::tempdir().unwrap();
    let disk = LoopDisk { dir };
    let image = disk.dir.path().join("image");
    File::create(&image).unwrap().set_len(320 << 20).unwrap();
    fs::create_dir(disk.point()).unwrap();
    let mut mkfs = Command::new("mkfs.xfs");
    let mut mount = Command::new("mount");
    for command in [mkfs.arg("-q").arg(&image), mount.args(["-o", "loop"]).arg(&image).arg(disk.point())] {
        match command.output() {
            Ok(output) if output.status.success() => {}
            output => return gabion_testkit::skip!("{name}: {command:?}: {output:?}"),
        }
    }
    stores_into_mapped_pages_are_changes(&disk.point());
}

/// Regression: two writes within one timestamp step have the same mtime (ext4 with small inodes: 1 s, vfat: 2 s). The
/// second write, after `protect`, was taken for damage and reverted.
fn writes_within_one_timestamp_are_changes(root: &Path) {
    let fixture = Fixture::new(root.join("tree"));
    let path = fixture.root.join("file");
    for round in 0..3u8 {
        fs::write(&path, [round; 20_000]).unwrap();
        fixture.protect();
        let file = file_of(&path);
        std::os::unix::fs::FileExt::write_all_at(&file, b"second write", 10_000).unwrap();
        drop(file);
        fixture.scrub();
        fixture.repair_unchanged();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(&bytes[10_000..10_012], b"second write", "round {round}: the write was reverted");
        let report = fixture.protect();
        assert!(report.affected.is_empty(), "round {round}: {:?}", report.affected);
        assert_eq!(fixture.scrub().worst(), State::Protected, "round {round}: the write is not protected");
    }
}

#[test]
fn writes_within_one_second_are_changes_where_inodes_are_small() {
    let name = "writes_within_one_second_are_changes_where_inodes_are_small";
    let Some(disk) = LoopDisk::new(name, &["mkfs.ext4", "-q", "-F", "-I", "128"]) else { return };
    writes_within_one_timestamp_are_changes(&disk.point());
}

#[test]
fn writes_within_two_seconds_are_changes_on_vfat() {
    let name = "writes_within_two_seconds_are_changes_on_vfat";
    if gabion_testkit::skip_without_file_system(name, "vfat") {
        return;
    }
    let Some(disk) = LoopDisk::new(name, &["mkfs.vfat"]) else { return };
    writes_within_one_timestamp_are_changes(&disk.point());
}

/// Regression: a tree is copied with its times (`cp -a`, a backup, a file system with new inodes at each mount) and one
/// bit flips. The copy was encoded as new content with the corruption.
#[test]
fn corruption_in_a_copy_with_the_same_time_is_damage() {
    for size in [1, 50_000, 5_000_000] {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Fixture::new(dir.path().join("tree"));
        let content = TestRng(size).bytes(size as usize);
        for name in ["damaged", "fine"] {
            fs::write(fixture.root.join(name), &content).unwrap();
        }
        fixture.protect();
        for name in ["damaged", "fine"] {
            let (path, copy) = (fixture.root.join(name), dir.path().join("copy"));
            fs::copy(&path, &copy).unwrap();
            file_of(&copy).set_modified(fs::metadata(&path).unwrap().modified().unwrap()).unwrap();
            fs::rename(&copy, &path).unwrap();
        }
        flip(&fixture.root.join("damaged"), size / 2);
        let report = fixture.protect();
        let damaged: Vec<_> = report.done.damaged.iter().map(|it| (it.path.as_slice(), it.changed)).collect();
        assert_eq!(damaged, [(&b"damaged"[..], false)], "{size}");
        assert_eq!(report.affected, [(State::Damaged, 1)]);
        fixture.repair_unchanged();
        assert!(fs::read(fixture.root.join("damaged")).unwrap() == content, "{size}: not repaired");
        assert!(fixture.protect().affected.is_empty());
        assert_eq!(fixture.scrub().worst(), State::Protected);
    }
}
