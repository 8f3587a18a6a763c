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
    assert!(ground.refused(&["status", "tree"]).contains("can be written by others"));
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
