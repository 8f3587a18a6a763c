//! POSIX conformance: external test suites, and cases that they leave out.

use crate::fixture::{Fixture, can_mount};
use rustix::process::{Signal, kill_process};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

/// Whether what the test command installs has to be there.
pub(crate) fn tools_are_required() -> bool {
    std::env::var_os("GABION_REQUIRE_TOOLS").is_some()
}

/// A program of another project, which `cargo xtask test` installs.
fn tool(test: &str, name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("GABION_TOOLS").map(PathBuf::from);
    let found = dir.map(|dir| dir.join("bin").join(name)).filter(|path| path.exists());
    if found.is_none() {
        assert!(!tools_are_required(), "{name} is not in GABION_TOOLS");
        gabion_testkit::skip!("{test}: {name} is not there; `cargo xtask test` installs it");
    }
    found
}

#[test]
fn mounted_pjdfstest_passes() {
    if !can_mount("pjdfstest") {
        return;
    }
    let Some(program) = tool("pjdfstest", "pjdfstest") else { return };
    let mut fixture = Fixture::new();
    // What the suite removes is no accident, however many removals are still pending when the mount ends.
    let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n[guard]\nat_least = 100000\n";
    std::fs::write(fixture.path().join("policy.toml"), policy).unwrap();
    fixture.mount(&[]);
    // A source without any file is held in any case.
    std::fs::write(fixture.at("kept"), b"kept").unwrap();
    let settings = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
                    [settings]\nnaptime = 0.01\nallow_remount = false\n\
                    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    let file = fixture.path().join("pjdfstest.toml");
    std::fs::write(&file, settings).unwrap();
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    // Other users have to get at it.
    for dir in [fixture.path(), other.path()] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let done = Command::new(program)
        .arg("-c")
        .arg(&file)
        .arg("-s")
        .arg(other.path())
        .arg("-p")
        .arg(fixture.at(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let summary = text.lines().rev().find(|line| line.starts_with("Summary")).unwrap_or("no summary");
    println!("{summary}");
    assert!(done.status.success() && summary.contains(": 0 failed"), "{text}");
    // docs/operating/mount.md names what is left out: remounting read-only, and a limit of links that nobody knows.
    let skipped = text.lines().filter(|line| line.ends_with("skipped"));
    let others: Vec<&str> =
        skipped.filter(|line| !line.contains("erofs") && !line.contains("link_count_max")).collect();
    assert_eq!(others, Vec::<&str>::new());
    fixture.unmount();
    fixture.expect(0, &["protect", "source"]);
    fixture.expect(0, &["scrub", "source"]);
}

#[test]
fn mounted_fsx_passes() {
    if !can_mount("fsx") {
        return;
    }
    let Some(program) = tool("fsx", "fsx") else { return };
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    let settings = "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
                    punch_hole = 3\nposix_fallocate = 2\ninvalidate = 2\nmapread = 10\nmapwrite = 10\n\
                    copy_file_range = 3\nsendfile = 2\nposix_fadvise = 1\nclose_open = 3\n";
    let file = fixture.path().join("fsx.toml");
    std::fs::write(&file, settings).unwrap();
    // With everything at once, and with what the suite does by itself.
    for seed in 1..=4 {
        let mut command = Command::new(&program);
        command.current_dir(fixture.path()).args(["-N", "4000", "-S", &seed.to_string()]);
        if seed % 2 == 0 {
            command.arg("-f").arg(&file);
        }
        let done = command.arg(fixture.at(&format!("file {seed}"))).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "seed {seed}: {}{error}", String::from_utf8_lossy(&done.stdout));
    }
    fixture.wait_until_protected();
    fixture.unmount();
    fixture.assert_protected();
}

#[test]
fn mounted_open_files_outlive_their_names() {
    if !can_mount("open files") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    let mut open = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(fixture.at("file"))
        .unwrap();
    open.write_all(b"before").unwrap();
    std::fs::remove_file(fixture.at("file")).unwrap();
    open.write_all(b" and after").unwrap();
    open.set_len(12).unwrap();
    open.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    // A file that takes its name, and perhaps its inode, is another one.
    std::fs::write(fixture.at("file"), b"new").unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and a");
    assert_eq!(std::fs::read(fixture.at("file")).unwrap(), b"new");
    // Renamed over: the same.
    let over = std::fs::File::open(fixture.at("file")).unwrap();
    std::fs::write(fixture.at("other"), b"other").unwrap();
    std::fs::rename(fixture.at("other"), fixture.at("file")).unwrap();
    let mut old = [0; 3];
    over.read_exact_at(&mut old, 0).unwrap();
    assert_eq!((&old, std::fs::read(fixture.at("file")).unwrap()), (b"new", b"other".to_vec()));
    drop((open, over));
    fixture.unmount();
}

/// The kernel reads by itself, and still everyone sees every write at once, and all of them are recorded.
#[test]
fn mounted_passing_readers_see_writes_that_are_recorded() {
    if !can_mount("passing readers") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&["--passthrough", "--no-verify"]);
    std::fs::write(fixture.at("file"), vec![1; 300_000]).unwrap();
    let reader = std::fs::File::open(fixture.at("file")).unwrap();
    let second = std::fs::File::open(fixture.at("file")).unwrap();
    let byte = |file: &std::fs::File, at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0]
    };
    // Nobody serves requests now: what is read does not come from us.
    let process = fixture.process();
    kill_process(process, Signal::STOP).unwrap();
    let (one, other) = (byte(&reader, 5), byte(&second, 299_999));
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!((one, other), (1, 1));
    // Written while it is read: by one who only writes, and by one who also reads.
    let writer = std::fs::File::options().write(true).open(fixture.at("file")).unwrap();
    writer.write_all_at(&[2; 5000], 100_000).unwrap();
    let both = std::fs::File::options().read(true).write(true).open(fixture.at("file")).unwrap();
    both.write_all_at(&[3; 5000], 200_000).unwrap();
    for file in [&reader, &second, &both] {
        assert_eq!((byte(file, 104_999), byte(file, 105_000), byte(file, 200_000)), (2, 1, 3));
    }
    both.set_len(250_000).unwrap();
    assert_eq!(reader.read_at(&mut [0; 10], 250_000).unwrap(), 0);
    writer.sync_all().unwrap();
    drop((writer, both, reader, second));
    // Those who want pages have them again.
    let late = std::fs::File::options().read(true).write(true).open(fixture.at("file")).unwrap();
    let late_reader = std::fs::File::open(fixture.at("file")).unwrap();
    late.write_all_at(&[4; 10], 0).unwrap();
    assert_eq!((byte(&late, 9), byte(&late_reader, 9), byte(&late_reader, 10)), (4, 4, 1));
    drop((late, late_reader));
    fixture.wait_until_protected();
    fixture.unmount();
    fixture.assert_protected();
    let mut expected = vec![1; 250_000];
    expected[..10].fill(4);
    expected[100_000..105_000].fill(2);
    expected[200_000..205_000].fill(3);
    assert!(std::fs::read(fixture.source("file")).unwrap() == expected);
}

#[test]
fn mounted_large_and_sparse_files_stay_so() {
    if !can_mount("sparse files") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    let file = std::fs::File::create(fixture.at("sparse")).unwrap();
    file.set_len(6 << 30).unwrap();
    file.write_all_at(b"far away", (5 << 30) + 3).unwrap();
    file.sync_all().unwrap();
    let stat = std::fs::metadata(fixture.source("sparse")).unwrap();
    assert_eq!(stat.len(), 6 << 30);
    assert!(stat.blocks() * 512 < 1 << 20, "{} blocks", stat.blocks());
    let mut found = [0; 8];
    std::fs::File::open(fixture.at("sparse")).unwrap().read_exact_at(&mut found, (5 << 30) + 3).unwrap();
    assert_eq!(&found, b"far away");
    drop(file);
    std::fs::remove_file(fixture.at("sparse")).unwrap();
    fixture.unmount();
}

#[test]
fn mounted_repositories_are_hidden_and_overlaps_refused() {
    if !can_mount("what is ours") {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    assert!(fixture.source(".gabion").exists());
    assert!(!fixture.at(".gabion").exists());
    assert_eq!(std::fs::read_dir(fixture.at("")).unwrap().count(), 0);
    let error = std::fs::create_dir(fixture.at(".gabion")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(1), "{error}");
    std::fs::create_dir(fixture.path().join("second")).unwrap();
    let second = fixture.run(&["mount", "source", "second", "--workers", "0"]);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(2) && error.contains("mounted by another process"), "{error}");
    std::fs::write(fixture.at("a"), b"a").unwrap();
    assert!(std::fs::rename(fixture.at("a"), fixture.at(".gabion")).is_err());
    fixture.unmount();
    for (mountpoint, says) in
        [("source", "overlap"), ("source/a", "not a directory"), ("nothing", "nothing"), (".", "overlap")]
    {
        let output = fixture.run(&["mount", "source", mountpoint]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{mountpoint}: {error}");
    }
}
