//! The commands of the README, and the output that scripts rely on.

use super::corruption::rot;
use super::fixture::Fixture;
use super::test_rng::TestRng;
use std::os::unix::fs::FileExt;

fn damage(fixture: &Fixture, name: &str, offset: u64, bytes: usize) {
    rot(&fixture.path(name), offset, bytes);
}

/// A changed file of a write-once rule was mentioned by `protect`, exit code 0, and `status` knew nothing of it.
#[test]
fn changed_write_once_files_are_reported() {
    let fixture = Fixture::new();
    std::fs::write(fixture.dir().join("policy.toml"), "[default]\nwrite_once = true\n").unwrap();
    fixture.expect(0, &["protect", "tree", "--policy", "policy.toml"]);
    fixture.expect(0, &["status", "tree"]);
    fixture.write("a", b"changed all the same");
    assert_eq!(fixture.json(1, &["protect", "tree"])["write_once_changed"][0]["path"], "a");
    let status = fixture.json(1, &["status", "tree"]);
    assert_eq!(
        (&status["write_once_changed"][0]["path"], &status["pending"]["files"]),
        (&"a".into(), &0.into())
    );
    assert!(fixture.expect(1, &["status", "tree"]).contains("changed   a"));
    // It is damage for those who do not scan, too.
    assert_eq!(fixture.json(1, &["status", "tree", "--no-scan"])["damaged"][0]["path"], "a");
    fixture.expect(2, &["approve", "tree/sub"]);
    assert_eq!(fixture.json(0, &["approve", "tree/a", "--dry-run"])["write_once"][0]["path"], "a");
    assert_eq!(fixture.json(1, &["protect", "tree"])["encoded"], 0, "a dry run approves nothing");
    assert_eq!(fixture.json(0, &["approve", "tree/a"])["write_once"][0]["path"], "a");
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 1);
    fixture.expect(0, &["status", "tree"]);
}

/// `scrub = "30d"` of a policy was shown and read by nothing: `status` was green with scrubs years overdue, and no
/// command knew which files were due.
#[test]
fn overdue_scrubs_are_named_and_done() {
    let fixture = Fixture::new();
    let policy = |scrub: &str| {
        let text = format!("[[rule]]\npaths = [\"sub/**\"]\nscrub = \"{scrub}\"\n");
        std::fs::write(fixture.dir().join("policy.toml"), text).unwrap();
        fixture.expect(0, &["protect", "tree", "--policy", "policy.toml"]);
    };
    policy("30d");
    assert_eq!(fixture.json(0, &["status", "tree"])["scrub_overdue"]["files"], 0);
    assert_eq!(fixture.json(0, &["scrub", "tree", "--due"])["files"], 0);
    policy("0s");
    let overdue = &fixture.json(1, &["status", "tree"])["scrub_overdue"];
    assert_eq!(overdue["files"], 3, "{overdue}");
    assert!(overdue["oldest"]["path"].as_str().unwrap().starts_with("sub/"), "{overdue}");
    assert!(fixture.expect(1, &["status", "tree"]).contains("the scrub of 3 files is overdue by the policy"));
    assert_eq!(fixture.json(0, &["scrub", "tree", "--due"])["files"], 3);
    fixture.expect(2, &["scrub", "tree", "--due", "--percent", "3"]);
}

/// `repair --yes` reverted what was written since the last protect. It lists such files and leaves them alone;
/// --revert-changes brings them back.
#[test]
fn repair_keeps_changed_files_by_default() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    let before = fixture.content();
    let undamaged = std::fs::read(fixture.path("sub/c")).unwrap();
    let file = std::fs::File::options().write(true).open(fixture.path("a")).unwrap();
    file.write_all_at(b"work of an afternoon", 5000).unwrap();
    drop(file);
    damage(&fixture, "sub/c", 100, 1);
    for args in [&["repair", "tree", "--yes"][..], &["repair", "tree", "--yes", "--keep-changed"]] {
        // What is skipped is left unrepaired.
        let repair = fixture.json(1, args);
        assert_eq!(repair["kept"][0]["path"], "a", "{repair}");
        assert_eq!(&std::fs::read(fixture.path("a")).unwrap()[5000..5020], b"work of an afternoon");
        assert!(
            std::fs::read(fixture.path("sub/c")).unwrap() == undamaged,
            "what nobody wrote to is repaired"
        );
    }
    assert!(fixture.expect(1, &["repair", "tree", "--yes"]).contains("--revert-changes"));
    fixture.expect(2, &["repair", "tree", "--yes", "--keep-changed", "--revert-changes"]);
    let repair = fixture.json(0, &["repair", "tree", "--yes", "--revert-changes"]);
    assert_eq!(repair["repaired"][0]["path"], "a");
    assert_eq!(fixture.content(), before);
    // Both repairs replaced something, which is kept for a while.
    let status = fixture.json(0, &["status", "tree"]);
    let kept = status["replaced"].as_array().unwrap();
    assert_eq!(kept.iter().map(|run| run["files"].as_u64().unwrap()).sum::<u64>(), 2, "{kept:?}");
    assert!(fixture.expect(0, &["status", "tree"]).contains("replaced   2 files"));
}

#[test]
fn protect_damage_scrub_repair_compare() {
    let fixture = Fixture::new();
    let before = fixture.content();
    let dry = fixture.json(0, &["protect", "tree", "--dry-run"]);
    assert_eq!(dry["changes"]["added"]["files"], 5);
    assert!(!fixture.path(".gabion").exists(), "a dry run left something behind");
    let first = fixture.json(0, &["protect", "tree"]);
    assert_eq!((first["encoded"].as_u64(), first["failures"].as_u64()), (Some(5), Some(0)));
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 0);
    assert_eq!(fixture.json(0, &["scrub", "tree"])["worst"], "protected");
    let status = fixture.json(0, &["status", "tree"]);
    assert_eq!(status["matrix"][0]["configured"], 2);
    assert_eq!(status["matrix"][0]["files"], 5);

    damage(&fixture, "a", 1_000_000, 40_000);
    damage(&fixture, "sub/c", 100, 1);
    let scrub = fixture.json(1, &["scrub", "tree"]);
    assert_eq!(scrub["damage"].as_array().unwrap().len(), 2);
    assert_eq!(scrub["damage"][0]["path"], "a");
    let range = &scrub["damage"][0]["problems"][0];
    assert!(
        range["start"].as_u64() <= Some(1_000_000) && range["end"].as_u64() >= Some(1_040_000),
        "{range}"
    );
    let status = fixture.json(1, &["status", "tree"]);
    assert_eq!(status["damaged"].as_array().unwrap().len(), 2);
    assert!(fixture.expect(1, &["status", "tree"]).contains("damaged   sub/c"));
    // Nobody is there to be asked.
    fixture.expect(2, &["repair", "tree"]);
    assert_eq!(fixture.json(1, &["repair", "tree", "--dry-run"])["plan"].as_array().unwrap().len(), 2);
    assert_ne!(fixture.content(), before);
    let repair = fixture.json(0, &["repair", "tree", "--yes"]);
    assert_eq!(repair["repaired"].as_array().unwrap().len(), 2);
    assert_eq!(fixture.content(), before);
    fixture.expect(0, &["scrub", "tree"]);
    assert_eq!(fixture.json(0, &["status", "tree"])["pending"]["files"], 0);
}

#[test]
fn what_cannot_be_repaired_is_named() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", "--code", "4+1"]);
    damage(&fixture, "sub/b", 0, 200_000);
    let before = fixture.content();
    let scrub = fixture.json(3, &["scrub", "tree"]);
    assert_eq!((&scrub["worst"], &scrub["damage"][0]["path"]), (&"lost".into(), &"sub/b".into()));
    let repair = fixture.json(3, &["repair", "tree", "--yes"]);
    assert_eq!(repair["repaired"][0]["state"], "lost");
    assert!(!repair["repaired"][0]["lost"].as_array().unwrap().is_empty());
    assert_eq!(fixture.content(), before, "nothing could be done, and nothing was");
    assert_eq!(fixture.json(3, &["status", "tree"])["lost"][0]["path"], "sub/b");
}

#[test]
fn diff_and_moves() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    fixture.expect(0, &["diff", "tree"]);
    std::fs::rename(fixture.path("sub"), fixture.path("bus")).unwrap();
    fixture.write("new", b"new");
    let diff = fixture.json(1, &["diff", "tree"]);
    assert_eq!(
        (&diff["changes"]["moved"]["files"], &diff["changes"]["added"]["files"]),
        (&3.into(), &1.into())
    );
    let from: Vec<&str> =
        diff["files"].as_array().unwrap().iter().filter_map(|it| it["from"]["path"].as_str()).collect();
    assert_eq!(from, ["sub/b", "sub/c", "sub/deep/d"]);
    let done = fixture.json(0, &["protect", "tree"]);
    assert_eq!((&done["moved"], &done["encoded"]), (&3.into(), &1.into()));
    fixture.expect(0, &["scrub", "tree"]);
}

#[test]
fn policies_are_checked_and_explained() {
    let fixture = Fixture::new();
    std::fs::write(fixture.dir().join("bad.toml"), "[default]\ncode = \"8 plus 2\"\n").unwrap();
    let output = fixture.run(&["policy", "check", "bad.toml"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("bad.toml") && error.contains("line 2, column 8"), "{error}");
    // A vault is not begun with a policy that cannot be used.
    fixture.expect(2, &["protect", "tree", "--policy", "bad.toml"]);
    assert!(!fixture.path(".gabion").exists());
    let policy = "[[rule]]\nname = \"leave\"\npaths = [\"sub/deep/**\"]\nprotect = false\n\
                  [[rule]]\nname = \"more\"\nlarger = \"1MiB\"\ncode = \"4+3\"\n";
    std::fs::write(fixture.dir().join("policy.toml"), policy).unwrap();
    assert!(fixture.expect(0, &["policy", "check", "policy.toml"]).contains("leave: not protected"));
    let done = fixture.json(0, &["protect", "tree", "--policy", "policy.toml"]);
    assert_eq!((&done["encoded"], &done["left_out"]), (&4.into(), &1.into()));
    let explained = fixture.json(0, &["policy", "explain", "tree/a"]);
    assert_eq!(
        (&explained["rule"], &explained["treatment"]["code"]),
        (&"more".into(), &"subspace:4+3:w8".into())
    );
    assert_eq!(explained["passed_over"][0]["rule"], "leave");
    // It is remembered.
    assert_eq!(fixture.json(0, &["protect", "tree"])["left_out"], 1);
    let rows = fixture.json(0, &["status", "tree"])["matrix"].clone();
    assert_eq!((rows[0]["configured"].as_u64(), rows[1]["configured"].as_u64()), (Some(2), Some(3)));
}

#[test]
fn a_mass_deletion_is_held_and_approved() {
    let fixture = Fixture::new();
    (0..300).for_each(|number| fixture.write(&format!("many/{number}"), number.to_string().as_bytes()));
    fixture.expect(0, &["protect", "tree"]);
    std::fs::remove_dir_all(fixture.path("many")).unwrap();
    let held = fixture.json(1, &["protect", "tree"])["held"].clone();
    assert_eq!(held["removed"], 300);
    let digest = held["digest"].as_str().unwrap();
    assert!(fixture.path(".gabion/redundancy/many/7").exists());
    fixture.expect(2, &["approve", &"0".repeat(32), "tree"]);
    fixture.expect(0, &["approve", digest, "tree"]);
    assert_eq!(fixture.json(0, &["protect", "tree"])["removed"], 300);
    assert!(!fixture.path(".gabion/redundancy/many").exists());
}

#[test]
fn a_repository_elsewhere_and_what_its_loss_means() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", "--repository", "other"]);
    assert!(fixture.path(".gabion").is_file(), "the tree has a pointer, and nothing else of ours");
    fixture.expect(0, &["scrub", "tree", "--repository", "other"]);
    let lose = |target: &str, code: i32| {
        fixture.json(code, &["whatif", "tree", "--repository", "other", "--lose", target])["result"].clone()
    };
    assert_eq!(lose("repository", 0)["exposed"]["files"], 5);
    // What fits in m columns, and what is empty, comes back even then.
    assert_eq!(lose("data", 3)["lost"]["files"], 3);
    fixture.expect(2, &["whatif", "tree", "--repository", "other", "--lose", "nothing"]);
    std::fs::remove_file(fixture.dir().join("other/catalogue.sqlite")).unwrap();
    let rebuilt = fixture.json(0, &["catalogue", "rebuild", "tree", "--repository", "other"]);
    assert_eq!(rebuilt["files"], 5);
    assert_eq!(fixture.json(0, &["protect", "tree", "--repository", "other"])["encoded"], 0);
}

#[test]
fn errors_name_file_and_reason() {
    let fixture = Fixture::new();
    let error = |args: &[&str]| {
        let output = fixture.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(error(&["protect", "nowhere"]).contains("nowhere: No such file"));
    assert!(error(&["protect", "tree/a"]).contains("tree/a is not a directory"));
    assert!(error(&["status", "tree"]).contains("tree is not protected"));
    assert!(error(&["protect", "tree", "--code", "8"]).contains("--code 8"));
    fixture.expect(0, &["protect", "tree"]);
    std::fs::write(fixture.path(".gabion/vault.toml"), "version = 99\n").unwrap();
    assert!(error(&["status", "tree"]).contains("vault.toml"));
}

/// What nobody knows was called undamaged; who mistyped a name was told that all is well.
#[test]
fn unknown_names_are_errors() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    std::fs::create_dir(fixture.path("bare")).unwrap();
    for command in ["scrub", "status", "diff", "repair"] {
        let refused = fixture.json(2, &[command, "tree/sub/no such file"]);
        assert!(refused["error"].as_str().unwrap().contains("no such file"), "{refused}");
        assert!(
            fixture.json(2, &[command, "tree/.gabion"])["error"].as_str().unwrap().contains("repository")
        );
        fixture.expect(0, &[command, "tree/bare"]);
    }
    // What is gone is still known.
    std::fs::remove_file(fixture.path("sub/c")).unwrap();
    assert_eq!(fixture.json(1, &["diff", "tree/sub/c"])["changes"]["removed"]["files"], 1);
    for within in ["tree/.gabion", "tree/.gabion/redundancy/sub"] {
        assert!(fixture.json(2, &["protect", within])["error"].as_str().unwrap().contains("repository"));
    }
}

#[test]
fn errors_are_printed_once_and_as_an_object_with_json() {
    let fixture = Fixture::new();
    let told = |args: &[&str]| fixture.json(2, args)["error"].as_str().unwrap().to_owned();
    assert_eq!(told(&["protect", "nowhere"]), "nowhere: No such file or directory (os error 2)");
    assert_eq!(told(&["protect", "tree", "--code", "8+0"]).matches("needs redundancy").count(), 1);
    assert_eq!(told(&["protect", "tree", "--policy", "/dev/zero"]).matches("more than").count(), 1);
    assert!(told(&["policy", "check", "/dev/zero"]).contains("more than"));
    assert!(told(&["status", "\u{1b}[31m"]).starts_with("\\u{1b}"));
    std::fs::write(fixture.dir().join("bad.toml"), "[default]\ncode = 3\n").unwrap();
    let bad = told(&["policy", "check", "bad.toml"]);
    assert_eq!((bad.matches("line 2, column 8").count(), bad.matches("bad.toml").count()), (1, 1), "{bad}");
}

/// The one command that makes the catalogue anew needed the old one.
#[test]
fn a_vault_is_rebuilt_from_its_redundancy() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", "--repository", "other"]);
    let other = fixture.dir().join("other");
    std::fs::write(other.join("catalogue.sqlite"), TestRng(4).bytes(50_000)).unwrap();
    std::fs::write(other.join("changelog/log.db"), TestRng(5).bytes(50_000)).unwrap();
    std::fs::remove_file(other.join("vault.toml")).unwrap();
    damage(&fixture, "a", 1_000_000, 40_000);
    let at = ["--repository", "other"];
    fixture.json(2, &[&["catalogue", "rebuild"], &at[..]].concat());
    let rebuilt = fixture.json(0, &[&["catalogue", "rebuild", "tree"], &at[..]].concat());
    assert_eq!((&rebuilt["files"], rebuilt["renewed"].as_array().unwrap().len()), (&5.into(), 3));
    assert_eq!(fixture.json(1, &[&["scrub", "tree"], &at[..]].concat())["damage"][0]["path"], "a");
    fixture.expect(0, &[&["repair", "tree", "--yes"], &at[..]].concat());
    assert_eq!(fixture.json(0, &[&["protect", "tree"], &at[..]].concat())["encoded"], 0);
}

/// Redundancy that was set aside took room that no report showed.
#[test]
fn redundancy_that_was_set_aside_is_shown() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    assert_eq!(
        fixture.json(0, &["status", "tree"])["displaced"],
        serde_json::json!({ "files": 0, "bytes": 0 })
    );
    assert!(!fixture.expect(0, &["status", "tree"]).contains("displaced"));
    // As a worker that was killed leaves it.
    let (repository, displaced) = (fixture.path(".gabion"), fixture.path(".gabion/displaced"));
    std::fs::create_dir_all(&displaced).unwrap();
    for (number, name) in ["a", "sub/c"].iter().enumerate() {
        std::fs::rename(repository.join("redundancy").join(name), displaced.join(format!("{number:016x}")))
            .unwrap();
    }
    let status = fixture.json(0, &["status", "tree"]);
    assert_eq!(status["displaced"]["files"], 2, "{status}");
    assert!(status["displaced"]["bytes"].as_u64() > Some(0), "{status}");
    let text = fixture.expect(0, &["status", "tree"]);
    assert!(text.contains("displaced  redundancy of 2 files ("), "{text}");
}
