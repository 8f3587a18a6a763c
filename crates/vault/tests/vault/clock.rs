//! Clocks that jump by years, in both directions, and files whose times are wherever someone put them.

use super::playground::{Playground, QUIET, Seed, flip};
use super::server::TestServer;
use gabion_vault::catalogue::State;
use gabion_vault::changelog::WorkerId;
use gabion_vault::protect::protect;
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Options, Selection};
use gabion_vault::status::status;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Nanos, SECOND};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NOW: Nanos = 1_800_000_000 * SECOND;
const YEAR: Nanos = 365 * 86_400 * SECOND;

/// Where the clock is in turn: years ahead, years back, before 1970, and right.
const JUMPS: [Nanos; 5] = [NOW + 30 * YEAR, NOW - 10 * YEAR, -YEAR, NOW + 80 * YEAR, NOW];

fn set_time(path: &Path, time: SystemTime) {
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// A vault with an embedded changelog, and one on a server.
fn on_both_engines(test: impl Fn(&dyn Fn(Clock) -> Vault, &Path)) {
    for server in [None, Some(TestServer::start())] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        std::fs::create_dir(&root).unwrap();
        let url = server.as_ref().map(|server| server.server("unused").url);
        test(&|clock| Vault::create(&Location::of(&root, None), url.as_deref(), clock).unwrap(), &root);
    }
}

#[test]
fn whatever_the_clock_does_what_changed_is_protected_at_once() {
    on_both_engines(|open, root| {
        let clock = Clock::manual(NOW);
        let vault = open(clock.clone());
        for (turn, time) in JUMPS.into_iter().enumerate() {
            std::fs::write(root.join("changes"), Seed(turn as u64).bytes(20_000 + turn)).unwrap();
            std::fs::write(root.join(format!("new {turn}")), b"new").unwrap();
            clock.set(time);
            let before = status(&vault, b"", true, 10, QUIET).unwrap();
            assert!(
                before.pending.0 == 2 && before.oldest.is_some_and(|oldest| oldest <= time),
                "{before:?}"
            );
            let report = protect(&vault, QUIET).unwrap();
            assert_eq!((report.done.encoded, report.done.failures, report.pending), (2, 0, 0), "{turn}");
            let after = status(&vault, b"", true, 10, QUIET).unwrap();
            assert_eq!((after.pending.0, after.oldest, after.last_protect), (0, None, Some(time)));
            let options = Options { selection: Selection::All, from_medium: false, resume: true };
            let found = scrub::scrub(&vault, b"", options, QUIET).unwrap();
            assert!(found.files == turn as u64 + 2 && found.trouble.is_empty(), "{found:?}");
        }
    });
}

/// A worker that is at a large file when the clock jumps keeps its claim for as long as it is at it, and no longer.
#[test]
fn a_worker_neither_loses_its_claim_nor_keeps_it_for_ever() {
    on_both_engines(|open, root| {
        for (turn, jump) in [-10 * YEAR, 10 * YEAR].into_iter().enumerate() {
            let clock = Clock::manual(NOW);
            let (vault, other) = (open(clock.clone()), open(clock.clone()));
            std::fs::File::create(root.join("large")).unwrap().set_len((96 << 20) + turn as u64).unwrap();
            let (looks, stranger) = (AtomicU64::new(0), WorkerId("stranger".to_owned()));
            let progress = |step| {
                let gabion_vault::run::Progress::Done(0, bytes) = step else { return };
                if bytes == 0 {
                    return;
                }
                // The clock jumps once; then it goes on, and others want something to do.
                let look = looks.fetch_add(1, Ordering::SeqCst);
                clock.set(NOW + jump + look as Nanos * 8 * SECOND);
                if look > 0 {
                    let taken = other.changelog.claim(&stranger, 9, SECOND, clock.now()).unwrap();
                    assert!(taken.is_empty(), "look {look}: {taken:?}");
                }
            };
            let context = RunContext { threads: 1, rate: None, progress: &progress, stopped: &|| false };
            let report = protect(&vault, context).unwrap();
            assert!(looks.load(Ordering::SeqCst) > 4, "{looks:?}");
            assert_eq!((report.done.encoded, report.done.failures, report.pending), (1, 0, 0), "{report:?}");
        }
    });
}

#[test]
fn a_time_that_lies_ahead_puts_no_scrub_off() {
    let ground = Playground::new("4+2");
    (0..10).for_each(|number| ground.write(&format!("file {number}"), &Seed(number).bytes(100)));
    ground.protect_all();
    ground.clock.set(NOW + 30 * YEAR);
    ground.assert_clean();
    ground.clock.set(NOW);
    let scrub = |selection, resume| {
        let options = Options { selection, from_medium: false, resume };
        scrub::scrub(&ground.vault, b"", options, QUIET).unwrap()
    };
    assert_eq!(scrub(Selection::OlderThan(10 * SECOND), false).files, 10);
    assert_eq!(scrub(Selection::OlderThan(10 * SECOND), false).files, 0);
    ground.clock.set(NOW + 30 * YEAR);
    scrub(Selection::All, false);
    ground.clock.set(NOW);
    // Nobody starves: a tenth at a time, all have had their turn after ten.
    flip(&ground.path("file 7"), 5);
    let found: u64 = (1..=10)
        .map(|turn| {
            ground.clock.set(NOW + turn * SECOND);
            scrub(Selection::Percent(10), false).trouble.len() as u64
        })
        .sum();
    assert!(found > 0);
    // Nor does one that was interrupted take what it never looked at for done.
    ground.clock.set(NOW + 30 * YEAR);
    scrub(Selection::All, false);
    ground.clock.set(NOW);
    let stop = RunContext { stopped: &|| true, ..QUIET };
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert!(scrub::scrub(&ground.vault, b"", options, stop).unwrap().stopped);
    let resumed = scrub(Selection::All, true);
    assert_eq!((resumed.files, resumed.resumed), (10, 0));
}

/// Times before 1970, far ahead, and beyond what nanoseconds can count.
#[test]
fn files_may_have_any_time() {
    let times = [
        UNIX_EPOCH - Duration::from_secs(2_000_000_000),
        UNIX_EPOCH - Duration::from_nanos(1),
        UNIX_EPOCH,
        UNIX_EPOCH + Duration::from_secs(4_000_000_000),
        UNIX_EPOCH + Duration::from_secs(15_000_000_000),
    ];
    for time in times {
        let ground = Playground::new("4+2");
        let content = Seed(3).bytes(50_000);
        ground.write("file", &content);
        set_time(&ground.path("file"), time);
        // What the file system made of it.
        let time = std::fs::metadata(ground.path("file")).unwrap().modified().unwrap();
        ground.protect_all();
        assert!(ground.protect_all().seen.changes.is_empty());
        ground.assert_clean();
        // Rot is found, in a file whose permissions changed as well, and not made to last by protecting it.
        flip(&ground.path("file"), 30_000);
        std::fs::set_permissions(ground.path("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(ground.protect().done.damaged.len(), 1, "{time:?}");
        assert_eq!(ground.state("file"), State::Damaged, "{time:?}");
        assert_eq!(ground.repair("file").state, State::Protected);
        assert!(ground.read("file") == content);
        // What is later than nanoseconds can count comes back as the last that they can.
        let back = std::fs::metadata(ground.path("file")).unwrap().modified().unwrap();
        assert_eq!(back, time.min(UNIX_EPOCH + Duration::from_nanos(i64::MAX as u64)));
        // Written, and given a time that lies further back than any protect: changed all the same.
        ground.write("file", &Seed(4).bytes(50_000));
        set_time(&ground.path("file"), UNIX_EPOCH + Duration::from_secs(1_500_000_000));
        assert!(ground.scrub().trouble[0].changed);
        assert_eq!(ground.protect_all().done.encoded, 1, "{time:?}");
        ground.assert_clean();
    }
}

/// A file came with the time that it had elsewhere, and status said that it had not been protected since then.
#[test]
fn a_file_is_not_exposed_since_before_it_came() {
    let ground = Playground::new("4+2");
    // Later than all that file systems say in this test.
    ground.write("first", b"first");
    ground.protect_all();
    for time in [UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(6_000_000_000)] {
        ground.write("copied", b"with its time");
        set_time(&ground.path("copied"), time);
        let oldest = status(&ground.vault, b"", true, 10, QUIET).unwrap().oldest.unwrap();
        let stat = std::fs::metadata(ground.path("copied")).unwrap();
        let came = std::os::unix::fs::MetadataExt::ctime(&stat) * SECOND;
        assert!((came..came + SECOND).contains(&oldest), "{oldest} instead of {came}");
    }
}
