//! Concurrent changes of the source, and users with fewer rights.

use super::fixture::{Fixture, Stopping, can_mount};
use super::ordinary::on_both;
use crate::test_rng::TestRng;
use gabion_vault::world::Stopwatch;
use rustix::fs::{
    CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid, copy_file_range, mknodat, renameat_with,
};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A user without rights.
const NOBODY: u32 = 12_345;

/// Does `work` in a thread of that user, and gives what came of it.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let become_nobody_and_work = || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_gid(Gid::from_raw(NOBODY)).unwrap();
        rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(become_nobody_and_work).join().unwrap())
}

fn open_for_all(fixture: &Fixture) {
    for (directory, mode) in [(fixture.path().to_owned(), 0o755), (fixture.at(""), 0o777)] {
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
    }
}

/// Opens without asking whether it is there, and reads.
fn open_or_make(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, file.metadata()?.ino()))
}

/// Names that appear in the source just when a program makes them through the mount: whoever is first, the program
/// has the file that is there, with the rights that it has to that one. It was given files of others, without anyone
/// asking for permissions, and symbolic links were errors.
#[test]
fn mounted_files_that_others_made_first_are_theirs() {
    if !can_mount("others are first") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&["--workers", "0"]);
    open_for_all(&fixture);
    let make = |name: &str, owner: u32| -> PathBuf {
        let path = fixture.path().join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        path
    };
    let (ours, theirs) = (make("ours", 0), make("theirs", NOBODY));
    let mut first = [0; 2];
    for round in 0..400 {
        let name = format!("name {round}");
        let (source, at, together) = (fixture.source(&name), fixture.at(&name), Barrier::new(2));
        let appear = || {
            together.wait();
            // Sooner or later within the moment that it takes to ask for the name and to make it.
            (0..round % 8 * 2000).for_each(|_| std::hint::spin_loop());
            match round % 4 {
                0 | 3 => fs::hard_link(&ours, &source),
                1 => fs::hard_link(&theirs, &source),
                _ => symlink(&theirs, &source),
            }
        };
        let open = || {
            together.wait();
            open_or_make(&at)
        };
        let (appeared, opened) = std::thread::scope(|scope| {
            let other = scope.spawn(appear);
            let opened = if round % 4 == 3 { as_nobody(open) } else { open() };
            (other.join().unwrap(), opened)
        });
        let was_first = match appeared {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => panic!("{name}: {error}"),
        };
        first[usize::from(was_first)] += 1;
        match (was_first, round % 4) {
            (true, 3) => assert_eq!(opened.unwrap_err().kind(), ErrorKind::PermissionDenied, "{name}"),
            (true, kind) => {
                let expected = if kind == 0 { "ours" } else { "theirs" };
                let found = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(found.0, expected, "{name}");
            }
            (false, _) => {
                let (text, number) = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
                let there = fs::symlink_metadata(&source).unwrap();
                assert_eq!((text.as_str(), number), ("", there.ino()), "{name}");
                assert_eq!(there.uid(), if round % 4 == 3 { NOBODY } else { 0 }, "{name}");
            }
        }
    }
    println!("the program was first {} times, others {} times", first[0], first[1]);
    fixture.unmount();
}

/// What is made through the mount belongs to who makes it from the beginning. It was given to him by its name
/// afterwards: whoever put a file of another in its place in that moment got that one.
#[test]
fn mounted_names_are_given_to_nobody_afterwards() {
    if !can_mount("names that are swapped") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&["--workers", "0"]);
    open_for_all(&fixture);
    let place = fixture.at("place");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    let victim = fixture.source("place/victim");
    fs::write(&victim, "ours").unwrap();
    let make = |round: u64, path: &Path| match round % 3 {
        0 => fs::create_dir(path),
        1 => symlink("victim", path),
        _ => Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0)?),
    };
    let (now, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let mut swapped = 0;
            while !over.load(Ordering::Relaxed) {
                let name = fixture.source(&format!("place/name {}", now.load(Ordering::Relaxed)));
                let exchange = || renameat_with(CWD, &victim, CWD, &name, RenameFlags::EXCHANGE);
                if exchange().is_ok() {
                    exchange().unwrap();
                    swapped += 1;
                }
            }
            swapped
        });
        let stopping = Stopping(&over);
        let made = as_nobody(|| {
            let made = |&round: &u64| {
                now.store(round, Ordering::Relaxed);
                make(round, &place.join(format!("name {round}"))).is_ok()
            };
            (0..3000).filter(made).count()
        });
        drop(stopping);
        println!("made {made} times, swapped {} times", swapping.join().unwrap());
        assert!(made > 0);
    });
    assert_eq!(fs::read_to_string(&victim).unwrap(), "ours");
    assert_eq!(fs::symlink_metadata(&victim).unwrap().uid(), 0);
    for round in 0..3 {
        let path = place.join(round.to_string());
        as_nobody(|| make(round, &path)).unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{path:?}");
    }
    // A directory that hands down its group does so, and what was asked for is not taken away.
    fs::set_permissions(&place, Permissions::from_mode(0o2777)).unwrap();
    chown(&place, None, Some(77)).unwrap();
    let program = place.join("program");
    as_nobody(|| File::options().write(true).create_new(true).mode(0o4711).open(&program)).unwrap();
    as_nobody(|| fs::create_dir(place.join("below"))).unwrap();
    let (found, below) = (fs::metadata(&program).unwrap(), fs::metadata(place.join("below")).unwrap());
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (NOBODY, 77, 0o4711));
    assert_eq!((below.uid(), below.gid(), below.mode() & 0o2000), (NOBODY, 77, 0o2000));
    fixture.unmount();
}

/// What is copied into a program that runs with its owner's rights takes these away, and what is read-only is not
/// copied into.
#[test]
fn mounted_copies_within_the_kernel_go_by_rights() {
    on_both("copies", |fixture| {
        open_for_all(fixture);
        let (from, to) = (fixture.at("from"), fixture.at("program"));
        let content = TestRng(5).bytes(100_000);
        fs::write(&from, &content).unwrap();
        fs::set_permissions(&from, Permissions::from_mode(0o644)).unwrap();
        fs::write(&to, b"program").unwrap();
        let copy = || {
            let from = File::open(&from)?;
            let to = File::options().write(true).open(&to)?;
            let (mut read, mut written) = (0, 0);
            while written < content.len() as u64 {
                copy_file_range(&from, Some(&mut read), &to, Some(&mut written), content.len())?;
            }
            Ok::<(), std::io::Error>(())
        };
        fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(as_nobody(copy).unwrap_err().kind(), ErrorKind::PermissionDenied);
        fs::set_permissions(&to, Permissions::from_mode(0o6777)).unwrap();
        as_nobody(copy).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o777);
        assert!(fs::read(&to).unwrap() == content);
        // Root may.
        fs::set_permissions(&to, Permissions::from_mode(0o6777)).unwrap();
        copy().unwrap();
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o6777);
        // Nothing is written to what was opened for reading only.
        let (from, to) = (File::open(&from).unwrap(), File::open(&to).unwrap());
        let refused = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 10).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::BADF);
    });
}

/// Large reads are answered from where the system keeps the file. A file that is cut meanwhile is shorter, and no
/// error; one that is removed takes no room.
#[test]
fn mounted_files_are_cut_while_they_are_read() {
    const SIZE: usize = 3 << 20;
    if !can_mount("cut while read") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&["--workers", "0"]);
    let (path, over) = (fixture.at("file"), AtomicBool::new(false));
    let content = vec![0x5a; SIZE];
    fs::write(&path, &content).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // Past the pages of the mount: each is a request.
            let direct = OFlags::DIRECT.bits().cast_signed();
            let file = File::options().read(true).custom_flags(direct).open(&path).unwrap();
            let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
            while !over.load(Ordering::Relaxed) {
                for offset in (0..SIZE as u64).step_by(piece.len()) {
                    let got = file.read_at(&mut piece, offset).unwrap();
                    assert!(piece[..got].iter().all(|&byte| byte == 0x5a || byte == 0), "at {offset}");
                    bytes += got;
                }
            }
            bytes
        });
        let stopping = Stopping(&over);
        let file = File::options().write(true).open(&path).unwrap();
        for round in 0..150 {
            file.set_len(round * 7001).unwrap();
            file.write_all_at(&content, 0).unwrap();
        }
        drop(stopping);
        assert!(reader.join().unwrap() > 0);
    });
    // Cut behind the mount's back: no bytes of another file, and whoever serves it lives on.
    let source = File::options().write(true).open(fixture.source("file")).unwrap();
    source.set_len(1 << 20).unwrap();
    let file = File::open(&path).unwrap();
    let mut piece = vec![0; 1 << 20];
    file.read_exact_at(&mut piece, 0).unwrap();
    assert!(piece == content[..1 << 20]);
    drop((file, source));
    fs::remove_file(&path).unwrap();
    // Who answers lets go of what it showed after the answer: we may be here before that.
    let maps = format!("/proc/{}/maps", fixture.process().as_raw_pid());
    let since = Stopwatch::start();
    loop {
        let shown = fs::read_to_string(&maps).unwrap();
        let Some(line) = shown.lines().find(|line| line.contains("source/file")) else { break };
        assert!(since.elapsed() < gabion_testkit::PATIENCE, "it is still shown: {line}");
        std::thread::sleep(Duration::from_millis(10));
    }
    fixture.unmount();
}

/// Something got another name in the source after programs had used it through the mount. The name that it had before
/// was tried ever after, and nothing else: programs were told that the file is stale, and what they wrote was
/// recorded under a name that was gone.
#[test]
fn mounted_files_that_others_rename_are_found_by_their_new_names() {
    if !can_mount("others rename") {
        return;
    }
    let mut fixture = Fixture::new();
    fs::create_dir_all(fixture.source("dir/deep")).unwrap();
    for name in ["file", "dir/deep/file"] {
        fs::write(fixture.source(name), name).unwrap();
    }
    fixture.mount(&[]);
    for name in ["file", "dir/deep/file"] {
        assert_eq!(fs::read_to_string(fixture.at(name)).unwrap(), name);
    }
    fs::rename(fixture.source("file"), fixture.source("renamed")).unwrap();
    fs::rename(fixture.source("dir"), fixture.source("moved")).unwrap();
    for (name, was) in [("renamed", "file"), ("moved/deep/file", "dir/deep/file")] {
        // What the kernel was told of names holds for a second.
        let since = Stopwatch::start();
        let found = loop {
            match fs::read_to_string(fixture.at(name)) {
                Err(error) => assert!(since.elapsed() < gabion_testkit::PATIENCE, "{name}: {error}"),
                Ok(found) => break found,
            }
        };
        assert_eq!(found, was);
        fs::write(fixture.at(name), "written by its new name").unwrap();
        assert_eq!(fs::read_to_string(fixture.source(name)).unwrap(), "written by its new name");
    }
    fixture.unmount();
    fixture.expect(0, &["protect", "source"]);
    fixture.assert_protected();
}
