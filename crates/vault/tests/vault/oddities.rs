//! What trees have in them, and what happens while one looks.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::protect;
use gabion_vault::run;
use gabion_vault::tree::Tree;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

#[test]
fn names_of_all_kinds_are_protected() {
    let ground = Playground::new("4+2");
    let long = "x".repeat(255);
    let names: [&[u8]; 6] = [b"new\nline", b"\xff\xfe", b"-rf", b" ", b"\\", long.as_bytes()];
    for name in names {
        std::fs::write(ground.root().join(OsStr::from_bytes(name)), name).unwrap();
    }
    // As deep as a path can be.
    let tree = Tree::open(&ground.root()).unwrap();
    let deep = [&[b'd'; 250][..]; 16].join(&b'/');
    tree.make_directories(&deep, 0o700).unwrap();
    let path = [&deep[..], &vec![b'f'; 4095 - deep.len() - 1]].join(&b'/');
    tree.create(&path, 0o600).unwrap().write_all(b"deep").unwrap();
    let report = ground.protect();
    assert_eq!((report.seen.files, report.done.encoded, report.done.failures), (7, 7, 0));
    let report = ground.scrub();
    assert_eq!((report.files, report.trouble.len(), report.failed.len()), (7, 0, 0));
    flip(&ground.root().join(OsStr::from_bytes(b"\xff\xfe")), 1);
    let done = gabion_vault::repair::repair(&ground.vault, b"\xff\xfe", QUIET).unwrap();
    assert_eq!(done.state, State::Protected);
    assert_eq!(std::fs::read(ground.root().join(OsStr::from_bytes(b"\xff\xfe"))).unwrap(), b"\xff\xfe");
}

#[test]
fn links_pipes_and_sockets_are_counted_and_left_alone() {
    let ground = Playground::new("4+2");
    ground.write("file", b"content");
    symlink("loop", ground.path("loop")).unwrap();
    symlink(".", ground.path("here")).unwrap();
    symlink("/etc", ground.path("outside")).unwrap();
    let _socket = UnixListener::bind(ground.path("socket")).unwrap();
    let root = std::fs::File::open(ground.root()).unwrap();
    let private = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(&root, "pipe", private).unwrap();
    let mut special = 2;
    if rustix::process::geteuid().is_root() {
        // Whoever reads this one never comes to an end.
        let (kind, zero) = (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 5));
        rustix::fs::mknodat(&root, "device", kind, private, zero).unwrap();
        special += 1;
    } else {
        gabion_testkit::skip!(
            "devices in links_pipes_and_sockets_are_counted_and_left_alone: we are not root"
        );
    }
    let report = ground.protect_all();
    assert_eq!((report.seen.files, report.seen.links, report.seen.special), (1, 3, special));
    ground.assert_clean();
}

#[test]
fn a_link_in_the_place_of_a_file_leads_nowhere() {
    let ground = Playground::new("4+2");
    let secret = ground.dir.path().join("secret");
    std::fs::write(&secret, b"not ours").unwrap();
    ground.write("dir/file", &Seed(1).bytes(10_000));
    ground.protect_all();
    // The file, its directory, and its redundancy's directory become links to elsewhere.
    std::fs::remove_dir_all(ground.path("dir")).unwrap();
    symlink("../", ground.path("dir")).unwrap();
    std::fs::rename(&secret, ground.dir.path().join("file")).unwrap();
    assert!(gabion_vault::repair::repair(&ground.vault, b"dir/file", QUIET).is_err());
    assert_eq!(std::fs::read(ground.dir.path().join("file")).unwrap(), b"not ours");
    std::fs::remove_dir_all(ground.redundancy("dir")).unwrap();
    symlink(ground.dir.path(), ground.redundancy("dir")).unwrap();
    std::fs::remove_file(ground.path("dir")).unwrap();
    ground.write("dir/file", &Seed(1).bytes(10_000));
    let report = ground.protect_all();
    assert_eq!(report.done.set_aside.len(), 1, "{report:?}");
    assert_eq!(std::fs::read(ground.dir.path().join("file")).unwrap(), b"not ours");
    ground.assert_clean();
}

#[test]
fn redundancy_is_for_nobody_else() {
    let ground = Playground::new("4+2");
    ground.write("dir/open to all", &Seed(1).bytes(10_000));
    std::fs::set_permissions(ground.path("dir/open to all"), std::fs::Permissions::from_mode(0o666)).unwrap();
    ground.protect_all();
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(ground.redundancy("dir/open to all")), 0o600);
    assert_eq!(mode(ground.redundancy("dir")), 0o700);
    assert_eq!(mode(ground.path(".gabion")), 0o700);
}

#[test]
fn a_directory_that_cannot_be_read_is_no_deletion() {
    let ground = Playground::new("4+2");
    ground.write("dir/file", b"content");
    ground.write("other", b"content");
    ground.protect_all();
    std::fs::remove_dir_all(ground.path("dir")).unwrap();
    // Root reads everything; a loop of links is unreadable to root too.
    symlink("dir", ground.path("dir")).unwrap();
    let before = ground.redundancy("dir/file").exists();
    ground.write("other", b"changed!");
    let seen = protect::scan(&ground.vault, QUIET).unwrap();
    assert!(before);
    assert_eq!(seen.links, 1);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_done_again() {
    let ground = Playground::new("4+2");
    ground.write("busy", &Seed(1).bytes(40 << 20));
    let path = ground.path("busy");
    let written = std::sync::atomic::AtomicU32::new(0);
    // Twice, in the middle of the first two readings.
    let progress = |step: run::Progress| {
        if let run::Progress::Done(0, 1..) = step
            && written.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2
        {
            std::fs::File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        }
    };
    let _lock = ground.vault.lock("test").unwrap();
    let context = run::RunContext { progress: &progress, threads: 1, ..QUIET };
    let report = protect::protect(&ground.vault, context).unwrap();
    assert_eq!((report.done.encoded, report.done.failed.len()), (1, 0), "{report:?}");
    assert!(written.load(std::sync::atomic::Ordering::SeqCst) > 2);
    ground.assert_clean();
}

/// In the middle of its first reading, a file is cut short, removed, or a directory takes its place.
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
        let ground = Playground::new("4+2");
        ground.write("busy", &Seed(1).bytes(40 << 20));
        ground.write("quiet", b"content");
        let (path, struck) = (ground.path("busy"), std::sync::atomic::AtomicBool::new(false));
        let progress = |step: run::Progress| {
            if let run::Progress::Done(0, 1_000_000..) = step
                && !struck.swap(true, std::sync::atomic::Ordering::SeqCst)
            {
                fate(&path);
            }
        };
        let lock = ground.vault.lock("test").unwrap();
        let context = run::RunContext { progress: &progress, threads: 1, ..QUIET };
        let report = protect::protect(&ground.vault, context).unwrap();
        drop(lock);
        assert!(struck.into_inner());
        assert_eq!((report.done.encoded, report.done.failed.len()), (1 + u64::from(stays), 0), "{report:?}");
        assert_eq!(ground.redundancy("busy").is_file(), stays);
        ground.protect_all();
        ground.assert_clean();
    }
}

#[test]
fn a_file_that_never_rests_is_named() {
    let ground = Playground::new("4+2");
    ground.write("busy", &Seed(1).bytes(20 << 20));
    ground.write("quiet", b"content");
    let path = ground.path("busy");
    let progress = |step: run::Progress| {
        if let run::Progress::Done(0, 1_000_000..) = step {
            std::fs::File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        }
    };
    let _lock = ground.vault.lock("test").unwrap();
    let report = protect::protect(&ground.vault, run::RunContext { progress: &progress, ..QUIET }).unwrap();
    let [(failed, why)] = &report.done.failed[..] else { panic!("{report:?}") };
    assert_eq!(failed, b"busy");
    assert!(why.contains("changed while it was read"), "{why}");
    assert_eq!(report.done.encoded, 1);
    // Later it rests, and all is well. The clock moved on, too.
    drop(_lock);
    ground.clock.set(ground.clock.now() + 3600 * gabion_vault::world::SECOND);
    ground.protect_all();
    ground.assert_clean();
}

#[test]
fn a_clock_that_jumps_loses_nothing() {
    let ground = Playground::new("4+2");
    let now = ground.clock.now();
    for (jump, name) in [(0, "a"), (-10_000_000_000_000_000, "b"), (10_000_000_000_000_000, "c"), (-1, "d")] {
        ground.clock.set(now + jump);
        ground.write(name, &Seed(jump as u64).bytes(5000));
        ground.write("always", &Seed(jump as u64).bytes(7000));
        let report = ground.protect_all();
        assert_eq!(report.done.failures, 0);
        ground.assert_clean();
        assert!(ground.protect_all().seen.changes.is_empty(), "{name}");
    }
    assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 0);
}

#[test]
fn an_empty_tree_and_empty_files_are_fine() {
    let ground = Playground::new("4+2");
    assert_eq!(ground.protect_all().seen.files, 0);
    ground.write("empty", b"");
    assert_eq!(ground.protect_all().done.encoded, 1);
    ground.assert_clean();
    // It grew without its time changing: still not what was protected.
    ground.write("empty", b"not empty");
    assert_eq!(ground.state("empty"), State::Damaged);
    assert_eq!(ground.repair("empty").state, State::Protected);
    assert_eq!(ground.read("empty"), b"");
}

/// One path that is too long for the changelog ended every run: nothing else of the tree was protected any more.
#[test]
fn a_path_that_is_too_long_stands_in_nobodys_way() {
    let ground = Playground::new("4+2");
    ground.write("a", &[1; 5000]);
    ground.write("z", &[2; 5000]);
    let deep = vec!["d".repeat(200); 30].join("/").into_bytes();
    let tree = gabion_vault::tree::Tree::open(&ground.root()).unwrap();
    tree.make_directories(&deep, 0o700).unwrap();
    let file = gabion_vault::tree::join(&deep, b"f");
    tree.create(&file, 0o600).unwrap();
    let report = ground.protect();
    assert_eq!(report.done.encoded, 2, "{report:?}");
    let [(path, why)] = &report.seen.unreadable[..] else { panic!("{report:?}") };
    assert!(*path == file && why.contains("more than"), "{why}");
    ground.assert_clean();
}
