//! Attacks by another user of the machine. Root works on a tree in a directory that everybody can write to; user
//! 65534 prepares traps.
//!
//! Each attack succeeded before repositories had to belong to the user who runs the command.

use super::fixture::{Fixture, TRUST};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// The hostile user.
const MALLORY: u32 = 65_534;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A tree in a directory as `/tmp` is: everybody may make files in it.
fn shared_tree() -> Fixture {
    assert!(rustix::process::geteuid().is_root(), "these tests take two users: run them as root");
    let fixture = Fixture::new();
    set_mode(fixture.dir(), 0o755);
    set_mode(&fixture.tree(), 0o1777);
    fixture
}

/// Runs the program as the hostile user.
fn as_mallory(fixture: &Fixture, args: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_gabion")]);
    command.current_dir(fixture.dir()).args(args).env_remove("GABION_REPOSITORY").output().unwrap()
}

fn refused(fixture: &Fixture, args: &[&str]) -> String {
    let output = fixture.run(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "gabion {}: {error}", args.join(" "));
    error
}

/// Changes some bytes of a file and sets its time back: damage.
fn damage(path: &Path) {
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"damage", 0).unwrap();
    file.set_modified(modified).unwrap();
}

/// An ordinary user makes `.gabion` before root's first `protect`, with a policy that keeps a whole copy of each
/// file. Root's redundancy, and with it the content of root's secret files, was his; and repair by root wrote what he
/// put there.
#[test]
fn a_repository_that_another_user_made_is_refused() {
    let fixture = shared_tree();
    fixture.write("secret", b"only root may read this");
    set_mode(&fixture.path("secret"), 0o600);
    let made = as_mallory(&fixture, &["protect", "tree", "--code", "1+1"]);
    assert!(fixture.path(".gabion/vault.toml").exists(), "{made:?}");
    for args in [
        &["protect", "tree"][..],
        &["repair", "tree", "--yes"],
        &["repair", "tree", "--yes", "--repository", "tree/.gabion"],
        &["scrub", "tree"],
        &["status", "tree"],
        &["work", "tree"],
        &["catalogue", "rebuild", "tree"],
    ] {
        let error = refused(&fixture, args);
        for words in ["tree/.gabion", "user 65534", "user 0", "chown", TRUST] {
            assert!(error.contains(words), "{args:?}: {error:?} lacks {words:?}");
        }
    }
    assert!(
        !fixture.path(".gabion/redundancy/secret").exists(),
        "root's secret is in a repository of another user"
    );
    // Settings that are gone make no difference.
    std::fs::remove_file(fixture.path(".gabion/vault.toml")).unwrap();
    assert!(refused(&fixture, &["protect", "tree"]).contains("user 65534"));
    assert!(refused(&fixture, &["catalogue", "rebuild", "tree"]).contains("user 65534"));
}

/// Who knows what he does says so.
#[test]
fn a_repository_of_another_user_is_used_by_those_who_trust_it() {
    let fixture = shared_tree();
    as_mallory(&fixture, &["protect", "tree"]);
    refused(&fixture, &["protect", "tree"]);
    let trusting = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(fixture.dir()).args(["protect", "tree"]).env(TRUST, path);
        command.output().unwrap().status.code()
    };
    assert_eq!(trusting("/nowhere:tree"), Some(0));
    assert_eq!(trusting("/nowhere"), Some(2));
    // Root's repositories are used by everybody who can read them.
    let theirs = fixture.dir().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("file"), b"content").unwrap();
    fixture.expect(0, &["protect", "theirs"]);
    let opened = Command::new("chmod").args(["-R", "go+rX,go-w"]).arg(&theirs).status();
    assert!(opened.unwrap().success());
    let status = as_mallory(&fixture, &["status", "theirs"]);
    // What was protected a moment ago may count as pending.
    assert!(matches!(status.status.code(), Some(0 | 1)), "{status:?}");
}

/// A repository that others can write to belongs to them as well: they rename redundancy of one file to that of
/// another.
#[test]
fn a_repository_that_others_can_write_to_is_refused() {
    let fixture = shared_tree();
    fixture.expect(0, &["protect", "tree"]);
    for (what, mode) in [(".gabion", 0o777), (".gabion", 0o1777), (".gabion", 0o770)] {
        set_mode(&fixture.path(what), mode);
        let error = refused(&fixture, &["repair", "tree", "--yes"]);
        assert!(error.contains("chmod go-w") && error.contains(&format!("{mode:04o}")), "{error}");
    }
    // A repository that others can enter is looked at folder by folder and file by file.
    set_mode(&fixture.path(".gabion"), 0o755);
    fixture.expect(0, &["scrub", "tree"]);
    for what in ["redundancy", "redundancy/sub", "redundancy/sub/deep", "staging", "changelog"] {
        let path = fixture.path(".gabion").join(what);
        for above in path.ancestors().skip(1).take_while(|above| !above.ends_with(".gabion")) {
            set_mode(above, 0o755);
        }
        for spoil in [true, false] {
            match spoil {
                true => set_mode(&path, 0o777),
                false => {
                    set_mode(&path, 0o755);
                    chown(&path, Some(MALLORY), None).unwrap();
                }
            }
            let output = fixture.run(&["scrub", "tree"]);
            let error = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.code() != Some(0) && error.contains(what), "{what}: {error}");
            assert!(error.contains("other users") || error.contains("user 65534"), "{what}: {error}");
        }
        chown(&path, Some(0), None).unwrap();
        fixture.expect(0, &["scrub", "tree"]);
    }
    for what in ["vault.toml", "catalogue.sqlite", "redundancy/sub/b"] {
        let path = fixture.path(".gabion").join(what);
        set_mode(&path, 0o666);
        let output = fixture.run(&["scrub", "tree"]);
        let error = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.code() != Some(0) && error.contains("other users"), "{what}: {error}");
        set_mode(&path, 0o600);
    }
    fixture.expect(0, &["scrub", "tree"]);
}

/// Redundancy under another file's name must not make repair write one file's content into another.
#[test]
fn redundancy_of_another_file_is_not_written_into_a_file() {
    let fixture = shared_tree();
    let (secret, mine) = (b"only root may read this".repeat(100), b"what everybody may read".repeat(100));
    fixture.write("secret", &secret);
    set_mode(&fixture.path("secret"), 0o600);
    fixture.write("mine", &mine);
    fixture.expect(0, &["protect", "tree", "--code", "1+1"]);
    let redundancy = fixture.path(".gabion/redundancy");
    std::fs::copy(redundancy.join("secret"), redundancy.join("mine")).unwrap();
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(fixture.path(".gabion").join(name));
    }
    // Without its catalogue, so that only the header tells.
    let output = fixture.run(&["repair", "tree", "--yes", "--revert-changes", "--json"]);
    assert!(
        std::fs::read(fixture.path("mine")).unwrap() == mine,
        "root's secret is in a file of everybody's: {output:?}"
    );
}

/// The mount's mark was opened through a link: `gabion mount` by root emptied the file that it led to.
#[test]
fn links_in_a_repository_lead_nowhere() {
    let fixture = shared_tree();
    fixture.expect(0, &["protect", "tree"]);
    let valuable = fixture.dir().join("valuable");
    std::fs::create_dir(fixture.dir().join("mnt")).unwrap();
    for name in ["mounted", "mount.log", "lock", "catalogue.sqlite", "policy.toml", "daemon"] {
        std::fs::write(&valuable, b"a file of root's").unwrap();
        let path = fixture.path(".gabion").join(name);
        let before = std::fs::read(&path).ok();
        let _ = std::fs::remove_file(&path);
        symlink(&valuable, &path).unwrap();
        // Whether it is mounted then, or not, is not what this is about.
        fixture.run(&["mount", "tree", "mnt", "--background"]);
        let _ = Command::new("umount").arg("--quiet").arg(fixture.dir().join("mnt")).status();
        assert_eq!(std::fs::read(&valuable).unwrap(), b"a file of root's", "{name}");
        std::fs::remove_file(&path).unwrap();
        if let Some(before) = before {
            std::fs::write(&path, before).unwrap();
            set_mode(&path, 0o600);
        }
    }
}

/// A header that says "setuid root" made a file of that kind out of nothing.
#[test]
fn a_file_that_comes_back_gets_no_setuid_bit() {
    let fixture = shared_tree();
    fixture.write("program", b"#!/bin/sh\nid\n");
    set_mode(&fixture.path("program"), 0o6755);
    fixture.expect(0, &["protect", "tree", "--code", "1+1"]);
    std::fs::remove_file(fixture.path("program")).unwrap();
    let report = fixture.json(0, &["repair", "tree", "--yes", "--missing"]);
    let came_back = std::fs::metadata(fixture.path("program")).unwrap();
    assert_eq!((came_back.mode() & 0o7777, came_back.uid()), (0o755, 0));
    let notes = report["repaired"][0]["notes"].to_string();
    assert!(notes.contains("setuid") && notes.contains("chmod 6755"), "{report}");
    // A file that is there keeps the bits that it has.
    fixture.write("program", b"#!/bin/sh\nid -u\n");
    set_mode(&fixture.path("program"), 0o6755);
    fixture.expect(0, &["protect", "tree"]);
    damage(&fixture.path("program"));
    set_mode(&fixture.path("program"), 0o6755);
    fixture.expect(0, &["repair", "tree", "--yes"]);
    assert_eq!(std::fs::metadata(fixture.path("program")).unwrap().mode() & 0o7777, 0o6755);
}

/// A target decides what is read from a pool and how it is repaired, as a repository does.
#[test]
fn targets_of_a_pool_that_another_user_controls_are_refused() {
    let fixture = shared_tree();
    let at = |name: &str| fixture.dir().join(name);
    for name in ["t1", "t2", "t3"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    chown(at("t2"), Some(MALLORY), None).unwrap();
    let create = ["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "1"];
    let create = [&create[..], &["--targets", "t1", "t2", "t3"]].concat();
    let error = refused(&fixture, &create);
    assert!(error.contains("t2") && error.contains("user 65534") && error.contains(TRUST), "{error}");
    for name in ["t1", "t2", "t3"] {
        std::fs::remove_dir_all(at(name)).unwrap();
        std::fs::create_dir(at(name)).unwrap();
    }
    fixture.expect(0, &create);
    // One that others come to control later does not answer any more.
    set_mode(&at("t2"), 0o777);
    let output = fixture.run(&["pool", "status", "t1"]);
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.code() != Some(0) && told.contains("other users"), "{told}");
}
