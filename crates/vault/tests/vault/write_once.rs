//! Write-once rules: a changed file is damage until a person accepts it.

use super::playground::{Playground, QUIET, Seed};
use gabion_vault::accept;
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::protect;
use gabion_vault::repair::{self, Options};
use std::time::{Duration, UNIX_EPOCH};

const POLICY: &str = "[default]\nwrite_once = true\ncode = \"4+2\"\n";

/// `gabion work` and every other worker encoded what the changelog had due, without asking whether the file may change: the redundancy of the
/// archived content was replaced, exit code 0.
#[test]
fn workers_do_not_encode_a_changed_write_once_file() {
    let ground = Playground::with_policy(POLICY);
    ground.write("a", b"as it was written");
    ground.protect_all();
    let redundancy = std::fs::read(ground.redundancy("a")).unwrap();
    ground.write("a", b"changed");
    let now = ground.clock.now();
    ground.vault.changelog.record(&[Change::modify_whole(b"a".to_vec(), When::now(now, 100))]).unwrap();
    let done = protect::work(&ground.vault, QUIET).unwrap();
    assert_eq!((done.write_once, done.encoded), (vec![b"a".to_vec()], 0));
    assert_eq!(std::fs::read(ground.redundancy("a")).unwrap(), redundancy);
    // It is damage for everyone who looks, also without a scan.
    assert_eq!(ground.vault.catalogue.affected().unwrap(), [(State::Damaged, 1)]);
    assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 0);
}

/// Repair leaves the change alone unless it is told to revert it; then all is well again without an approval.
#[test]
fn repair_brings_back_write_once_content_only_when_it_is_told_to() {
    let ground = Playground::with_policy(POLICY);
    let content = Seed(1).bytes(100_000);
    ground.write("a", &content);
    ground.protect_all();
    let mut changed = content.clone();
    changed[50_000] ^= 1;
    ground.write("a", &changed);
    assert_eq!(ground.protect().affected, [(State::Damaged, 1)]);
    let plan = |keep_changed| {
        let options = Options { known_only: false, keep_changed, missing: false };
        repair::plan(&ground.vault, b"", options, QUIET).unwrap()
    };
    assert_eq!((plan(true).files.len(), plan(true).kept.len()), (0, 1));
    assert_eq!(plan(false).files.len(), 1);
    assert_eq!(ground.repair("a").state, State::Protected);
    assert!(ground.read("a") == content);
    let report = ground.protect_all();
    assert!(report.seen.write_once.is_empty() && report.affected.is_empty(), "{report:?}");
}

/// An approval is for one version: a file that changes again is reported again.
#[test]
fn an_accepted_version_is_protected_and_a_later_one_is_not() {
    let ground = Playground::with_policy(POLICY);
    ground.write("dir/a", b"as it was written");
    ground.write("b", b"as it was written, too");
    ground.protect_all();
    ground.write("dir/a", b"changed");
    ground.write("b", b"changed, too");
    let changed = accept::changed(&ground.vault, b"dir", QUIET).unwrap();
    assert_eq!(changed, [b"dir/a".to_vec()]);
    accept::accept(&ground.vault, &changed).unwrap();
    ground.write("dir/a", b"changed once more");
    let report = ground.protect();
    assert_eq!((report.seen.write_once.len(), report.done.encoded), (2, 0), "{report:?}");
    assert!(
        !ground.vault.catalogue.has_accepted().unwrap(),
        "an approval of a version that is gone is forgotten"
    );
    accept::accept(&ground.vault, &changed).unwrap();
    let report = ground.protect();
    assert_eq!(report.done.encoded, 1, "{report:?}");
    assert_eq!((report.seen.write_once, report.affected), (vec![b"b".to_vec()], vec![(State::Damaged, 1)]));
    assert!(!ground.vault.catalogue.has_accepted().unwrap());
    assert_eq!(ground.state("dir/a"), State::Protected);
}

/// A rule about age stopped to apply with the very change that it forbids: the file was young again, and accepted.
#[test]
fn a_rule_about_old_files_holds_for_the_version_that_was_protected() {
    let ground = Playground::with_policy(
        "[default]\ncode = \"4+2\"\n[[rule]]\nname = \"archive\"\nolder = \"30d\"\nwrite_once = true\n",
    );
    for name in ["old", "young"] {
        ground.write(name, b"as it was written");
    }
    let days_ago = |days: u64| UNIX_EPOCH + Duration::from_secs(1_800_000_000 - days * 86_400);
    let set_time = |name: &str, days| {
        std::fs::File::options()
            .write(true)
            .open(ground.path(name))
            .unwrap()
            .set_modified(days_ago(days))
            .unwrap();
    };
    set_time("old", 40);
    set_time("young", 2);
    ground.protect_all();
    for name in ["old", "young"] {
        ground.write(name, b"changed");
        set_time(name, 1);
    }
    let report = ground.protect();
    assert_eq!((report.seen.write_once, report.done.encoded), (vec![b"old".to_vec()], 1));
}
