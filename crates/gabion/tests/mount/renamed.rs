//! Corruption in files of a mounted directory that are read by a name under which they were not protected yet.
//!
//! Redundancy lies under the name that a file had when it was protected, until the file has rested and a worker has
//! moved it. Readers looked for it by the present name alone: a file that had just been renamed was read unverified.

use crate::fixture::{Fixture, can_mount};
use crate::rot::rot;
use crate::test_rng::TestRng;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Files as long as each other and of one time, as an archive that was unpacked has them. One of them rots after it
/// was protected.
fn protected() -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new();
    fs::create_dir(fixture.source("d")).unwrap();
    for (number, name) in ["d/a", "d/b"].iter().enumerate() {
        fs::write(fixture.source(name), TestRng(number as u64).bytes(30_000)).unwrap();
        let file = File::options().write(true).open(fixture.source(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000)).unwrap();
    }
    fixture.expect(0, &["protect", "source", "--policy", "policy.toml", "-q"]);
    rot(&fixture, "d/a", 12_345);
    // From now on no worker moves redundancy.
    let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"1h\"\n";
    fs::write(fixture.path().join("policy.toml"), policy).unwrap();
    (fixture, TestRng(0).bytes(30_000))
}

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// What gives the file another name. Paths are below the one that is given.
type Renaming = fn(&Path) -> &'static str;

const RENAMINGS: [(&str, Renaming); 8] = [
    ("a new name", |d| {
        fs::rename(d.join("d/a"), d.join("d/z")).unwrap();
        "d/z"
    }),
    ("the name of another protected file", |d| {
        fs::rename(d.join("d/a"), d.join("d/b")).unwrap();
        "d/b"
    }),
    ("two names swapped", |d| {
        fs::rename(d.join("d/a"), d.join("d/x")).unwrap();
        fs::rename(d.join("d/b"), d.join("d/a")).unwrap();
        fs::rename(d.join("d/x"), d.join("d/b")).unwrap();
        "d/b"
    }),
    ("two names exchanged", |d| {
        exchange(&d.join("d/a"), &d.join("d/b"));
        "d/b"
    }),
    ("the directory renamed", |d| {
        fs::rename(d.join("d"), d.join("e")).unwrap();
        "e/a"
    }),
    ("a second name", |d| {
        fs::hard_link(d.join("d/a"), d.join("d/l")).unwrap();
        "d/l"
    }),
    ("a second name, the first removed", |d| {
        fs::hard_link(d.join("d/a"), d.join("d/l")).unwrap();
        fs::remove_file(d.join("d/a")).unwrap();
        "d/l"
    }),
    ("a new name, the old one taken", |d| {
        fs::rename(d.join("d/a"), d.join("d/z")).unwrap();
        fs::write(d.join("d/a"), TestRng(9).bytes(30_000)).unwrap();
        "d/z"
    }),
];

#[test]
fn renamed_files_are_verified_before_their_redundancy_has_moved() {
    if !can_mount("reads of renamed files") {
        return;
    }
    for (what, renaming) in RENAMINGS {
        let (mut fixture, content) = protected();
        fixture.mount(&[]);
        let name = renaming(&fixture.at(""));
        assert!(fs::read(fixture.at(name)).unwrap() == content, "{what}");
        assert!(fs::read(fixture.source(name)).unwrap() != content, "{what}: it was repaired");
        if what.starts_with("two names") {
            assert!(
                fs::read(fixture.at("d/a")).unwrap() == TestRng(1).bytes(30_000),
                "{what}: the other file"
            );
        }
        // The next process knows nothing of renames, and finds the redundancy as well.
        fixture.unmount();
        fixture.mount(&[]);
        assert!(fs::read(fixture.at(name)).unwrap() == content, "{what}, mounted again");
        fixture.unmount();
    }
}

/// Names that were changed in the source are found by the catalogue.
#[test]
fn files_renamed_in_the_source_are_verified() {
    if !can_mount("reads of files that were renamed directly") {
        return;
    }
    for (what, renaming) in RENAMINGS {
        let (mut fixture, content) = protected();
        fixture.mount(&[]);
        let name = renaming(&fixture.source(""));
        assert!(fs::read(fixture.at(name)).unwrap() == content, "{what}");
        fixture.unmount();
    }
}

/// A program that has a file open reads it by its handle, whatever happens to its name.
#[test]
fn handles_are_verified_after_a_rename() {
    if !can_mount("handles across renames") {
        return;
    }
    let removed: (&str, Renaming) = ("removed", |d| {
        fs::remove_file(d.join("d/a")).unwrap();
        "d/a"
    });
    for (what, renaming) in RENAMINGS.into_iter().chain([removed]) {
        for directly in [false, true] {
            let (mut fixture, content) = protected();
            fixture.mount(&[]);
            let mut file = File::open(fixture.at("d/a")).unwrap();
            renaming(&if directly { fixture.source("") } else { fixture.at("") });
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            assert!(read == content, "{what}, directly: {directly}");
            drop(file);
            fixture.unmount();
        }
    }
}

/// Redundancy is used for the file that it was made of. Files with the size, the time and the name of a protected one
/// are read as they are.
#[test]
fn files_under_names_of_others_are_read_as_they_are() {
    if !can_mount("reads of files under names of others") {
        return;
    }
    let (mut fixture, _) = protected();
    fixture.mount(&[]);
    fs::rename(fixture.at("d/a"), fixture.at("d/z")).unwrap();
    let another = TestRng(9).bytes(30_000);
    fs::write(fixture.at("d/a"), &another).unwrap();
    fs::write(fixture.at("d/new"), &another).unwrap();
    for name in ["d/a", "d/new"] {
        let file = File::options().write(true).open(fixture.at(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000)).unwrap();
        assert!(fs::read(fixture.at(name)).unwrap() == another, "{name}");
    }
    fixture.unmount();
}
