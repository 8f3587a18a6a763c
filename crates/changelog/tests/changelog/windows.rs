//! Windows of writes through mounts of several hosts, on a real server.

use crate::server::TestServer;
use gabion_changelog::monitors::{MARK_LEASE, Monitor, MonitorKind, Monitors};
use gabion_changelog::windows::{Tick, Windows};
use gabion_changelog::{Change, Changelog, Claim, Redis, When, Window, WorkerId};
use gabion_platform::world::Timestamp;
use gabion_testkit::until;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_nanoseconds(1_700_000_000_000_000_000);
const WORKER: Duration = Duration::from_secs(60);
const OVER: Duration = Duration::ZERO;

struct Site {
    log: Redis,
    server: TestServer,
}

impl Site {
    fn new() -> Site {
        let server = TestServer::start();
        Site { log: Redis::open(&server.server("x")).expect("a changelog"), server }
    }

    fn windows(&self) -> &dyn Windows {
        self.log.windows().expect("windows")
    }

    fn monitors(&self) -> &dyn Monitors {
        self.log.monitors().expect("marks")
    }

    fn mount(&self, name: &str, lease: Duration) -> Monitor {
        let monitor = monitor(name, MonitorKind::Mount);
        self.monitors().begin_monitor(&monitor, lease).expect("a mark");
        monitor
    }

    /// A write through a mount that has heard of a tick.
    fn write(&self, at: u64, versions: (u8, u8), since: Tick) {
        let window = Window { from: [versions.0; 16], to: [versions.1; 16], since: since.0 };
        self.log.record(&[Change::modify("a", at..at + 1, now()).within(window)]).expect("recorded");
    }

    fn claim(&self) -> Claim {
        let worker = WorkerId("worker".to_owned());
        let (mut claims, _) = self.log.claim_paths(&worker, &["a".into()], WORKER, NOW).expect("claims");
        claims.pop().expect("a claim")
    }

    /// The windows of a claim, by the first byte of each version.
    fn seen(&self, claim: &Claim) -> Vec<(u8, u8)> {
        let written = self.windows().written(claim).expect("an answer");
        written.windows.iter().map(|(from, to)| (from[0], to[0])).collect()
    }
}

fn now() -> When {
    When::now(NOW, 0)
}

fn monitor(name: &str, kind: MonitorKind) -> Monitor {
    Monitor { name: WorkerId(format!("{name}/1")), kind, since: NOW }
}

#[test]
fn windows_come_with_the_ranges_of_the_claim_and_of_what_came_later() {
    let site = Site::new();
    let mount = site.mount("a", MARK_LEASE);
    let tick = site.windows().cover(&mount, None).unwrap();
    site.write(5, (1, 2), tick);
    site.log.record(&[Change::modify("a", 20..30, now())]).unwrap();
    let claim = site.claim();
    assert_eq!(site.seen(&claim), [(1, 2)]);
    site.write(9, (2, 3), tick);
    let written = site.windows().written(&claim).unwrap();
    assert_eq!((written.ranges.as_slice(), written.windows.len()), (&[5..6, 9..10, 20..30][..], 2));
    site.log.complete(&claim).unwrap();
    assert_eq!(site.seen(&claim), [], "it is not held any more");
    let claim = site.claim();
    assert_eq!(site.seen(&claim), [(2, 3)], "only what is newer is left");
    site.log.release(&claim, NOW, NOW).unwrap();
    site.log.record(&[Change::rename("a", "b", now()), Change::rename("b", "a", now())]).unwrap();
    assert_eq!(site.seen(&site.claim()), [(2, 3)]);
}

/// Whatever makes it doubtful whether everything is recorded ends the trust in windows that began before.
#[test]
fn windows_from_before_a_doubt_do_not_count() {
    let gap = |site: &Site| {
        site.log.record(&[Change::gap("x", now())]).unwrap();
    };
    let lost = |site: &Site| {
        until("a mark is given up", || {
            let lease = Duration::from_millis(1);
            !site.monitors().give_up_monitors(&|_| false, lease, now()).unwrap().is_empty()
        });
    };
    let again = |site: &Site| {
        let late = monitor("late", MonitorKind::Mount);
        site.monitors().renew_monitor(&late, MARK_LEASE, now()).unwrap();
    };
    for (what, doubt) in
        [("a gap", &gap as &dyn Fn(&Site)), ("a lost mark", &lost), ("a mark that was away", &again)]
    {
        let site = Site::new();
        let mount = site.mount("a", MARK_LEASE);
        let _silent = site.mount("b", OVER);
        let before = site.windows().cover(&mount, None).unwrap();
        site.write(5, (1, 2), before);
        doubt(&site);
        let claim = site.claim();
        assert_eq!(site.seen(&claim), [], "{what}");
        // It began before, and is recorded now.
        site.write(6, (2, 3), before);
        let after = site.windows().cover(&mount, None).unwrap();
        assert!(after > before, "{what}");
        assert_eq!(site.seen(&claim), [], "{what}");
        site.write(7, (3, 4), after);
        assert_eq!(site.seen(&claim), [(3, 4)], "{what}");
        let ranges = site.windows().written(&claim).unwrap().ranges;
        assert_eq!(ranges.as_slice(), std::slice::from_ref(&(5..8)), "{what}");
    }
}

#[test]
fn a_fence_waits_for_all_mounts() {
    let site = Site::new();
    let windows = site.windows();
    let first = windows.fence().unwrap();
    assert!(windows.is_covered(first).unwrap(), "there are no mounts");
    let [one, two] = ["a", "b"].map(|name| site.mount(name, MARK_LEASE));
    site.monitors().begin_monitor(&monitor("c", MonitorKind::Watch), MARK_LEASE).unwrap();
    assert!(windows.is_covered(first).unwrap(), "mounts that began later have nothing to record");
    let fence = windows.fence().unwrap();
    assert!(fence > first);
    assert_eq!(windows.cover(&one, None).unwrap(), fence);
    windows.cover(&one, Some(fence)).unwrap();
    assert!(!windows.is_covered(fence).unwrap());
    // A tick from the time before the server came back with older files, or from nowhere.
    windows.cover(&two, Some(Tick(fence.0 + 1))).unwrap();
    assert!(!windows.is_covered(fence).unwrap());
    windows.cover(&two, Some(fence)).unwrap();
    assert!(windows.is_covered(fence).unwrap());
    // Renewals keep it; a mark that is set again has recorded nothing.
    let renew = |mount| site.monitors().renew_monitor(mount, MARK_LEASE, now()).unwrap();
    renew(&one);
    assert!(windows.is_covered(fence).unwrap());
    let away = monitor("d", MonitorKind::Mount);
    renew(&away);
    assert!(!windows.is_covered(fence).unwrap());
    site.monitors().end_monitor(&away).unwrap();
    assert!(windows.is_covered(fence).unwrap());
    // One whose lease has ended and that nobody has given up.
    let silent = site.mount("e", OVER);
    assert!(!windows.is_covered(fence).unwrap());
    site.monitors().end_monitor(&silent).unwrap();
    // One that writes without recording, until it ends.
    let careless = site.mount("f", MARK_LEASE);
    windows.distrust(&careless).unwrap();
    assert!(!windows.is_covered(fence).unwrap());
    site.monitors().end_monitor(&careless).unwrap();
    assert!(windows.is_covered(fence).unwrap());
}

/// A host that is cut off may go on writing; one whose process is dead for certain does not.
#[test]
fn a_mount_that_records_nothing_is_believed_again_when_it_is_dead() {
    let site = Site::new();
    let windows = site.windows();
    let careless = site.mount("a", OVER);
    windows.distrust(&careless).unwrap();
    until("its mark is given up", || {
        let lease = Duration::from_millis(1);
        !site.monitors().give_up_monitors(&|_| false, lease, now()).unwrap().is_empty()
    });
    let fence = windows.fence().unwrap();
    assert!(!windows.is_covered(fence).unwrap());
    site.monitors().begin_monitor(&careless, MARK_LEASE).unwrap();
    site.monitors().give_up_monitors(&|name| *name == careless.name, MARK_LEASE, now()).unwrap();
    assert!(windows.is_covered(fence).unwrap());
}

#[test]
fn too_many_windows_do_not_join() {
    let site = Site::new();
    let mount = site.mount("a", MARK_LEASE);
    let since = site.windows().cover(&mount, None).unwrap().0;
    let version = |number: u16| {
        let mut name = [0; 16];
        name[6..8].copy_from_slice(&number.to_be_bytes());
        name
    };
    let write = |number: u16| {
        let window = Window { from: version(number), to: version(number + 1), since };
        Change::modify("a", 0..1, now()).within(window)
    };
    site.log.record(&(0..1024).map(write).collect::<Vec<_>>()).unwrap();
    let claim = site.claim();
    let written = || site.windows().written(&claim).unwrap();
    assert!(written().leads(&version(0), &version(1024)));
    site.log.record(&[write(1024)]).unwrap();
    assert_eq!(written().windows, [(version(1024), version(1025))]);
}

/// The range of a write that was recorded is gone, and a window of another mount may cover it.
#[test]
fn windows_from_before_a_loss_do_not_count_once_a_mount_records_again() {
    let mut site = Site::new();
    let mount = site.mount("a", MARK_LEASE);
    site.write(1, (1, 2), Tick(0));
    let state = site.server.state();
    let since = site.windows().cover(&mount, None).unwrap();
    site.write(2, (2, 3), since);
    site.server.restore(&state);
    site.write(3, (2, 3), since);
    let claim = site.claim();
    assert_eq!(site.seen(&claim), []);
    let since = site.windows().cover(&mount, None).unwrap();
    site.write(4, (3, 4), since);
    assert_eq!(site.seen(&claim), [(3, 4)]);
}

/// Ticks go on, so that nobody answers a fence with one from before the loss.
#[test]
fn a_server_that_came_back_with_older_files_gives_larger_ticks() {
    let mut site = Site::new();
    let state = site.server.state();
    let before = site.windows().fence().unwrap();
    site.server.restore(&state);
    assert!(site.windows().fence().unwrap() > before);
    site.server.forget();
    site.server.restart();
    assert!(site.windows().fence().unwrap() > before);
}
