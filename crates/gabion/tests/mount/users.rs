//! Policies of users under a mount.

use crate::fixture::{Fixture, can_mount};
use std::fs;
use std::os::unix::fs::chown;

const ANNA: u32 = 40_001;

/// The mount and its workers decide as scans do.
#[test]
fn workers_of_a_mount_follow_the_policies_of_users() {
    if !can_mount("workers_of_a_mount_follow_the_policies_of_users") {
        return;
    }
    let mut fixture = Fixture::new();
    let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"1h\"\n\
                  [users]\nallow = true\ncodes = [\"4+3\"]\nmin_quiet = \"0s\"\n";
    fs::write(fixture.path().join("policy.toml"), policy).unwrap();
    let files = ["anna/file", "root/file"];
    for name in files {
        fs::create_dir(fixture.source(name).parent().unwrap()).unwrap();
        fs::write(fixture.source(name), [1; 50_000]).unwrap();
    }
    fs::write(fixture.source("anna/.gabion-policy.toml"), "[[rule]]\ncode = \"4+3\"\nquiet = \"0s\"\n")
        .unwrap();
    for name in ["anna", "anna/file", "anna/.gabion-policy.toml"] {
        chown(fixture.source(name), Some(ANNA), None).unwrap();
    }
    fixture.mount(&[]);
    // The owner is the one of the file, whoever writes.
    for name in files {
        fs::write(fixture.at(name), [2; 60_000]).unwrap();
    }
    let redundancy = |name: &str| fixture.source(".gabion/redundancy").join(name);
    gabion_testkit::until("the user's file is protected at once", || redundancy("anna/file").exists());
    assert!(!redundancy("root/file").exists(), "its quiet period is an hour");
    let explained = fixture.expect(0, &["policy", "explain", "source/anna/file", "--json"]);
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(explained["treatment"]["code"], "subspace:4+3:w8", "{explained}");
    fixture.end();
    // Nothing is recoded: the mount used the same code.
    let report = fixture.expect(0, &["protect", "source", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["changes"]["recoded"]["files"], 0, "{report}");
    fixture.expect(0, &["scrub", "source"]);
}
