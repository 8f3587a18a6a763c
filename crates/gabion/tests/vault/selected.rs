//! `gabion protect FILE...`: exactly the selected files, now.

use super::fixture::Fixture;
use std::io::Write;
use std::process::Stdio;

const HOUR: &str =
    "[default]\nquiet = \"1h\"\n[[rule]]\nname = \"scratch\"\npaths = [\"scratch/**\"]\nprotect = false\n";

fn protected() -> Fixture {
    let fixture = Fixture::new();
    std::fs::write(fixture.dir().join("policy"), HOUR).unwrap();
    fixture.write("scratch/x", b"left out");
    fixture.expect(0, &["protect", "tree", "--policy", "policy"]);
    fixture
}

fn code_of(fixture: &Fixture, args: &[&str]) -> (i32, String, String) {
    let output = fixture.run(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A user relies on this: what was named is protected at once, and nothing else is touched, whatever happened to it.
#[test]
fn only_selected_files_are_protected_at_once() {
    let fixture = protected();
    fixture.write("sub/b", b"changed");
    fixture.write("sub/deep/d", b"changed too");
    fixture.write("sub/new", b"new");
    fixture.write("a", b"changed, but not selected");
    std::fs::remove_file(fixture.path("empty")).unwrap();
    std::fs::rename(fixture.path("sub/c"), fixture.path("c")).unwrap();
    let report = fixture.json(0, &["protect", "tree/sub/b", "tree/sub/deep"]);
    assert_eq!((&report["encoded"], &report["files"]), (&2.into(), &2.into()), "{report}");
    assert_eq!((&report["selected"], &report["pending"]), (&true.into(), &0.into()));
    // Again: nothing to do.
    assert_eq!(fixture.json(0, &["protect", "tree/sub/b"])["encoded"], 0);
    let diff = fixture.json(1, &["diff", "tree"]);
    let changes = &diff["changes"];
    for (class, files) in [("added", 1), ("changed", 1), ("removed", 1), ("moved", 1)] {
        assert_eq!(changes[class]["files"], files, "{class}: {diff}");
    }
    // A file that was moved into the selection brings its redundancy along; its new content is not taken for it.
    let report = fixture.json(0, &["protect", "tree/c"]);
    assert_eq!((&report["moved"], &report["encoded"]), (&1.into(), &0.into()), "{report}");
    // A directory does not lose the redundancy of what is gone from it.
    std::fs::remove_file(fixture.path("sub/new")).unwrap();
    std::fs::rename(fixture.path("sub/deep/d"), fixture.path("d")).unwrap();
    let report = fixture.json(0, &["protect", "tree/sub"]);
    assert_eq!(report["changes"]["removed"]["files"], 1, "{report}");
    assert_eq!(fixture.json(0, &["protect", "tree/d"])["moved"], 1);
    fixture.expect(0, &["protect", "tree"]);
    fixture.expect(0, &["scrub", "tree"]);
}

#[test]
fn a_list_names_the_files_one_per_line_or_with_zero_bytes() {
    let fixture = protected();
    let odd = "line\nbreak";
    fixture.write("one", b"1");
    fixture.write("two", b"2");
    fixture.write(odd, b"3");
    let list = fixture.dir().join("list");
    std::fs::write(&list, "tree/one\n\ntree/sub/b\n").unwrap();
    let report = fixture.json(0, &["protect", "tree/sub/c", "--files-from", "list"]);
    assert_eq!((&report["encoded"], &report["files"]), (&1.into(), &3.into()), "{report}");
    let mut child = fixture
        .command(&["protect", "--files-from", "-", "--from0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("tree/two\0tree/{odd}").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all 2 files"), "{text}");
    // Relative to the current directory, in a tree whose root is not named.
    fixture.write("sub/b", b"changed");
    let output =
        fixture.command(&["protect", "b", "--json"]).current_dir(fixture.path("sub")).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("\"encoded\":1"));
    std::fs::write(&list, "").unwrap();
    fixture.expect(0, &["protect", "--files-from", "list"]);
    fixture.expect(2, &["protect", "--files-from", "nothing"]);
    fixture.expect(2, &["protect"]);
}

#[test]
fn what_cannot_be_protected_is_named() {
    let fixture = protected();
    let (code, out, _) = code_of(&fixture, &["protect", "tree/sub/b", "tree/scratch/x"]);
    assert!(code == 1 && out.contains("scratch/x: excluded by the policy's rule \"scratch\""), "{out}");
    std::fs::remove_file(fixture.path("sub/c")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", fixture.path("link")).unwrap();
    let (code, _, errors) = code_of(&fixture, &["protect", "tree/sub/c", "tree/sub/b", "tree/link"]);
    assert!(code == 2 && errors.contains("sub/c: no such file"), "{errors}");
    assert!(errors.contains("link: symbolic links are not protected"), "{errors}");
    let report = fixture.json(2, &["protect", "tree/no/such/file", "tree/sub/../a"]);
    assert_eq!(
        (&report["missing"][0]["path"], &report["files"]),
        (&"no/such/file".into(), &1.into()),
        "{report}"
    );
    let report = fixture.json(2, &["protect", "tree/sub/c", "tree/scratch/x", "tree/sub/b"]);
    assert_eq!(
        (&report["missing"][0]["path"], &report["failures"]),
        (&"sub/c".into(), &1.into()),
        "{report}"
    );
    assert_eq!(report["excluded"][0]["rule"], "scratch");
    // The redundancy of the missing file is there: it could be restored.
    assert!(fixture.path(".gabion/redundancy/sub/c").exists());
    let (code, _, errors) = code_of(&fixture, &["protect", "tree/.gabion/vault.toml", "tree/a"]);
    assert!(code == 2 && errors.contains("is in the repository"), "{errors}");
}

#[test]
fn files_of_other_vaults_are_named_with_what_to_type() {
    let fixture = protected();
    for tree in ["other", "none"] {
        std::fs::create_dir(fixture.dir().join(tree)).unwrap();
        std::fs::write(fixture.dir().join(tree).join("x"), b"x").unwrap();
    }
    fixture.expect(0, &["protect", "other"]);
    fixture.write("a", b"changed");
    let (code, _, errors) = code_of(&fixture, &["protect", "tree/a", "other/x", "none/x"]);
    assert_eq!(code, 2);
    assert!(errors.contains("other: gabion protect other/x"), "{errors}");
    assert!(errors.contains("in no vault") && errors.contains("none/x"), "{errors}");
    assert_eq!(fixture.json(1, &["diff", "tree"])["changes"]["changed"]["files"], 1, "nothing was done");
    // Options of a vault are not for a part of it.
    fixture.expect(2, &["protect", "tree/a", "tree/sub/b", "--code", "4+2"]);
}

/// Silent corruption of a selected file is not taken for a change.
#[test]
fn a_selected_file_with_silent_corruption_is_damaged() {
    let fixture = protected();
    let path = fixture.path("sub/b");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1000] ^= 1;
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    (&file).write_all(&bytes).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    let report = fixture.json(1, &["protect", "tree/sub/b"]);
    assert_eq!(report["damaged"][0]["path"], "sub/b", "{report}");
    assert_eq!((&report["encoded"], &report["affected"]), (&0.into(), &1.into()));
    // A file that is known as damaged is named too, and repair still restores it.
    let (code, out, _) = code_of(&fixture, &["protect", "tree/sub/b", "tree/sub/c"]);
    assert!(code == 1 && out.contains("sub/b is damaged"), "{out}");
    fixture.expect(0, &["repair", "tree/sub/b", "--yes"]);
    bytes[1000] ^= 1;
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    fixture.expect(0, &["protect", "tree/sub/b"]);
}

/// The guard counts the selection: a hundred files that changed at once wait, others are protected.
#[test]
fn the_guard_counts_selected_files() {
    let fixture = Fixture::new();
    for number in 0..120 {
        fixture.write(&format!("many/{number}"), b"before");
    }
    fixture.expect(0, &["protect", "tree"]);
    for number in 0..120 {
        fixture.write(&format!("many/{number}"), b"after, encrypted");
    }
    fixture.write("sub/new", b"new");
    let report = fixture.json(1, &["protect", "tree/many", "tree/sub"]);
    assert_eq!((&report["held"]["changed"], &report["encoded"]), (&120.into(), &1.into()), "{report}");
    let text = fixture.expect(1, &["protect", "tree/many"]);
    assert!(text.contains("HELD") && text.contains("prints the digest to approve"), "{text}");
    // A few of them may change.
    let report = fixture.json(0, &["protect", "tree/many/1", "tree/many/2"]);
    assert_eq!(report["encoded"], 2, "{report}");
}

#[test]
fn files_of_a_pool_can_be_selected() {
    let fixture = Fixture::new();
    let targets: Vec<String> = (0..4).map(|number| format!("t{number}")).collect();
    for target in &targets {
        std::fs::create_dir(fixture.dir().join(target)).unwrap();
    }
    let expect = |code: i32, args: &[&str]| fixture.expect(code, &[args, &["--pools", "names"]].concat());
    let mut create = vec!["pool", "create", "tank", "--stripe", "2", "--redundancy", "1", "--targets"];
    create.extend(targets.iter().map(String::as_str));
    expect(0, &create);
    expect(0, &["protect", "tank"]);
    for name in ["d/x", "d/y"] {
        expect(0, &["pool", "put", "tank", "tree/a", name]);
    }
    let json = |code: i32, args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&expect(code, &[args, &["--json"]].concat())).unwrap()
    };
    let report = json(0, &["protect", "tank/d/x"]);
    assert_eq!((&report["encoded"], &report["files"]), (&1.into(), &1.into()), "{report}");
    let report = json(2, &["protect", "tank/d", "tank/nothing"]);
    assert_eq!(
        (&report["encoded"], &report["missing"][0]["path"]),
        (&1.into(), &"nothing".into()),
        "{report}"
    );
}
