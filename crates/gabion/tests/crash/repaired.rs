//! `gabion repair` is killed.

use crate::fixture::{Files, Fixture, assert_same, bytes, files_below, rot};
use gabion_testkit::kill::can_kill;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n\n[guard]\nat_least = 100000\n\n\
    [[rule]]\nname = \"mirror\"\npaths = [\"gone*\"]\ncode = \"2+2\"\nblock = \"4KiB\"\n";

fn begin() -> (Fixture, Files) {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    fs::write(fixture.path("policy.toml"), POLICY).unwrap();
    for (number, name) in
        ["one", "sub/two", "short", "redundancy", "gone", "sub/untouched"].iter().enumerate()
    {
        fs::write(fixture.path("tree").join(name), bytes(60_000, number as u64)).unwrap();
    }
    fs::set_permissions(fixture.path("tree/gone"), fs::Permissions::from_mode(0o640)).unwrap();
    fixture.expect("at first", &["protect", "tree", "--policy", "policy.toml"]);
    let files = files_below(&fixture.path("tree"));
    (fixture, files)
}

/// Corrupt blocks, corrupt redundancy, a file that is too short and one that is gone.
fn damage(fixture: &Fixture, round: u64) {
    let at = |name: &str| fixture.path("tree").join(name);
    rot(&at("one"), round * 777 % 40_000, 5000);
    rot(&at("one"), 59_000, 700);
    rot(&at("sub/two"), round * 1777 % 50_000, 5000);
    rot(&at(".gabion/redundancy/redundancy"), round * 333 % 20_000, 300);
    fs::File::options().write(true).open(at("short")).unwrap().set_len(55_000).unwrap();
    fs::remove_file(at("gone")).unwrap();
}

fn assert_clean(fixture: &Fixture, told: &str) {
    fixture.expect(told, &["protect", "tree"]);
    fixture.expect(told, &["scrub", "tree"]);
    fixture.expect(told, &["status", "tree"]);
    for directory in ["staging", "repairing"] {
        let left = files_below(&fixture.path("tree/.gabion").join(directory));
        assert!(left.is_empty(), "{told}: {directory} has {:?}", left.keys());
    }
}

/// For whoever repairs: wherever the repair was killed, the next one brings everything back. It is killed as well at
/// times.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn repair_killed_at_any_change_is_finished_by_the_next() {
    let test = "repair_killed_at_any_change_is_finished_by_the_next";
    if !can_kill(test) {
        return;
    }
    let (fixture, files) = begin();
    // A file that is too short has another size: repair takes it for changed by its owner.
    let args = ["repair", "tree", "--yes", "--missing", "--revert-changes"];
    fixture.kill_everywhere(
        test,
        10,
        &args,
        &mut (),
        |(), round| damage(&fixture, round),
        |(), _, told| {
            fixture.expect(told, &args);
            assert_same(told, &files_below(&fixture.path("tree")), &files);
            let mode = fs::metadata(fixture.path("tree/gone")).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o640, "{told}");
            assert_clean(&fixture, told);
            assert_same(told, &files_below(&fixture.path("tree")), &files);
            fs::remove_dir_all(fixture.path("tree/.gabion/replaced")).unwrap();
        },
    );
}

/// For whoever goes on working with a file whose repair was killed: the next repair keeps what was written since, and
/// finishes the rest.
#[test]
fn edits_after_a_killed_repair_are_kept() {
    let test = "edits_after_a_killed_repair_are_kept";
    if !can_kill(test) {
        return;
    }
    let (fixture, mut files) = begin();
    let args = ["repair", "tree", "--yes"];
    fixture.kill_everywhere(
        test,
        8,
        &args,
        &mut files,
        |_, round| {
            let at = |name: &str| fixture.path("tree").join(name);
            rot(&at("one"), round * 777 % 15_000, 5000);
            rot(&at("one"), 59_000, 700);
        },
        |files, round, told| {
            // Far from what is damaged: of a stripe with an edit in it, redundancy is of the version before.
            let edit = bytes(50, round);
            let one = fs::File::options().write(true).open(fixture.path("tree/one")).unwrap();
            one.write_all_at(&edit, 40_000).unwrap();
            drop(one);
            files.get_mut("one").unwrap()[40_000..40_050].copy_from_slice(&edit);
            let output = fixture.run(&args);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let found = fs::read(fixture.path("tree/one")).unwrap();
            assert!(found[40_000..40_050] == edit[..], "{told}: an edit was reverted: {said}");
            if said.contains("skipped, because") {
                // The kill came before anything was written: the file counts as changed by its owner. It decides.
                fs::write(fixture.path("tree/one"), &files["one"]).unwrap();
            }
            fixture.expect(told, &["protect", "tree"]);
            assert_same(told, &files_below(&fixture.path("tree")), files);
            assert_clean(&fixture, told);
            let _ = fs::remove_dir_all(fixture.path("tree/.gabion/replaced"));
        },
    );
}
