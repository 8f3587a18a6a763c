//! Storage that fails: reads, listings and writes go wrong as a plan says, and nothing is taken for what it is not.

mod adapter;

use super::playground::{Playground, QUIET, Seed, flip, rot};
use adapter::{Faulty, Ill, Plan, Point};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::changelog::{Change, When, WorkerId};
use gabion_vault::protect;
use gabion_vault::repair;
use gabion_vault::storage::plain::Plain;
use gabion_vault::tree::Tree;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::SECOND;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A tree on storage that fails as the plan says; it says nothing yet.
fn faulty(code: &str) -> (Playground, Plan) {
    let mut ground = Playground::new(code);
    let plan = Plan(Arc::new(Mutex::new(Box::new(|_, _| None))));
    let plain = Plain::new(Tree::open(&ground.root()).unwrap(), ground.vault.repository.clone());
    ground.vault.storage = Box::new(Faulty { inner: plain, plan: plan.clone() });
    (ground, plan)
}

/// Files in some directories, of all sizes; gives name and content.
fn fill(ground: &Playground, chance: &mut Seed, count: u64) -> Vec<(String, Vec<u8>)> {
    let some = |number: u64, chance: &mut Seed| {
        let size = chance.below(1 << (4 + number % 14)) as usize + 1;
        (format!("d{}/file {number:02}", number % 3), chance.bytes(size))
    };
    let files: Vec<_> = (0..count).map(|number| some(number, chance)).collect();
    files.iter().for_each(|(name, content)| ground.write(name, content));
    files
}

/// After a run in which nothing went wrong: all is protected, clean, and as it was written.
fn assert_converges(ground: &Playground, plan: &Plan, files: &[(String, Vec<u8>)]) {
    plan.clear();
    ground.protect_all();
    ground.assert_clean();
    assert_eq!(ground.vault.catalogue.count().unwrap(), files.len() as u64);
    for (name, content) in files {
        assert!(ground.read(name) == *content, "{name}");
    }
    assert!(ground.protect_all().seen.changes.is_empty());
    assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 0);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_protected() {
    for seed in 0..12 {
        let mut chance = Seed(seed);
        let (ground, plan) = faulty("4+2");
        let files = fill(&ground, &mut chance, 12);
        let ill: Vec<(Vec<u8>, Ill)> = files
            .iter()
            .filter(|_| chance.below(3) == 0)
            .map(|(name, _)| {
                let ill = [Ill::Eio, Ill::Timeout, Ill::Short][(seed % 3) as usize];
                (name.clone().into_bytes(), ill)
            })
            .collect();
        let rule = ill.clone();
        plan.set(move |point, path| {
            let found = rule.iter().find(|(name, _)| name == path && point == Point::Read);
            found.map(|(_, ill)| *ill)
        });
        let report = ground.protect();
        let failed: BTreeSet<&[u8]> = report.done.failed.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!(failed, ill.iter().map(|(path, _)| &path[..]).collect(), "seed {seed}");
        for (path, why) in &report.done.failed {
            let ill = ill.iter().find(|(name, _)| name == path).unwrap().1;
            let reason = match ill {
                Ill::Eio => "Input/output error",
                Ill::Timeout => "no answer within 30000 ms",
                _ => "changed while it was read",
            };
            assert!(why.contains(reason), "{why}");
        }
        assert_eq!(report.done.encoded, 12 - ill.len() as u64);
        for (name, _) in &files {
            let is_ill = ill.iter().any(|(ill, _)| ill == name.as_bytes());
            assert_eq!(ground.redundancy(name).exists(), !is_ill, "{name}");
        }
        // Tried again at once, by hand: nobody has to wait for the time of a retry.
        assert_converges(&ground, &plan, &files);
    }
}

#[test]
fn old_redundancy_survives_what_cannot_be_read_now() {
    for ill in [Ill::Eio, Ill::Timeout, Ill::Short, Ill::Another] {
        let (ground, plan) = faulty("4+2");
        let files = fill(&ground, &mut Seed(1), 6);
        ground.protect_all();
        let before: Vec<Vec<u8>> =
            files.iter().map(|(name, _)| std::fs::read(ground.redundancy(name)).unwrap()).collect();
        let changed: Vec<_> =
            files.iter().map(|(name, content)| (name.clone(), [&content[..], b"more"].concat())).collect();
        changed.iter().for_each(|(name, content)| ground.write(name, content));
        // The version is asked for at the end once more.
        let point = if ill == Ill::Another { Point::Find } else { Point::Read };
        let mut asked = 0;
        plan.set(move |at, _| {
            asked += u32::from(at == point);
            (at == point && (point == Point::Read || asked > 6)).then_some(ill)
        });
        let report = ground.protect();
        assert_eq!(report.done.failures, 6, "{ill:?}: {report:?}");
        for ((name, _), before) in files.iter().zip(&before) {
            assert!(std::fs::read(ground.redundancy(name)).unwrap() == *before, "{ill:?}: {name}");
        }
        assert_converges(&ground, &plan, &changed);
    }
}

#[test]
fn what_cannot_be_listed_is_no_deletion() {
    for point in [Point::Folder, Point::Stat, Point::Find, Point::Open] {
        for whole in [false, true] {
            let (ground, plan) = faulty("4+2");
            let files = fill(&ground, &mut Seed(2), 9);
            ground.protect_all();
            let mut chance = Seed(point as u64);
            plan.set(move |at, path| {
                let hit = whole && !path.is_empty() || path.starts_with(b"d1") || chance.below(7) == 0;
                (at == point && hit && !path.is_empty()).then_some(Ill::Eio)
            });
            // A write elsewhere, so that there is something to do.
            ground.write("d2/file 02", b"changed");
            let report = ground.protect();
            match point {
                Point::Folder | Point::Stat => {
                    assert!(!report.seen.unreadable.is_empty(), "{report:?}");
                    let named = report.seen.unreadable.iter().all(|(_, why)| why.contains("Input/output"));
                    assert!(named, "{report:?}");
                }
                _ => {}
            }
            assert_eq!(report.done.removed, 0, "{point:?}");
            for (name, _) in &files {
                assert!(ground.redundancy(name).exists(), "{point:?}: {name} has lost its redundancy");
                let known = ground.vault.catalogue.find(name.as_bytes()).unwrap();
                assert!(known.is_some(), "{point:?}: {name} is forgotten");
            }
            let mut files = files;
            files[2].1 = b"changed".to_vec();
            assert_converges(&ground, &plan, &files);
        }
    }
}

#[test]
fn a_root_that_cannot_be_read_ends_the_run_with_its_name() {
    let (ground, plan) = faulty("4+2");
    let files = fill(&ground, &mut Seed(3), 3);
    ground.protect_all();
    plan.set(|point, path| (point == Point::Folder && path.is_empty()).then_some(Ill::Eio));
    let error = protect::protect(&ground.vault, QUIET).unwrap_err().to_string();
    assert!(error.contains("tree") && error.contains("Input/output error"), "{error}");
    assert_converges(&ground, &plan, &files);
}

/// The old name of a file that has a second one could not be looked at: it was taken for gone, and the file for moved.
#[test]
fn a_second_name_is_no_move_because_the_first_cannot_be_looked_at() {
    let (ground, plan) = faulty("4+2");
    ground.write("first", b"content");
    ground.protect_all();
    std::fs::hard_link(ground.path("first"), ground.path("second")).unwrap();
    plan.set(|point, path| (point == Point::Find && path == b"first").then_some(Ill::Eio));
    let report = ground.protect();
    assert_eq!(report.done.moved, 0);
    assert!(ground.vault.catalogue.find(b"first").unwrap().is_some());
    let files = ["first", "second"].map(|name| (name.to_owned(), b"content".to_vec()));
    assert_converges(&ground, &plan, &files);
}

#[test]
fn scrub_says_what_it_could_not_read_and_changes_nothing() {
    let (ground, plan) = faulty("4+2");
    let files: Vec<_> = (0..3).map(|at| (format!("f{at}"), Seed(at).bytes(50_000))).collect();
    files.iter().for_each(|(name, content)| ground.write(name, content));
    ground.protect_all();
    let redundancy = |name: &str| std::fs::read(ground.redundancy(name)).unwrap();
    let before: Vec<_> = files.iter().map(|(name, _)| redundancy(name)).collect();
    for (share, state) in [(2, State::Damaged), (3, State::Lost)] {
        // Blocks are read column by column: the first `share` of every four fail.
        let mut reads = 0;
        plan.set(move |point, path| {
            let at = reads % 4;
            reads += u64::from(point == Point::Read && path == b"f1");
            (point == Point::Read && path == b"f1" && at < share).then_some(Ill::Eio)
        });
        let report = ground.scrub();
        let [trouble] = &report.trouble[..] else { panic!("{report:?}") };
        assert_eq!((&trouble.path[..], trouble.state), (&b"f1"[..], state));
        // It is back: so is the state.
        plan.clear();
        ground.assert_clean();
        assert_eq!(ground.vault.catalogue.find(b"f1").unwrap().unwrap().state, State::Protected);
    }
    for ((name, _), before) in files.iter().zip(&before) {
        assert!(redundancy(name) == *before);
    }
    assert_converges(&ground, &plan, &files);
}

#[test]
fn files_that_cannot_be_opened_are_named_by_scrub_and_repair() {
    let (ground, plan) = faulty("4+2");
    let files = fill(&ground, &mut Seed(4), 4);
    ground.protect_all();
    plan.set(|point, path| (point == Point::Open && path.starts_with(b"d1")).then_some(Ill::Eio));
    let scrub = ground.scrub();
    assert_eq!((scrub.files, scrub.trouble.len(), scrub.failed.len()), (3, 0, 1), "{scrub:?}");
    let (path, why) = &scrub.failed[0];
    assert!(path.starts_with(b"d1") && why.contains("Input/output error"), "{why}");
    let planned = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert_eq!((planned.files.len(), &planned.failed), (0, &scrub.failed));
    let error = repair::repair(&ground.vault, path, QUIET).unwrap_err().to_string();
    assert!(error.contains("Input/output error"), "{error}");
    assert_converges(&ground, &plan, &files);
}

/// Damages up to m blocks of every stripe of a file, or cuts it.
fn damage(ground: &Playground, name: &str, content: &[u8], chance: &mut Seed) {
    let path = ground.path(name);
    if chance.below(4) == 0 {
        let cut = content.len() - content.len() / 8;
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(cut as u64).unwrap();
        file.set_modified(time).unwrap();
        return;
    }
    // One piece that is a quarter long touches at most two columns of any stripe.
    let piece = content.len() / 4;
    let start = chance.below((content.len() - piece) as u64);
    for _ in 0..4 {
        let at = start + chance.below(piece as u64 - 9);
        rot(&path, at, &chance.bytes(9));
    }
}

/// A repair fails at each of its steps in turn. Half of the blocks are back then, the others are as bad as before, and
/// the redundancy can still bring them back, even if a run that protects comes between.
#[test]
fn a_repair_that_fails_in_the_middle_is_repeated_without_loss() {
    for seed in 0..30 {
        let mut chance = Seed(seed);
        let (ground, plan) = faulty("4+2");
        let files: Vec<_> = (0..4)
            .map(|at| {
                let size = 4096 * 4 * (1 + chance.below(5)) as usize - chance.below(4000) as usize;
                (format!("f{at}"), chance.bytes(size))
            })
            .collect();
        files.iter().for_each(|(name, content)| ground.write(name, content));
        ground.protect_all();
        files[..3].iter().for_each(|(name, content)| damage(&ground, name, content, &mut chance));
        flip(&ground.redundancy("f3"), 300);
        let point = [Point::OpenForRepair, Point::Write, Point::Write, Point::SetSize, Point::Finish]
            [(seed % 5) as usize];
        let mut before = chance.below(3);
        plan.set(move |at, _| {
            if at != point || before > 0 {
                before -= u64::from(at == point);
                return None;
            }
            Some(Ill::Eio)
        });
        let mut interrupted = 0;
        for (name, content) in &files {
            let damaged = ground.read(name);
            let _lock = ground.vault.lock("test").unwrap();
            match repair::repair(&ground.vault, name.as_bytes(), QUIET) {
                Ok(done) => assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}"),
                Err(error) => {
                    interrupted += 1;
                    assert!(error.to_string().contains("Input/output error"), "{error}");
                    for (at, now) in ground.read(name).iter().enumerate() {
                        let worse = *now != content[at] && damaged.get(at).is_some_and(|was| was != now);
                        assert!(!worse, "seed {seed}: byte {at} of {name} is worse than it was");
                    }
                }
            }
        }
        plan.clear();
        ground.clock.set(ground.clock.now() + 3600 * SECOND);
        if interrupted > 0 && seed % 2 == 0 {
            // What comes along every night must not take half a repair for someone's work.
            let report = ground.protect();
            assert_eq!(report.done.encoded + report.done.adopted, 0, "seed {seed} {point:?}: {report:?}");
        }
        let listed = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
        assert_eq!(listed.files.len(), interrupted, "seed {seed} {point:?}: {listed:?}");
        for (name, content) in &files {
            let done = ground.repair(name);
            assert_eq!(done.state, State::Protected, "seed {seed} {point:?}: {done:?}");
            assert!(ground.read(name) == *content, "seed {seed} {point:?}: {name}");
        }
        ground.clock.set(ground.clock.now() + 3600 * SECOND);
        assert_converges(&ground, &plan, &files);
    }
}

/// A file that only grew has no bad block. Whoever was killed after cutting it and before putting its time back left it with
/// right bytes and a time that nothing would have mended any more.
#[test]
fn a_file_that_was_only_cut_back_gets_its_time_from_the_next_repair() {
    let (ground, plan) = faulty("4+2");
    let content = Seed(5).bytes(50_000);
    ground.write("f", &content);
    let protected = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(ground.path("f")).unwrap().set_modified(protected).unwrap();
    ground.protect_all();
    let modified = || std::fs::metadata(ground.path("f")).unwrap().modified().unwrap();
    ground.write("f", &[&content[..], b"appended"].concat());
    assert_ne!(modified(), protected);
    plan.set(|at, _| (at == Point::Finish).then_some(Ill::Eio));
    let lock = ground.vault.lock("test").unwrap();
    repair::repair(&ground.vault, b"f", QUIET).unwrap_err();
    drop(lock);
    plan.clear();
    assert!(ground.read("f") == content, "cut back");
    assert_eq!(ground.protect().done.encoded, 0, "half a repair is nobody's work");
    let listed = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert_eq!(listed.files.len(), 1, "{listed:?}");
    assert_eq!(ground.repair("f").state, State::Protected);
    assert_eq!(modified(), protected);
    ground.clock.set(ground.clock.now() + 3600 * SECOND);
    assert_converges(&ground, &plan, &[("f".to_owned(), content)]);
}

/// A file whose repair was interrupted and that is then deleted, or written anew, is as any other.
#[test]
fn an_interrupted_repair_does_not_stand_in_the_way_of_its_owner() {
    let (ground, plan) = faulty("4+2");
    let content = Seed(1).bytes(30_000);
    ground.write("file", &content);
    ground.write("stays", b"");
    ground.protect_all();
    flip(&ground.path("file"), 77);
    plan.set(|point, _| (point == Point::Finish).then_some(Ill::Eio));
    repair::repair(&ground.vault, b"file", QUIET).unwrap_err();
    plan.clear();
    let report = ground.protect();
    let [(path, why)] = &report.done.failed[..] else { panic!("{report:?}") };
    assert!(path == b"file" && why.contains("run `gabion repair`"), "{why}");
    std::fs::remove_file(ground.path("file")).unwrap();
    assert_eq!(ground.protect_all().done.removed, 1);
    ground.write("file", b"another file");
    let files = [("file".to_owned(), b"another file".to_vec()), ("stays".to_owned(), Vec::new())];
    assert_converges(&ground, &plan, &files);
}

/// Damage that scrub found was protected as if it were new as soon as someone changed permissions or the policy, and what
/// could have repaired it was gone.
#[test]
fn known_damage_is_not_protected_as_if_it_were_new() {
    let (mut ground, plan) = faulty("4+2");
    let content = Seed(1).bytes(60_000);
    for name in ["rotten", "lost"] {
        ground.write(name, &content);
    }
    ground.protect_all();
    flip(&ground.path("rotten"), 100);
    [0, 15_104, 30_208].iter().for_each(|&at| flip(&ground.path("lost"), at + 100));
    ground.scrub();
    assert_eq!(ground.repair("lost").state, State::Lost);
    let before = ["rotten", "lost"].map(|name| std::fs::read(ground.redundancy(name)).unwrap());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(ground.path("rotten"), mode).unwrap();
    for policy in ["4+2", "4+3"] {
        let policy = format!("[default]\ncode = \"{policy}\"\nblock = \"4KiB\"\n");
        ground.vault.set_policy(&policy).unwrap();
        let report = ground.protect();
        assert_eq!(report.done.encoded, 0, "{report:?}");
        assert_eq!(report.affected, [(State::Damaged, 1), (State::Lost, 1)]);
        let after = ["rotten", "lost"].map(|name| std::fs::read(ground.redundancy(name)).unwrap());
        assert!(before == after);
    }
    assert_eq!(ground.repair("rotten").state, State::Protected);
    assert!(ground.read("rotten") == content);
    // What was lost is put back from elsewhere, and protected as before.
    ground.write("lost", &content);
    assert_eq!(ground.protect_all().done.encoded, 2);
    let files = ["lost", "rotten"].map(|name| (name.to_owned(), content.clone()));
    assert_converges(&ground, &plan, &files);
}

/// Rot that nobody has found yet went into new redundancy when the policy asked for another code.
#[test]
fn redundancy_is_not_made_anew_from_rot() {
    let (mut ground, plan) = faulty("4+2");
    let files = fill(&ground, &mut Seed(6), 6);
    ground.protect_all();
    let before: Vec<_> =
        files.iter().map(|(name, _)| std::fs::read(ground.redundancy(name)).unwrap()).collect();
    ground.vault.set_policy("[default]\ncode = \"5+3\"\nblock = \"4KiB\"\n").unwrap();
    for (ill, failures, damaged) in [(Ill::Eio, 2, 0), (Ill::Rot, 0, 2)] {
        plan.set(move |point, path| (point == Point::Read && path.starts_with(b"d1")).then_some(ill));
        let report = ground.protect();
        assert_eq!((report.done.failures, report.done.damaged.len()), (failures, damaged), "{report:?}");
        assert!(report.done.failed.iter().all(|(_, why)| why.contains("Input/output error")), "{report:?}");
        for ((name, _), before) in files.iter().zip(&before).filter(|((name, _), _)| name.starts_with("d1")) {
            assert!(std::fs::read(ground.redundancy(name)).unwrap() == *before, "{name}");
        }
    }
    // It was the reading that failed: another look finds nothing.
    plan.clear();
    ground.assert_clean();
    assert_converges(&ground, &plan, &files);
}

/// What a file held that was repaired is kept, also where it had become longer.
#[test]
fn what_a_repair_cuts_off_is_kept_whatever_the_storage_is() {
    let (ground, plan) = faulty("4+2");
    let content = Seed(1).bytes(30_000);
    ground.write("file", &content);
    ground.protect_all();
    let longer = [&content[..], &Seed(2).bytes(9000)].concat();
    ground.write("file", &longer);
    plan.clear();
    let done = ground.repair("file");
    assert_eq!(done.state, State::Protected);
    assert!(ground.read("file") == content);
    let replaced = std::fs::read(done.replaced.unwrap()).unwrap();
    assert!(replaced[30_000..] == longer[30_000..]);
}

/// Another worker took everything over while a file was read for longer than a lease. That ended the run of the first with
/// an error, where it has only to leave alone what is not its own any more.
#[test]
fn a_worker_that_lost_its_claims_goes_on_with_the_rest() {
    for ill in [None, Some(Ill::Eio)] {
        let (ground, plan) = faulty("4+2");
        let files = fill(&ground, &mut Seed(5), 9);
        let clock = ground.clock.clone();
        let other = Vault::open(&Location::of(&ground.root(), None), clock.clone()).unwrap();
        let mut first = true;
        plan.set(move |point, _| {
            if point == Point::Read && std::mem::take(&mut first) {
                clock.set(clock.now() + 3600 * SECOND);
                let worker = WorkerId("elsewhere/1/1".to_owned());
                let claims = other.changelog.claim(&worker, 5, SECOND, clock.now()).unwrap();
                assert_eq!(claims.len(), 5);
                clock.set(clock.now() + 3600 * SECOND);
            }
            ill.filter(|_| point == Point::Read)
        });
        let report = ground.protect();
        // What another worker took over has not failed; when that one is gone, it is done once more.
        match ill {
            None => assert_eq!((report.done.encoded, report.done.failures), (9, 0), "{report:?}"),
            Some(_) => assert!(report.done.failures >= 9, "{report:?}"),
        }
        assert_converges(&ground, &plan, &files);
    }
}

/// A file got another name while its redundancy was made. The claim on the old one stayed until its lease ran out, half a minute
/// during which nobody could protect the file, and it was said that another worker had it.
#[test]
fn a_file_that_is_renamed_while_it_is_read_is_protected_in_the_same_run() {
    for ill in [None, Some(Ill::Eio)] {
        let (ground, plan) = faulty("4+2");
        let files = fill(&ground, &mut Seed(6), 3);
        let root = ground.root();
        let (old, clock) = (files[0].0.clone(), ground.clock.clone());
        let other = Vault::open(&Location::of(&root, None), clock.clone()).unwrap();
        let mut first = true;
        plan.set(move |point, path| {
            if point != Point::Read || path != old.as_bytes() || !std::mem::take(&mut first) {
                return None;
            }
            std::fs::rename(root.join(&old), root.join("renamed")).unwrap();
            let renamed = Change::rename(old.as_str(), "renamed", When::now(clock.now(), 0));
            other.changelog.record(&[renamed]).unwrap();
            ill
        });
        let report = ground.protect_all();
        assert_eq!(report.pending, 0, "{report:?}");
        let (name, content) = &files[0];
        assert!(!ground.redundancy(name).exists() && ground.redundancy("renamed").exists());
        assert!(ground.read("renamed") == *content);
        plan.clear();
        ground.assert_clean();
    }
}

/// A scrub wrote back what it had read of a file, although that was protected anew while it was examined: the catalogue then knew an older version.
#[test]
fn a_scrub_takes_nothing_back_that_others_noted_meanwhile() {
    let (ground, plan) = faulty("4+2");
    let files = fill(&ground, &mut Seed(8), 3);
    ground.protect_all();
    let other = Vault::open(&Location::of(&ground.root(), None), ground.clock.clone()).unwrap();
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
        // Whatever is read is not what was protected.
        (point == Point::Read).then_some(Ill::Rot)
    });
    let report = ground.scrub();
    assert_eq!((report.files, report.changing, report.trouble.len()), (1, 2, 1), "{report:?}");
    assert_eq!(ground.vault.catalogue.find(&changed).unwrap(), Some(anew));
    assert_eq!(ground.vault.catalogue.find(&gone).unwrap(), None);
}

/// Chance decides everywhere at once; whatever happens, the next run without faults makes it good.
#[test]
fn any_mixture_of_faults_is_survived() {
    for seed in 0..30 {
        let mut chance = Seed(seed);
        let (ground, plan) = faulty(["4+2", "2+1", "8+2"][(seed % 3) as usize]);
        let mut files = fill(&ground, &mut chance, 8);
        for _ in 0..4 {
            let mut own = Seed(chance.next());
            let share = 3 + own.below(30);
            plan.set(move |point, path| {
                let ills = match point {
                    Point::Read => &[Ill::Eio, Ill::Timeout, Ill::Short][..],
                    Point::Find => &[Ill::Eio, Ill::Another],
                    _ => &[Ill::Eio],
                };
                let ill = ills[own.below(ills.len() as u64) as usize];
                (own.below(share) == 0 && !path.is_empty()).then_some(ill)
            });
            let report = ground.protect();
            assert_eq!(report.done.removed, 0, "seed {seed}: {report:?}");
            ground.scrub();
            for (name, content) in &mut files {
                // Half of the time someone writes to it.
                if chance.below(2) == 0 {
                    let size = chance.below(20_000) as usize;
                    *content = chance.bytes(size);
                    ground.write(name, content);
                }
            }
        }
        assert_converges(&ground, &plan, &files);
    }
}
