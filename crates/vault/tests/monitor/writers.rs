//! Programs that do not close what they write, and directories so new that nobody has heard of them.

use super::playground::{Playground, Seed, is_root};
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

/// Everything is found by events.
fn assert_heard(ground: &Playground, gaps: u64) {
    ground.assert_protected();
    assert_eq!(ground.whole_scans(), 1 + gaps as usize, "{:#?}", ground.notices());
}

#[test]
fn a_file_that_is_never_closed_is_protected_after_every_write() {
    for_each_source("a_file_that_is_never_closed", |source| {
        let ground = Playground::new();
        ground.create(POLICY);
        let mut seed = Seed(0x0be4);
        ground.write("old/file", &seed.bytes(20_000));
        let live = ground.watch(Playground::options(source));
        ground.until_protected();
        fs::create_dir_all(ground.path("new/deep")).unwrap();
        let open = ["old/file", "old/new", "new/file", "new/deep/file"].map(|name| {
            fs::File::options().write(true).create(true).truncate(false).open(ground.path(name)).unwrap()
        });
        for round in 0..4 {
            for file in &open {
                file.write_all_at(&seed.bytes(5000), round * 3000).unwrap();
            }
            ground.until_protected();
            assert_heard(&ground, live.status().gaps);
        }
        ground.stop(live);
    });
}

/// Nothing is told of what is done to files in a directory until its making was read; looking at its names finds it.
#[test]
fn what_is_done_in_a_directory_before_anybody_heard_of_it_is_found() {
    for_each_source("what_is_done_in_a_directory", |source| {
        let ground = Playground::new();
        ground.create(POLICY);
        let mut seed = Seed(0x4ea4d);
        for name in ["moved", "linked", "replaces"] {
            ground.write(name, &seed.bytes(20_000));
        }
        // Long enough for all of the following to happen before the first event is read.
        let slow = Options { gather: Duration::from_millis(500), ..Playground::options(source) };
        let live = ground.watch(slow);
        ground.until_protected();
        fs::create_dir_all(ground.path("new/deep")).unwrap();
        ground.write("new/deep/replaced", &seed.bytes(3000));
        fs::rename(ground.path("moved"), ground.path("new/moved")).unwrap();
        fs::hard_link(ground.path("linked"), ground.path("new/linked")).unwrap();
        fs::rename(ground.path("replaces"), ground.path("new/deep/replaced")).unwrap();
        for name in ["new/moved", "new/linked", "new/deep/replaced"] {
            let mut file = fs::File::options().append(true).open(ground.path(name)).unwrap();
            file.write_all(&seed.bytes(7000)).unwrap();
        }
        fs::rename(ground.path("new/deep"), ground.path("deep")).unwrap();
        ground.write("deep/after", &seed.bytes(100));
        ground.until_protected();
        assert_heard(&ground, live.status().gaps);
        ground.stop(live);
    });
}

/// A file is written by one of its names, and that goes with its directory before anyone looked. Nothing told of the other names.
#[test]
fn names_that_go_with_their_directory_tell_of_others() {
    for_each_source("names_that_go_with_their_directory_tell_of_others", |source| {
        let ground = Playground::new();
        ground.create(POLICY);
        let mut seed = Seed(0x11b5);
        for name in ["tree/deep/one", "tree/deep/two", "moves/deep/three", "tree/deep/four"] {
            ground.write(name, &seed.bytes(20_000));
            let other = name.rsplit('/').next().unwrap();
            fs::hard_link(ground.path(name), ground.path(format!("other {other}"))).unwrap();
        }
        let slow = Options { gather: Duration::from_millis(500), ..Playground::options(source) };
        let live = ground.watch(slow);
        ground.until_protected();
        fs::rename(ground.path("moves"), ground.path("moved")).unwrap();
        for name in ["tree/deep/one", "moved/deep/three"] {
            let mut file = fs::File::options().append(true).open(ground.path(name)).unwrap();
            file.write_all(&seed.bytes(7000)).unwrap();
        }
        fs::remove_dir_all(ground.path("tree")).unwrap();
        fs::remove_dir_all(ground.path("moved")).unwrap();
        ground.until_protected();
        assert_heard(&ground, live.status().gaps);
        ground.stop(live);
    });
}
