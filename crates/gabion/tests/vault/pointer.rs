//! A tree knows its vault: `protect DIR --repository R` leaves a pointer in the tree, and every later command finds R by it.
//!
//! Without it, a later `protect DIR` made a second vault in DIR/.gabion while R went stale, `status DIR` said "not protected", and
//! `protect DIR/sub` made a vault within a vault, all with exit code 0.

use super::playground::Playground;
use std::path::Path;

impl Playground {
    /// Runs a command that has to be refused, and gives what it said.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "gabion {}: {error}", args.join(" "));
        error
    }

    fn elsewhere() -> Playground {
        let ground = Playground::new();
        ground.expect(0, &["protect", "tree", "--repository", "other"]);
        ground
    }
}

/// Files that a status counts.
fn files(status: &serde_json::Value) -> u64 {
    status["matrix"].as_array().unwrap().iter().map(|row| row["files"].as_u64().unwrap()).sum()
}

#[test]
fn every_command_finds_the_repository_by_the_tree() {
    let ground = Playground::elsewhere();
    assert!(ground.path(".gabion").is_file());
    assert_eq!(files(&ground.json(0, &["status", "tree"])), 5, "the pointer itself is not protected");
    ground.write("sub/new", b"content");
    assert_eq!(ground.json(1, &["diff", "tree/sub"])["changes"]["added"]["files"], 1);
    assert_eq!(ground.json(0, &["protect", "tree"])["encoded"], 1);
    assert!(ground.path(".gabion").is_file(), "no second vault");
    assert_eq!(files(&ground.json(0, &["status", "tree", "--repository", "other"])), 6, "in the same vault");
    ground.expect(0, &["scrub", "tree/sub/new"]);
    ground.expect(0, &["repair", "tree", "--yes"]);
    ground.expect(0, &["whatif", "tree", "--lose", "repository"]);
    // What of the settings is lost is found by the pointer as well, and the pointer follows.
    std::fs::remove_file(ground.dir().join("other/vault.toml")).unwrap();
    assert_eq!(ground.json(0, &["catalogue", "rebuild", "tree"])["files"], 6);
    assert_eq!(ground.json(0, &["protect", "tree"])["encoded"], 0);
}

#[test]
fn a_tree_has_one_vault() {
    let ground = Playground::elsewhere();
    let error = ground.refused(&["protect", "tree", "--repository", "third"]);
    assert!(error.contains("other already"), "{error}");
    assert!(!ground.dir().join("third").exists(), "nothing is begun");
    // A part of a tree belongs to its vault.
    for tree in ["elsewhere", "within"] {
        let ground = if tree == "within" { Playground::new() } else { Playground::elsewhere() };
        ground.expect(0, &["protect", "tree"]);
        for more in [&[][..], &["--repository", "third"]] {
            let error = ground.refused(&[&["protect", "tree/sub"], more].concat());
            assert!(error.contains("`gabion protect ") && error.contains("part of"), "{error}");
        }
        assert!(!ground.path("sub/.gabion").exists() && !ground.dir().join("third").exists());
        ground.refused(&["watch", "tree/sub"]);
        ground.expect(0, &["status", "tree/sub"]);
    }
    // Nor does a tree with its vault within get a second one elsewhere.
    let ground = Playground::new();
    ground.expect(0, &["protect", "tree"]);
    assert!(ground.refused(&["protect", "tree", "--repository", "other"]).contains("leave out --repository"));
    ground.expect(0, &["protect", "tree", "--repository", "tree/.gabion"]);
}

#[test]
fn a_repository_that_moved_or_a_tree_that_was_copied_is_an_error_with_a_way_out() {
    let ground = Playground::elsewhere();
    std::fs::rename(ground.dir().join("other"), ground.dir().join("moved")).unwrap();
    for command in ["status", "protect", "scrub"] {
        let error = ground.refused(&[command, "tree"]);
        assert!(error.contains("--repository WHERE-IT-IS-NOW"), "{error}");
    }
    // Nothing is begun anew where a disk may not be mounted.
    let error = ground.refused(&["protect", "tree", "--repository", "other"]);
    assert!(error.contains("Is its disk mounted?") && error.contains("remove this file"), "{error}");
    assert_eq!(ground.json(0, &["protect", "tree", "--repository", "moved"])["encoded"], 0);
    ground.expect(0, &["status", "tree"]);
    let copied =
        std::process::Command::new("cp").args(["-a", "tree", "copy"]).current_dir(ground.dir()).status();
    assert!(copied.unwrap().success());
    let error = ground.refused(&["protect", "copy"]);
    assert!(error.contains("if it is a copy, remove this file"), "{error}");
    std::fs::remove_file(ground.dir().join("copy/.gabion")).unwrap();
    ground.expect(0, &["protect", "copy"]);
    // A pointer that is damaged says how to write it again.
    std::fs::write(ground.path(".gabion"), b"").unwrap();
    assert!(ground.refused(&["protect", "tree"]).contains("writes it again"));
    ground.expect(0, &["protect", "tree", "--repository", "moved"]);
    ground.expect(0, &["protect", "tree"]);
}

/// `protect DIR` above an existing vault made a second one for the same files, without a word. All orders, with repositories inside and elsewhere.
#[test]
fn a_tree_with_a_vault_in_a_part_of_it_is_refused() {
    const INSIDE: &[&str] = &[];
    for part in [INSIDE, &["--repository", "of-part"]] {
        for whole in [INSIDE, &["--repository", "of-whole"]] {
            // The part was first.
            let ground = Playground::new();
            ground.expect(0, &[&["protect", "tree/sub"], part].concat());
            for more in [INSIDE, &["--dry-run"]] {
                let error = ground.refused(&[&["protect", "tree"], whole, more].concat());
                let says = ["vault of its own", "tree/sub/.gabion", "paths = [\"sub/**\"] protect = false"];
                assert!(says.iter().all(|words| error.contains(words)), "{error}");
            }
            ground.refused(&[&["watch", "tree"], whole].concat());
            assert!(
                !ground.path(".gabion").exists() && !ground.dir().join("of-whole").exists(),
                "nothing is begun"
            );
            ground.expect(0, &["protect", "tree/sub"]);
            // A policy that leaves the part out says that this is meant.
            let policy = "[[rule]]\npaths = [\"sub/**\"]\nprotect = false\n";
            std::fs::write(ground.dir().join("policy.toml"), policy).unwrap();
            ground.expect(0, &[&["protect", "tree", "--policy", "policy.toml"], whole].concat());
            assert_eq!(files(&ground.json(0, &["status", "tree"])), 2);
            assert_eq!(files(&ground.json(0, &["status", "tree/sub"])), 3);
            // The whole was first.
            let ground = Playground::new();
            ground.expect(0, &[&["protect", "tree"], whole].concat());
            assert!(ground.refused(&[&["protect", "tree/sub"], part].concat()).contains("part of"));
            ground.expect(0, &["protect", "tree"]);
        }
    }
}

/// Whoever may write to the tree could lead root to a repository of his own.
#[test]
fn a_pointer_of_somebody_else_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP a_pointer_of_somebody_else_is_not_followed: we are not root");
    }
    let ground = Playground::elsewhere();
    let pointer = ground.path(".gabion");
    std::os::unix::fs::chown(&pointer, Some(65534), None).unwrap();
    for command in ["status", "protect", "repair"] {
        let error = ground.refused(&[command, "tree"]);
        assert!(error.contains("belongs to user 65534"), "{error}");
    }
    std::os::unix::fs::chown(&pointer, Some(0), None).unwrap();
    let writable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    std::fs::set_permissions(&pointer, writable).unwrap();
    assert!(ground.refused(&["status", "tree"]).contains("can be changed by other users"));
    // The same variable that declares repositories trusted reaches the pointer: it had a check of its own that knew nothing of it.
    std::os::unix::fs::chown(&pointer, Some(65534), None).unwrap();
    assert!(ground.refused(&["status", "tree"]).contains("GABION_TRUST_REPOSITORY="));
    ground.expect_trusting(0, &["status", "tree"]);
    ground.expect_trusting(0, &["protect", "tree"]);
}

/// A crash while the pointer is written leaves `.gabion.draft` in the tree of the user, where it was protected like a file of his. The next run removes
/// it; a file of the user's by that name stays.
#[test]
fn a_pointer_that_a_crash_left_half_written_is_removed() {
    for more in [&["--repository", "other"][..], &[]] {
        let ground = Playground::new();
        let draft = ground.path(".gabion.draft");
        for left in [&b""[..], b"gabion repo", b"gabion repository 1\nid 01"] {
            std::fs::write(&draft, left).unwrap();
            ground.expect(0, &[&["protect", "tree"], more].concat());
            assert!(!draft.exists(), "{more:?} {left:?}");
            assert_eq!(files(&ground.json(0, &["status", "tree"])), 5);
        }
        std::fs::write(&draft, b"about gabions").unwrap();
        ground.expect(0, &["protect", "tree"]);
        assert_eq!(std::fs::read(&draft).unwrap(), b"about gabions");
    }
}

/// Where no pointer can be left, the first run says so, and the later ones do not.
#[test]
fn a_tree_without_room_for_a_pointer_is_protected_with_a_warning() {
    let ground = Playground::new();
    std::fs::create_dir(ground.path(".gabion")).unwrap();
    let protect = ["protect", "tree", "--repository", "other"];
    let output = ground.run(&protect);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains("Later commands need --repository"), "{error}");
    assert!(ground.run(&protect).stderr.is_empty());
}

/// `protect q` with a directory `q` and a pool `q` took the directory; the pool stayed unprotected.
#[test]
fn a_name_of_a_pool_and_a_directory_is_an_error() {
    let ground = Playground::new();
    let targets = ["d1", "d2", "d3", "d4", "d5", "d6"];
    let create =
        ["pool", "create", "tree", "--pools", "names", "--stripe", "3", "--redundancy", "2", "--targets"];
    ground.expect(0, &[&create[..], &targets].concat());
    for command in ["protect", "status"] {
        let error = ground.refused(&[command, "tree", "--pools", "names"]);
        assert!(error.contains("pool:tree") && error.contains("./tree"), "{error}");
    }
    assert!(!ground.path(".gabion").exists());
    ground.expect(0, &["protect", "./tree", "--pools", "names"]);
    assert!(ground.path(".gabion").is_dir());
    ground.expect(0, &["protect", "pool:tree", "--pools", "names"]);
    assert!(targets.iter().any(|target| ground.dir().join(target).join("vault").exists()));
    ground.expect(0, &["status", "pool:tree", "--pools", "names"]);
    // Where only pools are named, a directory that is no target is not meant; pool: is understood all the same.
    for name in ["tree", "pool:tree", "d1", "./d1"] {
        ground.expect(0, &["pool", "status", name, "--pools", "names"]);
        ground.expect(0, &["forecast", "--pool", name, "--pools", "names"]);
    }
    assert!(
        ground.refused(&["pool", "status", "pool:d1", "--pools", "names"]).contains("no pool of this name")
    );
    // The name of one pool and the directory of a target of another.
    let create =
        ["pool", "create", "d1", "--pools", "names", "--stripe", "3", "--redundancy", "2", "--targets"];
    ground.expect(0, &[&create[..], &["e1", "e2", "e3", "e4", "e5", "e6"]].concat());
    for args in [&["pool", "status", "d1"][..], &["protect", "d1"], &["forecast", "--pool", "d1"]] {
        let error = ground.refused(&[args, &["--pools", "names"]].concat());
        assert!(error.contains("pool:d1") && error.contains("./d1"), "{error}");
    }
    let named =
        |name| ground.json(0, &["pool", "status", name, "--pools", "names"])["status"]["name"].clone();
    assert_eq!((named("pool:d1"), named("./d1")), ("d1".into(), "tree".into()));
}

/// `--repository s3://bucket/x` made a local directory `s3:/bucket/x` and reported success.
#[test]
fn a_url_is_no_repository() {
    let ground = Playground::new();
    for args in [&["protect", "tree"][..], &["status", "tree"], &["watch", "tree"]] {
        let error = ground.refused(&[args, &["--repository", "s3://bucket/x"]].concat());
        assert!(error.contains("this is a URL"), "{error}");
    }
    assert!(!Path::new(&ground.dir().join("s3:")).exists());
}
