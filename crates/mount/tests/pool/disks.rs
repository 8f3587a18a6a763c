//! Disks that go and disks that are full, under programs that go on.

use super::fixture::{Fixture, QUIET, TestRng, can_mount, drop_caches};
use super::loops::Disks;
use gabion_vault::catalogue::State;
use gabion_vault::repair::{self, plan, repair};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Redundancy follows the names of files. Where some of it is gone as well, that takes a repair before it can be made
/// anew.
fn repair_moved(fixture: &Fixture) {
    let vault = fixture.vault();
    let _lock = vault.lock("test").unwrap();
    let report = gabion_vault::protect::protect(&vault, QUIET).unwrap();
    for (path, why) in &report.done.failed {
        assert!(why.to_string().contains("is unreachable") && path.ends_with(b" moved"), "{report:?}");
        let done = repair(&vault, path, QUIET).unwrap();
        assert!(done.state <= State::Degraded, "{done:?}");
    }
}

/// A disk is taken out, and what was on it is made anew elsewhere.
pub(crate) fn make_anew_without(number: usize, fixture: &Fixture, disks: &Disks) {
    disks.unmount(number);
    fixture.protect();
    repair_all(fixture);
    fixture.assert_converges();
}

pub(crate) fn repair_all(fixture: &Fixture) {
    let vault = fixture.vault();
    let _lock = vault.lock("test").unwrap();
    let plan =
        plan(&vault, b"", repair::Options { keep_changed: true, ..Default::default() }, QUIET).unwrap();
    assert_eq!(plan.failed, []);
    for trouble in &plan.files {
        let done = repair(&vault, &trouble.path, QUIET).unwrap();
        assert!(done.state <= State::Degraded, "{done:?}");
    }
}

/// A mount marked mirrors stale that did not answer when it began, though nobody wrote. With them back and the third
/// one gone no file could be found.
#[test]
fn reading_leaves_mirrors_current_that_do_not_answer() {
    if !can_mount("reading_leaves_mirrors_current_that_do_not_answer") {
        return;
    }
    let fixture = Fixture::new(8, 3, 2, 4096);
    let content = TestRng(1).bytes(70_000);
    let mount = fixture.mount();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), &content).unwrap();
    mount.unmount();
    fixture.protect();
    // The first three have the namespace.
    [2, 3].iter().for_each(|&number| fixture.lose(number));
    let mount = fixture.mount();
    assert!(fs::read(mount.path("dir/file")).unwrap() == content);
    assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 1);
    mount.unmount();
    [2, 3].iter().for_each(|&number| fixture.bring_back(number));
    fixture.lose(1);
    let mount = fixture.mount();
    assert!(fs::read(mount.path("dir/file")).unwrap() == content);
    // What is written now is missed by the first one.
    fs::write(mount.path("dir/file"), b"new").unwrap();
    mount.unmount();
    fixture.bring_back(1);
    [2, 3].iter().for_each(|&number| fixture.lose(number));
    let error = fixture.pool().stub(b"dir/file").unwrap_err().to_string();
    assert!(error.contains("no target with the current namespace is reachable"), "{error}");
}

/// Two of eight disks are pulled out while files are read; then files are written as well.
#[test]
fn pulled_disks_stop_nobody() {
    if !can_mount("pulled_disks_stop_nobody") {
        return;
    }
    for (seed, lost) in [(1, [2, 5]), (2, [4, 7]), (3, [3, 8])] {
        let mut chance = TestRng(seed);
        let fixture = Fixture::new(8, 3, 2, 4096);
        let mount = fixture.mount();
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for number in 0..16 {
            let size = [0, 1, 5000, 12_288, 70_000, 200_001][number % 6];
            files.insert(format!("f{number}"), chance.bytes(size));
        }
        for (name, content) in &files {
            fs::write(mount.path(name), content).unwrap();
        }
        mount.until_closed();
        fixture.assert_converges();
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop_caches();
                    for (name, content) in &files {
                        let found =
                            fs::read(mount.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                        assert!(found == *content, "{name}");
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let read = |count| {
                let enough = rounds.load(Ordering::Relaxed) + count;
                gabion_testkit::until("all files are read", || {
                    rounds.load(Ordering::Relaxed) >= enough || reader.is_finished()
                });
            };
            read(1);
            lost.iter().for_each(|&number| fixture.lose(number));
            // One round may have begun before.
            read(2);
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        // Nothing was protected since; whatever is written now goes elsewhere.
        let names: Vec<String> = files.keys().cloned().collect();
        for (at, name) in names.iter().enumerate() {
            let content = files.get_mut(name).unwrap();
            let file = File::options().read(true).write(true).open(mount.path(name)).unwrap();
            match at % 4 {
                0 => {
                    let (offset, bytes) = (chance.below(content.len() as u64 + 1), chance.bytes(9000));
                    file.write_all_at(&bytes, offset).unwrap_or_else(|error| panic!("{name}: {error}"));
                    content.resize(content.len().max(offset as usize + 9000), 0);
                    content[offset as usize..][..9000].copy_from_slice(&bytes);
                    file.sync_all().unwrap();
                }
                1 => {
                    let size = chance.below(content.len() as u64 + 1);
                    file.set_len(size).unwrap();
                    content.truncate(size as usize);
                }
                2 => {
                    fs::rename(mount.path(name), mount.path(&format!("{name} moved"))).unwrap();
                    let content = files.remove(name).unwrap();
                    files.insert(format!("{name} moved"), content);
                }
                _ => {}
            }
            let new = chance.bytes(20_000);
            fs::write(mount.path(&format!("new{at}")), &new).unwrap();
            files.insert(format!("new{at}"), new);
        }
        drop_caches();
        for (name, content) in &files {
            let found = fs::read(mount.path(name)).unwrap_or_else(|error| {
                panic!("seed {seed}: {name}: {error}: {:?}", fixture.pool().stub(name.as_bytes()))
            });
            assert!(found == *content, "seed {seed}: {name}");
        }
        mount.unmount();
        repair_moved(&fixture);
        fixture.protect();
        repair_all(&fixture);
        fixture.assert_converges();
        // The disks come back with what they had: nothing of that counts.
        lost.iter().for_each(|&number| fixture.bring_back(number));
        fixture.pool().heal().unwrap();
        let mount = fixture.mount();
        for (name, content) in &files {
            assert!(
                fs::read(mount.path(name)).unwrap() == *content,
                "seed {seed}: {name}, all disks are back"
            );
        }
        mount.unmount();
    }
}

/// Blocks rot while programs read and write: nobody is given wrong bytes, and who looks after it is told.
#[test]
fn corruption_under_load_is_never_returned() {
    if !can_mount("corruption_under_load_is_never_returned") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mount = fixture.mount();
    let mut chance = TestRng(21);
    let files: BTreeMap<String, Vec<u8>> =
        (0..8).map(|number| (format!("f{number}"), chance.bytes(60_000 + number * 4096))).collect();
    for (name, content) in &files {
        fs::write(mount.path(name), content).unwrap();
    }
    // Open files are not protected.
    mount.until_closed();
    fixture.assert_converges();
    let rot = |chance: &mut TestRng| {
        for name in files.keys() {
            let stub = fixture.pool().stub(name.as_bytes()).unwrap();
            let column = chance.below(3) as usize;
            let number: usize = stub.targets[column][1..].parse().unwrap();
            let id = stub.id.to_string();
            let object = fixture.target(number).join("objects").join(&id[..2]).join(format!("{id}.{column}"));
            let object = File::options().write(true).open(object).unwrap();
            let block = chance.below(stub.object_bytes(column, stub.size) / 4096);
            object.write_all_at(&chance.bytes(700), block * 4096 + 100).unwrap();
        }
    };
    let stop = AtomicBool::new(false);
    let (read, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (mount, files, stop, read, written) = (&mount, &files, &stop, &read, &written);
        let reader = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                drop_caches();
                for (name, content) in files {
                    let found = fs::read(mount.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(found == *content, "{name}");
                }
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        let writer = scope.spawn(move || {
            let mut round = 0u8;
            while !stop.load(Ordering::Relaxed) {
                // A reader that has it open sees what is written, which no signature knows.
                let path = mount.path("written");
                fs::write(&path, vec![round; 30_000]).unwrap();
                let reader = File::open(&path).unwrap();
                let mut found = vec![0; 30_000];
                reader.read_exact_at(&mut found, 0).unwrap();
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&[round ^ 0xff; 5000], 10_000).unwrap();
                reader.read_exact_at(&mut found, 0).unwrap();
                assert!(
                    found[9_999] == round && found[10_000..15_000].iter().all(|&byte| byte == round ^ 0xff)
                );
                round = round.wrapping_add(1);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        rot(&mut chance);
        let before = [read, written].map(|count| count.load(Ordering::Relaxed));
        gabion_testkit::until("files are read and written", || {
            let since = |count: &AtomicU64, before| count.load(Ordering::Relaxed) >= before + 3;
            (since(read, before[0]) && since(written, before[1]))
                || reader.is_finished()
                || writer.is_finished()
        });
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        writer.join().unwrap();
    });
    gabion_testkit::until("the log tells of it", || mount.degraded() > 0);
    mount.unmount();
    fixture.protect();
    repair_all(&fixture);
    fixture.assert_converges();
}

/// A file system of a few megabytes in place of a disk; it goes with this.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn full_disks_refuse_and_lose_nothing() {
    if !can_mount("full_disks_refuse_and_lose_nothing") {
        return;
    }
    let fixture = Fixture::bare(4);
    let paths = [2, 3, 4].map(|number| fixture.target(number));
    let mut small = Vec::new();
    for path in &paths {
        let made =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m,mode=755", "tmpfs"]).arg(path).status();
        assert!(made.unwrap().success());
        small.push(Small(path));
    }
    fixture.found(3, 1, 65536);
    let mount = fixture.mount();
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut chance = TestRng(5);
    let refused = loop {
        let (name, content) = (format!("f{}", files.len()), chance.bytes(300_000));
        let written = File::create(mount.path(&name)).and_then(|mut file| file.write_all(&content));
        match written {
            Ok(()) => files.insert(name, content),
            Err(error) => break (name, error),
        };
        assert!(files.len() < 200, "the disks are never full");
    };
    assert_eq!(refused.1.kind(), ErrorKind::StorageFull, "{}", refused.1);
    let _ = fs::remove_file(mount.path(&refused.0));
    drop_caches();
    for (name, content) in &files {
        assert!(fs::read(mount.path(name)).unwrap() == *content, "{name}");
    }
    // With room there is room again, for files and for their redundancy.
    let names: Vec<String> = files.keys().cloned().collect();
    for name in names.iter().take(names.len() * 2 / 3) {
        fs::remove_file(mount.path(name)).unwrap();
        files.remove(name);
    }
    let content = chance.bytes(300_000);
    fs::write(mount.path("again"), &content).unwrap();
    files.insert("again".to_owned(), content);
    mount.unmount();
    fixture.pool().heal().unwrap();
    fixture.assert_converges();
    let mount = fixture.mount();
    for (name, content) in &files {
        assert!(fs::read(mount.path(name)).unwrap() == *content, "{name}, mounted again");
    }
    mount.unmount();
    drop(small);
}
