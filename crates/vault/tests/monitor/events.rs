//! Every kind of event, from both sources, on several file systems.

use super::fixture::{Fixture, QUIET, TestRng, is_root};
use gabion_vault::changelog::{Change, When};
use gabion_vault::monitor::{Choice, Notice};
use gabion_vault::protect;
use gabion_vault::scrub::{self, Selection};
use gabion_vault::world::Timestamp;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

/// No quiet period: changes are protected at once.
const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n";

/// All kinds of changes to files, in one batch.
fn everything(fixture: &Fixture, seed: &mut TestRng) {
    let path = |name: &str| fixture.path(name);
    // New, unusual, additional and removed names.
    fixture.write("new", &seed.bytes(10_000));
    fixture.write("empty", b"");
    fixture.write(b"not \xff\xfe text", &seed.bytes(100));
    fixture.write("new\nline \x1b[31m", &seed.bytes(100));
    fixture.write("a/b/c/d/deep", &seed.bytes(5000));
    fs::hard_link(path("linked from"), path("hard link")).unwrap();
    fs::write(path("linked twice/a"), seed.bytes(777)).unwrap();
    fs::remove_file(path("linked thrice/c")).unwrap();
    symlink("appended", path("symbolic link")).unwrap();
    fs::remove_file(path("deleted")).unwrap();
    fs::remove_dir_all(path("deleted directory")).unwrap();
    // Content.
    let mut log = fs::File::options().append(true).open(path("appended")).unwrap();
    log.write_all(&seed.bytes(3000)).unwrap();
    drop(log);
    let file = fs::File::options().write(true).open(path("overwritten")).unwrap();
    file.write_all_at(&seed.bytes(10), 5000).unwrap();
    drop(file);
    // Truncated by path without opening: no close event follows.
    let shrunk = fs::File::options().write(true).open(path("truncated")).unwrap();
    shrunk.set_len(7).unwrap();
    drop(shrunk);
    fs::set_permissions(path("touched"), fs::Permissions::from_mode(0o640)).unwrap();
    // Renames.
    fs::rename(path("renamed"), path("renamed to")).unwrap();
    fixture.write("draft", &seed.bytes(2000));
    fs::rename(path("draft"), path("replaced")).unwrap();
    fs::rename(path("moved directory"), path("a/moved here")).unwrap();
    fixture.write("a/moved here/after", &seed.bytes(900));
    fs::rename(path("swapped a"), path("swap")).unwrap();
    fs::rename(path("swapped b"), path("swapped a")).unwrap();
    fs::rename(path("swap"), path("swapped b")).unwrap();
    fs::rename(path("comes back"), path("away")).unwrap();
    fixture.write("comes back", &seed.bytes(1234));
    // Moves into and out of the tree.
    let outside = fixture.tree().join("outside");
    fs::rename(outside.join("comes"), path("came")).unwrap();
    fs::rename(outside.join("comes with files"), path("came with files")).unwrap();
    fs::rename(path("leaves"), outside.join("left")).unwrap();
    fs::rename(path("leaves with files"), outside.join("left with files")).unwrap();
    fs::write(outside.join("left with files/one"), b"no longer ours").unwrap();
}

fn prepare(fixture: &Fixture, seed: &mut TestRng) {
    fixture.create(POLICY);
    let names = [
        "linked from",
        "deleted",
        "deleted directory/x/y",
        "deleted directory/z",
        "appended",
        "overwritten",
        "truncated",
        "touched",
        "renamed",
        "replaced",
        "moved directory/one",
        "moved directory/two/three",
        "swapped a",
        "swapped b",
        "comes back",
        "leaves",
        "leaves with files/one",
        "linked twice/a",
        "linked thrice/a",
        "stays",
    ];
    for name in names {
        let size = 6000 + seed.below(20_000) as usize;
        fixture.write(name, &seed.bytes(size));
    }
    for (from, to) in [("twice/a", "twice/b"), ("thrice/a", "thrice/b"), ("thrice/a", "thrice/c")] {
        fs::hard_link(fixture.path(format!("linked {from}")), fixture.path(format!("linked {to}"))).unwrap();
    }
    let outside = fixture.tree().join("outside");
    fs::create_dir_all(outside.join("comes with files/deep")).unwrap();
    fs::write(outside.join("comes"), seed.bytes(3000)).unwrap();
    fs::write(outside.join("comes with files/deep/file"), seed.bytes(3000)).unwrap();
}

/// Expects that everything is protected because of events, without a full scan.
fn all_is_protected(fixture: &Fixture, source: Choice) {
    let mut seed = TestRng(0x5eed);
    prepare(fixture, &mut seed);
    let live = fixture.watch(Fixture::options(source));
    fixture.until_protected();
    everything(fixture, &mut seed);
    fixture.until_protected();
    fixture.assert_protected();
    let status = fixture.stop(live);
    assert_eq!(fixture.whole_scans(), 1 + status.gaps as usize, "{:#?}", fixture.notices());
    // Inotify reports a move to a directory without a watch as a deletion, and the file is found in its new place.
    let moved = if source == Choice::Inotify { 1 } else { 3 };
    assert!(status.gaps > 0 || status.done.moved >= moved, "{status:?}");
    assert_eq!(status.pending, 0);
    assert!(status.events > 20 && status.recorded > 20 && status.last_scan.is_some());
    assert_eq!(status.done.failures, 0, "{:#?}", fixture.notices());
}

#[test]
fn inotify_in_memory() {
    all_is_protected(&Fixture::new(), Choice::Inotify);
}

#[test]
fn fanotify_in_memory() {
    match is_root() {
        true => all_is_protected(&Fixture::new(), Choice::Fanotify),
        false => gabion_testkit::skip!("fanotify_in_memory: we are not root"),
    }
}

#[test]
fn fanotify_on_ext4() {
    if let Some(fixture) = Fixture::on("ext4", "fanotify_on_ext4") {
        all_is_protected(&fixture, Choice::Fanotify);
    }
}

#[test]
fn fanotify_on_xfs() {
    if let Some(fixture) = Fixture::on("xfs", "fanotify_on_xfs") {
        all_is_protected(&fixture, Choice::Fanotify);
    }
}

#[test]
fn a_small_change_in_a_large_file_encodes_its_stripes_only() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    let content = TestRng(1).bytes(8 << 20);
    fixture.write("large", &content);
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    // A worker counts what it did after the changes are complete.
    fixture.until("counted", || live.status().done.encoded == 1);
    let first = live.status().done.stripes;
    assert_eq!(first, (512, 0), "8 MiB in stripes of 4 blocks of 4 KiB");
    let file = fs::File::options().write(true).open(fixture.path("large")).unwrap();
    file.write_all_at(b"changed", 3 << 20).unwrap();
    drop(file);
    fixture.until_protected();
    fixture.assert_protected();
    let status = fixture.stop(live);
    assert_eq!(status.done.stripes, (first.0 + 1, 511), "{:#?}", fixture.notices());
}

#[test]
fn changes_before_the_watch_are_found_and_pending_changes_survive() {
    let fixture = Fixture::new();
    fixture.create(&POLICY.replace("0s", "1h"));
    fixture.write("a", b"before anybody watched");
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until("the first scan", || fixture.whole_scans() == 1);
    fixture.write("b", b"while it is watched");
    fixture
        .until("recorded", || fixture.notices().iter().any(|notice| matches!(notice, Notice::Recorded(_))));
    fixture.write("c", b"right before the end");
    // The quiet period is one hour.
    let status = fixture.stop(live);
    assert_eq!(status.done.encoded, 0);
    let vault = fixture.vault();
    let pending: Vec<_> =
        vault.changelog.entries(None, 10).unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(pending, [b"a", b"b", b"c"]);
    drop(vault);
    fixture.write("d", b"while nobody watched");
    fixture.create(POLICY);
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    fixture.assert_protected();
    fixture.stop(live);
}

#[test]
fn mount_points_and_directories_without_rights_are_named() {
    if !is_root() {
        gabion_testkit::skip!("mount_points_are_named: we are not root");
        return;
    }
    let fixture = Fixture::new();
    fixture.create(POLICY);
    let point = fixture.path("mounted here");
    fs::create_dir(&point).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status();
    if !mounted.is_ok_and(|status| status.success()) {
        gabion_testkit::skip!("mount_points_are_named: nothing can be mounted here");
        return;
    }
    let live = fixture.watch(Fixture::options(Choice::Fanotify));
    let armed = fixture.notices().first().cloned();
    fixture.stop(live);
    gabion_testkit::unmount(&point);
    let Some(Notice::WatchStarted { mounts, source, .. }) = armed else { panic!("{armed:?}") };
    assert_eq!((source, mounts), ("fanotify", vec![b"mounted here".to_vec()]));
}

#[test]
fn a_tree_has_one_watch() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    let tell = std::sync::Arc::new(|_: &Notice| {});
    let second = gabion_vault::monitor::Live::start(fixture.vault(), Fixture::options(Choice::Inotify), tell);
    let error = second.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("watched already") && error.contains(&std::process::id().to_string()), "{error}");
    // The watch does not hold the vault's lock.
    drop(fixture.vault().lock("test").unwrap());
    fixture.stop(live);
    fixture.stop(fixture.watch(Fixture::options(Choice::Inotify)));
}

/// Regression: a scrub between a move and its entry in the catalogue reported the file as lost.
#[test]
fn a_just_moved_file_is_not_lost() {
    let fixture = Fixture::new();
    fixture.create("[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    ["moved", "stays"].iter().for_each(|name| fixture.write(name, &TestRng(5).bytes(20_000)));
    let vault = fixture.vault();
    protect::protect(&vault, QUIET).unwrap();
    let scrub = || {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub::scrub(&vault, b"", options, QUIET).unwrap()
    };
    fs::rename(fixture.path("moved"), fixture.path("other")).unwrap();
    let redundancy = vault.repository.path().join("redundancy");
    fs::rename(redundancy.join("moved"), redundancy.join("other")).unwrap();
    // No change was recorded: the file counts as deleted.
    let report = scrub();
    assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.changing, report.gone), (1, 0, 1));
    vault.changelog.record(&[Change::rename("moved", "other", When::now(Timestamp::EPOCH, 0))]).unwrap();
    let report = scrub();
    assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.changing, report.gone), (1, 1, 0));
}
