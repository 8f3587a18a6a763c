//! What programs that read our output rely on.

use super::playground::Playground;
use serde_json::Value;

/// Arguments that are none were told in words alone, to those who read objects.
#[test]
fn usage_errors_are_objects_to_those_who_ask_for_them() {
    let ground = Playground::new();
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
        let output = ground.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let object: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let why = object["error"].as_str().unwrap();
        assert!(why.contains(word) && !why.contains('\n') && !why.contains("Usage"), "{args:?}: {why}");
        assert!(!output.stderr.is_empty());
    }
    // Words for people, and help, stay what they were.
    let output = ground.run(&["protect"]);
    assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("Usage"));
    assert!(ground.expect(0, &["protect", "--help"]).contains("Usage"));
    assert!(ground.expect(0, &["protect", "--json", "--help"]).contains("Usage"));
    assert!(ground.expect(0, &["--version"]).starts_with("gabion "));
    // Behind the end of options it is a name.
    assert!(ground.run(&["protect", "--", "tree", "--json"]).stdout.is_empty());
}

#[test]
fn approvals_say_what_they_found() {
    let ground = Playground::new();
    (0..200).for_each(|number| ground.write(&format!("many/{number}"), b"content"));
    ground.expect(0, &["protect", "tree"]);
    let unknown = "0123456789abcdef0123456789abcdef";
    let error = ground.json(2, &["approve", unknown, "tree"]);
    assert!(error["error"].as_str().unwrap().contains("no change-set is held"), "{error}");
    std::fs::remove_dir_all(ground.path("many")).unwrap();
    let held = ground.json(1, &["protect", "tree"])["held"].clone();
    let digest = held["digest"].as_str().unwrap();
    let error = ground.json(2, &["approve", unknown, "tree"]);
    assert!(error["error"].as_str().unwrap().contains(digest), "{error}");
    let dry = ground.json(0, &["approve", digest, "tree", "--dry-run"]);
    assert_eq!(
        (&dry["held"], &dry["dry_run"], &dry["approved_before"]),
        (&held, &true.into(), &false.into())
    );
    assert_eq!(ground.json(1, &["protect", "tree"])["held"], held, "a dry run approves nothing");
    // What else vanishes meanwhile makes it another change-set.
    std::fs::remove_file(ground.path("sub/b")).unwrap();
    let error = ground.json(2, &["approve", digest, "tree"]);
    let other = ground.json(1, &["protect", "tree"])["held"]["digest"].as_str().unwrap().to_owned();
    assert!(other != digest && error["error"].as_str().unwrap().contains(&other), "{error}");
    assert_eq!(ground.json(0, &["approve", &other, "tree"])["approved_before"], false);
    assert_eq!(ground.json(0, &["approve", &other, "tree"])["approved_before"], true);
    assert_eq!(ground.json(0, &["protect", "tree"])["removed"], 201);
    ground.json(2, &["approve", &other, "tree"]);
}
