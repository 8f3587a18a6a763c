//! Files with several names, names that are exchanged, and what is neither a file nor a directory.

use super::fixture::{Fixture, Mount, QUIET, TestRng, can_mount};
use gabion_vault::pool_rebuild::{RebuildOptions, rebuild};
use rustix::fs::{RenameFlags, XattrFlags};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};

fn exchange(mount: &Mount, one: &str, other: &str) -> rustix::io::Result<()> {
    let here = rustix::fs::CWD;
    rustix::fs::renameat_with(here, mount.path(one), here, mount.path(other), RenameFlags::EXCHANGE)
}

#[test]
fn names_of_a_file_share_everything() {
    if !can_mount("names_of_a_file_share_everything") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mount = fixture.mount();
    fs::create_dir(mount.path("dir")).unwrap();
    let content = TestRng(4).bytes(50_000);
    fs::write(mount.path("one"), &content).unwrap();
    fs::hard_link(mount.path("one"), mount.path("dir/two")).unwrap();
    let open = File::options().read(true).write(true).open(mount.path("one")).unwrap();
    fs::hard_link(mount.path("dir/two"), mount.path("three")).unwrap();
    assert_eq!(
        fs::hard_link(mount.path("one"), mount.path("three")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let (one, two) = (fs::metadata(mount.path("one")).unwrap(), fs::metadata(mount.path("dir/two")).unwrap());
    assert_eq!((one.ino(), one.nlink(), two.nlink()), (two.ino(), 3, 3));
    // Written by a handle, read by another name; permissions are those of the file.
    open.write_all_at(b"through one", 10_000).unwrap();
    fs::set_permissions(mount.path("three"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut expected = content;
    expected[10_000..10_011].copy_from_slice(b"through one");
    assert!(fs::read(mount.path("dir/two")).unwrap() == expected);
    assert_eq!(fs::metadata(mount.path("dir/two")).unwrap().mode() & 0o777, 0o640);
    // Two names of one file: a rename does nothing.
    fs::rename(mount.path("one"), mount.path("three")).unwrap();
    assert!(mount.path("one").exists());
    // The name that it was opened by goes; what is written goes to the file all the same.
    fs::remove_file(mount.path("one")).unwrap();
    open.write_all_at(b"nameless", 20_000).unwrap();
    expected[20_000..20_008].copy_from_slice(b"nameless");
    assert_eq!(open.metadata().unwrap().nlink(), 2);
    drop(open);
    // Another file takes one of the names.
    fs::write(mount.path("new"), b"new").unwrap();
    fs::rename(mount.path("new"), mount.path("three")).unwrap();
    assert_eq!(fs::metadata(mount.path("dir/two")).unwrap().nlink(), 1);
    fs::rename(mount.path("dir"), mount.path("moved")).unwrap();
    mount.unmount();
    let left = fixture.pool().sweep(false).unwrap();
    assert!(left.orphans.is_empty(), "{left:?}");
    fixture.assert_converges();
    let mut found = Vec::new();
    fixture.pool().get(b"moved/two", &mut found).unwrap();
    assert!(found == expected);
    let mount = fixture.mount();
    assert_eq!(fs::read(mount.path("three")).unwrap(), b"new");
    assert!(fs::read(mount.path("moved/two")).unwrap() == expected);
    fs::remove_file(mount.path("moved/two")).unwrap();
    mount.unmount();
    // The last name takes the objects along.
    assert!(fixture.pool().sweep(false).unwrap().orphans.is_empty());
    assert_eq!(objects(&fixture, 6), objects_of_one_file(&fixture));
}

fn objects(fixture: &Fixture, targets: usize) -> usize {
    let shelves =
        (1..=targets).flat_map(|number| fs::read_dir(fixture.target(number).join("objects")).unwrap());
    shelves.map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap().count()).sum()
}

/// Only "three" is left, which has one block.
fn objects_of_one_file(fixture: &Fixture) -> usize {
    let stub = fixture.pool().stub(b"three").unwrap();
    (0..stub.targets.len()).filter(|&column| stub.object_bytes(column, stub.size) > 0).count()
}

/// What one mirror has of the names of a file: the crash came before the next step.
#[test]
fn no_crash_leaves_a_name_without_a_file() {
    if !can_mount("no_crash_leaves_a_name_without_a_file") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    fs::write(mount.path("one"), b"content").unwrap();
    fs::write(mount.path("other"), b"other content").unwrap();
    fs::hard_link(mount.path("other"), mount.path("second")).unwrap();
    mount.unmount();
    let mirrors: Vec<_> =
        (1..=4).map(|number| fixture.target(number)).filter(|dir| dir.join("tree/one").exists()).collect();
    let plain = fs::read(mirrors[0].join("tree/one")).unwrap();
    let mount = fixture.mount();
    fs::hard_link(mount.path("one"), mount.path("two")).unwrap();
    mount.unmount();
    let read = |name: &str| {
        let mut found = Vec::new();
        fixture.pool().get(name.as_bytes(), &mut found).unwrap();
        found
    };
    // The link is no longer the last change, which the next opener would make again.
    fixture.pool().make_directory(b"later", 0o755, 0, 0).unwrap();
    // Step 1 of a new name: the stub is in its own place, the name still has one as well.
    let id = fixture.pool().stub(b"one").unwrap().id.to_string();
    for mirror in &mirrors {
        fs::remove_file(mirror.join("tree/two")).unwrap();
        fs::write(mirror.join("tree/one"), &plain).unwrap();
    }
    assert_eq!(read("one"), b"content");
    fixture.pool().sweep(true).unwrap();
    assert!(!mirrors[0].join("shared").join(&id[..2]).join(&id).exists(), "nobody looks for it");
    assert_eq!(read("one"), b"content");
    // Step 2, on one mirror only.
    let mount = fixture.mount();
    fs::hard_link(mount.path("one"), mount.path("two")).unwrap();
    mount.unmount();
    fs::remove_file(mirrors[0].join("tree/two")).unwrap();
    fs::write(mirrors[0].join("tree/one"), &plain).unwrap();
    assert_eq!((read("one"), read("two")), (b"content".to_vec(), b"content".to_vec()));
    // Before step 3: one name, and a count of two. A removal keeps the file, a sweep mends the count.
    mirrors.iter().for_each(|mirror| {
        let _ = fs::remove_file(mirror.join("tree/second"));
    });
    fixture.pool().sweep(true).unwrap();
    assert_eq!(fixture.pool().stub(b"other").unwrap().names, 1);
    assert_eq!(read("other"), b"other content");
    fixture.pool().remove(b"other").unwrap();
    fixture.pool().remove(b"one").unwrap();
    fixture.pool().remove(b"two").unwrap();
    assert!(fixture.pool().sweep(false).unwrap().orphans.is_empty());
    assert_eq!(objects(&fixture, 4), 0);
}

/// A mirror that was away gets files and names; a lost target is read around by any name.
#[test]
fn mirrors_and_redundancy_know_of_all_names() {
    if !can_mount("mirrors_and_redundancy_know_of_all_names") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mount = fixture.mount();
    let content = TestRng(8).bytes(60_000);
    fs::write(mount.path("one"), &content).unwrap();
    fs::hard_link(mount.path("one"), mount.path("two")).unwrap();
    mount.unmount();
    fixture.assert_converges();
    fixture.lose(1);
    let mount = fixture.mount();
    fs::hard_link(mount.path("one"), mount.path("three")).unwrap();
    fs::remove_file(mount.path("one")).unwrap();
    for name in ["two", "three"] {
        assert!(fs::read(mount.path(name)).unwrap() == content, "{name} without d1");
    }
    mount.unmount();
    fixture.bring_back(1);
    let healed = fixture.pool().heal().unwrap();
    assert!(healed.failed.is_empty(), "{healed:?}");
    fixture.assert_converges();
    // Whichever mirrors answer, they say the same.
    for lost in 1..=2 {
        fixture.lose(lost);
    }
    let mount = fixture.mount();
    for name in ["two", "three"] {
        assert!(fs::read(mount.path(name)).unwrap() == content, "{name} without d1 and d2");
        assert_eq!(fs::metadata(mount.path(name)).unwrap().nlink(), 2);
    }
    assert!(!mount.path("one").exists());
    mount.unmount();
}

/// A lost target is made good for files with several names, which agree on where their columns are: names of one file
/// are rebuilt at the same time.
#[test]
fn a_lost_target_is_rebuilt_for_all_names() {
    if !can_mount("a_lost_target_is_rebuilt_for_all_names") {
        return;
    }
    let fixture = Fixture::new(8, 3, 2, 4096);
    let mount = fixture.mount();
    fs::create_dir(mount.path("dir")).unwrap();
    let contents: Vec<Vec<u8>> = (0..12).map(|file| TestRng(9 + file).bytes(90_000)).collect();
    for (file, content) in contents.iter().enumerate() {
        fs::write(mount.path(&format!("one-{file}")), content).unwrap();
        // Next to each other in the order of names.
        fs::hard_link(mount.path(&format!("one-{file}")), mount.path(&format!("one-{file}-again"))).unwrap();
        fs::hard_link(mount.path(&format!("one-{file}")), mount.path(&format!("dir/two-{file}"))).unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    // The first one with content that the vault is not on.
    let stub = fixture.pool().stub(b"one-0").unwrap();
    let vault = fixture.vault();
    let number = (1..=8).find(|number| {
        let name = format!("d{number}");
        stub.targets.contains(&name.parse().unwrap())
            && !vault.repository.path().starts_with(fixture.target(*number))
    });
    let number = number.unwrap();
    fixture.lose(number);
    let vault = fixture.vault();
    let lock = vault.lock("test").unwrap();
    let report = rebuild(&vault, &RebuildOptions::default(), QUIET).unwrap();
    assert!(report.is_whole(), "{report:?}");
    drop(lock);
    for (file, content) in contents.iter().enumerate() {
        for name in [format!("one-{file}"), format!("one-{file}-again"), format!("dir/two-{file}")] {
            let stub = fixture.pool().stub(name.as_bytes()).unwrap();
            assert!(
                !stub.targets.contains(&format!("d{number}").parse().unwrap()) && stub.names == 3,
                "{stub:?}"
            );
            let mut found = Vec::new();
            fixture.pool().get(name.as_bytes(), &mut found).unwrap();
            assert!(found == *content, "{name}");
        }
    }
    let scrubbed = fixture.scrub();
    assert!(scrubbed.damage.is_empty() && scrubbed.failed.is_empty(), "{scrubbed:?}");
    assert!(fixture.pool().sweep(false).unwrap().orphans.is_empty());
}

#[test]
fn names_are_exchanged() {
    if !can_mount("names_are_exchanged") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    fs::create_dir_all(mount.path("dir/deep")).unwrap();
    fs::write(mount.path("dir/deep/file"), b"deep").unwrap();
    fs::write(mount.path("file"), b"flat").unwrap();
    let open = File::options().append(true).open(mount.path("file")).unwrap();
    exchange(&mount, "file", "dir/deep").unwrap();
    (&open).write_all(b" and open").unwrap();
    assert_eq!(fs::read(mount.path("file/file")).unwrap(), b"deep");
    assert_eq!(fs::read(mount.path("dir/deep")).unwrap(), b"flat and open");
    assert_eq!(exchange(&mount, "file", "nothing"), Err(rustix::io::Errno::NOENT));
    drop(open);
    mount.unmount();
    fixture.assert_converges();
    // A pool from before there were records of changes, after a crash between two mirrors: one of them has not
    // exchanged yet, and all have their notes.
    let mirrors: Vec<_> =
        (1..=4).map(|number| fixture.target(number)).filter(|dir| dir.join("tree/file").exists()).collect();
    let undone = |mirror: &std::path::Path| {
        let here = rustix::fs::CWD;
        let (one, other) = (mirror.join("tree/file"), mirror.join("tree/dir/deep"));
        rustix::fs::renameat_with(here, one, here, other, RenameFlags::EXCHANGE).unwrap();
    };
    mirrors.iter().for_each(|mirror| undone(mirror));
    for mirror in &mirrors {
        for record in ["sequence.0", "sequence.1"] {
            fs::remove_file(mirror.join(record)).unwrap();
        }
        let inode = fs::symlink_metadata(mirror.join("tree/file")).unwrap().ino();
        let hex =
            |path: &str| format!("x{}", path.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
        let text = format!("gabion pool exchange 1\n{}\n{}\n{inode}\n", hex("file"), hex("dir/deep"));
        let text = format!("{text}{}\n", blake3::hash(text.as_bytes()).to_hex());
        fs::write(mirror.join("staging/0123.exchange"), text).unwrap();
    }
    undone(&mirrors[0]);
    let mount = fixture.mount();
    fs::write(mount.path("any"), b"").unwrap();
    assert_eq!(fs::read(mount.path("file/file")).unwrap(), b"deep");
    mount.unmount();
    for mirror in &mirrors {
        assert!(mirror.join("tree/file").is_dir() && !mirror.join("staging/0123.exchange").exists());
    }
}

#[test]
fn special_files_lists_and_attributes_of_directories() {
    if !can_mount("special_files_lists_and_attributes_of_directories") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    let node = |name: &str, kind, device| {
        let mode = rustix::fs::Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(rustix::fs::CWD, mount.path(name), kind, mode, device).unwrap();
    };
    node("pipe", rustix::fs::FileType::Fifo, 0);
    node("socket", rustix::fs::FileType::Socket, 0);
    node("null", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("block", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(7, 300));
    fs::hard_link(mount.path("pipe"), mount.path("second pipe")).unwrap();
    fs::write(mount.path("null"), b"goes nowhere").unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::set_permissions(mount.path("dir"), fs::Permissions::from_mode(0o1055)).unwrap();
    rustix::fs::setxattr(mount.path("dir"), "user.colour", b"blue", XattrFlags::CREATE).unwrap();
    // The owner all, user 12 reads and writes, others nothing; handed down to what is made there.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 6, 12), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    fs::create_dir(mount.path("lists")).unwrap();
    rustix::fs::setxattr(mount.path("lists"), "system.posix_acl_default", &list, XattrFlags::empty())
        .unwrap();
    fs::write(mount.path("lists/file"), b"").unwrap();
    rustix::fs::setxattr(mount.path("lists/file"), "system.posix_acl_access", &list, XattrFlags::empty())
        .unwrap();
    fs::create_dir(mount.path("lists/inner")).unwrap();
    let check = |mount: &Mount| {
        let kind = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap();
        assert!(kind("pipe").file_type().is_fifo() && kind("socket").file_type().is_socket());
        assert_eq!((kind("second pipe").ino(), kind("pipe").nlink()), (kind("pipe").ino(), 2));
        assert!(kind("null").file_type().is_char_device() && kind("block").file_type().is_block_device());
        assert_eq!(kind("block").rdev(), rustix::fs::makedev(7, 300));
        assert_eq!(kind("dir").mode() & 0o7777, 0o1055, "also what keeps the owner out");
        let attribute = |name: &str, attribute: &str| {
            let mut value = vec![0; 256];
            let got = rustix::fs::getxattr(mount.path(name), attribute, &mut value[..]).unwrap();
            value.truncate(got);
            value
        };
        assert_eq!(attribute("dir", "user.colour"), b"blue");
        assert_eq!(attribute("lists/inner", "system.posix_acl_default"), list);
        assert_eq!(attribute("lists/file", "system.posix_acl_access"), list);
        assert_eq!(kind("lists/file").mode() & 0o777, 0o770, "the mask stands for the group");
    };
    check(&mount);
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    check(&mount);
    fs::set_permissions(mount.path("lists/file"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut value = [0; 64];
    let got =
        rustix::fs::getxattr(mount.path("lists/file"), "system.posix_acl_access", &mut value[..]).unwrap();
    assert_eq!(value[4 + 3 * 8 + 2], 0, "the mask follows the mode: {:?}", &value[..got]);
    mount.unmount();
}
