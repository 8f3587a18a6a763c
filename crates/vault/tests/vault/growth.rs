//! Changes in the old part of a file that grew are reported.
//!
//! Regression: one bit of a log was corrupted, data was appended, and `protect` encoded everything without a report.

use super::fixture::{Fixture, QUIET, TestRng, flip};
use gabion_vault::status::status;
use std::io::Write;
use std::os::unix::fs::FileExt;

fn append(fixture: &Fixture, name: &str) {
    let mut file = std::fs::File::options().append(true).open(fixture.path(name)).unwrap();
    file.write_all(b"ten bytes.").unwrap();
}

/// Files that `status` lists.
fn listed(fixture: &Fixture) -> Vec<Vec<u8>> {
    let status = status(&fixture.vault, b"", false, 10, QUIET).unwrap();
    status.changed_in_growth.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn corruption_in_the_old_part_of_a_file_that_grew_is_reported() {
    // The division of small files changes when they grow, that of larger ones only at their end.
    for (code, size) in [("4+2", 3000), ("4+2", 100_000), ("4+2", 5_000_000), ("1+1", 20_000_000)] {
        let fixture = Fixture::new(code);
        for name in ["log/rotten", "fine"] {
            fixture.write(name, &TestRng(size).bytes(size as usize));
        }
        fixture.protect_all();
        flip(&fixture.path("log/rotten"), size / 3);
        append(&fixture, "log/rotten");
        append(&fixture, "fine");
        let report = fixture.protect_all();
        let [(path, ranges)] = &report.done.changed[..] else { panic!("{size}: {:?}", report.done) };
        assert_eq!(path, b"log/rotten");
        assert!(ranges.len() == 1 && ranges[0].contains(&(size / 3)), "{size}: {ranges:?}");
        assert_eq!(listed(&fixture), [b"log/rotten"]);
        // A scrub compares with the protected content and cannot find it.
        fixture.assert_clean();
        assert_eq!(listed(&fixture), [b"log/rotten"]);
        append(&fixture, "log/rotten");
        assert_eq!(fixture.protect_all().done.changed, []);
        assert_eq!(listed(&fixture), [] as [Vec<u8>; 0]);
    }
}

/// Edited files are not reported, so that warnings stay meaningful.
#[test]
fn edits_are_not_reported() {
    let fixture = Fixture::new("4+2");
    let content = TestRng(5).bytes(300_000);
    for name in ["inserted", "rewritten", "replaced", "in place", "cut"] {
        fixture.write(name, &content);
    }
    fixture.protect_all();
    let mut longer = content.clone();
    longer.splice(100_000..100_000, *b"a line more");
    let write = |name: &str, bytes: &[u8], size: u64| {
        let file = std::fs::File::options().write(true).open(fixture.path(name)).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(size).unwrap();
    };
    write("inserted", &longer, longer.len() as u64);
    write("rewritten", &TestRng(6).bytes(400_000), 400_000);
    write("cut", b"x", 200_000);
    longer[0] ^= 1;
    fixture.write("new", &longer);
    std::fs::rename(fixture.path("new"), fixture.path("replaced")).unwrap();
    flip(&fixture.path("in place"), 1000);
    let file = std::fs::File::options().write(true).open(fixture.path("in place")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, &report.done.changed[..]), (5, &[][..]), "{report:?}");
    fixture.assert_clean();
}
