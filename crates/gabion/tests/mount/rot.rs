//! Corruption in blocks of a mounted directory that programs do not write.
//!
//! The mount knows which bytes were written through it. Corruption in other blocks became part of the next redundancy
//! all the same, and lasted.

use crate::corruption;
use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Changes a byte of a file in the source, and puts its time back.
pub(crate) fn rot(fixture: &Fixture, name: &str, at: u64) {
    corruption::rot(&fixture.source(name), at, 1);
}

/// Writes through the mount.
fn write(fixture: &Fixture, name: &str, content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let file = File::options().write(true).open(fixture.at(name)).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
    content.resize(content.len().max(at + bytes.len()), 0);
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn mounted_directory_never_encodes_corruption() {
    if !can_mount("rot in a directory") {
        return;
    }
    let mut fixture = Fixture::new();
    // Small files are cut otherwise when they grow.
    let sizes = [("small", 50_000), ("large", 3_000_000)];
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for (name, size) in sizes {
        contents.push(TestRng(size).bytes(size as usize));
        std::fs::write(fixture.source(name), &contents[contents.len() - 1]).unwrap();
    }
    fixture.mount(&[]);
    fixture.wait_until_protected();
    // Twice: the second time, redundancy is of a version that the mount itself left.
    for round in 0..2_u64 {
        for ((name, size), content) in sizes.iter().zip(&mut contents) {
            rot(&fixture, name, size / 2 + round);
            write(&fixture, name, content, 100, &[round as u8 + 1; 300]);
            let end = content.len();
            write(&fixture, name, content, end, b"appended");
        }
        fixture.wait_until_protected();
        for ((name, _), content) in sizes.iter().zip(&contents) {
            assert!(std::fs::read(fixture.source(name)).unwrap() == *content, "{name}, round {round}");
        }
    }
    let status = fixture.status();
    assert!(status["degraded_reads"]["blocks"].as_u64() >= Some(4), "{status}");
    assert!(status["replaced"].as_array().is_some_and(|runs| !runs.is_empty()), "{status}");
    fixture.unmount();
    fixture.assert_protected();
}

/// Other programs write to the source beside the mount. What they wrote is no damage and stays.
#[test]
fn mounted_directory_keeps_what_others_write_to_the_source() {
    if !can_mount("direct writes") {
        return;
    }
    let mut fixture = Fixture::new();
    let mut content = TestRng(3).bytes(200_000);
    std::fs::write(fixture.source("file"), &content).unwrap();
    fixture.mount(&[]);
    fixture.wait_until_protected();
    for (round, after) in [(1, false), (2, true)] {
        let direct = |content: &mut Vec<u8>| {
            let file = File::options().write(true).open(fixture.source("file")).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(&[round; 5000], 100_000).unwrap();
            // Another time for certain, however coarse the clock is.
            file.set_modified(modified + Duration::from_secs(1)).unwrap();
            content[100_000..105_000].fill(round);
        };
        if !after {
            direct(&mut content);
        }
        write(&fixture, "file", &mut content, 10, &[round; 20]);
        if after {
            direct(&mut content);
        }
        // A direct write is found by a scan.
        fixture.wait_until_protected();
        assert!(std::fs::read(fixture.source("file")).unwrap() == content, "round {round}");
    }
    assert!(fixture.status()["degraded_reads"].is_null(), "{}", fixture.status());
    fixture.unmount();
    assert!(std::fs::read(fixture.source("file")).unwrap() == content);
    fixture.assert_protected();
}

/// What too little is left of to reconstruct it is named, and the file is called damaged.
#[test]
fn mounted_directory_reports_unrecoverable_corruption() {
    if !can_mount("rot beyond repair") {
        return;
    }
    let mut fixture = Fixture::new();
    // One stripe of 4+2, with blocks of 64 bytes.
    let mut content = TestRng(4).bytes(256);
    std::fs::write(fixture.source("file"), &content).unwrap();
    fixture.mount(&[]);
    fixture.wait_until_protected();
    rot(&fixture, "file", 255);
    write(&fixture, "file", &mut content, 0, &[7; 192]);
    fixture.wait_until_protected();
    let status = fixture.status();
    assert_eq!(status["damaged"][0]["path"], "file", "{status}");
    assert_eq!(status["damaged"][0]["problems"][0]["start"], 192, "{status}");
    fixture.unmount();
}

/// `cp` asks the file system to copy by itself (`copy_file_range`). The mount copied the bytes of its source
/// unchecked, corruption included.
#[test]
fn copies_within_a_mounted_directory_are_of_verified_bytes() {
    if !can_mount("copies") {
        return;
    }
    let mut fixture = Fixture::new();
    let content = TestRng(4).bytes(200_000);
    std::fs::write(fixture.source("file"), &content).unwrap();
    fixture.mount(&[]);
    fixture.wait_until_protected();
    rot(&fixture, "file", 100_000);
    let (from, to) = (File::open(fixture.at("file")).unwrap(), File::create(fixture.at("copy")).unwrap());
    let (mut offset, mut at) = (0, 0);
    while at < content.len() as u64 {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut offset), &to, Some(&mut at), content.len());
        assert_ne!(copied.unwrap(), 0, "{at}");
    }
    drop((from, to));
    assert!(std::fs::read(fixture.source("copy")).unwrap() == content);
    fixture.unmount();
}
