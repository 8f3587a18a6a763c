//! Files with equal content that share their redundancy, as the commands show them.

use super::fixture::Fixture;
use std::fs;

const POLICY: &str = "[default]\ncode = \"4+2\"\nshare_duplicates = true\n[guard]\nat_least = 100000\n";

#[test]
fn equal_files_share_redundancy_and_status_counts_it_once() {
    let fixture = Fixture::new();
    fs::copy(fixture.path("a"), fixture.path("copy of a")).unwrap();
    fs::copy(fixture.path("sub/b"), fixture.path("b")).unwrap();
    fixture.expect(0, &["protect", "tree", "--code", "4+2"]);
    let before = fixture.json(0, &["status", "tree"]);
    assert_eq!(before["shared"], serde_json::json!({ "files": 0, "saved_bytes": 0 }));
    fs::write(fixture.dir().join("policy.toml"), POLICY).unwrap();

    let plan = fixture.json(0, &["protect", "tree", "--policy", "policy.toml", "--dry-run"]);
    assert_eq!(plan["sharing"]["files"], 4, "{plan}");
    let text = fixture.expect(0, &["protect", "tree", "--policy", "policy.toml", "--dry-run"]);
    assert!(text.contains("of those that are protected, 4 files would share redundancy"), "{text}");
    assert_eq!(fixture.json(0, &["status", "tree"])["shared"]["files"], 0);

    let text = fixture.expect(0, &["protect", "tree", "--policy", "policy.toml"]);
    assert!(text.contains("shared    redundancy of 4 files with equal content"), "{text}");
    let after = fixture.json(0, &["status", "tree"]);
    let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap();
    let saved = number(&plan["sharing"], "saved_bytes");
    assert_eq!((number(&after["shared"], "files"), number(&after["shared"], "saved_bytes")), (4, saved));
    assert_eq!(number(&after, "redundancy_bytes"), number(&before, "redundancy_bytes") - saved);
    let text = fixture.expect(0, &["status", "tree"]);
    assert!(text.contains("shared     redundancy of 4 files with equal content, which saves"), "{text}");
    let explained = fixture.json(0, &["policy", "explain", "tree/a"]);
    assert_eq!(explained["treatment"]["share_duplicates"], true, "{explained}");
    fixture.expect(0, &["scrub", "tree"]);

    // A rebuilt catalogue knows as much.
    fs::remove_file(fixture.path(".gabion/catalogue.sqlite")).unwrap();
    fixture.expect(0, &["protect", "tree"]);
    let again = fixture.json(0, &["status", "tree"]);
    assert_eq!(
        (&again["redundancy_bytes"], &again["shared"]),
        (&after["redundancy_bytes"], &after["shared"])
    );

    fixture.expect(0, &["forget", "tree", "--yes"]);
    assert!(!fixture.path(".gabion").exists());
}

#[test]
fn a_pool_does_not_share() {
    let fixture = Fixture::new();
    fs::write(fixture.dir().join("policy.toml"), POLICY.replace("4+2", "2+1")).unwrap();
    let targets = ["t1", "t2", "t3"];
    targets.iter().for_each(|target| fs::create_dir(fixture.dir().join(target)).unwrap());
    let create = ["pool", "create", "tank", "--targets", "t1", "t2", "t3", "--stripe", "2"];
    fixture.expect(0, &[&create[..], &["--pools", "names"]].concat());
    let output = fixture.run(&["protect", "tank", "--policy", "policy.toml", "--pools", "names"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(error.contains("share_duplicates would have no effect in a pool"), "{error}");
}
