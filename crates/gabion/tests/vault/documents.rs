//! JSON documents of commands: version, times, paths, progress; and the commands `report`, `events` and `init`.

use super::fixture::Fixture;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Visits all values of a document with their keys.
fn each(key: &str, value: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    visit(key, value);
    match value {
        Value::Object(keys) => keys.iter().for_each(|(key, value)| each(key, value, visit)),
        Value::Array(list) => list.iter().for_each(|value| each(key, value, visit)),
        _ => {}
    }
}

/// Documents had no version, times were integers beyond 2^53, and paths were escaped for display.
#[test]
fn documents_have_a_version_times_and_real_paths() {
    let fixture = Fixture::new();
    let odd = OsStr::from_bytes(b"sub/o\xffdd\n");
    std::fs::write(fixture.tree().join(odd), [1; 5000]).unwrap();
    fixture.expect(0, &["protect", "tree"]);
    std::fs::write(fixture.tree().join(odd), [2; 6000]).unwrap();
    let documents = [
        fixture.json(1, &["diff", "tree"]),
        fixture.json(0, &["protect", "tree"]),
        fixture.json(0, &["status", "tree"]),
        fixture.json(0, &["scrub", "tree"]),
        fixture.json(0, &["repair", "tree", "--yes"]),
        fixture.json(0, &["work", "tree"]),
        fixture.json(0, &["work", "tree", "--list"]),
        fixture.json(0, &["replaced", "list", "tree"]),
        fixture.json(0, &["policy", "explain", "tree/a"]),
        fixture.json(0, &["check", "tree/a"]),
        fixture.json(0, &["report", "tree"]),
        fixture.json(0, &["events", "tree"]),
        fixture.json(0, &["info"]),
        fixture.json(0, &["forecast", "8+2"]),
        fixture.json(2, &["status", "nowhere"]),
    ];
    for document in &documents {
        assert_eq!(document["version"], 1, "{document}");
        each("", document, &mut |key, value| {
            let is_large = value.as_i64().is_some_and(|number| number > 1 << 53);
            assert!(!is_large, "{key} is a time in nanoseconds: {document}");
            if ["last_protect", "since", "at", "verified", "oldest"].contains(&key) && value.is_string() {
                let text = value.as_str().unwrap();
                assert!(text.ends_with('Z') && text.as_bytes()[10] == b'T', "{key}: {document}");
            }
        });
    }
    let file = &documents[0]["files"][0];
    assert_eq!(
        (&file["path"], &file["path_bytes"]),
        (&"sub/o\u{fffd}dd\n".into(), &"c3ViL2//ZGQK".into()),
        "{file}"
    );
    assert!(documents[2]["last_protect"].is_string(), "{}", documents[2]);
    assert_eq!(documents[2]["root"]["path"].as_str(), fixture.tree().canonicalize().unwrap().to_str());
    // People see no control characters.
    let text = fixture.expect(0, &["report", "tree", "--by", "extension"]);
    assert!(!text.contains('\u{fffd}'), "{text}");
}

#[test]
fn progress_comes_before_the_document() {
    let fixture = Fixture::new();
    let text = fixture.expect(0, &["protect", "tree", "--json", "--progress"]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (document, progress) = lines.split_last().unwrap();
    assert_eq!((&document["command"], &document["encoded"]), (&"protect".into(), &5.into()));
    assert!(!progress.is_empty(), "{text}");
    for line in progress {
        assert_eq!((&line["event"], &line["version"]), (&"progress".into(), &1.into()), "{line}");
        assert!(line["step"].is_string() && line["bytes"].is_u64(), "{line}");
    }
    assert!(fixture.expect(0, &["status", "tree", "--json"]).lines().count() == 1);
    fixture.expect(2, &["protect", "tree", "--progress"]);
}

#[test]
fn files_are_summed_by_directory_owner_and_extension() {
    let fixture = Fixture::new();
    fixture.write("sub/deep/x.JPG", &[1; 70_000]);
    fixture.write("b,\"1\"/x.jpg", &[1; 60_000]);
    fixture.expect(0, &["protect", "tree"]);
    let report = |args: &[&str]| fixture.json(0, &[&["report", "tree"], args].concat());
    let names = |report: &Value, key: &str| -> Vec<String> {
        let groups = report["groups"].as_array().unwrap();
        groups.iter().map(|group| group[key]["path"].as_str().unwrap().to_owned()).collect()
    };
    let by = report(&[]);
    assert_eq!(names(&by, "directory"), ["", "sub", "b,\"1\""], "largest first");
    assert_eq!((&by["total"]["files"], &by["total"]["exposed_files"]), (&7.into(), &0.into()), "{by}");
    let bytes: u64 = by["groups"].as_array().unwrap().iter().map(|it| it["bytes"].as_u64().unwrap()).sum();
    assert_eq!((by["total"]["bytes"].as_u64(), bytes), (Some(bytes), 5_432_010));
    assert_eq!(names(&report(&["--depth", "2"]), "directory"), ["", "sub", "sub/deep", "b,\"1\""]);
    assert_eq!(names(&report(&["--by", "extension"]), "extension"), ["", "jpg"]);
    let owner = &report(&["--by", "owner"])["groups"][0];
    assert_eq!(owner["uid"].as_u64(), Some(u64::from(rustix::process::geteuid().as_raw())), "{owner}");
    let below = fixture.json(0, &["report", "tree/sub"]);
    assert_eq!(names(&below, "directory"), ["sub", "sub/deep"], "{below}");
    let csv = fixture.expect(0, &["report", "tree", "--format", "csv"]);
    assert!(csv.starts_with("group,files,bytes,") && csv.contains("\n\"b,\"\"1\"\"\",1,60000,"), "{csv}");
    super::corruption::rot(&fixture.path("a"), 100, 5);
    fixture.expect(1, &["scrub", "tree"]);
    let by = report(&[]);
    assert_eq!(
        (&by["total"]["exposed_files"], &by["total"]["exposed_bytes"]),
        (&1.into(), &5_000_000.into())
    );
    assert_eq!(by["total"]["never_scrubbed"], 0, "{by}");
}

#[test]
fn a_first_configuration_is_written_and_valid() {
    let fixture = Fixture::new();
    let init = |code: i32, args: &[&str]| {
        fixture.expect(code, &[&["init", "--config", "etc/daemon.toml"], args].concat())
    };
    // Nobody is there to be asked.
    init(2, &[]);
    init(2, &["--protect", "tree"]);
    init(2, &["--yes"]);
    init(2, &["--protect", "nowhere", "--yes"]);
    init(2, &["--protect", "tree", "--protect", "tree/sub", "--yes"]);
    init(2, &["--protect", "tree", "--repository", "tree/r", "--yes"]);
    init(2, &["--protect", "tree", "--code", "many", "--yes"]);
    assert!(!fixture.dir().join("etc/daemon.toml").exists());
    let dry = init(0, &["--protect", "tree", "--dry-run", "--yes"]);
    assert!(dry.contains("[[source]]") && !fixture.dir().join("etc/daemon.toml").exists(), "{dry}");
    init(
        0,
        &["--protect", "tree", "--repository", "r", "--hours", "22-6", "--mail-to", "a@example.org", "--yes"],
    );
    let check = fixture.expect(0, &["daemon", "run", "etc/daemon.toml", "--check"]);
    for words in ["tree: watch", "\"hours\":\"22-6\"", "notify mail", "repository = "] {
        assert!(check.contains(words), "{words}: {check}");
    }
    // What is there is not replaced without a word.
    init(2, &["--protect", "tree", "--yes"]);
    init(0, &["--protect", "tree", "--yes", "--force", "--scrub", "0s"]);
    let (new, old) = (fixture.dir().join("etc/daemon.toml"), fixture.dir().join("etc/daemon.toml.old"));
    assert!(std::fs::read_to_string(old).unwrap().contains("a@example.org"));
    assert!(!std::fs::read_to_string(&new).unwrap().contains("scrub ="));
    // One with comments only, as packages have it, is.
    std::fs::write(&new, "# comments\n\n#[[source]]\n").unwrap();
    let written = fixture.json(0, &["init", "--config", "etc/daemon.toml", "--protect", "tree", "--yes"]);
    assert_eq!(written["written"], true, "{written}");
}
