//! Policies of ordinary users, within the bounds of the vault's policy.

use super::fixture::Fixture;
use gabion_testkit::until;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

const ANNA: u32 = 40_001;
const BEN: u32 = 40_002;
const FILE: &str = ".gabion-policy.toml";

const BOUNDS: &str = "[default]\ncode = \"8+2\"\nquiet = \"1h\"\n[[rule]]\nname = \"scratch\"\npaths = [\"**/*.tmp\"]\nprotect = false\n\
                      [users]\nallow = true\nmax_redundancy = \"50%\"\nmin_quiet = \"0s\"\n";

/// A tree with directories of two users, protected with this policy. None, and a skip, without root.
fn tree(test: &str, policy: &str) -> Option<Fixture> {
    let fixture = Fixture::new();
    if chown(fixture.path("a"), Some(ANNA), None).is_err() {
        gabion_testkit::skip(test, "only root can give files away");
        return None;
    }
    chown(fixture.path("a"), Some(0), None).unwrap();
    for (name, owner) in [("anna", ANNA), ("ben", BEN)] {
        for file in ["one", "sub/two", "x.tmp", "of_root"] {
            write(&fixture, &format!("{name}/{file}"), &[b'x'; 9000], owner);
        }
        chown(fixture.path(&format!("{name}/of_root")), Some(0), None).unwrap();
    }
    std::fs::write(fixture.dir().join("policy"), policy).unwrap();
    fixture.expect(0, &["protect", "tree", "--policy", "policy"]);
    Some(fixture)
}

/// Writes a file and gives it, and the directories above it that are root's, to its owner.
fn write(fixture: &Fixture, name: &str, bytes: &[u8], owner: u32) {
    fixture.write(name, bytes);
    let path = fixture.path(name);
    let above = path.ancestors().take_while(|path| *path != fixture.tree());
    above.for_each(|path| chown(path, Some(owner), None).unwrap());
    std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

/// The code that a file is protected with, by the policy.
fn code(fixture: &Fixture, path: &str) -> Option<String> {
    let explained = fixture.json(0, &["policy", "explain", &format!("tree/{path}")]);
    explained["treatment"]["code"].as_str().map(str::to_owned)
}

fn some(code: &str) -> Option<String> {
    Some(format!("subspace:{code}:w8"))
}

#[test]
fn users_raise_the_redundancy_of_their_own_files_within_bounds() {
    let test = "users_raise_the_redundancy_of_their_own_files_within_bounds";
    let Some(fixture) = tree(test, BOUNDS) else { return };
    let rules = "[[rule]]\nname = \"mine\"\npaths = [\"sub/**\"]\ncode = \"4+2\"\n\
                 [[rule]]\nname = \"all\"\nnot = { extensions = [\"tmp\"] }\ncode = \"6+3\"\nquiet = \"0s\"\n";
    write(&fixture, &format!("anna/{FILE}"), rules.as_bytes(), ANNA);
    let report = fixture.json(0, &["protect", "tree"]);
    assert_eq!(report["changes"]["recoded"]["files"], 2, "{report}");
    assert_eq!(report["user_policies"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(code(&fixture, "anna/one"), some("6+3"));
    assert_eq!(code(&fixture, "anna/sub/two"), some("4+2"));
    // Not files of others, not elsewhere, and not what the administrator excludes.
    for path in ["anna/of_root", "ben/one", "a"] {
        assert_eq!(code(&fixture, path), some("8+2"), "{path}");
    }
    assert_eq!(code(&fixture, "anna/x.tmp"), None);
    let text = fixture.expect(0, &["policy", "explain", "tree/anna/sub/two"]);
    assert!(text.contains("anna/.gabion-policy.toml, mine: applies: code subspace:4+2:w8"), "{text}");
    // The nearest file comes first; a change takes effect at the next scan.
    let nearer = "[[rule]]\ncode = \"2+1\"\n[[rule]]\ncode = \"10+4\"\n";
    write(&fixture, &format!("anna/sub/{FILE}"), nearer.as_bytes(), ANNA);
    let report = fixture.json(0, &["protect", "tree"]);
    let warned = report["user_policies"][0].to_string();
    assert!(
        warned.contains("code subspace:2+1:w8: it would lower the redundancy of subspace:8+2:w8"),
        "{report}"
    );
    assert_eq!(code(&fixture, "anna/sub/two"), some("8+2"), "the first rule that matches decides");
    assert_eq!(
        fixture.json(0, &["protect", "tree/anna/sub"])["changes"]["recoded"],
        serde_json::json!({"bytes": 0, "files": 0})
    );
    std::fs::remove_file(fixture.path(&format!("anna/sub/{FILE}"))).unwrap();
    fixture.json(0, &["protect", "tree"]);
    assert_eq!(code(&fixture, "anna/sub/two"), some("4+2"));
    fixture.expect(0, &["scrub", "tree"]);
}

#[test]
fn what_is_beyond_the_bounds_is_refused_and_shown() {
    let Some(fixture) = tree("what_is_beyond_the_bounds_is_refused_and_shown", BOUNDS) else { return };
    let refused = |rule: &str, why: &str| {
        write(
            &fixture,
            &format!("anna/{FILE}"),
            format!("[[rule]]\nname = \"r\"\n{rule}\n").as_bytes(),
            ANNA,
        );
        let explained = fixture.json(0, &["policy", "explain", "tree/anna/one"]);
        let shown = explained["user_rule"]["refused"].to_string();
        assert!(shown.contains(why), "{rule}: {explained}");
        let treatment = &explained["treatment"];
        assert_eq!((&treatment["code"], &treatment["quiet_s"]), (&"subspace:8+2:w8".into(), &3600.into()));
    };
    refused("code = \"4+3\"", "max_redundancy");
    refused("code = \"16+3\"", "would lower");
    refused("code = \"2+1\"", "would lower");
    refused("protect = false", "may_exclude");
    refused("quiet = \"100d\"", "max_quiet");
    let text = fixture.expect(0, &["protect", "tree"]);
    assert!(
        text.contains("WARNING: user's policy anna/.gabion-policy.toml: rule \"r\": refused: quiet 100d"),
        "{text}"
    );
    let status = fixture.json(0, &["status", "tree"]);
    assert_eq!(status["user_policy_warnings"], 1, "{status}");
    assert!(fixture.expect(0, &["status", "tree", "--no-scan"]).contains("1 warning about users' policies"));
    // The administrator can allow it.
    let more = BOUNDS.replace("[users]", "[users]\nmay_exclude = true\nmay_lower = true\nmax_quiet = \"1w\"");
    std::fs::write(fixture.dir().join("policy"), more).unwrap();
    write(
        &fixture,
        &format!("anna/{FILE}"),
        b"[[rule]]\npaths = [\"one\"]\nprotect = false\n[[rule]]\ncode = \"16+1\"\nquiet = \"1d\"\n",
        ANNA,
    );
    fixture.json(0, &["protect", "tree", "--policy", "policy"]);
    assert_eq!((code(&fixture, "anna/one"), code(&fixture, "anna/sub/two")), (None, some("16+1")));
    // Without [users] the file is a file like any other.
    std::fs::write(fixture.dir().join("policy"), "[users]\nallow = false\n").unwrap();
    fixture.json(0, &["protect", "tree", "--policy", "policy"]);
    assert_eq!(code(&fixture, "anna/one"), some("8+2"));
}

/// A hostile policy stops the protection of nobody's files, and it does not lead anywhere.
#[test]
fn hostile_policies_of_users_are_ignored_with_a_warning() {
    let Some(fixture) = tree("hostile_policies_of_users_are_ignored_with_a_warning", BOUNDS) else { return };
    let path = fixture.path(&format!("anna/{FILE}"));
    let good = "[[rule]]\ncode = \"4+2\"\n";
    let ignored = |why: &str| {
        fixture.write("anna/new", why.as_bytes());
        fixture.write("ben/new", why.as_bytes());
        let report = fixture.json(0, &["protect", "tree"]);
        let warned = report["user_policies"].to_string();
        assert!(warned.contains(&format!("ignored: {why}")) && warned.contains(FILE), "{why}: {report}");
        assert!((2..=3).contains(&report["encoded"].as_u64().unwrap()), "{why}: {report}");
        assert_eq!(code(&fixture, "anna/one"), some("8+2"), "{why}");
        let text = fixture.expect(0, &["policy", "explain", "tree/anna/sub/two"]);
        assert!(text.contains(&format!("ignored: {why}")) && !text.contains('\x1b'), "{why}: {text}");
        assert!(!fixture.expect(0, &["protect", "tree"]).contains('\x1b'), "{why}");
    };
    let fresh = |bytes: &[u8]| {
        let _ = std::fs::remove_file(&path);
        write(&fixture, &format!("anna/{FILE}"), bytes, ANNA);
    };
    fresh(&[&b"[[rule]]\ncode = \"4+2\"\n#"[..], &[b'#'; 5000]].concat());
    ignored("it has more than 4096 bytes");
    fresh(good.as_bytes());
    chown(&path, Some(BEN), None).unwrap();
    ignored("it belongs to user 40002");
    for mode in [0o664, 0o646] {
        fresh(good.as_bytes());
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        ignored("others than its owner can write to it");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::write(fixture.dir().join("elsewhere"), good).unwrap();
    symlink(fixture.dir().join("elsewhere"), &path).unwrap();
    std::os::unix::fs::lchown(&path, Some(ANNA), None).unwrap();
    ignored("it is a symbolic link");
    std::fs::remove_file(&path).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(fifo.success());
    chown(&path, Some(ANNA), None).unwrap();
    ignored("it is not a regular file");
    std::fs::remove_file(&path).unwrap();
    for (text, why) in [
        (&b"[[rule]\n"[..], "line 1, column"),
        (b"\"\x1b]0;title\x07\" = 1\n", "line 1"),
        (b"[[rule]]\n\"\\u001b[2J\" = 1\n", "line 2"),
        (b"\xff\xfe", "stream did not contain valid UTF-8"),
        (b"[guard]\nremoved = \"100%\"\n", "line 1, column"),
        (b"[[rule]]\npriority = 255\n", "line 2, column 1: unknown field `priority`"),
        (b"[[rule]]\npaths = [\"[\"]\ncode = \"4+2\"\n", "line 2"),
        (b"[[rule]]\nnot = { owners = [\"root\"] }\n", "line 2"),
    ] {
        fresh(text);
        ignored(why);
    }
    let deep = format!("a = {}", "[".repeat(4000));
    fresh(deep.as_bytes());
    ignored("line 1, column");
    // Nothing was changed by it, and a good file counts at once.
    fresh(good.as_bytes());
    fixture.json(0, &["protect", "tree"]);
    assert_eq!(code(&fixture, "anna/one"), some("4+2"));
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), ANNA);
}

/// A watch decides as scans do.
#[test]
fn a_watch_follows_the_policies_of_users() {
    let Some(fixture) = tree("a_watch_follows_the_policies_of_users", BOUNDS) else { return };
    write(&fixture, &format!("anna/{FILE}"), b"[[rule]]\ncode = \"4+2\"\nquiet = \"0s\"\n", ANNA);
    let mut watch = fixture.spawn(&["watch", "tree"]);
    let diff = || -> serde_json::Value {
        let output = fixture.run(&["diff", "tree", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    // Known to the scan at the start of the watch.
    until("the user's files are recoded", || diff()["changes"]["recoded"]["files"] == 0);
    // By events. The owner is the one of the file, whoever writes.
    for name in ["ben/one", "anna/one"] {
        std::fs::write(fixture.path(name), b"changed").unwrap();
    }
    let is_left = |name: &str| diff()["files"].to_string().contains(name);
    until("the user's file is protected without rest", || !is_left("anna/one"));
    assert!(is_left("ben/one"), "its quiet period is an hour");
    watch.kill().unwrap();
    watch.wait().unwrap();
}
