//! Programs that never close the files that they write, and changes in directories before they are watched.

use super::fixture::{Fixture, TestRng, is_root};
use gabion_vault::monitor::{Choice, Options};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n";

fn for_each_source(test: &str, check: fn(Choice)) {
    check(Choice::Inotify);
    match is_root() {
        true => check(Choice::Fanotify),
        false => gabion_testkit::skip!("{test} with fanotify: we are not root"),
    }
}

/// Expects that everything was found by events.
fn assert_reported(fixture: &Fixture, gaps: u64) {
    fixture.assert_protected();
    assert_eq!(fixture.whole_scans(), 1 + gaps as usize, "{:#?}", fixture.notices());
}

#[test]
fn a_file_that_is_never_closed_is_protected_after_every_write() {
    for_each_source("a_file_that_is_never_closed", |source| {
        let fixture = Fixture::new();
        fixture.create(POLICY);
        let mut seed = TestRng(0x0be4);
        fixture.write("old/file", &seed.bytes(20_000));
        let live = fixture.watch(Fixture::options(source));
        fixture.until_protected();
        fs::create_dir_all(fixture.path("new/deep")).unwrap();
        let open = ["old/file", "old/new", "new/file", "new/deep/file"].map(|name| {
            fs::File::options().write(true).create(true).truncate(false).open(fixture.path(name)).unwrap()
        });
        for round in 0..4 {
            for file in &open {
                file.write_all_at(&seed.bytes(5000), round * 3000).unwrap();
            }
            fixture.until_protected();
            assert_reported(&fixture, live.status().gaps);
        }
        fixture.stop(live);
    });
}

/// Changes in a new directory are not reported until its creation was read; reading its names finds them.
#[test]
fn changes_in_an_unreported_directory_are_found() {
    for_each_source("what_is_done_in_a_directory", |source| {
        let fixture = Fixture::new();
        fixture.create(POLICY);
        let mut seed = TestRng(0x4ea4d);
        for name in ["moved", "linked", "replaces"] {
            fixture.write(name, &seed.bytes(20_000));
        }
        // Long enough for all changes below to happen before the first event is read.
        let slow = Options { event_delay: Duration::from_millis(500), ..Fixture::options(source) };
        let live = fixture.watch(slow);
        fixture.until_protected();
        fs::create_dir_all(fixture.path("new/deep")).unwrap();
        fixture.write("new/deep/replaced", &seed.bytes(3000));
        fs::rename(fixture.path("moved"), fixture.path("new/moved")).unwrap();
        fs::hard_link(fixture.path("linked"), fixture.path("new/linked")).unwrap();
        fs::rename(fixture.path("replaces"), fixture.path("new/deep/replaced")).unwrap();
        for name in ["new/moved", "new/linked", "new/deep/replaced"] {
            let mut file = fs::File::options().append(true).open(fixture.path(name)).unwrap();
            file.write_all(&seed.bytes(7000)).unwrap();
        }
        fs::rename(fixture.path("new/deep"), fixture.path("deep")).unwrap();
        fixture.write("deep/after", &seed.bytes(100));
        fixture.until_protected();
        assert_reported(&fixture, live.status().gaps);
        fixture.stop(live);
    });
}

/// A file is written under one of its names, and that name is deleted with its directory before it is processed. No
/// event is about the other names.
#[test]
fn names_deleted_with_their_directory_update_other_links() {
    for_each_source("names_deleted_with_their_directory_update_other_links", |source| {
        let fixture = Fixture::new();
        fixture.create(POLICY);
        let mut seed = TestRng(0x11b5);
        for name in ["tree/deep/one", "tree/deep/two", "moves/deep/three", "tree/deep/four"] {
            fixture.write(name, &seed.bytes(20_000));
            let other = name.rsplit('/').next().unwrap();
            fs::hard_link(fixture.path(name), fixture.path(format!("other {other}"))).unwrap();
        }
        let slow = Options { event_delay: Duration::from_millis(500), ..Fixture::options(source) };
        let live = fixture.watch(slow);
        fixture.until_protected();
        fs::rename(fixture.path("moves"), fixture.path("moved")).unwrap();
        for name in ["tree/deep/one", "moved/deep/three"] {
            let mut file = fs::File::options().append(true).open(fixture.path(name)).unwrap();
            file.write_all(&seed.bytes(7000)).unwrap();
        }
        fs::remove_dir_all(fixture.path("tree")).unwrap();
        fs::remove_dir_all(fixture.path("moved")).unwrap();
        fixture.until_protected();
        assert_reported(&fixture, live.status().gaps);
        fixture.stop(live);
    });
}
