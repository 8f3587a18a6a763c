//! Clocks that jump by years in both directions, and files with arbitrary times.

use super::fixture::{Fixture, QUIET, TestRng, flip};
use super::server::TestServer;
use gabion_vault::catalogue::State;
use gabion_vault::changelog::WorkerId;
use gabion_vault::protect::protect;
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Options, Selection};
use gabion_vault::status::status;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, SECOND, Timestamp};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NOW: Timestamp = Timestamp::from_seconds(SINCE_1970);
const SINCE_1970: i64 = 1_800_000_000;
/// Seconds in a year.
const YEAR: i64 = 365 * 86_400;

/// Clock settings in turn: future, past, before 1970, and correct.
const JUMPS: [Timestamp; 5] = [years(30), years(-10), Timestamp::from_seconds(-YEAR), years(80), NOW];

const fn years(later: i64) -> Timestamp {
    Timestamp::from_seconds(SINCE_1970 + later * YEAR)
}

fn set_time(path: &Path, time: SystemTime) {
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Vaults with an embedded changelog and with one on a server.
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
fn changes_are_protected_at_once_despite_clock_jumps() {
    on_both_engines(|open, root| {
        let clock = Clock::manual(NOW);
        let vault = open(clock.clone());
        for (turn, time) in JUMPS.into_iter().enumerate() {
            std::fs::write(root.join("changes"), TestRng(turn as u64).bytes(20_000 + turn)).unwrap();
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
            assert!(found.files == turn as u64 + 2 && found.damage.is_empty(), "{found:?}");
        }
    });
}

/// A worker that processes a large file during a clock jump keeps its claim for as long as it works, and no longer.
#[test]
fn a_worker_neither_loses_its_claim_nor_keeps_it_for_ever() {
    on_both_engines(|open, root| {
        for (turn, jumped) in [years(-10), years(10)].into_iter().enumerate() {
            let clock = Clock::manual(NOW);
            let (vault, other) = (open(clock.clone()), open(clock.clone()));
            std::fs::File::create(root.join("large")).unwrap().set_len((96 << 20) + turn as u64).unwrap();
            let (looks, stranger) = (AtomicU64::new(0), WorkerId("stranger".to_owned()));
            let progress = |step| {
                let gabion_vault::run::Progress::Done(0, bytes) = step else { return };
                if bytes == 0 {
                    return;
                }
                // The clock jumps once and then advances, while others claim.
                let look = looks.fetch_add(1, Ordering::SeqCst);
                clock.set(jumped + look as u32 * 5 * SECOND);
                if look > 0 {
                    let taken =
                        other.changelog.claim(&stranger, 9, Duration::from_secs(1), clock.now()).unwrap();
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
fn a_time_in_the_future_defers_no_scrub() {
    let fixture = Fixture::new("4+2");
    (0..10).for_each(|number| fixture.write(&format!("file {number}"), &TestRng(number).bytes(100)));
    fixture.protect_all();
    fixture.clock.set(years(30));
    fixture.assert_clean();
    fixture.clock.set(NOW);
    let scrub = |selection, resume| {
        let options = Options { selection, from_medium: false, resume };
        scrub::scrub(&fixture.vault, b"", options, QUIET).unwrap()
    };
    assert_eq!(scrub(Selection::OlderThan(10 * SECOND), false).files, 10);
    assert_eq!(scrub(Selection::OlderThan(10 * SECOND), false).files, 0);
    fixture.clock.set(years(30));
    scrub(Selection::All, false);
    fixture.clock.set(NOW);
    // With a tenth per scrub, all files are covered after ten.
    flip(&fixture.path("file 7"), 5);
    let found: u64 = (1..=10)
        .map(|turn| {
            fixture.clock.set(NOW + turn * SECOND);
            scrub(Selection::Percent(10), false).damage.len() as u64
        })
        .sum();
    assert!(found > 0);
    // An interrupted scrub does not count files that it has not reached.
    fixture.clock.set(years(30));
    scrub(Selection::All, false);
    fixture.clock.set(NOW);
    let stop = RunContext { stopped: &|| true, ..QUIET };
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert!(scrub::scrub(&fixture.vault, b"", options, stop).unwrap().stopped);
    let resumed = scrub(Selection::All, true);
    assert_eq!((resumed.files, resumed.resumed), (10, 0));
}

/// Times before 1970, far in the future, and beyond the range of nanoseconds.
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
        let fixture = Fixture::new("4+2");
        let content = TestRng(3).bytes(50_000);
        fixture.write("file", &content);
        set_time(&fixture.path("file"), time);
        // The time that the file system stored.
        let time = std::fs::metadata(fixture.path("file")).unwrap().modified().unwrap();
        fixture.protect_all();
        assert!(fixture.protect_all().seen.changes.is_empty());
        fixture.assert_clean();
        // Corruption is found even with changed permissions, and is not protected.
        flip(&fixture.path("file"), 30_000);
        std::fs::set_permissions(fixture.path("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fixture.protect().done.damaged.len(), 1, "{time:?}");
        assert_eq!(fixture.state("file"), State::Damaged, "{time:?}");
        assert_eq!(fixture.repair("file").state, State::Protected);
        assert!(fixture.read("file") == content);
        // A time beyond the range of nanoseconds is restored as the last representable one.
        let back = std::fs::metadata(fixture.path("file")).unwrap().modified().unwrap();
        assert_eq!(back, time.min(UNIX_EPOCH + Duration::from_nanos(i64::MAX as u64)));
        // Written, with an mtime before any protect: still a change.
        fixture.write("file", &TestRng(4).bytes(50_000));
        set_time(&fixture.path("file"), UNIX_EPOCH + Duration::from_secs(1_500_000_000));
        assert!(fixture.scrub().damage[0].changed);
        assert_eq!(fixture.protect_all().done.encoded, 1, "{time:?}");
        fixture.assert_clean();
    }
}

/// Regression: a file that arrived with an old mtime was reported as unprotected since then.
#[test]
fn a_file_is_not_exposed_since_before_it_came() {
    let fixture = Fixture::new("4+2");
    // Later than all file system times of this test.
    fixture.write("first", b"first");
    fixture.protect_all();
    for time in [UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(6_000_000_000)] {
        fixture.write("copied", b"with its time");
        set_time(&fixture.path("copied"), time);
        let oldest = status(&fixture.vault, b"", true, 10, QUIET).unwrap().oldest.unwrap();
        let stat = std::fs::metadata(fixture.path("copied")).unwrap();
        let came = Timestamp::from_seconds(std::os::unix::fs::MetadataExt::ctime(&stat));
        assert!((came..came + SECOND).contains(&oldest), "{oldest:?} instead of {came:?}");
    }
}
