//! A tree knows its vault: `protect DIR --repository R` leaves a pointer in the tree, and every later command finds R
//! by it.
//!
//! Without it, a later `protect DIR` made a second vault in DIR/.gabion while R went stale, `status DIR` said "not
//! protected", and `protect DIR/sub` made a vault within a vault, all with exit code 0.

use super::fixture::Fixture;
use std::path::Path;

impl Fixture {
    /// Runs a command that has to be refused, and gives what it said.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "gabion {}: {error}", args.join(" "));
        error
    }

    fn elsewhere() -> Fixture {
        let fixture = Fixture::new();
        fixture.expect(0, &["protect", "tree", "--repository", "other"]);
        fixture
    }
}

/// Files that a status counts.
fn files(status: &serde_json::Value) -> u64 {
    status["matrix"].as_array().unwrap().iter().map(|row| row["files"].as_u64().unwrap()).sum()
}

#[test]
fn every_command_finds_the_repository_by_the_tree() {
    let fixture = Fixture::elsewhere();
    assert!(fixture.path(".gabion").is_file());
    assert_eq!(files(&fixture.json(0, &["status", "tree"])), 5, "the pointer itself is not protected");
    fixture.write("sub/new", b"content");
    assert_eq!(fixture.json(1, &["diff", "tree/sub"])["changes"]["added"]["files"], 1);
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 1);
    assert!(fixture.path(".gabion").is_file(), "no second vault");
    assert_eq!(files(&fixture.json(0, &["status", "tree", "--repository", "other"])), 6, "in the same vault");
    fixture.expect(0, &["scrub", "tree/sub/new"]);
    fixture.expect(0, &["repair", "tree", "--yes"]);
    fixture.expect(0, &["whatif", "tree", "--lose", "repository"]);
    // What of the settings is lost is found by the pointer as well, and the pointer follows.
    std::fs::remove_file(fixture.dir().join("other/vault.toml")).unwrap();
    assert_eq!(fixture.json(0, &["catalogue", "rebuild", "tree"])["files"], 6);
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 0);
}

#[test]
fn a_tree_has_one_vault() {
    let fixture = Fixture::elsewhere();
    let error = fixture.refused(&["protect", "tree", "--repository", "third"]);
    assert!(error.contains("other already"), "{error}");
    assert!(!fixture.dir().join("third").exists(), "nothing is begun");
    // A part of a tree belongs to its vault.
    for tree in ["elsewhere", "within"] {
        let fixture = if tree == "within" { Fixture::new() } else { Fixture::elsewhere() };
        fixture.expect(0, &["protect", "tree"]);
        for more in [&["--code", "4+2"][..], &["--repository", "third"]] {
            let error = fixture.refused(&[&["protect", "tree/sub"], more].concat());
            assert!(error.contains("`gabion protect ") && error.contains("part of"), "{error}");
        }
        // Alone it means the files of this part, in the vault of the tree.
        fixture.write("sub/b", b"changed");
        assert_eq!(fixture.json(0, &["protect", "tree/sub"])["encoded"], 1);
        assert!(!fixture.path("sub/.gabion").exists() && !fixture.dir().join("third").exists());
        fixture.refused(&["watch", "tree/sub"]);
        fixture.expect(0, &["status", "tree/sub"]);
    }
    // Nor does a tree with its vault within get a second one elsewhere.
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    assert!(
        fixture.refused(&["protect", "tree", "--repository", "other"]).contains("leave out --repository")
    );
    fixture.expect(0, &["protect", "tree", "--repository", "tree/.gabion"]);
}

#[test]
fn a_repository_that_moved_or_a_tree_that_was_copied_is_an_error_with_a_way_out() {
    let fixture = Fixture::elsewhere();
    std::fs::rename(fixture.dir().join("other"), fixture.dir().join("moved")).unwrap();
    for command in ["status", "protect", "scrub"] {
        let error = fixture.refused(&[command, "tree"]);
        assert!(error.contains("--repository WHERE-IT-IS-NOW"), "{error}");
    }
    // Nothing is begun anew where a disk may not be mounted.
    let error = fixture.refused(&["protect", "tree", "--repository", "other"]);
    assert!(error.contains("Is its disk mounted?") && error.contains("remove this file"), "{error}");
    assert_eq!(fixture.json(0, &["protect", "tree", "--repository", "moved"])["encoded"], 0);
    fixture.expect(0, &["status", "tree"]);
    let copied =
        std::process::Command::new("cp").args(["-a", "tree", "copy"]).current_dir(fixture.dir()).status();
    assert!(copied.unwrap().success());
    let error = fixture.refused(&["protect", "copy"]);
    assert!(error.contains("if it is a copy, remove this file"), "{error}");
    std::fs::remove_file(fixture.dir().join("copy/.gabion")).unwrap();
    fixture.expect(0, &["protect", "copy"]);
    // A pointer that is damaged says how to write it again.
    std::fs::write(fixture.path(".gabion"), b"").unwrap();
    assert!(fixture.refused(&["protect", "tree"]).contains("writes it again"));
    fixture.expect(0, &["protect", "tree", "--repository", "moved"]);
    fixture.expect(0, &["protect", "tree"]);
}

/// `protect DIR` above an existing vault made a second one for the same files, without a word. All orders, with
/// repositories inside and elsewhere.
#[test]
fn a_tree_with_a_vault_in_a_part_of_it_is_refused() {
    const INSIDE: &[&str] = &[];
    for part in [INSIDE, &["--repository", "of-part"]] {
        for whole in [INSIDE, &["--repository", "of-whole"]] {
            // The part was first.
            let fixture = Fixture::new();
            fixture.expect(0, &[&["protect", "tree/sub"], part].concat());
            for more in [INSIDE, &["--dry-run"]] {
                let error = fixture.refused(&[&["protect", "tree"], whole, more].concat());
                let says = ["vault of its own", "tree/sub/.gabion", "paths = [\"sub/**\"] protect = false"];
                assert!(says.iter().all(|words| error.contains(words)), "{error}");
            }
            fixture.refused(&[&["watch", "tree"], whole].concat());
            assert!(
                !fixture.path(".gabion").exists() && !fixture.dir().join("of-whole").exists(),
                "nothing is begun"
            );
            fixture.expect(0, &["protect", "tree/sub"]);
            // A policy that leaves the part out says that this is meant.
            let policy = "[[rule]]\npaths = [\"sub/**\"]\nprotect = false\n";
            std::fs::write(fixture.dir().join("policy.toml"), policy).unwrap();
            fixture.expect(0, &[&["protect", "tree", "--policy", "policy.toml"], whole].concat());
            assert_eq!(files(&fixture.json(0, &["status", "tree"])), 2);
            assert_eq!(files(&fixture.json(0, &["status", "tree/sub"])), 3);
            // The whole was first.
            let fixture = Fixture::new();
            fixture.expect(0, &[&["protect", "tree"], whole].concat());
            let begin = [&["protect", "tree/sub", "--code", "4+2"], part].concat();
            assert!(fixture.refused(&begin).contains("part of"));
            if part == INSIDE {
                fixture.expect(0, &["protect", "tree/sub"]);
            }
            assert!(!fixture.path("sub/.gabion").exists() && !fixture.dir().join("of-part").exists());
            fixture.expect(0, &["protect", "tree"]);
        }
    }
}

/// Whoever may write to the tree could lead root to a repository of his own.
#[test]
fn a_pointer_of_somebody_else_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP a_pointer_of_somebody_else_is_not_followed: we are not root");
    }
    let fixture = Fixture::elsewhere();
    let pointer = fixture.path(".gabion");
    std::os::unix::fs::chown(&pointer, Some(65534), None).unwrap();
    for command in ["status", "protect", "repair"] {
        let error = fixture.refused(&[command, "tree"]);
        assert!(error.contains("belongs to user 65534"), "{error}");
    }
    std::os::unix::fs::chown(&pointer, Some(0), None).unwrap();
    let writable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    std::fs::set_permissions(&pointer, writable).unwrap();
    assert!(fixture.refused(&["status", "tree"]).contains("can be changed by other users"));
    // The same variable that declares repositories trusted reaches the pointer: it had a check of its own that knew
    // nothing of it.
    std::os::unix::fs::chown(&pointer, Some(65534), None).unwrap();
    assert!(fixture.refused(&["status", "tree"]).contains("GABION_TRUST_REPOSITORY="));
    fixture.expect_trusting(0, &["status", "tree"]);
    fixture.expect_trusting(0, &["protect", "tree"]);
}

/// A crash while the pointer is written leaves `.gabion.draft` in the tree of the user, where it was protected like a
/// file of his. The next run removes it; a file of the user's by that name stays.
#[test]
fn a_pointer_that_a_crash_left_half_written_is_removed() {
    for more in [&["--repository", "other"][..], &[]] {
        let fixture = Fixture::new();
        let draft = fixture.path(".gabion.draft");
        for left in [&b""[..], b"gabion repo", b"gabion repository 1\nid 01"] {
            std::fs::write(&draft, left).unwrap();
            fixture.expect(0, &[&["protect", "tree"], more].concat());
            assert!(!draft.exists(), "{more:?} {left:?}");
            assert_eq!(files(&fixture.json(0, &["status", "tree"])), 5);
        }
        std::fs::write(&draft, b"about gabions").unwrap();
        fixture.expect(0, &["protect", "tree"]);
        assert_eq!(std::fs::read(&draft).unwrap(), b"about gabions");
    }
}

/// Where no pointer can be left, the first run says so, and the later ones do not.
#[test]
fn a_tree_without_room_for_a_pointer_is_protected_with_a_warning() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path(".gabion")).unwrap();
    let protect = ["protect", "tree", "--repository", "other"];
    let output = fixture.run(&protect);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains("Later commands need --repository"), "{error}");
    assert!(fixture.run(&protect).stderr.is_empty());
}

/// `protect q` with a directory `q` and a pool `q` took the directory; the pool stayed unprotected.
#[test]
fn a_name_of_a_pool_and_a_directory_is_an_error() {
    let fixture = Fixture::new();
    let targets = ["d1", "d2", "d3", "d4", "d5", "d6"];
    let create =
        ["pool", "create", "tree", "--pools", "names", "--stripe", "3", "--redundancy", "2", "--targets"];
    fixture.expect(0, &[&create[..], &targets].concat());
    for command in ["protect", "status"] {
        let error = fixture.refused(&[command, "tree", "--pools", "names"]);
        assert!(error.contains("pool:tree") && error.contains("./tree"), "{error}");
    }
    assert!(!fixture.path(".gabion").exists());
    fixture.expect(0, &["protect", "./tree", "--pools", "names"]);
    assert!(fixture.path(".gabion").is_dir());
    fixture.expect(0, &["protect", "pool:tree", "--pools", "names"]);
    assert!(targets.iter().any(|target| fixture.dir().join(target).join("vault").exists()));
    fixture.expect(0, &["status", "pool:tree", "--pools", "names"]);
    // Where only pools are named, a directory that is no target is not meant; pool: is understood all the same.
    for name in ["tree", "pool:tree", "d1", "./d1"] {
        fixture.expect(0, &["pool", "status", name, "--pools", "names"]);
        fixture.expect(0, &["forecast", "--pool", name, "--pools", "names"]);
    }
    assert!(
        fixture.refused(&["pool", "status", "pool:d1", "--pools", "names"]).contains("no pool of this name")
    );
    // The name of one pool and the directory of a target of another.
    let create =
        ["pool", "create", "d1", "--pools", "names", "--stripe", "3", "--redundancy", "2", "--targets"];
    fixture.expect(0, &[&create[..], &["e1", "e2", "e3", "e4", "e5", "e6"]].concat());
    for args in [&["pool", "status", "d1"][..], &["protect", "d1"], &["forecast", "--pool", "d1"]] {
        let error = fixture.refused(&[args, &["--pools", "names"]].concat());
        assert!(error.contains("pool:d1") && error.contains("./d1"), "{error}");
    }
    let named =
        |name| fixture.json(0, &["pool", "status", name, "--pools", "names"])["status"]["name"].clone();
    assert_eq!((named("pool:d1"), named("./d1")), ("d1".into(), "tree".into()));
}

/// `--repository s3://bucket/x` made a local directory `s3:/bucket/x` and reported success.
#[test]
fn a_url_is_no_repository() {
    let fixture = Fixture::new();
    for args in [&["protect", "tree"][..], &["status", "tree"], &["watch", "tree"]] {
        let error = fixture.refused(&[args, &["--repository", "s3://bucket/x"]].concat());
        assert!(error.contains("this is a URL"), "{error}");
    }
    assert!(!Path::new(&fixture.dir().join("s3:")).exists());
}
