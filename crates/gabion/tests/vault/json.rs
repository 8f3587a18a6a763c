//! JSON output: usage errors, approvals, dry runs, promises.

use super::fixture::Fixture;
use serde_json::Value;
use std::path::PathBuf;
use std::time::SystemTime;

/// Arguments that are none were told in words alone, to those who read objects.
#[test]
fn usage_errors_are_objects_with_json() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &str); 7] = [
        (&["protect", "--json"], "required"),
        (&["protect", "tree", "--json", "--colour"], "--colour"),
        (&["--json"], "--json"),
        (&["nothing", "--json"], "nothing"),
        (&["scrub", "--percent", "0", "--json"], "0"),
        (&["approve", "--json", "not-a-digest"], "digest"),
        (&["pool", "--json"], "--json"),
    ];
    for (args, word) in cases {
        let output = fixture.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let object: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let why = object["error"].as_str().unwrap();
        assert!(why.contains(word) && !why.contains('\n') && !why.contains("Usage"), "{args:?}: {why}");
        assert!(!output.stderr.is_empty());
    }
    // Words for people, and help, stay what they were.
    let output = fixture.run(&["protect"]);
    assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("Usage"));
    assert!(fixture.expect(0, &["protect", "--help"]).contains("Usage"));
    assert!(fixture.expect(0, &["protect", "--json", "--help"]).contains("Usage"));
    assert!(fixture.expect(0, &["--version"]).starts_with("gabion "));
    // Behind the end of options it is a name.
    assert!(fixture.run(&["protect", "--", "tree", "--json"]).stdout.is_empty());
}

#[test]
fn approvals_report_what_they_found() {
    let fixture = Fixture::new();
    (0..200).for_each(|number| fixture.write(&format!("many/{number}"), b"content"));
    fixture.expect(0, &["protect", "tree"]);
    let unknown = "0123456789abcdef0123456789abcdef";
    let error = fixture.json(2, &["approve", unknown, "tree"]);
    assert!(error["error"].as_str().unwrap().contains("no change-set is held"), "{error}");
    std::fs::remove_dir_all(fixture.path("many")).unwrap();
    let held = fixture.json(1, &["protect", "tree"])["held"].clone();
    let digest = held["digest"].as_str().unwrap();
    let error = fixture.json(2, &["approve", unknown, "tree"]);
    assert!(error["error"].as_str().unwrap().contains(digest), "{error}");
    let dry = fixture.json(0, &["approve", digest, "tree", "--dry-run"]);
    assert_eq!(
        (&dry["held"], &dry["dry_run"], &dry["approved_before"]),
        (&held, &true.into(), &false.into())
    );
    assert_eq!(fixture.json(1, &["protect", "tree"])["held"], held, "a dry run approves nothing");
    // What else vanishes meanwhile makes it another change-set.
    std::fs::remove_file(fixture.path("sub/b")).unwrap();
    let error = fixture.json(2, &["approve", digest, "tree"]);
    let other = fixture.json(1, &["protect", "tree"])["held"]["digest"].as_str().unwrap().to_owned();
    assert!(other != digest && error["error"].as_str().unwrap().contains(&other), "{error}");
    assert_eq!(fixture.json(0, &["approve", &other, "tree"])["approved_before"], false);
    assert_eq!(fixture.json(0, &["approve", &other, "tree"])["approved_before"], true);
    assert_eq!(fixture.json(0, &["protect", "tree"])["removed"], 201);
    fixture.json(2, &["approve", &other, "tree"]);
}

/// Everything below a directory: names, bytes, and times of change.
fn everything(dir: &std::path::Path) -> std::collections::BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = std::collections::BTreeMap::new();
    let mut ahead = vec![dir.to_owned()];
    while let Some(path) = ahead.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let mut bytes = Vec::new();
        if metadata.is_dir() {
            ahead.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            bytes = std::fs::read(&path).unwrap();
        }
        found.insert(path, (metadata.modified().unwrap(), bytes));
    }
    found
}

#[test]
fn a_dry_rebuild_of_the_catalogue_changes_nothing() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    for gone in ["", "catalogue.sqlite", "vault.toml", "changelog"] {
        let path = fixture.path(".gabion").join(gone);
        match gone {
            "" => {}
            "changelog" => std::fs::remove_dir_all(path).unwrap(),
            _ => std::fs::remove_file(path).unwrap(),
        }
        let before = everything(fixture.dir());
        let dry = fixture.json(0, &["catalogue", "rebuild", "tree", "--dry-run"]);
        assert_eq!((&dry["files"], &dry["dry_run"]), (&5.into(), &true.into()), "{gone}: {dry}");
        assert_eq!(
            dry["renewed"].as_array().unwrap().len(),
            usize::from(gone == "vault.toml"),
            "{gone}: {dry}"
        );
        assert!(
            fixture.expect(0, &["catalogue", "rebuild", "tree", "--dry-run"]).contains("would have 5 files")
        );
        assert!(everything(fixture.dir()) == before, "{gone}");
        assert_eq!(fixture.json(0, &["catalogue", "rebuild", "tree"])["files"], 5);
    }
    std::fs::write(fixture.path(".gabion/redundancy/sub/c"), b"nothing of ours").unwrap();
    let before = everything(fixture.dir());
    let dry = fixture.json(1, &["catalogue", "rebuild", "tree", "--dry-run"]);
    assert_eq!((&dry["files"], dry["unusable"].as_array().unwrap().len()), (&4.into(), 1), "{dry}");
    assert!(everything(fixture.dir()) == before);
}

/// The system's words for what is missing were all that was said.
#[test]
fn names_that_a_pool_does_not_have_are_reported_as_missing() {
    let fixture = Fixture::new();
    let create =
        ["pool", "create", "tank", "--targets", "d1", "d2", "d3", "--stripe", "1", "--pools", "pools"];
    fixture.expect(0, &create);
    let cases: [&[&str]; 3] = [
        &["pool", "ls", "tank", "nothing/here"],
        &["pool", "mv", "tank", "nothing/here", "there"],
        &["pool", "get", "tank", "nothing/here", "out"],
    ];
    for args in cases {
        let error = fixture.json(2, &[args, &["--pools", "pools"]].concat());
        assert_eq!(error["error"], "nothing/here: not in the pool", "{args:?}");
    }
    fixture.expect(0, &["pool", "ls", "tank", "--pools", "pools"]);
}

/// `protect --help` said that a repository on another disk can bring back what the first one lost, and `status`
/// warned only where both are on one file system: with 8+2 nearly nothing comes back. Both print the one table of
/// promises.
#[test]
fn status_and_help_promise_what_the_table_does() {
    use gabion_vault::promises::{Loss, Mode, promise};
    let fixture = Fixture::new();
    let help = fixture.expect(0, &["protect", "--help"]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for mode in Mode::ALL {
        for loss in Loss::ALL {
            let line = words(&format!("{} {}", loss.words(), promise(mode, loss).1));
            assert!(words(&help).contains(&line), "{line:?} is not in {help}");
        }
    }
    assert!(!help.contains("bring back what this one lost"));
    for (code, deleted) in [("8+2", "no"), ("2+2", "conditionally")] {
        fixture.expect(0, &["protect", "tree", "--code", code]);
        let survives = fixture.json(0, &["status", "tree"])["survives"].clone();
        let of = |loss: &str| {
            let found = survives.as_array().unwrap().iter().find(|it| it["loss"] == loss);
            found.unwrap()["survives"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            ["corruption", "deleted_file", "disk", "host"].map(of),
            ["yes", deleted, "no", "no"],
            "{code}"
        );
        assert!(
            fixture.expect(0, &["status", "tree"]).contains("data and redundancy are on one file system")
        );
    }
}
