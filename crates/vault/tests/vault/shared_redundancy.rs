//! Files with equal redundancy share it (`share_duplicates`).

mod history;
mod killed;

use super::fixture::{Fixture, QUIET, TestRng, flip, rebuild_catalogue, rot};
use gabion_vault::catalogue::State;
use gabion_vault::deduplication::{self, SharedAmount, Sharing};
use gabion_vault::format::FileId;
use gabion_vault::redundancy::PartPath;
use gabion_vault::tree::Tree;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const SIZE: usize = 400_000;

const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nshare_duplicates = true\n\
    [guard]\nat_least = 100000\n";

fn content(seed: u64) -> Vec<u8> {
    TestRng(seed).bytes(SIZE)
}

/// The body whose frames a file uses, and none if it has frames of its own.
fn body_of(fixture: &Fixture, name: &str) -> Option<FileId> {
    let path = [b"redundancy/", name.as_bytes()].concat();
    let place = PartPath { tree: Tree::open(&fixture.root().join(".gabion")).unwrap(), path };
    place.open(&fixture.vault.coders).unwrap().unwrap().header.body()
}

/// Files below `shared`: bodies, those that are not in use, and links.
fn shared(fixture: &Fixture) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for part in fs::read_dir(fixture.root().join(".gabion/shared")).into_iter().flatten() {
        found.extend(fs::read_dir(part.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    found.sort();
    found
}

fn bodies(fixture: &Fixture) -> Vec<PathBuf> {
    let is_body = |path: &PathBuf| path.file_name().unwrap().len() == 32;
    shared(fixture).into_iter().filter(is_body).collect()
}

fn amount(fixture: &Fixture) -> SharedAmount {
    deduplication::amount(&fixture.vault).unwrap()
}

/// Protects and expects no failures, those of shared redundancy included.
fn protect(fixture: &Fixture) -> Sharing {
    let report = fixture.protect_all();
    assert_eq!(report.sharing.failed, Vec::<String>::new());
    assert_eq!(report.affected, [], "{report:?}");
    report.sharing
}

/// Files `one` and `two` with the same content, and `another`, protected.
fn begin() -> (Fixture, Vec<u8>) {
    let fixture = Fixture::with_policy(POLICY);
    fixture.write("one", &content(3));
    fixture.write("sub/two", &content(3));
    fixture.write("another", &content(4));
    let survey = deduplication::survey(&fixture.vault, QUIET).unwrap();
    assert_eq!(survey, Sharing::default(), "nothing is protected");
    let sharing = protect(&fixture);
    assert_eq!((sharing.files, amount(&fixture).files), (2, 2));
    (fixture, content(3))
}

/// Damages data as far as redundancy restores it, and repairs it.
fn damage_and_repair(fixture: &Fixture, name: &str, content: &[u8]) {
    rot(&fixture.path(name), 1000, &[0xa5; 3000]);
    flip(&fixture.path(name), 250_000);
    assert_eq!(fixture.state(name), State::Damaged);
    let done = fixture.repair(name);
    assert_eq!(done.state, State::Protected, "{done:?}");
    assert!(fixture.read(name) == content);
}

#[test]
fn equal_files_share_redundancy_until_one_changes() {
    let (fixture, content) = begin();
    let body = body_of(&fixture, "one");
    assert!(body.is_some());
    assert_eq!(body, body_of(&fixture, "sub/two"));
    assert_eq!(body_of(&fixture, "another"), None);
    fixture.assert_clean();
    let bytes = bodies(&fixture)[0].metadata().unwrap().len();
    assert_eq!(amount(&fixture), SharedAmount { files: 2, bodies: 1, saved: bytes });
    assert!(fixture.redundancy("one").metadata().unwrap().len() <= 1024);
    ["one", "sub/two"].into_iter().for_each(|name| damage_and_repair(&fixture, name, &content));
    // Nothing is left to do.
    assert_eq!(protect(&fixture), Sharing::default());
    assert_eq!(body, body_of(&fixture, "one"));

    // A third one joins.
    fixture.write("three", &content);
    let sharing = protect(&fixture);
    assert_eq!((sharing.files, sharing.saved), (1, bytes));
    assert_eq!(body, body_of(&fixture, "three"));

    let mut changed = content.clone();
    changed[200_000] ^= 1;
    fixture.write("one", &changed);
    protect(&fixture);
    assert_eq!(body_of(&fixture, "one"), None);
    assert_eq!(body, body_of(&fixture, "sub/two"));
    assert_eq!(amount(&fixture), SharedAmount { files: 2, bodies: 1, saved: bytes });
    fixture.assert_clean();
    damage_and_repair(&fixture, "one", &changed);
    damage_and_repair(&fixture, "sub/two", &content);
    damage_and_repair(&fixture, "three", &content);

    // The last references go: the body is kept for an hour, then removed.
    fs::remove_file(fixture.path("three")).unwrap();
    fixture.write("sub/two", &content[1..]);
    assert_eq!(protect(&fixture).removed, 0);
    assert_eq!(amount(&fixture), SharedAmount::default());
    assert_eq!((bodies(&fixture), shared(&fixture).len()), (Vec::new(), 3));
    assert_eq!(protect(&fixture).removed, bytes);
    assert_eq!(shared(&fixture), Vec::<PathBuf>::new());
    fixture.assert_clean();
}

#[test]
fn a_survey_says_what_would_be_shared_and_changes_nothing() {
    let mut fixture = Fixture::with_policy(&POLICY.replace("true", "false"));
    for name in ["one", "two", "three"] {
        fixture.write(name, &content(5));
    }
    assert_eq!(protect(&fixture), Sharing::default());
    fixture.vault.set_policy(POLICY).unwrap();
    let survey = deduplication::survey(&fixture.vault, QUIET).unwrap();
    assert_eq!((survey.files, shared(&fixture)), (3, Vec::new()));
    let sharing = protect(&fixture);
    assert_eq!(sharing, survey);
    // The option ends: what is shared stays, and nothing new is.
    fixture.vault.set_policy(&POLICY.replace("true", "false")).unwrap();
    fixture.write("four", &content(5));
    assert_eq!(protect(&fixture), Sharing::default());
    assert_eq!((amount(&fixture).files, body_of(&fixture, "four")), (3, None));
    fixture.assert_clean();
}

#[test]
fn small_files_and_files_that_the_policy_leaves_out_keep_their_own() {
    let policy = format!("{POLICY}[[rule]]\npaths = [\"own/**\"]\nshare_duplicates = false\n");
    let fixture = Fixture::with_policy(&policy);
    for name in ["small", "small too"] {
        fixture.write(name, &TestRng(1).bytes(50_000));
    }
    for name in ["own/one", "own/two", "three"] {
        fixture.write(name, &content(7));
    }
    fixture.write("empty", b"");
    fixture.write("empty too", b"");
    assert_eq!(protect(&fixture), Sharing::default());
    assert_eq!(shared(&fixture), Vec::<PathBuf>::new());
}

#[test]
fn names_links_and_permissions_keep_what_is_shared() {
    let (fixture, content) = begin();
    let body = body_of(&fixture, "one");
    fs::rename(fixture.path("one"), fixture.path("moved")).unwrap();
    fs::rename(fixture.path("sub"), fixture.path("below")).unwrap();
    protect(&fixture);
    assert_eq!((body, body), (body_of(&fixture, "moved"), body_of(&fixture, "below/two")));
    assert_eq!(amount(&fixture).files, 2);
    damage_and_repair(&fixture, "moved", &content);
    // Two files exchange their names.
    fs::rename(fixture.path("moved"), fixture.path("aside")).unwrap();
    fs::rename(fixture.path("another"), fixture.path("moved")).unwrap();
    fs::rename(fixture.path("aside"), fixture.path("another")).unwrap();
    protect(&fixture);
    assert_eq!((body, None), (body_of(&fixture, "another"), body_of(&fixture, "moved")));
    // A hard link has redundancy of its own, which is equal.
    fs::hard_link(fixture.path("another"), fixture.path("link")).unwrap();
    protect(&fixture);
    assert_eq!(body, body_of(&fixture, "link"));
    assert_eq!(amount(&fixture).files, 3);
    damage_and_repair(&fixture, "link", &content);
    // The other name is known to be damaged until it is looked at.
    fixture.assert_clean();
    // What changes metadata makes new redundancy, which is shared again.
    fs::set_permissions(fixture.path("below/two"), fs::Permissions::from_mode(0o640)).unwrap();
    protect(&fixture);
    fixture.assert_clean();
    assert_eq!(body, body_of(&fixture, "below/two"));
    fs::remove_file(fixture.path("below/two")).unwrap();
    protect(&fixture);
    assert_eq!(amount(&fixture).files, 2);
    fixture.assert_clean();
    assert_eq!(bodies(&fixture).len(), 1);
}

#[test]
fn damage_of_shared_frames_is_that_of_all_and_is_repaired_once() {
    let (fixture, content) = begin();
    let body = &bodies(&fixture)[0];
    let before = fs::read(body).unwrap();
    let mut rng = TestRng(8);
    for _ in 0..5 {
        (0..20).for_each(|_| flip(body, rng.below(before.len() as u64)));
        let report = fixture.scrub();
        let names: BTreeSet<&[u8]> = report.damage.iter().map(|damage| &damage.path[..]).collect();
        assert_eq!(names, BTreeSet::from([&b"one"[..], b"sub/two"]));
        let done = fixture.repair("one");
        assert!(done.state == State::Protected && done.redundancy_blocks > 0, "{done:?}");
        assert!(fs::read(body).unwrap() == before);
        fixture.assert_clean();
    }
    // Shorter, and overwritten as a whole.
    for damage in [&before[..before.len() / 2 + 10], &vec![7; before.len()]] {
        fs::write(body, damage).unwrap();
        fixture.repair("sub/two");
        fixture.assert_clean();
        assert!(fs::read(body).unwrap() == before);
    }
    // The data of one file is damaged together with the body: what is left restores both.
    flip(body, 100);
    flip(&fixture.path("one"), 300_000);
    assert_eq!(fixture.repair("one").state, State::Protected);
    assert!(fixture.read("one") == content && fs::read(body).unwrap() == before);
    // Beyond both, the other file has it.
    (0..SIZE as u64).step_by(500).for_each(|at| flip(&fixture.path("one"), at));
    assert_eq!(fixture.repair("one").state, State::Protected);
    assert!(fixture.read("one") == content);
    // The headers of a reference.
    flip(&fixture.redundancy("one"), 20);
    assert_eq!(fixture.state("one"), State::Damaged);
    assert_eq!(fixture.repair("one").state, State::Protected);
    let end = fixture.redundancy("one").metadata().unwrap().len() - 20;
    flip(&fixture.redundancy("one"), end);
    assert_eq!(fixture.repair("one").state, State::Protected);
    fixture.assert_clean();
    assert!(fs::read(body).unwrap() == before);
}

#[test]
fn files_whose_shared_frames_are_gone_are_reported_and_protected_again() {
    let (fixture, content) = begin();
    fs::remove_file(&bodies(&fixture)[0]).unwrap();
    let report = fixture.scrub();
    let found: Vec<(&[u8], State)> =
        report.damage.iter().map(|damage| (&damage.path[..], damage.state)).collect();
    assert_eq!(found, [(&b"one"[..], State::Degraded), (b"sub/two", State::Degraded)]);
    assert!(report.damage[0].notes[0].contains("it shares"), "{report:?}");
    let report = fixture.protect_all();
    assert_eq!(report.affected, [], "{report:?}");
    fixture.assert_clean();
    assert_eq!(body_of(&fixture, "one"), body_of(&fixture, "sub/two"), "they share again");
    assert_eq!(protect(&fixture), Sharing::default());
    assert_eq!(amount(&fixture).files, 2);
    damage_and_repair(&fixture, "one", &content);
}

#[test]
fn a_missing_body_is_reported_by_protect() {
    let (fixture, _) = begin();
    fs::remove_file(&bodies(&fixture)[0]).unwrap();
    let failed = fixture.protect().sharing.failed;
    assert!(matches!(&failed[..], [why] if why.contains("is missing")), "{failed:?}");
}

#[test]
fn a_catalogue_is_rebuilt_from_references() {
    let (fixture, content) = begin();
    let entries = || -> Vec<_> {
        ["one", "sub/two", "another"]
            .map(|name| fixture.vault.catalogue.find(name.as_bytes()).unwrap().unwrap())
            .to_vec()
    };
    let before = entries();
    let rebuilt = rebuild_catalogue(&fixture.vault);
    assert_eq!((rebuilt.files, rebuilt.unusable.len()), (3, 0));
    assert_eq!(entries(), before);
    fixture.assert_clean();
    assert_eq!(protect(&fixture).removed, 0);
    damage_and_repair(&fixture, "one", &content);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Links do not survive `cp -r`, and a body must survive that.
#[test]
fn a_repository_that_was_copied_without_links_counts_again() {
    let (fixture, content) = begin();
    let (repository, aside) = (fixture.root().join(".gabion"), fixture.dir.path().join("aside"));
    fs::rename(&repository, &aside).unwrap();
    copy(&aside, &repository);
    let fixture = fixture.reopen();
    assert_eq!(amount(&fixture), SharedAmount::default(), "no link is one");
    for _ in 0..3 {
        assert_eq!(protect(&fixture).removed, 0);
        assert_eq!((amount(&fixture).files, bodies(&fixture).len(), shared(&fixture).len()), (2, 1, 3));
        fixture.assert_clean();
    }
    damage_and_repair(&fixture, "one", &content);
}

/// Whoever removes links by hand, or restores a repository without them, loses nothing either.
#[test]
fn links_that_are_gone_are_made_again() {
    let (fixture, content) = begin();
    for _ in 0..2 {
        for path in shared(&fixture).iter().filter(|path| path.file_name().unwrap().len() > 32) {
            fs::remove_file(path).unwrap();
        }
        assert_eq!(amount(&fixture), SharedAmount::default());
        assert_eq!(protect(&fixture), Sharing::default());
        assert_eq!((amount(&fixture).files, bodies(&fixture).len(), shared(&fixture).len()), (2, 1, 3));
    }
    damage_and_repair(&fixture, "sub/two", &content);
}

/// As before, and the tree was copied, too: the file with damage keeps its redundancy, under another inode.
#[test]
fn a_tree_that_was_copied_with_its_repository_keeps_what_damaged_files_need() {
    let (fixture, content) = begin();
    rot(&fixture.path("one"), 1000, &[0xa5; 3000]);
    let (root, aside) = (fixture.root(), fixture.dir.path().join("aside"));
    fs::rename(&root, &aside).unwrap();
    copy(&aside, &root);
    for name in ["one", "sub/two", "another"] {
        let times = fs::File::options().write(true).open(fixture.path(name)).unwrap();
        times.set_modified(aside.join(name).metadata().unwrap().modified().unwrap()).unwrap();
    }
    let fixture = fixture.reopen();
    for _ in 0..3 {
        fixture.protect();
        assert_eq!(fixture.state("one"), State::Damaged);
    }
    assert_eq!(fixture.repair("one").state, State::Protected);
    assert!(fixture.read("one") == content);
}

#[test]
fn files_of_different_owners_do_not_share() {
    if !rustix::process::geteuid().is_root() {
        gabion_testkit::skip!("files cannot be given to another user");
        return;
    }
    let fixture = Fixture::with_policy(POLICY);
    for (name, owner) in [("one", 0), ("two", 12_345), ("three", 12_345)] {
        fixture.write(name, &content(6));
        std::os::unix::fs::chown(fixture.path(name), Some(owner), None).unwrap();
    }
    assert_eq!(protect(&fixture).files, 2);
    assert_eq!(body_of(&fixture, "one"), None);
    assert_eq!(body_of(&fixture, "two"), body_of(&fixture, "three"));
    // A file that is given away does not share any more.
    std::os::unix::fs::chown(fixture.path("two"), Some(0), None).unwrap();
    protect(&fixture);
    assert_eq!(body_of(&fixture, "two"), body_of(&fixture, "one"));
    assert_ne!(body_of(&fixture, "two"), body_of(&fixture, "three"));
    fixture.assert_clean();
}

/// Data that was forged to have the same signatures has other redundancy.
#[test]
fn redundancy_is_shared_only_if_all_of_it_is_equal() {
    let fixture = Fixture::with_policy(POLICY);
    fixture.write("one", &content(6));
    let mut other = content(6);
    // In the last stripe.
    other[SIZE - 1] ^= 1;
    fixture.write("two", &other);
    assert_eq!(protect(&fixture), Sharing::default());
    // Redundancy that is damaged is not shared either.
    fixture.write("three", &content(6));
    let _lock = fixture.vault.lock("test").unwrap();
    flip(&fixture.redundancy("one"), 5000);
    drop(_lock);
    assert_eq!(fixture.protect().sharing.files, 0);
    fixture.repair("one");
    fixture.assert_clean();
}

#[test]
fn columns_codes_and_hashes_change_for_files_that_share() {
    let (mut fixture, content) = begin();
    let policies = [
        POLICY.replace("4+2", "4+1"),
        POLICY.replace("4+2", "4+3"),
        POLICY.replace("4KiB", "8KiB"),
        POLICY.replace("share", "strong = true\nshare"),
        POLICY.to_owned(),
    ];
    for policy in policies {
        fixture.vault.set_policy(&policy).unwrap();
        protect(&fixture);
        fixture.assert_clean();
        protect(&fixture);
        let body = body_of(&fixture, "one");
        assert!(body.is_some() && body == body_of(&fixture, "sub/two"), "{policy}");
        assert_eq!(amount(&fixture).files, 2);
        rot(&fixture.path("one"), 1000, &[0xa5; 300]);
        assert_eq!(fixture.repair("one").state, State::Protected);
        assert!(fixture.read("one") == content);
    }
    protect(&fixture);
    assert_eq!(bodies(&fixture).len(), 1);
}

/// Above 1 MiB redundancy is updated in place, which must not reach a body.
#[test]
fn a_change_of_a_large_file_leaves_the_body_alone() {
    let fixture = Fixture::with_policy(POLICY);
    let mut large = TestRng(9).bytes(3_000_000);
    fixture.write("one", &large);
    fixture.write("two", &large);
    assert_eq!(protect(&fixture).files, 2);
    let body = bodies(&fixture).remove(0);
    let before = (fs::read(&body).unwrap(), body.metadata().unwrap().mtime_nsec());
    large[1_500_000] ^= 1;
    fixture.write("one", &large);
    protect(&fixture);
    large.extend([1; 5000]);
    fixture.write("one", &large);
    protect(&fixture);
    assert_eq!(body_of(&fixture, "one"), None);
    assert!((fs::read(&body).unwrap(), body.metadata().unwrap().mtime_nsec()) == before);
    fixture.assert_clean();
    flip(&fixture.path("one"), 77);
    assert_eq!(fixture.repair("one").state, State::Protected);
    assert!(fixture.read("one") == large);
}

#[test]
fn a_write_once_file_keeps_what_it_shares() {
    let policy = format!("{POLICY}[[rule]]\npaths = [\"one\"]\nwrite_once = true\n");
    let (mut fixture, content) = begin();
    fixture.vault.set_policy(&policy).unwrap();
    protect(&fixture);
    let body = body_of(&fixture, "one");
    let mut changed = content.clone();
    changed[7] ^= 1;
    fixture.write("one", &changed);
    let report = fixture.protect();
    assert_eq!(report.seen.write_once, [b"one".to_vec()]);
    assert_eq!(body, body_of(&fixture, "one"));
    assert_eq!(fixture.repair("one").state, State::Protected);
    assert!(fixture.read("one") == content);
}

/// Whatever lies in the place of a body is not read as one, and nothing else is written.
#[test]
fn other_things_in_the_place_of_a_body_are_no_frames() {
    let (fixture, content) = begin();
    fixture.write("a", &TestRng(11).bytes(SIZE));
    fixture.write("b", &TestRng(11).bytes(SIZE));
    protect(&fixture);
    let [one, two] = &bodies(&fixture)[..] else { panic!("two bodies") };
    // Two bodies are exchanged: frames are bound to their id.
    let aside = fixture.dir.path().join("aside");
    fs::rename(one, &aside).unwrap();
    fs::rename(two, one).unwrap();
    fs::rename(&aside, two).unwrap();
    assert_eq!(fixture.scrub().damage.len(), 4);
    for name in ["one", "sub/two", "a", "b"] {
        fixture.repair(name);
    }
    fixture.assert_clean();
    for round in 0..3 {
        fs::remove_file(one).unwrap();
        match round {
            0 => fs::create_dir(one).unwrap(),
            1 => std::os::unix::fs::symlink(two, one).unwrap(),
            _ => drop(std::process::Command::new("mkfifo").arg(one).status().unwrap()),
        }
        let report = fixture.scrub();
        assert_eq!((report.damage.len(), report.failed.len()), (2, 0), "{round}: {report:?}");
        fixture.protect();
        if round == 0 {
            fs::remove_dir(one).unwrap()
        } else {
            fs::remove_file(one).unwrap()
        }
        fs::write(one, b"").unwrap();
        fixture.protect();
        fixture.protect();
        fixture.assert_clean();
        if !one.exists() {
            break;
        }
    }
    for (name, wanted) in [("one", content), ("a", TestRng(11).bytes(SIZE))] {
        assert!(fixture.read(name) == wanted);
        damage_and_repair(&fixture, name, &wanted);
    }
}
