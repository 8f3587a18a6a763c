//! Storage with injected faults: reads, listings and writes fail by plan, and no result is misinterpreted.

mod adapter;
mod beside;

use super::fixture::{Fixture, QUIET, TestRng, flip, rot};
use adapter::{Faulty, InjectedFault, Plan, Point};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::changelog::{Change, When, WorkerId};
use gabion_vault::protect;
use gabion_vault::repair;
use gabion_vault::retry::Retry;
use gabion_vault::storage::plain::Plain;
use gabion_vault::tree::Tree;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::worker::RETRY;
use gabion_vault::world::SECOND;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A tree on storage with faults by plan; without faults at first.
fn faulty(code: &str) -> (Fixture, Plan) {
    let mut fixture = Fixture::new(code);
    let plan = make_faulty(&mut fixture);
    (fixture, plan)
}

fn make_faulty(fixture: &mut Fixture) -> Plan {
    let plan = Plan(Arc::new(Mutex::new(Box::new(|_, _| None))));
    fixture.vault.storage = Box::new(Faulty { inner: plain(fixture), plan: plan.clone() });
    plan
}

fn plain(fixture: &Fixture) -> Plain {
    Plain::new(Tree::open(&fixture.root()).unwrap(), fixture.vault.repository.clone())
}

/// Begins a repair that fails before its first write to the file.
pub(crate) fn repair_that_cannot_write(fixture: &mut Fixture, name: &str) {
    let plan = make_faulty(fixture);
    plan.set(|point, _| (point == Point::Write).then_some(InjectedFault::Eio));
    let lock = fixture.vault.lock("test").unwrap();
    repair::repair(&fixture.vault, name.as_bytes(), QUIET).unwrap_err();
    drop(lock);
    fixture.vault.storage = Box::new(plain(fixture));
}

/// Files of many sizes in some directories; returns names and content.
fn fill(fixture: &Fixture, rng: &mut TestRng, count: u64) -> Vec<(String, Vec<u8>)> {
    let some = |number: u64, rng: &mut TestRng| {
        let size = rng.below(1 << (4 + number % 14)) as usize + 1;
        (format!("d{}/file {number:02}", number % 3), rng.bytes(size))
    };
    let files: Vec<_> = (0..count).map(|number| some(number, rng)).collect();
    files.iter().for_each(|(name, content)| fixture.write(name, content));
    files
}

/// After a run without faults everything is protected, clean and unchanged.
fn assert_converges(fixture: &Fixture, plan: &Plan, files: &[(String, Vec<u8>)]) {
    plan.clear();
    fixture.protect_all();
    fixture.assert_clean();
    assert_eq!(fixture.vault.catalogue.count().unwrap(), files.len() as u64);
    for (name, content) in files {
        assert!(fixture.read(name) == *content, "{name}");
    }
    assert!(fixture.protect_all().seen.changes.is_empty());
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_protected() {
    for seed in 0..12 {
        let mut rng = TestRng(seed);
        let (fixture, plan) = faulty("4+2");
        let files = fill(&fixture, &mut rng, 12);
        let fault: Vec<(Vec<u8>, InjectedFault)> = files
            .iter()
            .filter(|_| rng.below(3) == 0)
            .map(|(name, _)| {
                let fault =
                    [InjectedFault::Eio, InjectedFault::Timeout, InjectedFault::Short][(seed % 3) as usize];
                (name.clone().into_bytes(), fault)
            })
            .collect();
        let rule = fault.clone();
        plan.set(move |point, path| {
            let found = rule.iter().find(|(name, _)| name == path && point == Point::Read);
            found.map(|(_, fault)| *fault)
        });
        let report = fixture.protect();
        let waiting = fixture.vault.changelog.entries(None, 100).unwrap();
        let failed: BTreeSet<&[u8]> = report.done.failed.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!(failed, fault.iter().map(|(path, _)| &path[..]).collect(), "seed {seed}");
        for (path, why) in &report.done.failed {
            let fault = fault.iter().find(|(name, _)| name == path).unwrap().1;
            let reason = match fault {
                InjectedFault::Eio => "Input/output error",
                InjectedFault::Timeout => "no answer within 30000 ms",
                _ => "changed while it was read",
            };
            assert!(why.to_string().contains(reason), "{why}");
            assert!(waiting.iter().any(|it| it.path == *path && it.due <= fixture.clock.now() + RETRY));
        }
        assert_eq!(report.done.encoded, 12 - fault.len() as u64);
        for (name, _) in &files {
            let is_ill = fault.iter().any(|(fault, _)| fault == name.as_bytes());
            assert_eq!(fixture.redundancy(name).exists(), !is_ill, "{name}");
        }
        // A manual run retries at once, without waiting for the retry time.
        assert_converges(&fixture, &plan, &files);
    }
}

#[test]
fn old_redundancy_survives_what_cannot_be_read_now() {
    for fault in [InjectedFault::Eio, InjectedFault::Timeout, InjectedFault::Short, InjectedFault::Another] {
        let (fixture, plan) = faulty("4+2");
        let files = fill(&fixture, &mut TestRng(1), 6);
        fixture.protect_all();
        let before: Vec<Vec<u8>> =
            files.iter().map(|(name, _)| std::fs::read(fixture.redundancy(name)).unwrap()).collect();
        let changed: Vec<_> =
            files.iter().map(|(name, content)| (name.clone(), [&content[..], b"more"].concat())).collect();
        changed.iter().for_each(|(name, content)| fixture.write(name, content));
        // The version is also checked at the end.
        let point = if fault == InjectedFault::Another { Point::Find } else { Point::Read };
        let mut asked = 0;
        plan.set(move |at, _| {
            asked += u32::from(at == point);
            (at == point && (point == Point::Read || asked > 6)).then_some(fault)
        });
        let report = fixture.protect();
        assert_eq!(report.done.failures, 6, "{fault:?}: {report:?}");
        for ((name, _), before) in files.iter().zip(&before) {
            assert!(std::fs::read(fixture.redundancy(name)).unwrap() == *before, "{fault:?}: {name}");
        }
        assert_converges(&fixture, &plan, &changed);
    }
}

#[test]
fn an_unreadable_listing_is_no_deletion() {
    for point in [Point::Folder, Point::Stat, Point::Find, Point::Open] {
        for whole in [false, true] {
            let (fixture, plan) = faulty("4+2");
            let files = fill(&fixture, &mut TestRng(2), 9);
            fixture.protect_all();
            let mut rng = TestRng(point as u64);
            plan.set(move |at, path| {
                let hit = whole && !path.is_empty() || path.starts_with(b"d1") || rng.below(7) == 0;
                (at == point && hit && !path.is_empty()).then_some(InjectedFault::Eio)
            });
            // A change elsewhere, so that there is work.
            fixture.write("d2/file 02", b"changed");
            let report = fixture.protect();
            match point {
                Point::Folder | Point::Stat => {
                    assert!(!report.seen.unreadable.is_empty(), "{report:?}");
                    let named = report
                        .seen
                        .unreadable
                        .iter()
                        .all(|(_, why)| why.to_string().contains("Input/output"));
                    assert!(named, "{report:?}");
                }
                _ => {}
            }
            assert_eq!(report.done.removed, 0, "{point:?}");
            for (name, _) in &files {
                assert!(fixture.redundancy(name).exists(), "{point:?}: {name} has lost its redundancy");
                let known = fixture.vault.catalogue.find(name.as_bytes()).unwrap();
                assert!(known.is_some(), "{point:?}: {name} is forgotten");
            }
            let mut files = files;
            files[2].1 = b"changed".to_vec();
            assert_converges(&fixture, &plan, &files);
        }
    }
}

#[test]
fn a_root_that_cannot_be_read_ends_the_run_with_its_name() {
    let (fixture, plan) = faulty("4+2");
    let files = fill(&fixture, &mut TestRng(3), 3);
    fixture.protect_all();
    plan.set(|point, path| (point == Point::Folder && path.is_empty()).then_some(InjectedFault::Eio));
    let error = protect::protect(&fixture.vault, QUIET).unwrap_err().to_string();
    assert!(error.contains("tree") && error.contains("Input/output error"), "{error}");
    assert_converges(&fixture, &plan, &files);
}

/// Regression: when the old name of a file with two names could not be looked up, the file counted as moved.
#[test]
fn a_second_name_is_no_move_because_the_first_cannot_be_looked_at() {
    let (fixture, plan) = faulty("4+2");
    fixture.write("first", b"content");
    fixture.protect_all();
    std::fs::hard_link(fixture.path("first"), fixture.path("second")).unwrap();
    plan.set(|point, path| (point == Point::Find && path == b"first").then_some(InjectedFault::Eio));
    let report = fixture.protect();
    assert_eq!(report.done.moved, 0);
    assert!(fixture.vault.catalogue.find(b"first").unwrap().is_some());
    let files = ["first", "second"].map(|name| (name.to_owned(), b"content".to_vec()));
    assert_converges(&fixture, &plan, &files);
}

#[test]
fn scrub_says_what_it_could_not_read_and_changes_nothing() {
    let (fixture, plan) = faulty("4+2");
    let files: Vec<_> = (0..3).map(|at| (format!("f{at}"), TestRng(at).bytes(50_000))).collect();
    files.iter().for_each(|(name, content)| fixture.write(name, content));
    fixture.protect_all();
    let redundancy = |name: &str| std::fs::read(fixture.redundancy(name)).unwrap();
    let before: Vec<_> = files.iter().map(|(name, _)| redundancy(name)).collect();
    for (share, state) in [(2, State::Damaged), (3, State::Lost)] {
        // Blocks are read column by column: the first `share` of every four reads fail.
        let mut reads = 0;
        plan.set(move |point, path| {
            let at = reads % 4;
            reads += u64::from(point == Point::Read && path == b"f1");
            (point == Point::Read && path == b"f1" && at < share).then_some(InjectedFault::Eio)
        });
        let report = fixture.scrub();
        let [damage] = &report.damage[..] else { panic!("{report:?}") };
        assert_eq!((&damage.path[..], damage.state), (&b"f1"[..], state));
        // Readable again, so the state is as before.
        plan.clear();
        fixture.assert_clean();
        assert_eq!(fixture.vault.catalogue.find(b"f1").unwrap().unwrap().state, State::Protected);
    }
    for ((name, _), before) in files.iter().zip(&before) {
        assert!(redundancy(name) == *before);
    }
    assert_converges(&fixture, &plan, &files);
}

#[test]
fn files_that_cannot_be_opened_are_named_by_scrub_and_repair() {
    let (fixture, plan) = faulty("4+2");
    let files = fill(&fixture, &mut TestRng(4), 4);
    fixture.protect_all();
    plan.set(|point, path| (point == Point::Open && path.starts_with(b"d1")).then_some(InjectedFault::Eio));
    let scrub = fixture.scrub();
    assert_eq!((scrub.files, scrub.damage.len(), scrub.failed.len()), (3, 0, 1), "{scrub:?}");
    let (path, why) = &scrub.failed[0];
    assert!(path.starts_with(b"d1") && why.to_string().contains("Input/output error"), "{why}");
    assert_eq!(why.retry(), Retry::Later);
    let planned = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert_eq!((planned.files.len(), &planned.failed), (0, &scrub.failed));
    let error = repair::repair(&fixture.vault, path, QUIET).unwrap_err().to_string();
    assert!(error.contains("Input/output error"), "{error}");
    assert_converges(&fixture, &plan, &files);
}

/// Damages up to m blocks of every stripe of a file, or truncates it.
fn damage(fixture: &Fixture, name: &str, content: &[u8], rng: &mut TestRng) {
    let path = fixture.path(name);
    if rng.below(4) == 0 {
        let cut = content.len() - content.len() / 8;
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(cut as u64).unwrap();
        file.set_modified(time).unwrap();
        return;
    }
    // A range of a quarter of the file touches at most two columns of any stripe.
    let piece = content.len() / 4;
    let start = rng.below((content.len() - piece) as u64);
    for _ in 0..4 {
        let at = start + rng.below(piece as u64 - 9);
        rot(&path, at, &rng.bytes(9));
    }
}

/// A repair fails at each of its steps in turn. Then half of the blocks are restored, the others are as bad as before,
/// and the redundancy can still restore them, even after a `protect` in between.
#[test]
fn a_repair_that_fails_in_the_middle_is_repeated_without_loss() {
    for seed in 0..30 {
        let mut rng = TestRng(seed);
        let (fixture, plan) = faulty("4+2");
        let files: Vec<_> = (0..4)
            .map(|at| {
                let size = 4096 * 4 * (1 + rng.below(5)) as usize - rng.below(4000) as usize;
                (format!("f{at}"), rng.bytes(size))
            })
            .collect();
        files.iter().for_each(|(name, content)| fixture.write(name, content));
        fixture.protect_all();
        files[..3].iter().for_each(|(name, content)| damage(&fixture, name, content, &mut rng));
        flip(&fixture.redundancy("f3"), 300);
        let point = [Point::OpenForRepair, Point::Write, Point::Write, Point::SetSize, Point::Finish]
            [(seed % 5) as usize];
        let mut before = rng.below(3);
        plan.set(move |at, _| {
            if at != point || before > 0 {
                before -= u64::from(at == point);
                return None;
            }
            Some(InjectedFault::Eio)
        });
        let mut interrupted = 0;
        for (name, content) in &files {
            let damaged = fixture.read(name);
            let _lock = fixture.vault.lock("test").unwrap();
            match repair::repair(&fixture.vault, name.as_bytes(), QUIET) {
                Ok(done) => assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}"),
                Err(error) => {
                    interrupted += 1;
                    assert!(error.to_string().contains("Input/output error"), "{error}");
                    for (at, now) in fixture.read(name).iter().enumerate() {
                        let worse = *now != content[at] && damaged.get(at).is_some_and(|was| was != now);
                        assert!(!worse, "seed {seed}: byte {at} of {name} is worse than it was");
                    }
                }
            }
        }
        plan.clear();
        fixture.clock.set(fixture.clock.now() + 3600 * SECOND);
        if interrupted > 0 && seed % 2 == 0 {
            // A nightly protect must not take a partial repair for a user's change.
            let report = fixture.protect();
            assert_eq!(report.done.encoded + report.done.adopted, 0, "seed {seed} {point:?}: {report:?}");
        }
        let listed = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
        assert_eq!(listed.files.len(), interrupted, "seed {seed} {point:?}: {listed:?}");
        for (name, content) in &files {
            let done = fixture.repair(name);
            assert_eq!(done.state, State::Protected, "seed {seed} {point:?}: {done:?}");
            assert!(fixture.read(name) == *content, "seed {seed} {point:?}: {name}");
        }
        fixture.clock.set(fixture.clock.now() + 3600 * SECOND);
        assert_converges(&fixture, &plan, &files);
    }
}

/// Regression: a repair killed between truncating a file and restoring its mtime left correct bytes with a time that no
/// later repair restored.
#[test]
fn a_file_that_was_only_cut_back_gets_its_time_from_the_next_repair() {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(5).bytes(50_000);
    fixture.write("f", &content);
    let protected = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(fixture.path("f")).unwrap().set_modified(protected).unwrap();
    fixture.protect_all();
    let modified = || std::fs::metadata(fixture.path("f")).unwrap().modified().unwrap();
    fixture.write("f", &[&content[..], b"appended"].concat());
    assert_ne!(modified(), protected);
    plan.set(|at, _| (at == Point::Finish).then_some(InjectedFault::Eio));
    let lock = fixture.vault.lock("test").unwrap();
    repair::repair(&fixture.vault, b"f", QUIET).unwrap_err();
    drop(lock);
    plan.clear();
    assert!(fixture.read("f") == content, "cut back");
    assert_eq!(fixture.protect().done.encoded, 0, "half a repair is nobody's work");
    let listed = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert_eq!(listed.files.len(), 1, "{listed:?}");
    assert_eq!(fixture.repair("f").state, State::Protected);
    assert_eq!(modified(), protected);
    fixture.clock.set(fixture.clock.now() + 3600 * SECOND);
    assert_converges(&fixture, &plan, &[("f".to_owned(), content)]);
}

/// A file with an interrupted repair that is deleted or replaced by its owner is treated as any other.
#[test]
fn an_interrupted_repair_does_not_stand_in_the_way_of_its_owner() {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(30_000);
    fixture.write("file", &content);
    fixture.write("stays", b"");
    fixture.protect_all();
    flip(&fixture.path("file"), 77);
    plan.set(|point, _| (point == Point::Finish).then_some(InjectedFault::Eio));
    repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
    plan.clear();
    let report = fixture.protect();
    let [(path, why)] = &report.done.failed[..] else { panic!("{report:?}") };
    assert!(path == b"file" && why.to_string().contains("run `gabion repair`"), "{why}");
    std::fs::remove_file(fixture.path("file")).unwrap();
    assert_eq!(fixture.protect_all().done.removed, 1);
    fixture.write("file", b"another file");
    let files = [("file".to_owned(), b"another file".to_vec()), ("stays".to_owned(), Vec::new())];
    assert_converges(&fixture, &plan, &files);
}

/// Regression: damage that a scrub had found was protected as new content after a change of permissions or policy.
#[test]
fn known_damage_is_not_protected_as_if_it_were_new() {
    let (mut fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(60_000);
    fixture.write("rotten", &content);
    fixture.write("lost", &TestRng(2).bytes(60_000));
    fixture.protect_all();
    flip(&fixture.path("rotten"), 100);
    [0, 15_104, 30_208].iter().for_each(|&at| flip(&fixture.path("lost"), at + 100));
    fixture.scrub();
    assert_eq!(fixture.repair("lost").state, State::Lost);
    let before = ["rotten", "lost"].map(|name| std::fs::read(fixture.redundancy(name)).unwrap());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fixture.path("rotten"), mode).unwrap();
    for policy in ["4+2", "4+3"] {
        let policy = format!("[default]\ncode = \"{policy}\"\nblock = \"4KiB\"\n");
        fixture.vault.set_policy(&policy).unwrap();
        let report = fixture.protect();
        assert_eq!(report.done.encoded, 0, "{report:?}");
        assert_eq!(report.affected, [(State::Damaged, 1), (State::Lost, 1)]);
        let after = ["rotten", "lost"].map(|name| std::fs::read(fixture.redundancy(name)).unwrap());
        assert!(before == after);
    }
    assert_eq!(fixture.repair("rotten").state, State::Protected);
    assert!(fixture.read("rotten") == content);
    // Lost content is restored from elsewhere and protected again.
    fixture.write("lost", &content);
    assert_eq!(fixture.protect_all().done.encoded, 2);
    let files = ["lost", "rotten"].map(|name| (name.to_owned(), content.clone()));
    assert_converges(&fixture, &plan, &files);
}

/// Regression: undetected corruption was encoded when the policy selected another code.
#[test]
fn redundancy_is_not_recoded_from_corrupt_data() {
    let (mut fixture, plan) = faulty("4+2");
    let files = fill(&fixture, &mut TestRng(6), 6);
    fixture.protect_all();
    let before: Vec<_> =
        files.iter().map(|(name, _)| std::fs::read(fixture.redundancy(name)).unwrap()).collect();
    fixture.vault.set_policy("[default]\ncode = \"5+3\"\nblock = \"4KiB\"\n").unwrap();
    for (fault, failures, damaged) in [(InjectedFault::Eio, 2, 0), (InjectedFault::Rot, 0, 2)] {
        plan.set(move |point, path| (point == Point::Read && path.starts_with(b"d1")).then_some(fault));
        let report = fixture.protect();
        assert_eq!((report.done.failures, report.done.damaged.len()), (failures, damaged), "{report:?}");
        assert!(
            report.done.failed.iter().all(|(_, why)| why.to_string().contains("Input/output error")),
            "{report:?}"
        );
        for ((name, _), before) in files.iter().zip(&before).filter(|((name, _), _)| name.starts_with("d1")) {
            assert!(std::fs::read(fixture.redundancy(name)).unwrap() == *before, "{name}");
        }
    }
    // Only the reads failed: another scrub finds nothing.
    plan.clear();
    fixture.assert_clean();
    assert_converges(&fixture, &plan, &files);
}

/// Content that a repair removes is kept, including an extension of the file.
#[test]
fn truncated_content_is_kept_by_every_storage() {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(30_000);
    fixture.write("file", &content);
    fixture.protect_all();
    let longer = [&content[..], &TestRng(2).bytes(9000)].concat();
    fixture.write("file", &longer);
    plan.clear();
    let done = fixture.repair("file");
    assert_eq!(done.state, State::Protected);
    assert!(fixture.read("file") == content);
    let replaced = std::fs::read(done.replaced.unwrap()).unwrap();
    assert!(replaced[30_000..] == longer[30_000..]);
}

/// Regression: when another worker took over the claims of a worker that read a file for longer than its lease, the
/// first worker's run ended with an error.
#[test]
fn a_worker_that_lost_its_claims_goes_on_with_the_rest() {
    for fault in [None, Some(InjectedFault::Eio)] {
        let (fixture, plan) = faulty("4+2");
        let files = fill(&fixture, &mut TestRng(5), 9);
        let clock = fixture.clock.clone();
        let other = Vault::open(&Location::of(&fixture.root(), None), clock.clone()).unwrap();
        let mut first = true;
        plan.set(move |point, _| {
            if point == Point::Read && std::mem::take(&mut first) {
                clock.set(clock.now() + 3600 * SECOND);
                let worker = WorkerId("elsewhere/1/1".to_owned());
                let claims = other.changelog.claim(&worker, 5, Duration::from_secs(1), clock.now()).unwrap();
                assert_eq!(claims.len(), 5);
                clock.set(clock.now() + 3600 * SECOND);
            }
            fault.filter(|_| point == Point::Read)
        });
        let report = fixture.protect();
        // A claim that was taken over is no failure; it is processed again when the other worker is gone.
        match fault {
            None => assert_eq!((report.done.encoded, report.done.failures), (9, 0), "{report:?}"),
            Some(_) => assert!(report.done.failures >= 9, "{report:?}"),
        }
        assert_converges(&fixture, &plan, &files);
    }
}

/// Regression: when a file was renamed while it was encoded, the claim on the old name stayed until its lease expired,
/// and nobody could protect the file for half a minute.
#[test]
fn a_file_that_is_renamed_while_it_is_read_is_protected_in_the_same_run() {
    for fault in [None, Some(InjectedFault::Eio)] {
        let (fixture, plan) = faulty("4+2");
        let files = fill(&fixture, &mut TestRng(6), 3);
        let root = fixture.root();
        let (old, clock) = (files[0].0.clone(), fixture.clock.clone());
        let other = Vault::open(&Location::of(&root, None), clock.clone()).unwrap();
        let mut first = true;
        plan.set(move |point, path| {
            if point != Point::Read || path != old.as_bytes() || !std::mem::take(&mut first) {
                return None;
            }
            std::fs::rename(root.join(&old), root.join("renamed")).unwrap();
            let renamed = Change::rename(old.as_str(), "renamed", When::now(clock.now(), 0));
            other.changelog.record(&[renamed]).unwrap();
            fault
        });
        let report = fixture.protect_all();
        assert_eq!(report.pending, 0, "{report:?}");
        let (name, content) = &files[0];
        assert!(!fixture.redundancy(name).exists() && fixture.redundancy("renamed").exists());
        assert!(fixture.read("renamed") == *content);
        plan.clear();
        fixture.assert_clean();
    }
}

/// Regression: a scrub stored a catalogue entry of an older version although the file had been protected again
/// meanwhile.
#[test]
fn a_scrub_does_not_revert_concurrent_catalogue_updates() {
    let (fixture, plan) = faulty("4+2");
    let files = fill(&fixture, &mut TestRng(8), 3);
    fixture.protect_all();
    let other = Vault::open(&Location::of(&fixture.root(), None), fixture.clock.clone()).unwrap();
    let (changed, gone) = (files[0].0.clone().into_bytes(), files[1].0.clone().into_bytes());
    let before = other.catalogue.find(&changed).unwrap().unwrap();
    let anew = Entry { protected_at: before.protected_at + SECOND, ..before };
    let (path, moved, noted) = (changed.clone(), gone.clone(), anew.clone());
    let mut first = true;
    plan.set(move |point, _| {
        if point == Point::Read && std::mem::take(&mut first) {
            other.catalogue.put(&path, &noted).unwrap();
            other.catalogue.forget(&moved).unwrap();
        }
        // Every read returns corrupt data.
        (point == Point::Read).then_some(InjectedFault::Rot)
    });
    let report = fixture.scrub();
    assert_eq!((report.files, report.changing, report.damage.len()), (1, 2, 1), "{report:?}");
    assert_eq!(fixture.vault.catalogue.find(&changed).unwrap(), Some(anew));
    assert_eq!(fixture.vault.catalogue.find(&gone).unwrap(), None);
}

/// Random faults everywhere; the next run without faults corrects everything.
#[test]
fn any_mixture_of_faults_is_survived() {
    for seed in 0..30 {
        let mut rng = TestRng(seed);
        let (fixture, plan) = faulty(["4+2", "2+1", "8+2"][(seed % 3) as usize]);
        let mut files = fill(&fixture, &mut rng, 8);
        for _ in 0..4 {
            let mut own = TestRng(rng.next());
            let share = 3 + own.below(30);
            plan.set(move |point, path| {
                let ills = match point {
                    Point::Read => &[InjectedFault::Eio, InjectedFault::Timeout, InjectedFault::Short][..],
                    Point::Find => &[InjectedFault::Eio, InjectedFault::Another],
                    _ => &[InjectedFault::Eio],
                };
                let fault = ills[own.below(ills.len() as u64) as usize];
                (own.below(share) == 0 && !path.is_empty()).then_some(fault)
            });
            let report = fixture.protect();
            assert_eq!(report.done.removed, 0, "seed {seed}: {report:?}");
            fixture.scrub();
            for (name, content) in &mut files {
                // In half of the cases the file is also written.
                if rng.below(2) == 0 {
                    let size = rng.below(20_000) as usize;
                    *content = rng.bytes(size);
                    fixture.write(name, content);
                }
            }
        }
        assert_converges(&fixture, &plan, &files);
    }
}
