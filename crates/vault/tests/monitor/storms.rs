//! More events than the queue holds, and concurrent changes.

use super::fixture::{Fixture, TestRng, is_root};
use gabion_vault::monitor::{Choice, Notice, Options};
use std::fs;
use std::time::Duration;

const POLICY: &str = "[default]\ncode = \"2+1\"\nquiet = \"0s\"\n[guard]\nat_least = 1000000\n";

/// Long enough for several changes to be merged before they are processed.
const SLOW: &str = "[default]\ncode = \"2+1\"\nquiet = \"1s\"\n[guard]\nat_least = 1000000\n";

fn queue_limit() -> usize {
    let limits = ["inotify", "fanotify"].map(|name| {
        let text = fs::read_to_string(format!("/proc/sys/fs/{name}/max_queued_events")).unwrap();
        text.trim().parse::<usize>().unwrap()
    });
    limits[0].max(limits[1])
}

/// More files than the queue holds events, while nobody reads them.
fn overflow(source: Choice) {
    let limit = queue_limit();
    if limit > 20_000 {
        gabion_testkit::skip!("overflow of {source:?}: the queue takes {limit} events here");
        return;
    }
    let fixture = Fixture::new();
    fixture.create(POLICY);
    fixture.write("first", b"first");
    fs::create_dir(fixture.path("many")).unwrap();
    let slow = Options { event_delay: Duration::from_secs(10), ..Fixture::options(source) };
    let live = fixture.watch(slow);
    fixture.until("protected", || live.status().done.encoded == 1);
    // The first events are read without delay, later ones after it. On a machine too slow to fill the queue within the
    // delay, more files are made.
    fixture.until("a gap", || {
        for number in 0..3 * limit {
            // The kernel merges all events of one name.
            let path = fixture.path(format!("many/{number}"));
            fs::File::create(&path).unwrap();
            fs::remove_file(&path).unwrap();
        }
        live.status().gaps > 0
    });
    fs::create_dir_all(fixture.path("many/deep")).unwrap();
    for number in 0..50 {
        fixture.write(format!("many/deep/{number}"), &TestRng(number + 1).bytes(100));
    }
    fixture.until("scanned again", || fixture.whole_scans() > 1);
    assert!(fixture.notices().iter().any(|notice| matches!(notice, Notice::Gap(_))));
    fixture.until_protected();
    fixture.assert_protected();
    // The watch continues.
    fixture.write("many/deep/after", b"after");
    fixture.until_protected();
    fixture.assert_protected();
    fixture.stop(live);
}

#[test]
fn a_full_queue_of_inotify_is_a_gap_that_is_closed() {
    overflow(Choice::Inotify);
}

#[test]
fn a_full_queue_of_fanotify_is_a_gap_that_is_closed() {
    match is_root() {
        true => overflow(Choice::Fanotify),
        false => gabion_testkit::skip!("a_full_queue_of_fanotify: we are not root"),
    }
}

/// Files and directories are created, changed, deleted and renamed faster than the watch processes them.
fn storm(source: Choice, seed: u64) {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    let live = fixture.watch(Fixture::options(source));
    let mut seed = TestRng(seed);
    for round in 0..400 {
        let name = |seed: &mut TestRng| format!("d{}/{}", seed.below(4), seed.below(12));
        let (a, b) = (name(&mut seed), name(&mut seed));
        // Failures are caused by names that do not exist at the time.
        match seed.below(8) {
            0 => drop(fs::remove_file(fixture.path(&a))),
            1 | 2 => drop(fs::rename(fixture.path(&a), fixture.path(&b))),
            3 => drop(fs::rename(fixture.path(split(&a)), fixture.path(split(&b)))),
            4 => drop(fs::remove_dir_all(fixture.path(split(&a)))),
            5 => drop(fs::hard_link(fixture.path(&a), fixture.path(&b))),
            _ => {
                let size = 1 << seed.below(15);
                let bytes = seed.bytes(size);
                fixture.write(&a, &bytes);
            }
        }
        if round % 100 == 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    fixture.until_protected();
    fixture.assert_protected();
    fixture.stop(live);
}

fn split(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

#[test]
fn storms_end_in_protection_with_inotify() {
    (1..4).for_each(|seed| storm(Choice::Inotify, seed * 77));
}

#[test]
fn storms_end_in_protection_with_fanotify() {
    match is_root() {
        true => (1..4).for_each(|seed| storm(Choice::Fanotify, seed * 99)),
        false => gabion_testkit::skip!("storms_end_in_protection_with_fanotify: we are not root"),
    }
}

/// Regression: when a file took the name of a deleted directory, the directory's recorded deletion was lost and its
/// files' redundancy blocked that of the new file until the next full scan. The same happened with a file that took the
/// name and was renamed.
#[test]
fn a_file_in_the_place_of_a_directory_is_protected() {
    for source in [Choice::Inotify, Choice::Fanotify] {
        if source == Choice::Fanotify && !is_root() {
            gabion_testkit::skip!("a_file_in_the_place_of_a_directory with fanotify: we are not root");
            continue;
        }
        let fixture = Fixture::new();
        fixture.create(SLOW);
        for name in ["stays/a", "stays/deep/b", "moves/a", "moves/deep/b", "deep/only/c"] {
            fixture.write(name, &TestRng(7).bytes(5000));
        }
        let live = fixture.watch(Fixture::options(source));
        fixture.until_protected();
        for name in ["stays", "moves", "deep"] {
            fs::remove_dir_all(fixture.path(name)).unwrap();
            fixture.write(name, &TestRng(8).bytes(3000));
        }
        fs::rename(fixture.path("moves"), fixture.path("moved")).unwrap();
        fixture.until_protected();
        fixture.assert_protected();
        assert_eq!(fixture.whole_scans(), 1 + live.status().gaps as usize, "{:#?}", fixture.notices());
        fixture.stop(live);
    }
}

/// Regression: when a file or directory was renamed and deleted within a quiet period, redundancy under the old name
/// stayed until the next full scan.
#[test]
fn files_renamed_and_deleted_leave_no_redundancy() {
    for source in [Choice::Inotify, Choice::Fanotify] {
        if source == Choice::Fanotify && !is_root() {
            gabion_testkit::skip!("what_is_renamed_and_removed with fanotify: we are not root");
            continue;
        }
        let fixture = Fixture::new();
        fixture.create(SLOW);
        for name in ["stays", "file", "dir/a", "dir/deep/b"] {
            fixture.write(name, &TestRng(9).bytes(5000));
        }
        let live = fixture.watch(Fixture::options(source));
        fixture.until_protected();
        fs::rename(fixture.path("file"), fixture.path("other")).unwrap();
        fs::remove_file(fixture.path("other")).unwrap();
        fs::rename(fixture.path("dir"), fixture.path("elsewhere")).unwrap();
        fs::remove_dir_all(fixture.path("elsewhere")).unwrap();
        fixture.until_protected();
        fixture.assert_protected();
        assert_eq!(fixture.whole_scans(), 1 + live.status().gaps as usize, "{:#?}", fixture.notices());
        fixture.stop(live);
    }
}

/// Regression: two directories renamed in turn were scanned alternately without end, because each scan was forgotten
/// before its directory was checked, and the quiet period of their changes restarted each time.
#[test]
fn directories_that_are_renamed_in_turn_are_scanned_once_each() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    for name in ["a/file", "b/file"] {
        fixture.write(name, &TestRng(3).bytes(5000));
    }
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    let scans_of = |path: &str| {
        let within = |notice: &&Notice| matches!(notice, Notice::Scanned(scan) if scan.within.iter().any(|top| top == path.as_bytes()));
        fixture.notices().iter().filter(within).count()
    };
    for (from, to) in [("a", "a renamed"), ("b", "b renamed")] {
        fs::rename(fixture.path(from), fixture.path(to)).unwrap();
        fixture.until("it is scanned", || scans_of(to) > 0);
    }
    fixture.until_protected();
    fixture.assert_protected();
    assert!(scans_of("a renamed") + scans_of("b renamed") < 8, "{:#?}", fixture.notices());
    fixture.stop(live);
}

/// A directory replaces a file while no watch runs. The file's redundancy must be removed at once: a deletion recorded
/// later would cancel entries of the files in the directory.
#[test]
fn a_directory_in_the_place_of_a_file_is_protected() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    fixture.write("file", &TestRng(5).bytes(5000));
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    fixture.stop(live);
    fs::remove_file(fixture.path("file")).unwrap();
    fixture.write("file/within", &TestRng(6).bytes(5000));
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    fixture.assert_protected();
    fixture.stop(live);
}
