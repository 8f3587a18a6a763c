//! More events than the queue takes, and changes beside changes.

use super::playground::{Playground, Seed, is_root};
use gabion_vault::monitor::{Choice, Notice, Options};
use std::fs;
use std::time::Duration;

const POLICY: &str = "[default]\ncode = \"2+1\"\nquiet = \"0s\"\n[guard]\nat_least = 1000000\n";

/// Long enough for several changes to become one before anybody sees to them.
const SLOW: &str = "[default]\ncode = \"2+1\"\nquiet = \"1s\"\n[guard]\nat_least = 1000000\n";

fn queue_limit() -> usize {
    let limits = ["inotify", "fanotify"].map(|name| {
        let text = fs::read_to_string(format!("/proc/sys/fs/{name}/max_queued_events")).unwrap();
        text.trim().parse::<usize>().unwrap()
    });
    limits[0].max(limits[1])
}

/// More files than events are kept, while nobody reads them.
fn overflow(source: Choice) {
    let limit = queue_limit();
    if limit > 20_000 {
        gabion_testkit::skip!("overflow of {source:?}: the queue takes {limit} events here");
        return;
    }
    let ground = Playground::new();
    ground.create(POLICY);
    ground.write("first", b"first");
    fs::create_dir(ground.path("many")).unwrap();
    let slow = Options { gather: Duration::from_secs(10), ..Playground::options(source) };
    let live = ground.watch(slow);
    ground.until("protected", || live.status().done.encoded == 1);
    // The first events are read as they come; the others gather. A machine on which so few files are made while they gather that
    // the queue takes them all makes more.
    ground.until("a gap", || {
        for number in 0..3 * limit {
            // The kernel makes one event of all that happens to one name.
            let path = ground.path(format!("many/{number}"));
            fs::File::create(&path).unwrap();
            fs::remove_file(&path).unwrap();
        }
        live.status().gaps > 0
    });
    fs::create_dir_all(ground.path("many/deep")).unwrap();
    for number in 0..50 {
        ground.write(format!("many/deep/{number}"), &Seed(number + 1).bytes(100));
    }
    ground.until("scanned again", || ground.whole_scans() > 1);
    assert!(ground.notices().iter().any(|notice| matches!(notice, Notice::Gap(_))));
    ground.until_protected();
    ground.assert_protected();
    // And it goes on.
    ground.write("many/deep/after", b"after");
    ground.until_protected();
    ground.assert_protected();
    ground.stop(live);
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

/// Files and directories come, change, go and get other names, faster than anybody follows.
fn storm(source: Choice, seed: u64) {
    let ground = Playground::new();
    ground.create(POLICY);
    let live = ground.watch(Playground::options(source));
    let mut seed = Seed(seed);
    for round in 0..400 {
        let name = |seed: &mut Seed| format!("d{}/{}", seed.below(4), seed.below(12));
        let (a, b) = (name(&mut seed), name(&mut seed));
        // What fails, fails because a name is not there now.
        match seed.below(8) {
            0 => drop(fs::remove_file(ground.path(&a))),
            1 | 2 => drop(fs::rename(ground.path(&a), ground.path(&b))),
            3 => drop(fs::rename(ground.path(split(&a)), ground.path(split(&b)))),
            4 => drop(fs::remove_dir_all(ground.path(split(&a)))),
            5 => drop(fs::hard_link(ground.path(&a), ground.path(&b))),
            _ => {
                let size = 1 << seed.below(15);
                let bytes = seed.bytes(size);
                ground.write(&a, &bytes);
            }
        }
        if round % 100 == 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    ground.until_protected();
    ground.assert_protected();
    ground.stop(live);
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

/// A directory went, and a file took its name before anybody had seen to that: what was said of the directory's end was lost with it, and
/// redundancy of its files stood in the way of the file's own until the next scan of everything. So did that of a file that took the name and moved on.
#[test]
fn a_file_in_the_place_of_a_directory_is_protected() {
    for source in [Choice::Inotify, Choice::Fanotify] {
        if source == Choice::Fanotify && !is_root() {
            gabion_testkit::skip!("a_file_in_the_place_of_a_directory with fanotify: we are not root");
            continue;
        }
        let ground = Playground::new();
        ground.create(SLOW);
        for name in ["stays/a", "stays/deep/b", "moves/a", "moves/deep/b", "deep/only/c"] {
            ground.write(name, &Seed(7).bytes(5000));
        }
        let live = ground.watch(Playground::options(source));
        ground.until_protected();
        for name in ["stays", "moves", "deep"] {
            fs::remove_dir_all(ground.path(name)).unwrap();
            ground.write(name, &Seed(8).bytes(3000));
        }
        fs::rename(ground.path("moves"), ground.path("moved")).unwrap();
        ground.until_protected();
        ground.assert_protected();
        assert_eq!(ground.whole_scans(), 1 + live.status().gaps as usize, "{:#?}", ground.notices());
        ground.stop(live);
    }
}

/// A file or directory got another name and went, within a quiet period: what it had left at its old name stayed until the next scan of
/// everything.
#[test]
fn what_is_renamed_and_removed_leaves_nothing() {
    for source in [Choice::Inotify, Choice::Fanotify] {
        if source == Choice::Fanotify && !is_root() {
            gabion_testkit::skip!("what_is_renamed_and_removed with fanotify: we are not root");
            continue;
        }
        let ground = Playground::new();
        ground.create(SLOW);
        for name in ["stays", "file", "dir/a", "dir/deep/b"] {
            ground.write(name, &Seed(9).bytes(5000));
        }
        let live = ground.watch(Playground::options(source));
        ground.until_protected();
        fs::rename(ground.path("file"), ground.path("other")).unwrap();
        fs::remove_file(ground.path("other")).unwrap();
        fs::rename(ground.path("dir"), ground.path("elsewhere")).unwrap();
        fs::remove_dir_all(ground.path("elsewhere")).unwrap();
        ground.until_protected();
        ground.assert_protected();
        assert_eq!(ground.whole_scans(), 1 + live.status().gaps as usize, "{:#?}", ground.notices());
        ground.stop(live);
    }
}

/// Two directories get other names, one when the other has just been scanned for. Each scan was forgotten for the next one before anybody asked
/// whether its directory had been looked at: both were scanned in turn for ever, and what changed in them began to rest anew each time.
#[test]
fn directories_that_are_renamed_in_turn_are_scanned_once_each() {
    let ground = Playground::new();
    ground.create(POLICY);
    for name in ["a/file", "b/file"] {
        ground.write(name, &Seed(3).bytes(5000));
    }
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    let scans_of = |path: &str| {
        let within = |notice: &&Notice| matches!(notice, Notice::Scanned(scan) if scan.within.iter().any(|top| top == path.as_bytes()));
        ground.notices().iter().filter(within).count()
    };
    for (from, to) in [("a", "a renamed"), ("b", "b renamed")] {
        fs::rename(ground.path(from), ground.path(to)).unwrap();
        ground.until("it is scanned", || scans_of(to) > 0);
    }
    ground.until_protected();
    ground.assert_protected();
    assert!(scans_of("a renamed") + scans_of("b renamed") < 8, "{:#?}", ground.notices());
    ground.stop(live);
}

/// A directory took the place of a file while nobody watched. The file's redundancy makes room at once: a deletion that is recorded later would
/// take back what was recorded of the files in the directory.
#[test]
fn a_directory_in_the_place_of_a_file_is_protected() {
    let ground = Playground::new();
    ground.create(POLICY);
    ground.write("file", &Seed(5).bytes(5000));
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    ground.stop(live);
    fs::remove_file(ground.path("file")).unwrap();
    ground.write("file/within", &Seed(6).bytes(5000));
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    ground.assert_protected();
    ground.stop(live);
}
