//! Changes through a mount are protected without a scan.

use crate::fixture::{Fixture, can_mount, content};
use crate::test_rng::TestRng;
use gabion_vault::world::Stopwatch;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Does something to files by chance, the same in two places.
fn random_operations(seed: &mut TestRng, dirs: [&Path; 2], count: u32) {
    for _ in 0..count {
        let (one, other) = (format!("f{}", seed.below(12)), format!("f{}", seed.below(12)));
        let (folder, choice) = (format!("d{}", seed.below(3)), seed.below(10));
        let (offset, bytes) = (seed.below(60_000), seed.next() as usize % 20_000);
        let content = seed.bytes(bytes + 1);
        for dir in dirs {
            let folder = dir.join(&folder);
            let (one, other) = (folder.join(&one), dir.join(&other));
            // What cannot be done is refused in both places alike; the comparison at the end tells.
            let _ = match choice {
                0 | 1 => std::fs::create_dir(&folder),
                2 | 3 => std::fs::write(&one, &content),
                4 | 5 => std::fs::File::options()
                    .write(true)
                    .open(&one)
                    .and_then(|file| file.write_all_at(&content, offset)),
                6 => std::fs::rename(&one, &other),
                7 => std::fs::rename(&folder, dir.join(format!("d{}", offset % 3))),
                8 => std::fs::File::options().write(true).open(&other).and_then(|file| file.set_len(offset)),
                _ => std::fs::remove_file(&other),
            };
        }
    }
}

#[test]
fn mounted_changes_are_protected_without_a_search() {
    if !can_mount("changes") {
        return;
    }
    for number in 1..=3 {
        let mut seed = TestRng(number * 77);
        let mut fixture = Fixture::new();
        std::fs::write(fixture.source("before"), seed.bytes(50_000)).unwrap();
        fixture.mount(&[]);
        fixture.wait_until_protected();
        let reference = tempfile::tempdir().unwrap();
        std::fs::write(reference.path().join("before"), std::fs::read(fixture.source("before")).unwrap())
            .unwrap();
        random_operations(&mut seed, [&fixture.at(""), reference.path()], 300);
        assert_eq!(content(&fixture.at("")), content(reference.path()), "seed {number}");
        fixture.wait_until_protected();
        assert!(fixture.status()["last_protect"].is_string(), "what the mount protected is protected");
        fixture.unmount();
        assert_eq!(content(&fixture.source("")), content(reference.path()), "seed {number}");
        fixture.assert_protected();
        assert!(!fixture.source(".gabion/mounted").exists());
    }
}

#[test]
fn mounted_small_changes_of_large_files_are_small_work() {
    if !can_mount("small changes") {
        return;
    }
    let mut fixture = Fixture::new();
    let bytes = TestRng(3).bytes(8 << 20);
    std::fs::write(fixture.source("large"), &bytes).unwrap();
    fixture.mount(&["--workers", "0"]);
    fixture.expect(0, &["protect", "source"]);
    let file = std::fs::File::options().write(true).open(fixture.at("large")).unwrap();
    file.write_all_at(b"changed", 5_000_000).unwrap();
    file.sync_all().unwrap();
    // It is in the changelog as soon as it is durable, with its range.
    assert_eq!(fixture.status()["pending"]["queued"], 1);
    drop(file);
    let work: serde_json::Value =
        serde_json::from_str(&fixture.expect(0, &["protect", "source", "--json"])).unwrap();
    assert_eq!((&work["encoded"], &work["stripes_encoded"]), (&1.into(), &1.into()), "{work}");
    fixture.unmount();
    fixture.assert_protected();
}

#[test]
fn mounted_in_the_background_and_read_only() {
    if !can_mount("background") {
        return;
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.source("file"), b"content").unwrap();
    let captured = fixture.expect(0, &["mount", "source", "mount", "--background", "--read-only"]);
    assert!(captured.starts_with("mounted "), "{captured}");
    assert_eq!(std::fs::read(fixture.at("file")).unwrap(), b"content");
    let error = std::fs::write(fixture.at("file"), b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    gabion_testkit::unmount(&fixture.at(""));
}

/// A pool of eight targets, 4+2.
fn with_pool() -> Fixture {
    let fixture = Fixture::new();
    let targets: Vec<String> = (1..=8).map(|number| format!("t{number}")).collect();
    let create =
        ["pool", "create", "tank", "--pools", "pools", "--stripe", "4", "--block", "64KiB", "--targets"];
    let create: Vec<&str> = create.into_iter().chain(targets.iter().map(String::as_str)).collect();
    fixture.expect(0, &create);
    let policy = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n";
    std::fs::write(fixture.path().join("policy.toml"), policy).unwrap();
    fixture
}

/// Spoils a byte of every object of four targets, on each in another stripe. Says how many.
fn spoil_objects(fixture: &Fixture) -> usize {
    let mut spoilt = 0;
    for number in 5..=8 {
        for shelf in std::fs::read_dir(fixture.path().join(format!("t{number}/objects"))).unwrap() {
            for object in std::fs::read_dir(shelf.unwrap().path()).unwrap() {
                let object = std::fs::File::options().read(true).write(true).open(object.unwrap().path());
                let object = object.unwrap();
                let at = (number - 5) * 65_536 + 777;
                let mut byte = [0];
                if object.read_at(&mut byte, at).unwrap() == 1 {
                    object.write_all_at(&[byte[0] ^ 1], at).unwrap();
                    spoilt += 1;
                }
            }
        }
    }
    spoilt
}

/// Blocks rot in files that a program has open and writes to elsewhere: what it reads and what is left in the end is
/// what it wrote.
#[test]
fn mounted_pool_never_encodes_corruption() {
    if !can_mount("rot in a pool") {
        return;
    }
    let mut fixture = with_pool();
    fixture.mount_source("t1", &[]);
    let mut contents: Vec<Vec<u8>> = (1..=4).map(|seed| TestRng(seed).bytes(3_000_000)).collect();
    let paths: Vec<_> = (0..contents.len()).map(|number| fixture.at(&format!("file {number}"))).collect();
    for (path, content) in paths.iter().zip(&contents) {
        std::fs::write(path, content).unwrap();
    }
    fixture.wait_until("t1");
    assert!(spoil_objects(&fixture) > 0);
    for (path, content) in paths.iter().zip(&mut contents) {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        for at in (100_000..content.len()).step_by(1_300_000) {
            file.write_all_at(b"new", at as u64).unwrap();
            content[at..at + 3].copy_from_slice(b"new");
        }
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == *content, "{} while it is written", path.display());
    }
    fixture.wait_until("t1");
    fixture.unmount();
    assert!(fixture.status_of("t1")["degraded_reads"]["blocks"].as_u64() > Some(0));
    for (number, content) in contents.iter().enumerate() {
        let out = fixture.path().join("out");
        fixture.expect(0, &["pool", "get", "t1", &format!("file {number}"), out.to_str().unwrap()]);
        assert!(std::fs::read(&out).unwrap() == *content, "file {number}");
        std::fs::remove_file(out).unwrap();
    }
    fixture.assert_protected_of("t1");
}

/// A pool by the command: written through the mount, protected without a search, read without two of its targets.
#[test]
fn mounted_pool_lives_without_two_targets() {
    if !can_mount("pool") {
        return;
    }
    let mut fixture = with_pool();
    fixture.mount_source("t1", &[]);
    let contents: Vec<Vec<u8>> = (1..=6).map(|seed| TestRng(seed).bytes(400_000 * seed as usize)).collect();
    std::fs::create_dir(fixture.at("dir")).unwrap();
    for (number, content) in contents.iter().enumerate() {
        std::fs::write(fixture.at(&format!("dir/file {number}")), content).unwrap();
    }
    std::fs::rename(fixture.at("dir"), fixture.at("renamed")).unwrap();
    fixture.wait_until("t1");
    for lost in ["t4", "t7"] {
        std::fs::rename(fixture.path().join(lost), fixture.path().join(format!("{lost} away"))).unwrap();
    }
    for (number, content) in contents.iter().enumerate() {
        assert!(
            std::fs::read(fixture.at(&format!("renamed/file {number}"))).unwrap() == *content,
            "file {number}"
        );
    }
    fixture.unmount();
    fixture.mount_source("t1", &[]);
    for (number, content) in contents.iter().enumerate() {
        assert!(
            std::fs::read(fixture.at(&format!("renamed/file {number}"))).unwrap() == *content,
            "file {number}"
        );
    }
    fixture.unmount();
    // Lost redundancy is called by the name of its target as well; it had none. Files that were written a moment ago
    // were still open when the targets went, and may have been read the first time.
    let record = fixture.status_of("t1")["degraded_reads"].clone();
    let mut blamed = record["targets"].as_object().unwrap().keys().peekable();
    assert!(blamed.peek().is_some() && blamed.all(|name| name == "t4" || name == "t7"), "{record}");
}

/// A small disk of its own, where bytes can rot that no file system has touched.
struct Disk {
    image: tempfile::NamedTempFile,
    at: std::path::PathBuf,
}

impl Disk {
    fn new(at: &Path) -> Disk {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 20).unwrap();
        run(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096"]
                .map(std::ffi::OsStr::new)
                .into_iter()
                .chain([image.path().as_os_str()])
                .collect::<Vec<_>>(),
        );
        let disk = Disk { image, at: at.to_owned() };
        disk.insert();
        disk
    }

    fn insert(&self) {
        run("mount", &["-o".as_ref(), "loop".as_ref(), self.image.path().as_os_str(), self.at.as_os_str()]);
    }

    /// Takes it out, writes over everything that is as `bytes` are, 4 KiB at a time, and puts it back.
    fn rot(&self, bytes: &[u8]) {
        gabion_testkit::unmount_image(self.image.path(), &self.at);
        let mut disk = std::fs::read(self.image.path()).unwrap();
        let mut hit = 0;
        for block in disk.chunks_exact_mut(4096) {
            if bytes.chunks_exact(4096).any(|piece| piece == block) {
                block.fill(0x5a);
                hit += 1;
            }
        }
        assert_eq!(hit, bytes.len() / 4096, "all of it was on the disk");
        std::fs::write(self.image.path(), disk).unwrap();
        self.insert();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn run(program: &str, args: &[&std::ffi::OsStr]) {
    let done = std::process::Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn mounted_damage_is_hidden_from_programs_and_shown_to_people() {
    if !can_mount("damage") {
        return;
    }
    let mut fixture = Fixture::new();
    let disk = Disk::new(&fixture.source(""));
    let (bytes, others) = (TestRng(9).bytes(3 << 20), TestRng(10).bytes(3 << 20));
    std::fs::write(fixture.source("file"), &bytes).unwrap();
    std::fs::write(fixture.source("lost"), &others).unwrap();
    fixture.expect(0, &["protect", "source", "--policy", "policy.toml"]);
    disk.rot(&bytes[1 << 20..(1 << 20) + 65_536]);
    disk.rot(&others[..2 << 20]);
    fixture.mount(&[]);
    assert!(std::fs::read(fixture.at("file")).unwrap() == bytes);
    // Beyond repair: an error, not other bytes.
    assert!(std::fs::read(fixture.at("lost")).is_err());
    // Who changes a file gets what is there, and what he wrote.
    let file = std::fs::File::options().read(true).write(true).open(fixture.at("file")).unwrap();
    file.write_all_at(b"mine", 5).unwrap();
    drop(file);
    let mut mine = [0; 4];
    std::fs::File::open(fixture.at("file")).unwrap().read_exact_at(&mut mine, 5).unwrap();
    assert_eq!(&mine, b"mine");
    // The kernel says some time after it was closed that nobody has the file open any more.
    let start = Stopwatch::start();
    loop {
        let status = fixture.status();
        if status["degraded_reads"]["blocks"].as_u64().is_some_and(|blocks| blocks > 0) {
            break;
        }
        assert!(start.elapsed() < gabion_testkit::PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
    fixture.unmount();
}

/// Redundancy follows a file to its new name as it is. Nothing was made from it for readers of that name.
#[test]
fn mounted_damage_of_a_file_that_was_renamed_is_hidden_as_well() {
    if !can_mount("damage of a renamed file") {
        return;
    }
    let mut fixture = Fixture::new();
    let disk = Disk::new(&fixture.source(""));
    let bytes = TestRng(11).bytes(3 << 20);
    std::fs::write(fixture.source("file"), &bytes).unwrap();
    fixture.expect(0, &["protect", "source", "--policy", "policy.toml"]);
    fixture.mount(&[]);
    std::fs::rename(fixture.at("file"), fixture.at("renamed")).unwrap();
    fixture.wait_until_protected();
    fixture.unmount();
    disk.rot(&bytes[1 << 20..(1 << 20) + 65_536]);
    fixture.mount(&[]);
    assert!(std::fs::read(fixture.at("renamed")).unwrap() == bytes);
    fixture.unmount();
}
