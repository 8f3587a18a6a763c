//! Write-once rules: a changed file is damage until a person accepts it.

use super::fixture::{Fixture, QUIET, TestRng};
use gabion_vault::accept;
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::protect;
use gabion_vault::repair::{self, Options};
use std::time::{Duration, UNIX_EPOCH};

const POLICY: &str = "[default]\nwrite_once = true\ncode = \"4+2\"\n";

/// Regression: `gabion work` and every other worker encoded pending changes of write-once files and replaced the
/// archived content's redundancy.
#[test]
fn workers_do_not_encode_a_changed_write_once_file() {
    let fixture = Fixture::with_policy(POLICY);
    fixture.write("a", b"as it was written");
    fixture.protect_all();
    let redundancy = std::fs::read(fixture.redundancy("a")).unwrap();
    fixture.write("a", b"changed");
    let now = fixture.clock.now();
    fixture.vault.changelog.record(&[Change::modify_whole(b"a".to_vec(), When::now(now, 100))]).unwrap();
    let done = protect::work(&fixture.vault, QUIET).unwrap();
    assert_eq!((done.write_once, done.encoded), (vec![b"a".to_vec()], 0));
    assert_eq!(std::fs::read(fixture.redundancy("a")).unwrap(), redundancy);
    // It is reported as damage by commands without a scan as well.
    assert_eq!(fixture.vault.catalogue.affected().unwrap(), [(State::Damaged, 1)]);
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0);
}

/// Repair leaves the change unless told to revert it; then no approval is needed.
#[test]
fn repair_brings_back_write_once_content_only_when_it_is_told_to() {
    let fixture = Fixture::with_policy(POLICY);
    let content = TestRng(1).bytes(100_000);
    fixture.write("a", &content);
    fixture.protect_all();
    let mut changed = content.clone();
    changed[50_000] ^= 1;
    fixture.write("a", &changed);
    assert_eq!(fixture.protect().affected, [(State::Damaged, 1)]);
    let plan = |keep_changed| {
        let options = Options { known_only: false, keep_changed, missing: false };
        repair::plan(&fixture.vault, b"", options, QUIET).unwrap()
    };
    assert_eq!((plan(true).files.len(), plan(true).kept.len()), (0, 1));
    assert_eq!(plan(false).files.len(), 1);
    assert_eq!(fixture.repair("a").state, State::Protected);
    assert!(fixture.read("a") == content);
    let report = fixture.protect_all();
    assert!(report.seen.write_once.is_empty() && report.affected.is_empty(), "{report:?}");
}

/// An approval is for one version: a later change is reported again.
#[test]
fn an_accepted_version_is_protected_and_a_later_one_is_not() {
    let fixture = Fixture::with_policy(POLICY);
    fixture.write("dir/a", b"as it was written");
    fixture.write("b", b"as it was written, too");
    fixture.protect_all();
    fixture.write("dir/a", b"changed");
    fixture.write("b", b"changed, too");
    let changed = accept::changed(&fixture.vault, b"dir", QUIET).unwrap();
    assert_eq!(changed, [b"dir/a".to_vec()]);
    accept::accept(&fixture.vault, &changed).unwrap();
    fixture.write("dir/a", b"changed once more");
    let report = fixture.protect();
    assert_eq!((report.seen.write_once.len(), report.done.encoded), (2, 0), "{report:?}");
    assert!(
        !fixture.vault.catalogue.has_accepted().unwrap(),
        "an approval of a version that is gone is forgotten"
    );
    accept::accept(&fixture.vault, &changed).unwrap();
    let report = fixture.protect();
    assert_eq!(report.done.encoded, 1, "{report:?}");
    assert_eq!((report.seen.write_once, report.affected), (vec![b"b".to_vec()], vec![(State::Damaged, 1)]));
    assert!(!fixture.vault.catalogue.has_accepted().unwrap());
    assert_eq!(fixture.state("dir/a"), State::Protected);
}

/// Regression: a rule about age stopped to match with the forbidden change, because the file was young again.
#[test]
fn a_rule_about_old_files_holds_for_the_version_that_was_protected() {
    let fixture = Fixture::with_policy(
        "[default]\ncode = \"4+2\"\n[[rule]]\nname = \"archive\"\nolder = \"30d\"\nwrite_once = true\n",
    );
    for name in ["old", "young"] {
        fixture.write(name, b"as it was written");
    }
    let days_ago = |days: u64| UNIX_EPOCH + Duration::from_secs(1_800_000_000 - days * 86_400);
    let set_time = |name: &str, days| {
        std::fs::File::options()
            .write(true)
            .open(fixture.path(name))
            .unwrap()
            .set_modified(days_ago(days))
            .unwrap();
    };
    set_time("old", 40);
    set_time("young", 2);
    fixture.protect_all();
    for name in ["old", "young"] {
        fixture.write(name, b"changed");
        set_time(name, 1);
    }
    let report = fixture.protect();
    assert_eq!((report.seen.write_once, report.done.encoded), (vec![b"old".to_vec()], 1));
}

/// Regression: the status showed the redundancy of the content before as that of an overwritten write-once file.
#[test]
fn an_overwritten_write_once_file_has_no_redundancy_in_the_status() {
    let fixture = Fixture::with_policy(POLICY);
    fixture.write("a", b"as it was written");
    fixture.write("b", b"as it was written, too");
    fixture.protect_all();
    let matrix = || gabion_vault::status::status(&fixture.vault, b"", true, 10, QUIET).unwrap().matrix;
    assert_eq!(matrix().into_keys().collect::<Vec<_>>(), [(2, 2)]);
    fixture.write("a", b"overwritten");
    let after = matrix();
    assert_eq!((after[&(2, 0)].0, after[&(2, 2)].0), (1, 1), "{after:?}");
}
