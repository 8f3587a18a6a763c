//! Standard output that cannot be written: a full disk, or a reader that has closed the pipe.
//!
//! The print macros of the standard library panic then. `gabion repair --yes >> log` ended with exit code 101 before
//! it had repaired anything, and the code hid damage from scripts. A command now does all of its work and ends with
//! 2, or with 3 if data is lost.

use super::corruption::rot;
use super::fixture::Fixture;
use super::rebuild::Pool;
use std::fs::File;
use std::process::{Output, Stdio};

impl Fixture {
    /// Runs a command whose standard output is a full disk, and expects this exit code and a message that says why.
    fn expect_full(&self, code: i32, args: &[&str]) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = self.command(args).stdout(full).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "gabion {}: {error}", args.join(" "));
        assert!(error.contains("standard output: No space left on device"), "{error}");
    }

    /// Runs a command whose reader ended before the first byte.
    fn without_reader(&self, args: &[&str]) -> Output {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        self.command(args).stdout(writer).stderr(Stdio::piped()).output().unwrap()
    }

    /// Flips a byte in the middle of `a`, leaving its times as they were.
    fn damage(&self) {
        rot(&self.path("a"), 2_000_000, 1);
    }
}

/// Each command does its work before it reports that its output is lost. The second run shows that the work was done.
#[test]
fn a_full_disk_under_the_output_stops_no_work() {
    let fixture = Fixture::new();
    let content = fixture.content();
    fixture.expect_full(2, &["protect", "tree"]);
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 0, "the first run protected all files");
    fixture.expect_full(2, &["status", "tree"]);
    fixture.expect_full(2, &["diff", "tree", "--json"]);

    fixture.damage();
    fixture.expect_full(2, &["scrub", "tree"]);
    assert_eq!(
        fixture.json(1, &["status", "tree"])["damaged"][0]["path"],
        "a",
        "the scrub recorded what it found"
    );
    fixture.expect_full(2, &["repair", "tree", "--yes"]);
    assert!(fixture.content() == content, "the file is repaired");
    fixture.expect(0, &["scrub", "tree"]);

    // Data that is lost is worse than output that is lost: half of the file is overwritten, its time set back.
    let file = File::options().write(true).open(fixture.path("a")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 3_000_000], 0).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    fixture.expect_full(3, &["scrub", "tree"]);
    fixture.expect_full(3, &["repair", "tree", "--yes"]);
    fixture.expect_full(3, &["status", "tree"]);
}

/// `gabion scrub | head -1` ended the scrub by SIGPIPE. The reader ends on purpose: nothing is reported, the exit
/// code is that of the work. Commands that only print may end with their reader.
#[test]
fn a_reader_that_ends_stops_no_work() {
    let fixture = Fixture::new();
    let content = fixture.content();
    let output = fixture.without_reader(&["protect", "tree"]);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{output:?}");
    fixture.damage();
    let output = fixture.without_reader(&["scrub", "tree"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = fixture.without_reader(&["repair", "tree", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(fixture.content() == content, "the file is repaired");
    let output = fixture.without_reader(&["status", "tree"]);
    assert!(output.status.code().is_none() && output.stderr.is_empty(), "{output:?}");
}

/// A rebuild of a pool must not stop half way because its log is full.
#[test]
fn a_full_disk_under_the_output_stops_no_rebuild() {
    let pool = Pool::new();
    pool.lose(2);
    pool.fixture.expect_full(2, &["pool", "rebuild", "tank", "--pools", "names"]);
    assert_eq!(pool.compare(), 0, "no file needs reconstruction any more");
}
