//! Ordinary file operations through a mount, compared with a local file system.

use super::fixture::{Fixture, Stopping, can_mount};
use crate::test_rng::TestRng;
use gabion_vault::world::Stopwatch;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, Timespec, Timestamps, copy_file_range};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A ground with a pool of four targets.
pub(crate) fn pooled() -> Fixture {
    let fixture = Fixture::new();
    let create = ["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "1"];
    fixture.expect(0, &[&create[..], &["--block", "4KiB", "--targets", "t1", "t2", "t3", "t4"]].concat());
    fs::write(fixture.path().join("policy.toml"), "[default]\ncode = \"2+1\"\nquiet = \"0s\"\n").unwrap();
    fixture
}

/// Runs the test on a mounted directory and on a mounted pool.
pub(crate) fn on_both(test: &str, work: impl Fn(&Fixture)) {
    if !can_mount(test) {
        return;
    }
    for (mut fixture, source) in [(Fixture::new(), "source"), (pooled(), "t1")] {
        fixture.mount_source(source, &[]);
        work(&fixture);
        fixture.unmount();
    }
}

/// The descriptors that a shell gives a process are few, and a mount needs one for every file that any program has
/// open.
#[test]
fn mounted_programs_have_many_files_open() {
    if !can_mount("many files") {
        return;
    }
    let mut fixture = Fixture::new();
    let mut mount = Command::new("prlimit");
    mount.arg("--nofile=128:4096").arg(env!("CARGO_BIN_EXE_gabion")).current_dir(fixture.path());
    mount.args(["mount", "source", "mount", "--policy", "policy.toml"]);
    fixture.mount_by(mount);
    let files: Vec<File> = (0..400)
        .map(|number| {
            let mut file = File::create(fixture.at(&number.to_string()))?;
            file.write_all(number.to_string().as_bytes())?;
            Ok(file)
        })
        .collect::<std::io::Result<_>>()
        .unwrap();
    for number in 0..files.len() {
        assert_eq!(fs::read_to_string(fixture.at(&number.to_string())).unwrap(), number.to_string());
    }
    drop(files);
    fixture.unmount();
}

/// Paths may be longer than what the kernel takes at once: programs go down step by step, as `find` and `rm -r` do.
#[test]
fn mounted_directories_are_as_deep_as_they_like() {
    on_both("deep paths", |fixture| {
        let name = "d".repeat(200);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = rustix::fs::open(fixture.at(""), flags, Mode::empty()).unwrap();
        for _ in 0..40 {
            rustix::fs::mkdirat(&directory, &*name, Mode::RWXU).unwrap();
            directory = rustix::fs::openat(&directory, &*name, flags, Mode::empty()).unwrap();
        }
        let made = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, "file", made, Mode::RUSR).unwrap();
        rustix::io::write(&file, b"deep").unwrap();
        drop(file);
        let file = rustix::fs::openat(&directory, "file", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut found = [0; 8];
        assert_eq!(rustix::io::read(&file, &mut found).unwrap(), 4);
        assert_eq!(&found[..4], b"deep");
        drop((file, directory));
        let count = Command::new("find").arg(fixture.at(&name)).args(["-printf", "x"]).output().unwrap();
        assert!(count.status.success() && count.stdout.len() == 41, "{count:?}");
        let removed = Command::new("rm").arg("-r").arg(fixture.at(&name)).output().unwrap();
        assert!(removed.status.success(), "{removed:?}");
    });
}

#[test]
fn mounted_times_before_1970_are_kept_to_the_nanosecond() {
    on_both("times", |fixture| {
        let path = fixture.at("old");
        fs::write(&path, b"old").unwrap();
        for (tv_sec, tv_nsec) in [(-315_619_200, 500_000_000), (-1, 1), (-1, 999_999_999), (-7, 0), (5, 9)] {
            let time = Timespec { tv_sec, tv_nsec };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mtime(), found.mtime_nsec()), (tv_sec, tv_nsec));
            assert_eq!((found.atime(), found.atime_nsec()), (tv_sec, tv_nsec));
        }
    });
}

/// Runs a command as a user without rights.
fn as_nobody(command: &mut Command) {
    let output = command.uid(12_345).gid(12_345).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// What the kernel believes of the permissions: asked for nothing else, it does not look again.
fn believed_mode(path: &Path) -> u32 {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(stat.stx_mode) & 0o7777
}

/// Who writes to a program that runs with its owner's rights must not be able to run it with them, not even for the
/// second in which the kernel believes what it was told before.
#[test]
fn mounted_programs_lose_their_rights_when_others_change_them() {
    on_both("rights of programs", |fixture| {
        for directory in [fixture.path().to_owned(), fixture.at("")] {
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        let path = fixture.at("program");
        fs::write(&path, b"program").unwrap();
        let write = |path: &PathBuf| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo more >> \"$0\""]).arg(path);
            command
        };
        let allocate = |path: &PathBuf| {
            let mut command = Command::new("fallocate");
            command.args(["-l", "10000"]).arg(path);
            command
        };
        let cut = |path: &PathBuf| {
            let mut command = Command::new("truncate");
            command.args(["-s", "3"]).arg(path);
            command
        };
        for mut command in [write(&path), allocate(&path), cut(&path)] {
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(believed_mode(&path), 0o6777);
            as_nobody(&mut command);
            assert_eq!(believed_mode(&path), 0o777, "{command:?}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
        }
        // Root may.
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(believed_mode(&path), 0o6777);
    });
}

/// A disk in memory, mounted where a test says.
struct Small(PathBuf);

impl Small {
    fn at(path: PathBuf, size: &str) -> Small {
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Small(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A test that fails may leave it in use.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What is in a file is what programs were told of, also when the disk is full.
#[test]
fn mounted_full_disks_take_what_there_is_room_for() {
    if !can_mount("full disks") {
        return;
    }
    let mut fixture = Fixture::new();
    let _small = Small::at(fixture.source(""), "1m");
    fixture.mount(&["--repository", "elsewhere"]);
    let mut file = File::create(fixture.at("file")).unwrap();
    let (piece, mut told) = (vec![7; 300_001], 0);
    let error = loop {
        match file.write(&piece) {
            Ok(written) => told += written as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert_eq!(file.metadata().unwrap().len(), told);
    drop(file);
    assert_eq!(fs::metadata(fixture.source("file")).unwrap().len(), told);
    assert_eq!(fs::read(fixture.at("file")).unwrap(), vec![7; told as usize]);
    fs::remove_file(fixture.at("file")).unwrap();
    // The kernel tells the mount later that the file, which was just read, is closed.
    gabion_testkit::until("its room is free", || fs::write(fixture.at("other"), &piece).is_ok());
    assert_eq!(fs::read(fixture.at("other")).unwrap(), piece);
    fixture.unmount();
}

/// The same of copies that the kernel makes by itself: they end where the room does, and go on when there is some.
#[test]
fn mounted_full_disks_take_as_much_of_copies_as_they_say() {
    if !can_mount("copies to full disks") {
        return;
    }
    let mut fixture = Fixture::new();
    let _small = Small::at(fixture.source(""), "1m");
    fixture.mount(&["--repository", "elsewhere"]);
    let content = TestRng(3).bytes(400_000);
    fs::write(fixture.at("ballast"), &content).unwrap();
    fs::write(fixture.at("from"), &content).unwrap();
    fs::set_permissions(fixture.at("from"), Permissions::from_mode(0o444)).unwrap();
    let (from, to) = (File::open(fixture.at("from")).unwrap(), File::create(fixture.at("to")).unwrap());
    let (mut read, mut written) = (0, 0);
    let mut copy = || {
        while written < content.len() as u64 {
            copy_file_range(&from, Some(&mut read), &to, Some(&mut written), content.len())?;
        }
        Ok::<(), Errno>(())
    };
    assert_eq!(copy(), Err(Errno::NOSPC));
    let told = to.metadata().unwrap().len();
    assert!(told > 0 && fs::read(fixture.at("to")).unwrap() == content[..told as usize]);
    fs::remove_file(fixture.at("ballast")).unwrap();
    // The kernel tells the mount later that the file is closed.
    gabion_testkit::until("its room is free", || copy().is_ok());
    assert_eq!(read, written);
    assert!(fs::read(fixture.source("to")).unwrap() == content);
    drop((from, to));
    fixture.unmount();
}

/// Renaming over a name while others open it to write: there is always something by that name.
#[test]
fn mounted_names_that_are_replaced_can_be_opened() {
    on_both("replaced names", |fixture| {
        let over = AtomicBool::new(false);
        let is_pool = fixture.path().join("t1").exists();
        fs::write(fixture.at("name"), b"x").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fs::write(fixture.at("next"), b"x").unwrap();
                    fs::rename(fixture.at("next"), fixture.at("name")).unwrap();
                }
            });
            let _stopping = Stopping(&over);
            for _ in 0..150 {
                let opened = File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .custom_flags(OFlags::APPEND.bits().cast_signed())
                    .open(fixture.at("name"));
                if let Err(error) = opened {
                    // Looked for twice, and replaced in between both times.
                    assert!(is_pool && error.kind() == ErrorKind::StaleNetworkFileHandle, "{error}");
                }
            }
        });
    });
}

#[test]
fn mounted_over_nothing_that_would_be_hidden() {
    if !can_mount("hiding") {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.at("here"), b"here").unwrap();
    let refused = fixture.run(&["mount", "source", "mount"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("is not empty"), "{error}");
    assert!(!fixture.source(".gabion").exists(), "nothing is made before");
    // The repository was made there, and was out of sight then.
    fs::remove_file(fixture.at("here")).unwrap();
    for repository in ["mount/repository", "mount/far/below", "mount"] {
        let refused = fixture.run(&["mount", "source", "mount", "--repository", repository]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && error.contains("overlap"), "{repository}: {error}");
        assert_eq!(fs::read_dir(fixture.at("")).unwrap().count(), 0, "{repository}");
    }
    // What is wrong is said once.
    let refused = fixture.run(&["mount", "source", "nowhere"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
}

/// A mount in the background has nobody to talk to later; what it says before is heard.
#[test]
fn mounted_in_the_background_prints_its_messages() {
    if !can_mount("background") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    // The kernel believes for a second what it is told of the mount, and is asked again before that is over.
    fs::metadata(fixture.at("")).unwrap();
    fixture.die();
    let output = fixture.run(&["mount", "source", "mount", "--background"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.contains("stale mount"), "{output:?}");
    gabion_testkit::unmount(&fixture.at(""));
    // It ends by itself then.
    let since = Stopwatch::start();
    while fixture.source(".gabion/mounted").exists() {
        assert!(since.elapsed() < gabion_testkit::PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}
