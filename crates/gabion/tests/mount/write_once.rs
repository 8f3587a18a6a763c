//! Write-once files of a mounted directory: changes through the mount have the same results as under a watch.

use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

const FILES: [&str; 9] = ["over", "cut", "grown", "gone", "under", "left", "right", "old", "stays"];

fn protected(guard: &str) -> Fixture {
    let fixture = Fixture::new();
    let policy = "[default]\ncode = \"4+4\"\nblock = \"4KiB\"\nquiet = \"0s\"\nwrite_once = true\n";
    fs::write(fixture.path().join("policy.toml"), format!("{policy}{guard}")).unwrap();
    for (number, name) in FILES.iter().enumerate() {
        fs::write(fixture.source(name), TestRng(number as u64).bytes(20_000 + number)).unwrap();
        let file = File::options().write(true).open(fixture.source(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000)).unwrap();
    }
    fixture.expect(0, &["protect", "source", "--policy", "policy.toml", "-q"]);
    fixture
}

/// What programs do to files below a path.
fn change(at: impl Fn(&str) -> PathBuf) {
    File::options().write(true).open(at("over")).unwrap().write_all_at(b"overwritten", 5000).unwrap();
    File::options().write(true).open(at("cut")).unwrap().set_len(1000).unwrap();
    File::options().write(true).open(at("grown")).unwrap().set_len(50_000).unwrap();
    fs::remove_file(at("gone")).unwrap();
    // As editors write a file: a new one takes its name.
    fs::write(at("draft"), b"another content").unwrap();
    fs::rename(at("draft"), at("under")).unwrap();
    renameat_with(CWD, at("left"), CWD, at("right"), RenameFlags::EXCHANGE).unwrap();
    fs::rename(at("old"), at("new")).unwrap();
}

/// Waits until all changes were seen to, and gives the files that changed against the policy.
fn settled(fixture: &Fixture, count: usize) -> Value {
    let is_settled = |status: &Value| {
        let changes = status["changes"].as_object().unwrap();
        status["pending"]["files"] == 0
            && status["pending"]["queued"] == 0
            && status["damaged"].as_array().is_some_and(|damaged| damaged.len() == count)
            && changes.values().all(|change| change["files"] == 0)
    };
    gabion_testkit::until("all changes are seen to", || is_settled(&fixture.status()));
    let status = fixture.status();
    let changed = status["write_once_changed"].as_array().unwrap();
    changed.iter().map(|file| file["path"].clone()).collect()
}

fn redundancy(fixture: &Fixture, name: &str) -> Option<Vec<u8>> {
    fs::read(fixture.source(".gabion/redundancy").join(name)).ok()
}

/// What a watch of the source, or a mount of it, has made of the changes.
fn assert_kept(fixture: &Fixture, before: &[Option<Vec<u8>>], changed: &[&str]) {
    assert_eq!(settled(fixture, changed.len()), json!(changed));
    for (name, before) in FILES.iter().zip(before).filter(|(name, _)| changed.contains(name)) {
        assert!(redundancy(fixture, name) == *before, "{name} has other redundancy");
    }
    // A new name is no other content, and neither is a file that was removed.
    let old = before[FILES.iter().position(|name| *name == "old").unwrap()].as_ref().unwrap();
    let new = redundancy(fixture, "new");
    assert_eq!(new.map(|new| new.len()), Some(old.len()));
    assert_eq!((redundancy(fixture, "old"), redundancy(fixture, "gone")), (None, None));
}

const CHANGED: [&str; 6] = ["cut", "grown", "left", "over", "right", "under"];

#[test]
fn write_once_files_changed_through_a_mount_keep_their_redundancy() {
    if !can_mount("write-once files") {
        return;
    }
    let mut fixture = protected("");
    let before = FILES.map(|name| redundancy(&fixture, name));
    fixture.mount(&[]);
    change(|name| fixture.at(name));
    assert_kept(&fixture, &before, &CHANGED);
    // Programs read what is there.
    assert_eq!(fs::read(fixture.at("under")).unwrap(), b"another content");
    // The mount protects what a person accepts, and nothing else.
    fixture.expect(0, &["approve", "source/over"]);
    assert_kept(&fixture, &before, &["cut", "grown", "left", "right", "under"]);
    assert!(redundancy(&fixture, "over") != before[0]);
    fixture.unmount();
    fixture.expect(0, &["repair", "source", "--revert-changes", "--yes", "-q"]);
    for (number, name) in
        FILES.iter().enumerate().filter(|(_, name)| CHANGED.contains(name) && **name != "over")
    {
        assert!(
            fs::read(fixture.source(name)).unwrap() == TestRng(number as u64).bytes(20_000 + number),
            "{name}"
        );
    }
}

/// The reference that mounts are compared with.
#[test]
fn write_once_files_changed_under_a_watch_keep_their_redundancy() {
    let fixture = protected("");
    let before = FILES.map(|name| redundancy(&fixture, name));
    let mut command = fixture.command(&["watch", "source"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(watch.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
    change(|name| fixture.source(name));
    assert_kept(&fixture, &before, &CHANGED);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Files that are removed through the mount are no change of their content; the guard counts them.
#[test]
fn removals_of_write_once_files_through_a_mount_are_held_by_the_guard() {
    if !can_mount("removals of write-once files") {
        return;
    }
    let mut fixture = protected("[guard]\nremoved = \"25%\"\nat_least = 1\n");
    let before = FILES.map(|name| redundancy(&fixture, name));
    fixture.mount(&[]);
    for name in &FILES[..5] {
        fs::remove_file(fixture.at(name)).unwrap();
    }
    gabion_testkit::until("the removals are held", || fixture.printed().contains("HELD"));
    // The first ones may have been carried out before the others were made, as far as the bound allows.
    let gone =
        before.iter().zip(FILES).filter(|(before, name)| redundancy(&fixture, name) != **before).count();
    assert!(gone <= FILES.len() / 4, "{gone} files lost their redundancy");
    fixture.unmount();
}
