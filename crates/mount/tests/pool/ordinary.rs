//! Ordinary file operations.

use super::fixture::{Fixture, PATIENCE, TestRng, can_mount, drop_caches};
use rustix::fs::{FallocateFlags, FlockOperation, XattrFlags};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn files_are_there_after_the_mount() {
    if !can_mount("files_are_there_after_the_mount") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mount = fixture.mount();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/hello"), b"hello, world").unwrap();
    let large = TestRng(1).bytes(300_000);
    fs::write(mount.path("large"), &large).unwrap();
    assert_eq!(fs::read(mount.path("dir/hello")).unwrap(), b"hello, world");
    assert!(fs::read(mount.path("large")).unwrap() == large);
    mount.unmount();
    let mut content = Vec::new();
    fixture.pool().get(b"large", &mut content).unwrap();
    assert!(content == large);
    fixture.assert_converges();
    let mount = fixture.mount();
    assert!(fs::read(mount.path("large")).unwrap() == large);
    assert!(mount.recorded() == 0, "reading changes nothing");
    mount.unmount();
}

/// A daemon that stopped waited for a mount namespace that some other process had made, until it was ended.
#[test]
fn a_mount_namespace_with_a_copy_of_the_mount_is_not_waited_for() {
    if !can_mount("a_mount_namespace_with_a_copy") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mut mount = fixture.mount();
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo held; read -r _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let (at, mounted) = (fixture.mountpoint(), mount.take());
    let (send, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(mounted.unmount_within(&at, Duration::from_millis(100))));
    let detached = ended.recv_timeout(PATIENCE);
    assert_eq!(fs::read_dir(fixture.mountpoint()).unwrap().count(), 0, "it is still mounted");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(detached.expect("it waits for the namespace").unwrap());
}

#[test]
fn attributes_are_kept() {
    if !can_mount("attributes_are_kept") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    let path = mount.path("file");
    fs::write(&path, b"content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751, "another owner takes rights away");
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    rustix::fs::setxattr(&path, "user.colour", b"green\0", XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.gone", b"", XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.colour", b"", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    rustix::fs::removexattr(&path, "user.gone").unwrap();
    symlink("file", mount.path("link")).unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::set_permissions(mount.path("dir"), fs::Permissions::from_mode(0o2775)).unwrap();
    std::os::unix::fs::chown(mount.path("dir"), None, Some(77)).unwrap();
    fs::write(mount.path("dir/child"), b"").unwrap();
    let check = |mount: &super::fixture::Mount| {
        let found = fs::metadata(mount.path("link")).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o751, 12, 34));
        assert_eq!(found.modified().unwrap(), old);
        let mut value = [0; 16];
        let got = rustix::fs::getxattr(mount.path("file"), "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..got], b"green\0");
        let mut names = [0; 64];
        let got = rustix::fs::listxattr(mount.path("file"), &mut names[..]).unwrap();
        assert_eq!(&names[..got], b"user.colour\0");
        assert_eq!(fs::read_link(mount.path("link")).unwrap().to_str(), Some("file"));
        let dir = fs::metadata(mount.path("dir")).unwrap();
        assert_eq!((dir.mode() & 0o7777, dir.gid()), (0o2775, 77));
        assert_eq!(
            fs::metadata(mount.path("dir/child")).unwrap().gid(),
            77,
            "the directory hands its group down"
        );
    };
    check(&mount);
    mount.unmount();
    let mount = fixture.mount();
    check(&mount);
    mount.unmount();
}

#[test]
fn holes_and_large_sizes() {
    if !can_mount("holes_and_large_sizes") {
        return;
    }
    let fixture = Fixture::new(4, 3, 1, 4096);
    let mount = fixture.mount();
    let mut file = File::options().create_new(true).read(true).write(true).open(mount.path("f")).unwrap();
    let far = 5 << 30;
    file.write_all_at(b"end", far).unwrap();
    assert_eq!(file.metadata().unwrap().len(), far + 3);
    let mut buffer = [1; 10_000];
    file.read_exact_at(&mut buffer, 3 << 30).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 0));
    file.set_len(100_000).unwrap();
    let content = TestRng(2).bytes(100_000);
    file.write_all_at(&content, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 5_000, 30_000).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 90_000, 50_000).unwrap();
    let mut expected = content;
    expected[5_000..35_000].fill(0);
    expected.resize(140_000, 0);
    // Shorter and longer again: what was cut off is zeros.
    file.set_len(120_001).unwrap();
    file.set_len(70_001).unwrap();
    file.set_len(80_000).unwrap();
    expected.truncate(70_001);
    expected.resize(80_000, 0);
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found == expected);
    let mut appending = File::options().append(true).open(mount.path("f")).unwrap();
    appending.write_all(b"more").unwrap();
    expected.extend(b"more");
    drop((file, appending));
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    assert!(fs::read(mount.path("f")).unwrap() == expected);
    mount.unmount();
}

#[test]
fn unlinked_files_stay_for_those_who_have_them_open() {
    if !can_mount("unlinked_files_stay_for_those_who_have_them_open") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    let content = TestRng(3).bytes(50_000);
    fs::write(mount.path("read"), &content).unwrap();
    fs::write(mount.path("written"), &content).unwrap();
    fs::write(mount.path("replaced"), &content).unwrap();
    fs::write(mount.path("new"), b"new").unwrap();
    let read = File::open(mount.path("read")).unwrap();
    let written = File::options().read(true).write(true).open(mount.path("written")).unwrap();
    let replaced = File::open(mount.path("replaced")).unwrap();
    fs::remove_file(mount.path("read")).unwrap();
    fs::remove_file(mount.path("written")).unwrap();
    fs::rename(mount.path("new"), mount.path("replaced")).unwrap();
    // A sweep takes nothing from them.
    fixture.pool().sweep(true).unwrap();
    drop_caches();
    written.write_all_at(b"after the end of its name", 49_990).unwrap();
    written.sync_all().unwrap();
    for file in [&read, &replaced] {
        let mut found = vec![0; 50_000];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content);
    }
    let mut found = vec![0; 50_015];
    written.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..49_990] == content[..49_990] && found[49_990..] == *b"after the end of its name");
    assert_eq!(fs::read(mount.path("replaced")).unwrap(), b"new");
    drop((read, written, replaced));
    mount.unmount();
    let left = fixture.pool().sweep(false).unwrap();
    assert!(left.orphans.is_empty(), "{left:?}");
    fixture.assert_converges();
}

/// Programs are run from it, and lock files of each other.
#[test]
fn programs_run_and_lock() {
    if !can_mount("programs_run_and_lock") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 65536);
    let mount = fixture.mount();
    fs::copy("/bin/sh", mount.path("sh")).unwrap();
    drop_caches();
    let ran = Command::new(mount.path("sh")).args(["-c", "echo from the pool"]).output().unwrap();
    assert_eq!(ran.stdout, b"from the pool\n");
    fs::write(mount.path("lock"), b"").unwrap();
    let (one, other) = (File::open(mount.path("lock")).unwrap(), File::open(mount.path("lock")).unwrap());
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    let space = rustix::fs::statvfs(mount.path("")).unwrap();
    assert!(space.f_blocks > 0 && space.f_bfree <= space.f_blocks);
    drop((one, other));
    mount.unmount();
}
