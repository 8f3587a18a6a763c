//! `protect --exclude`, and policies explained without a vault.

use super::fixture::Fixture;

#[test]
fn excluded_files_are_left_out_from_then_on() {
    let fixture = Fixture::new();
    fixture.write("x.tmp", b"1");
    fixture.write("sub/y.tmp", b"2");
    fixture.write("sub/node_modules/z", b"3");
    let plan = fixture.json(0, &["protect", "tree", "--exclude", "*.tmp", "--dry-run"]);
    assert_eq!(plan["files"], 6, "{plan}");
    assert!(!fixture.path(".gabion").exists());
    let done = fixture
        .json(0, &["protect", "tree", "--code", "4+2", "--exclude", "*.tmp", "--exclude", "node_modules/"]);
    assert_eq!((done["files"].as_u64(), done["left_out"].as_u64()), (Some(5), Some(3)), "{done}");
    // Stored, with the code: later runs have it too.
    fixture.write("sub/more.tmp", b"4");
    assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 0);
    let why = fixture.expect(0, &["policy", "explain", "tree/sub/y.tmp"]);
    assert!(why.contains("exclude *.tmp: applies") && why.contains("not protected"), "{why}");
    let why = fixture.json(0, &["policy", "explain", "tree/a"]);
    assert!(why["treatment"]["code"].as_str().unwrap().contains("4+2"), "{why}");
    // A further one, of a file that is protected; a repeated one changes nothing.
    let policy = || std::fs::read_to_string(fixture.path(".gabion/policy.toml")).unwrap();
    fixture.expect(0, &["protect", "tree", "--exclude", "/sub/c"]);
    let before = policy();
    fixture.expect(0, &["protect", "tree", "--exclude", "/sub/c"]);
    assert_eq!(policy(), before);
    assert!(!fixture.path(".gabion/redundancy/sub/c").exists(), "its redundancy is removed");
    for (args, word) in [
        (&["protect", "tree", "--exclude", "["][..], "--exclude"),
        // An unset variable of a shell would end the protection of everything.
        (&["protect", "tree", "--exclude", ""], "cannot be excluded"),
        (&["protect", "tree", "--exclude", "/"], "cannot be excluded"),
        (&["protect", "tree", "--exclude", "a", "--exclude", "../x"], "cannot be excluded"),
        (&["protect", "tree", "--exclude", "sub//c"], "cannot be excluded"),
        (&["protect", "tree/a", "tree/sub", "--exclude", "x"], "whole vault"),
    ] {
        let output = fixture.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(word), "{args:?}: {error}");
    }
    assert_eq!(policy(), before);
}

#[test]
fn a_policy_is_explained_before_it_is_used() {
    let fixture = Fixture::new();
    let policy = "[[rule]]\nname = \"small\"\npaths = [\"sub/**\"]\nsmaller = \"1KiB\"\nprotect = false\n";
    std::fs::write(fixture.dir().join("policy.toml"), policy).unwrap();
    let explain = |path: &str, more: &[&str]| {
        fixture.json(0, &[&["policy", "explain", path, "--policy", "policy.toml"], more].concat())
    };
    let why = explain("tree/sub/deep/d", &["--root", "tree"]);
    assert_eq!((why["rule"].as_str(), why["treatment"].is_null()), (Some("small"), true), "{why}");
    let why = explain("tree/sub/b", &["--root", "tree"]);
    assert!(why["treatment"]["code"].is_string() && why["passed_over"][0]["rule"] == "small", "{why}");
    // Without --root, paths are relative to the current directory: sub/** does not match tree/sub/deep/d.
    assert!(explain("tree/sub/deep/d", &[])["treatment"]["code"].is_string());
    assert!(!fixture.path(".gabion").exists(), "nothing is created");
    // In a protected tree its root counts, and its own policy does not.
    fixture.expect(0, &["protect", "tree"]);
    assert_eq!(explain("tree/sub/deep/d", &[])["rule"], "small");
    let output = fixture.run(&["policy", "explain", "tree/none", "--policy", "policy.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
