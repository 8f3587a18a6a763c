//! Unusual trees, and changes while they are scanned.

use super::fixture::{Fixture, QUIET, TestRng, flip};
use gabion_vault::catalogue::State;
use gabion_vault::protect;
use gabion_vault::run;
use gabion_vault::tree::Tree;
use gabion_vault::world::Timestamp;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

#[test]
fn names_of_all_kinds_are_protected() {
    let fixture = Fixture::new("4+2");
    let long = "x".repeat(255);
    let names: [&[u8]; 6] = [b"new\nline", b"\xff\xfe", b"-rf", b" ", b"\\", long.as_bytes()];
    for name in names {
        std::fs::write(fixture.root().join(OsStr::from_bytes(name)), name).unwrap();
    }
    // The deepest possible path.
    let tree = Tree::open(&fixture.root()).unwrap();
    let deep = [&[b'd'; 250][..]; 16].join(&b'/');
    tree.make_directories(&deep, 0o700).unwrap();
    let path = [&deep[..], &vec![b'f'; 4095 - deep.len() - 1]].join(&b'/');
    tree.create(&path, 0o600).unwrap().write_all(b"deep").unwrap();
    let report = fixture.protect();
    assert_eq!((report.seen.files, report.done.encoded, report.done.failures), (7, 7, 0));
    let report = fixture.scrub();
    assert_eq!((report.files, report.damage.len(), report.failed.len()), (7, 0, 0));
    flip(&fixture.root().join(OsStr::from_bytes(b"\xff\xfe")), 1);
    let done = gabion_vault::repair::repair(&fixture.vault, b"\xff\xfe", QUIET).unwrap();
    assert_eq!(done.state, State::Protected);
    assert_eq!(std::fs::read(fixture.root().join(OsStr::from_bytes(b"\xff\xfe"))).unwrap(), b"\xff\xfe");
}

#[test]
fn links_pipes_and_sockets_are_counted_and_left_alone() {
    let fixture = Fixture::new("4+2");
    fixture.write("file", b"content");
    symlink("loop", fixture.path("loop")).unwrap();
    symlink(".", fixture.path("here")).unwrap();
    symlink("/etc", fixture.path("outside")).unwrap();
    let _socket = UnixListener::bind(fixture.path("socket")).unwrap();
    let root = std::fs::File::open(fixture.root()).unwrap();
    let private = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(&root, "pipe", private).unwrap();
    let mut special = 2;
    if rustix::process::geteuid().is_root() {
        // Reading this device never ends.
        let (kind, zero) = (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 5));
        rustix::fs::mknodat(&root, "device", kind, private, zero).unwrap();
        special += 1;
    } else {
        gabion_testkit::skip!(
            "devices in links_pipes_and_sockets_are_counted_and_left_alone: we are not root"
        );
    }
    let report = fixture.protect_all();
    assert_eq!((report.seen.files, report.seen.links, report.seen.special), (1, 3, special));
    fixture.assert_clean();
}

#[test]
fn a_link_in_the_place_of_a_file_leads_nowhere() {
    let fixture = Fixture::new("4+2");
    let secret = fixture.dir.path().join("secret");
    std::fs::write(&secret, b"not ours").unwrap();
    fixture.write("dir/file", &TestRng(1).bytes(10_000));
    fixture.protect_all();
    // The file, its directory and its redundancy's directory become links out of the tree.
    std::fs::remove_dir_all(fixture.path("dir")).unwrap();
    symlink("../", fixture.path("dir")).unwrap();
    std::fs::rename(&secret, fixture.dir.path().join("file")).unwrap();
    assert!(gabion_vault::repair::repair(&fixture.vault, b"dir/file", QUIET).is_err());
    assert_eq!(std::fs::read(fixture.dir.path().join("file")).unwrap(), b"not ours");
    std::fs::remove_dir_all(fixture.redundancy("dir")).unwrap();
    symlink(fixture.dir.path(), fixture.redundancy("dir")).unwrap();
    std::fs::remove_file(fixture.path("dir")).unwrap();
    fixture.write("dir/file", &TestRng(1).bytes(10_000));
    let report = fixture.protect_all();
    assert_eq!(report.done.set_aside.len(), 1, "{report:?}");
    assert_eq!(std::fs::read(fixture.dir.path().join("file")).unwrap(), b"not ours");
    fixture.assert_clean();
}

#[test]
fn redundancy_is_for_nobody_else() {
    let fixture = Fixture::new("4+2");
    fixture.write("dir/open to all", &TestRng(1).bytes(10_000));
    std::fs::set_permissions(fixture.path("dir/open to all"), std::fs::Permissions::from_mode(0o666))
        .unwrap();
    fixture.protect_all();
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(fixture.redundancy("dir/open to all")), 0o600);
    assert_eq!(mode(fixture.redundancy("dir")), 0o700);
    assert_eq!(mode(fixture.path(".gabion")), 0o700);
}

#[test]
fn a_directory_that_cannot_be_read_is_no_deletion() {
    let fixture = Fixture::new("4+2");
    fixture.write("dir/file", b"content");
    fixture.write("other", b"content");
    fixture.protect_all();
    std::fs::remove_dir_all(fixture.path("dir")).unwrap();
    // Root can read everything except a loop of links.
    symlink("dir", fixture.path("dir")).unwrap();
    let before = fixture.redundancy("dir/file").exists();
    fixture.write("other", b"changed!");
    let seen = protect::scan(&fixture.vault, QUIET).unwrap();
    assert!(before);
    assert_eq!(seen.links, 1);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_done_again() {
    let fixture = Fixture::new("4+2");
    fixture.write("busy", &TestRng(1).bytes(40 << 20));
    let path = fixture.path("busy");
    let written = std::sync::atomic::AtomicU32::new(0);
    // Changed during the first two reads.
    let progress = |step: run::Progress| {
        if let run::Progress::Done(0, 1..) = step
            && written.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2
        {
            std::fs::File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        }
    };
    let _lock = fixture.vault.lock("test").unwrap();
    let context = run::RunContext { progress: &progress, threads: 1, ..QUIET };
    let report = protect::protect(&fixture.vault, context).unwrap();
    assert_eq!((report.done.encoded, report.done.failed.len()), (1, 0), "{report:?}");
    assert!(written.load(std::sync::atomic::Ordering::SeqCst) > 2);
    fixture.assert_clean();
}

/// During its first read a file is truncated, removed or replaced by a directory.
#[test]
fn a_file_that_shrinks_or_goes_while_it_is_read_is_as_it_is_then() {
    type Fate = fn(&std::path::Path);
    let cut: Fate = |path| std::fs::File::options().write(true).open(path).unwrap().set_len(5 << 20).unwrap();
    let remove: Fate = |path| std::fs::remove_file(path).unwrap();
    let replace: Fate = |path| {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    };
    for (fate, stays) in [(cut, true), (remove, false), (replace, false)] {
        let fixture = Fixture::new("4+2");
        fixture.write("busy", &TestRng(1).bytes(40 << 20));
        fixture.write("quiet", b"content");
        let (path, struck) = (fixture.path("busy"), std::sync::atomic::AtomicBool::new(false));
        let progress = |step: run::Progress| {
            if let run::Progress::Done(0, 1_000_000..) = step
                && !struck.swap(true, std::sync::atomic::Ordering::SeqCst)
            {
                fate(&path);
            }
        };
        let lock = fixture.vault.lock("test").unwrap();
        let context = run::RunContext { progress: &progress, threads: 1, ..QUIET };
        let report = protect::protect(&fixture.vault, context).unwrap();
        drop(lock);
        assert!(struck.into_inner());
        assert_eq!((report.done.encoded, report.done.failed.len()), (1 + u64::from(stays), 0), "{report:?}");
        assert_eq!(fixture.redundancy("busy").is_file(), stays);
        fixture.protect_all();
        fixture.assert_clean();
    }
}

#[test]
fn a_file_that_never_rests_is_named() {
    let fixture = Fixture::new("4+2");
    fixture.write("busy", &TestRng(1).bytes(20 << 20));
    fixture.write("quiet", b"content");
    let path = fixture.path("busy");
    let progress = |step: run::Progress| {
        if let run::Progress::Done(0, 1_000_000..) = step {
            std::fs::File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        }
    };
    let _lock = fixture.vault.lock("test").unwrap();
    let report = protect::protect(&fixture.vault, run::RunContext { progress: &progress, ..QUIET }).unwrap();
    let [(failed, why)] = &report.done.failed[..] else { panic!("{report:?}") };
    assert_eq!(failed, b"busy");
    assert!(why.to_string().contains("changed while it was read"), "{why}");
    assert_eq!(report.done.encoded, 1);
    // Later it is not written, and the clock has advanced.
    drop(_lock);
    fixture.clock.set(fixture.clock.now() + 3600 * gabion_vault::world::SECOND);
    fixture.protect_all();
    fixture.assert_clean();
}

#[test]
fn a_clock_that_jumps_loses_nothing() {
    let fixture = Fixture::new("4+2");
    let now = fixture.clock.now().nanoseconds();
    for (jump, name) in
        [(0_i64, "a"), (-10_000_000_000_000_000, "b"), (10_000_000_000_000_000, "c"), (-1, "d")]
    {
        fixture.clock.set(Timestamp::from_nanoseconds(now + jump));
        fixture.write(name, &TestRng(jump as u64).bytes(5000));
        fixture.write("always", &TestRng(jump as u64).bytes(7000));
        let report = fixture.protect_all();
        assert_eq!(report.done.failures, 0);
        fixture.assert_clean();
        assert!(fixture.protect_all().seen.changes.is_empty(), "{name}");
    }
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0);
}

#[test]
fn an_empty_tree_and_empty_files_are_fine() {
    let fixture = Fixture::new("4+2");
    assert_eq!(fixture.protect_all().seen.files, 0);
    fixture.write("empty", b"");
    assert_eq!(fixture.protect_all().done.encoded, 1);
    fixture.assert_clean();
    // It grew with the same mtime: still another version.
    fixture.write("empty", b"not empty");
    assert_eq!(fixture.state("empty"), State::Damaged);
    assert_eq!(fixture.repair("empty").state, State::Protected);
    assert_eq!(fixture.read("empty"), b"");
}

/// Regression: one path that was too long for the changelog ended every run.
#[test]
fn a_path_that_is_too_long_does_not_block_other_files() {
    let fixture = Fixture::new("4+2");
    fixture.write("a", &[1; 5000]);
    fixture.write("z", &[2; 5000]);
    let deep = vec!["d".repeat(200); 30].join("/").into_bytes();
    let tree = gabion_vault::tree::Tree::open(&fixture.root()).unwrap();
    tree.make_directories(&deep, 0o700).unwrap();
    let file = gabion_vault::tree::join(&deep, b"f");
    tree.create(&file, 0o600).unwrap();
    let report = fixture.protect();
    assert_eq!(report.done.encoded, 2, "{report:?}");
    let [(path, why)] = &report.seen.unreadable[..] else { panic!("{report:?}") };
    assert!(*path == file && why.to_string().contains("more than"), "{why}");
    fixture.assert_clean();
}
