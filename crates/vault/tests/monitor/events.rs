//! Every kind of event, from both sources, on several file systems.

use super::playground::{Playground, QUIET, Seed, is_root};
use gabion_vault::changelog::{Change, When};
use gabion_vault::monitor::{Choice, Notice};
use gabion_vault::protect;
use gabion_vault::scrub::{self, Selection};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

/// No rest at all: what happens is protected at once.
const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n";

/// All that people do to files, in one go.
fn everything(ground: &Playground, seed: &mut Seed) {
    let path = |name: &str| ground.path(name);
    // Names: new ones, odd ones, second ones, none.
    ground.write("new", &seed.bytes(10_000));
    ground.write("empty", b"");
    ground.write(b"not \xff\xfe text", &seed.bytes(100));
    ground.write("new\nline \x1b[31m", &seed.bytes(100));
    ground.write("a/b/c/d/deep", &seed.bytes(5000));
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
    // By its path, without opening it to write: no close follows.
    let shrunk = fs::File::options().write(true).open(path("truncated")).unwrap();
    shrunk.set_len(7).unwrap();
    drop(shrunk);
    fs::set_permissions(path("touched"), fs::Permissions::from_mode(0o640)).unwrap();
    // Names that become others.
    fs::rename(path("renamed"), path("renamed to")).unwrap();
    ground.write("draft", &seed.bytes(2000));
    fs::rename(path("draft"), path("replaced")).unwrap();
    fs::rename(path("moved directory"), path("a/moved here")).unwrap();
    ground.write("a/moved here/after", &seed.bytes(900));
    fs::rename(path("swapped a"), path("swap")).unwrap();
    fs::rename(path("swapped b"), path("swapped a")).unwrap();
    fs::rename(path("swap"), path("swapped b")).unwrap();
    fs::rename(path("comes back"), path("away")).unwrap();
    ground.write("comes back", &seed.bytes(1234));
    // In and out.
    let outside = ground.tree().join("outside");
    fs::rename(outside.join("comes"), path("came")).unwrap();
    fs::rename(outside.join("comes with files"), path("came with files")).unwrap();
    fs::rename(path("leaves"), outside.join("left")).unwrap();
    fs::rename(path("leaves with files"), outside.join("left with files")).unwrap();
    fs::write(outside.join("left with files/one"), b"no longer ours").unwrap();
}

fn prepare(ground: &Playground, seed: &mut Seed) {
    ground.create(POLICY);
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
        ground.write(name, &seed.bytes(size));
    }
    for (from, to) in [("twice/a", "twice/b"), ("thrice/a", "thrice/b"), ("thrice/a", "thrice/c")] {
        fs::hard_link(ground.path(format!("linked {from}")), ground.path(format!("linked {to}"))).unwrap();
    }
    let outside = ground.tree().join("outside");
    fs::create_dir_all(outside.join("comes with files/deep")).unwrap();
    fs::write(outside.join("comes"), seed.bytes(3000)).unwrap();
    fs::write(outside.join("comes with files/deep/file"), seed.bytes(3000)).unwrap();
}

/// Everything, and that events and not scans of everything found it.
fn all_is_protected(ground: &Playground, source: Choice) {
    let mut seed = Seed(0x5eed);
    prepare(ground, &mut seed);
    let live = ground.watch(Playground::options(source));
    ground.until_protected();
    everything(ground, &mut seed);
    ground.until_protected();
    ground.assert_protected();
    let status = ground.stop(live);
    assert_eq!(ground.whole_scans(), 1 + status.gaps as usize, "{:#?}", ground.notices());
    // A directory that goes to a place which is not watched yet is told by inotify as gone from here and found there.
    let moved = if source == Choice::Inotify { 1 } else { 3 };
    assert!(status.gaps > 0 || status.done.moved >= moved, "{status:?}");
    assert_eq!(status.pending, 0);
    assert!(status.events > 20 && status.recorded > 20 && status.last_scan.is_some());
    assert_eq!(status.done.failures, 0, "{:#?}", ground.notices());
}

#[test]
fn inotify_in_memory() {
    all_is_protected(&Playground::new(), Choice::Inotify);
}

#[test]
fn fanotify_in_memory() {
    match is_root() {
        true => all_is_protected(&Playground::new(), Choice::Fanotify),
        false => gabion_testkit::skip!("fanotify_in_memory: we are not root"),
    }
}

#[test]
fn fanotify_on_ext4() {
    if let Some(ground) = Playground::on("ext4", "fanotify_on_ext4") {
        all_is_protected(&ground, Choice::Fanotify);
    }
}

#[test]
fn fanotify_on_xfs() {
    if let Some(ground) = Playground::on("xfs", "fanotify_on_xfs") {
        all_is_protected(&ground, Choice::Fanotify);
    }
}

#[test]
fn a_small_change_in_a_large_file_encodes_its_stripes_only() {
    let ground = Playground::new();
    ground.create(POLICY);
    let content = Seed(1).bytes(8 << 20);
    ground.write("large", &content);
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    let first = live.status().done.stripes;
    assert_eq!(first, (512, 0), "8 MiB in stripes of 4 blocks of 4 KiB");
    let file = fs::File::options().write(true).open(ground.path("large")).unwrap();
    file.write_all_at(b"changed", 3 << 20).unwrap();
    drop(file);
    ground.until_protected();
    ground.assert_protected();
    let status = ground.stop(live);
    assert_eq!(status.done.stripes, (first.0 + 1, 511), "{:#?}", ground.notices());
}

#[test]
fn what_changed_while_nobody_watched_is_found_and_what_is_pending_survives() {
    let ground = Playground::new();
    ground.create(&POLICY.replace("0s", "1h"));
    ground.write("a", b"before anybody watched");
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until("the first scan", || ground.whole_scans() == 1);
    ground.write("b", b"while it is watched");
    ground.until("recorded", || ground.notices().iter().any(|notice| matches!(notice, Notice::Recorded(_))));
    ground.write("c", b"right before the end");
    // Nothing has rested for an hour.
    let status = ground.stop(live);
    assert_eq!(status.done.encoded, 0);
    let vault = ground.vault();
    let pending: Vec<_> =
        vault.changelog.entries(None, 10).unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(pending, [b"a", b"b", b"c"]);
    drop(vault);
    ground.write("d", b"while nobody watched");
    ground.create(POLICY);
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    ground.assert_protected();
    ground.stop(live);
}

#[test]
fn mount_points_and_directories_without_rights_are_named() {
    if !is_root() {
        gabion_testkit::skip!("mount_points_are_named: we are not root");
        return;
    }
    let ground = Playground::new();
    ground.create(POLICY);
    let point = ground.path("mounted here");
    fs::create_dir(&point).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status();
    if !mounted.is_ok_and(|status| status.success()) {
        gabion_testkit::skip!("mount_points_are_named: nothing can be mounted here");
        return;
    }
    let live = ground.watch(Playground::options(Choice::Fanotify));
    let armed = ground.notices().first().cloned();
    ground.stop(live);
    let unmounted = std::process::Command::new("umount").arg(&point).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let Some(Notice::Armed { mounts, source, .. }) = armed else { panic!("{armed:?}") };
    assert_eq!((source, mounts), ("fanotify", vec![b"mounted here".to_vec()]));
}

#[test]
fn one_tree_is_watched_by_one() {
    let ground = Playground::new();
    ground.create(POLICY);
    let live = ground.watch(Playground::options(Choice::Inotify));
    let tell = std::sync::Arc::new(|_: &Notice| {});
    let second =
        gabion_vault::monitor::Live::start(ground.vault(), Playground::options(Choice::Inotify), tell);
    let error = second.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("watched already") && error.contains(&std::process::id().to_string()), "{error}");
    // It does not have the vault.
    drop(ground.vault().lock("test").unwrap());
    ground.stop(live);
    ground.stop(ground.watch(Playground::options(Choice::Inotify)));
}

/// A file was moved, its redundancy followed it, and a scrub came before that was in the catalogue: it called the file lost.
#[test]
fn what_was_moved_a_moment_ago_is_not_lost() {
    let ground = Playground::new();
    ground.create("[default]\ncode = \"4+2\"\nquiet = \"1h\"\n");
    ["moved", "stays"].iter().for_each(|name| ground.write(name, &Seed(5).bytes(20_000)));
    let vault = ground.vault();
    protect::protect(&vault, QUIET).unwrap();
    let scrub = || {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub::scrub(&vault, b"", options, QUIET).unwrap()
    };
    fs::rename(ground.path("moved"), ground.path("other")).unwrap();
    let redundancy = vault.repository.path().join("redundancy");
    fs::rename(redundancy.join("moved"), redundancy.join("other")).unwrap();
    // Nobody said anything of it: it is gone.
    let report = scrub();
    assert!(report.trouble.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.changing, report.gone), (1, 0, 1));
    vault.changelog.record(&[Change::rename("moved", "other", When::now(0, 0))]).unwrap();
    let report = scrub();
    assert!(report.trouble.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.changing, report.gone), (1, 1, 0));
}
