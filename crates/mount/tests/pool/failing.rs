//! Disks that fail under a mounted pool without going away: media that give errors, file systems that turned read-only.

use super::disks::make_anew_without;
use super::fixture::{Fixture, PATIENCE, QUIET, TestRng, drop_caches};
use super::loops::{Disks, run};
use gabion_vault::format::Metadata;
use gabion_vault::pool_rebuild::{self, rebuild};
use gabion_vault::world::Timestamp;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The disk that fails. The vault is on another one.
const FAILS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Whatever is asked of it is answered by an error; what it had not written is lost.
    Errors,
    /// As a kernel leaves a file system in which it found something wrong.
    ReadOnly,
}

impl Fault {
    fn strike(self, disks: &Disks) -> Result<(), String> {
        let point = disks.point(FAILS);
        match self {
            Fault::Errors => run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(point)),
            Fault::ReadOnly => turn_read_only(&point),
        }
    }
}

/// Reports an error to ext4, which turns read-only then. A remount would fail as long as files are open for writing.
fn turn_read_only(point: &Path) -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let is_there = |line: &&str| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == point);
    let mount = mounts.lines().rev().find(is_there);
    let device =
        mount.and_then(|line| line.split(' ').next()).and_then(|device| device.strip_prefix("/dev/"));
    let device = device.ok_or_else(|| format!("{} is not mounted", point.display()))?;
    let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
    fs::write(&trigger, "the test wants it read-only").map_err(|error| format!("{trigger}: {error}"))?;
    let refused = File::create(point.join("probe")).err().and_then(|error| error.raw_os_error());
    match refused == Some(rustix::io::Errno::ROFS.raw_os_error()) {
        true => Ok(()),
        false => Err(format!("{} still takes files: {refused:?}", point.display())),
    }
}

/// A file that was written while the disk failed.
struct Written {
    name: String,
    content: Vec<u8>,
    /// It was begun when the disk had failed already.
    after: bool,
}

fn write_synced(path: &std::path::Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn fails_under_load(fault: Fault, seed: u64) {
    let test = format!("{fault:?}");
    let Some((fixture, disks)) = Fixture::on_disks(&test) else { return };
    let mount = fixture.mount();
    let mut chance = TestRng(seed);
    let mut files: BTreeMap<String, Vec<u8>> =
        (0..12).map(|number| (format!("f{number}"), chance.bytes(number * 7001))).collect();
    for (name, content) in &files {
        write_synced(&mount.path(name), content).unwrap();
    }
    mount.until_closed();
    fixture.assert_converges();
    let (failed, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let written: Mutex<Vec<Written>> = Mutex::default();
    let struck = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop_caches();
                for (name, content) in &files {
                    let found = fs::read(mount.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(found == *content, "{name}");
                }
            }
        });
        let writer = scope.spawn(|| {
            let mut chance = TestRng(seed + 1);
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (name, content) = (format!("w{number}"), chance.bytes(20_000));
                let after = failed.load(Ordering::SeqCst);
                match write_synced(&mount.path(&name), &content) {
                    Ok(()) => written.lock().unwrap().push(Written { name, content, after }),
                    Err(error) => eprintln!("{fault:?}: {name}, after {after}: {error}"),
                }
            }
        });
        let begun = gabion_vault::world::Stopwatch::start();
        let until = |what: &str, so: &dyn Fn() -> bool| {
            while !so() && !reader.is_finished() && !writer.is_finished() {
                if begun.elapsed() > PATIENCE {
                    eprintln!("never: {what}");
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            so()
        };
        let count = |after| written.lock().unwrap().iter().filter(|it| it.after == after).count();
        let mut well = until("files are written", &|| count(false) >= 5);
        let struck = fault.strike(&disks);
        failed.store(true, Ordering::SeqCst);
        well &= struck.is_err() || until("files are written on", &|| count(true) >= 20);
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(well);
        struck
    });
    if let Err(why) = struck {
        return gabion_testkit::skip!("{test}: {why}");
    }
    // Files that are degraded are written to as well.
    for (name, content) in files.iter_mut().filter(|(_, content)| content.len() > 10_000) {
        let bytes = chance.bytes(9000);
        let file = File::options().write(true).open(mount.path(name)).unwrap();
        file.write_all_at(&bytes, 500)
            .and_then(|()| file.sync_all())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        content[500..9500].copy_from_slice(&bytes);
    }
    drop_caches();
    for Written { name, content, after } in written.into_inner().unwrap() {
        match fs::read(mount.path(&name)) {
            Ok(found) => {
                assert!(found == content, "{name}");
                files.insert(name, content);
            }
            // It had no redundancy yet when its disk failed; nobody gets anything wrong for it.
            Err(error) if !after => {
                eprintln!("{fault:?}: {name}: {error}");
                fs::remove_file(mount.path(&name)).unwrap();
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    for entry in fs::read_dir(mount.path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !files.contains_key(&name) {
            // Writing it failed, and its writer was told.
            fs::remove_file(mount.path(&name)).unwrap();
        }
    }
    for (name, content) in &files {
        assert!(fs::read(mount.path(name)).unwrap() == *content, "{name}");
    }
    mount.unmount();
    if fault == Fault::ReadOnly {
        // The disk can still be read, so files that had no redundancy yet get some before it goes.
        fixture.protect();
    }
    make_anew_without(FAILS, &fixture, &disks);
    // It comes back with what it had: nothing of that counts.
    disks.mount(FAILS).unwrap();
    fixture.pool().heal().unwrap();
    let mount = fixture.mount();
    for (name, content) in &files {
        assert!(fs::read(mount.path(name)).unwrap() == *content, "{name}, the disk is back");
    }
    mount.unmount();
}

#[test]
fn a_disk_that_gives_errors_stops_nobody() {
    fails_under_load(Fault::Errors, 31);
}

#[test]
fn a_disk_that_turned_read_only_stops_nobody() {
    fails_under_load(Fault::ReadOnly, 32);
}

fn put(fixture: &Fixture, name: &str, content: &[u8]) {
    let (mut reader, metadata) = (content, Metadata::default());
    let put = fixture.pool().put(name.as_bytes(), &mut reader, &metadata, Timestamp::from_nanoseconds(1));
    put.unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn assert_all_there(fixture: &Fixture, files: &BTreeMap<String, Vec<u8>>, when: &str) {
    for (name, content) in files {
        let mut found = Vec::new();
        let got = fixture.pool().get(name.as_bytes(), &mut found);
        got.unwrap_or_else(|error| panic!("{when}: {name}: {error}"));
        assert!(found == *content, "{when}: {name}");
    }
}

/// A disk of a pool turned read-only, and `statvfs` does not say so. Commands that every user runs then (`pool put`,
/// `pool mv`, `pool rm`, `protect`, a new mount, `pool retire` and `pool rebuild`) chose it for new columns, or ended
/// at the first file that they could not remove or sync there. Each of them must go on with the other disks, and read
/// from this one.
fn commands_go_on_without(number: usize) {
    let Some((fixture, disks)) = Fixture::on_disks("commands_go_on_without") else { return };
    let mut chance = TestRng(40 + number as u64);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let target = format!("d{number}");
    let uses =
        |name: &str| fixture.pool().stub(name.as_bytes()).unwrap().targets.contains(&target.parse().unwrap());
    let (mut at, mut is_used) = (0, false);
    // Where columns go is drawn by lot: some file must have one on the disk that fails.
    while at < 12 || !is_used {
        assert!(at < 1000, "no file has a column on the disk that fails");
        let (name, content) = (format!("f{at}"), chance.bytes(3000 + at % 12 * 7001));
        put(&fixture, &name, &content);
        is_used |= uses(&name);
        files.insert(name, content);
        at += 1;
    }
    fixture.assert_converges();
    if let Err(why) = turn_read_only(&disks.point(number)) {
        return gabion_testkit::skip!("commands_go_on_without: {why}");
    }
    for name in ["f0", "f3", "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"] {
        let content = chance.bytes(40_000);
        put(&fixture, name, &content);
        assert!(!uses(name), "{name} was put on a disk that takes no writes");
        files.insert(name.to_owned(), content);
    }
    fixture.pool().rename(b"f1", b"g1").unwrap();
    let moved = files.remove("f1").unwrap();
    files.insert("g1".to_owned(), moved);
    fixture.pool().remove(b"f2").unwrap();
    files.remove("f2");
    assert_all_there(&fixture, &files, "after puts");
    fixture.assert_converges();
    let mount = fixture.mount();
    for (name, content) in &mut files {
        let bytes = chance.bytes(2500);
        let file = File::options().write(true).open(mount.path(name)).unwrap();
        file.write_all_at(&bytes, 300)
            .and_then(|()| file.sync_all())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        content[300..2800].copy_from_slice(&bytes);
        // The column moves because its disk cannot cut it.
        content.truncate(content.len().min(9000));
        file.set_len(content.len() as u64)
            .and_then(|()| file.sync_all())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    mount.unmount();
    assert_all_there(&fixture, &files, "after the mount");
    fixture.assert_converges();
    fixture.pool().retire(&target).unwrap();
    {
        let vault = fixture.vault();
        let _lock = vault.lock("test").unwrap();
        let report = rebuild(&vault, &pool_rebuild::RebuildOptions::default(), QUIET).unwrap();
        assert!(report.failed.is_empty() && report.unplaced.is_empty(), "{report:?}");
    }
    let left: Vec<&String> = files.keys().filter(|name| uses(name)).collect();
    assert!(left.is_empty(), "{left:?} are still on {target}");
    disks.unmount(number);
    assert_all_there(&fixture, &files, "without the disk");
    fixture.assert_converges();
}

#[test]
fn commands_go_on_with_a_read_only_disk() {
    commands_go_on_without(6);
}

/// The same for the disk that has the vault and a mirror of the namespace.
#[test]
fn commands_go_on_with_a_read_only_vault() {
    commands_go_on_without(1);
}
