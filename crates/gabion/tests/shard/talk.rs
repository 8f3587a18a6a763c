//! What is said: JSON that parses, dry runs that do nothing, errors that name file and reason.

use super::playground::{Playground, Ran, bytes, gabion};
use serde_json::Value;
use std::fs;

#[test]
fn json_is_one_object() {
    let place = Playground::new();
    fs::write(place.path("file"), bytes(5000, 1)).unwrap();
    let parse = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let split = place
        .run(&["split", "file", "--code", "4+2", "--block", "100", "--out", "shards", "--json"])
        .expect(0);
    let split = parse(&split.out);
    assert_eq!((&split["size"], &split["code"]), (&Value::from(5000), &Value::from("subspace:4+2:w8")));
    assert_eq!(split["shards"].as_array().unwrap().len(), 6);
    fs::remove_file(place.shard(2)).unwrap();
    place.flip(1, 128 + 116 + 3);
    let verify = parse(&place.run(&["verify", "shards", "--json"]).expect(1).out);
    assert_eq!(verify["health"], "recoverable");
    let shards = &verify["sets"][0]["shards"];
    assert_eq!((&shards[0]["state"], &shards[2]["state"]), (&Value::from("ok"), &Value::from("missing")));
    assert_eq!(shards[1]["bad_blocks"]["seal"], serde_json::json!([[1, 1]]));
    assert_eq!(verify["sets"][0]["set"], split["set"]);
    let join = parse(&place.run(&["join", "shards", "-o", "joined", "--json"]).expect(0).out);
    assert_eq!(join["missing"], serde_json::json!([2]));
    let piped =
        gabion().args(["join", "shards", "-o", "-", "--json"]).current_dir(place.path("")).output().unwrap();
    assert!(piped.stdout == bytes(5000, 1));
    assert_eq!(parse(std::str::from_utf8(&piped.stderr).unwrap())["size"], 5000);
    let repair = parse(&place.run(&["repair", "shards", "--json"]).expect(0).out);
    let indexes: Vec<u64> =
        repair["rebuilt"].as_array().unwrap().iter().map(|r| r["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [1, 2]);
}

#[test]
fn dry_runs_change_nothing() {
    let place = Playground::split(5000, "4+2", "100");
    fs::remove_file(place.shard(2)).unwrap();
    let before = place.contents();
    let planned = place.run(&["repair", "shards", "--dry-run"]).expect(0).says("would rebuild shard 2");
    assert!(place.contents() == before);
    let done = place.run(&["repair", "shards"]).expect(0);
    assert_eq!(planned.out.replace("would rebuild", "rebuilt"), done.out, "the plan is what was done");
    let dry = ["split", "file", "--code", "3+1", "--out", "new", "--dry-run"];
    place.run(&dry).expect(0).says("new/file.003.gabion");
    assert!(!place.path("new").exists());
}

#[test]
fn errors_name_file_and_reason() {
    let place = Playground::new();
    let split = |file: &str| place.run(&["split", file, "--code", "2+1", "--out", "shards"]).expect(2);
    split("nothing").says("cannot read nothing: no such file or directory");
    fs::create_dir(place.path("dir")).unwrap();
    split("dir").says("cannot split dir: it is a directory");
    split("/dev/null").says("it is a device");
    fs::write(place.path("file"), "x").unwrap();
    for name in ["a/b", "..", ""] {
        place
            .run(&["split", "file", "--name", name, "--code", "2+1", "--out", "shards"])
            .expect(2)
            .says("no name");
    }
    let long = "n".repeat(250);
    place
        .run(&["split", "file", "--name", &long, "--code", "2+1", "--out", "shards"])
        .expect(2)
        .says("250 bytes");
    place
        .run(&["split", "file", "--code", "2+1", "--out", "file"])
        .expect(2)
        .says("cannot use file: not a directory");
    place.run(&["split", "file", "--code", "2+1", "--out", "s", "--block", "0"]).expect(2);
    assert!(!place.path("shards").exists());
}

#[test]
fn help_teaches() {
    for command in ["split", "join", "verify", "repair"] {
        let ran = Playground::new().run(&[command, "--help"]).expect(0);
        assert!(ran.out.contains(&format!("Examples:\n  gabion shard {command}")), "{}", ran.out);
    }
}

#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let place = Playground::new();
    fs::write(place.path("file"), "x").unwrap();
    let name = "evil\x1b[2Jname\n";
    let ran = place.run(&["split", "file", "--name", name, "--code", "2+1", "--out", "shards"]).expect(0);
    let seen = place.run(&["verify", "shards"]).expect(0);
    for text in [ran.out, seen.out, seen.err] {
        assert!(!text.contains('\x1b') && !text.contains("name\n:"), "{text:?}");
    }
}

/// On a full disk the print macros panicked: `verify` ended with 101 whatever it had found, `repair` did so too.
#[test]
fn a_full_disk_under_the_output_hides_nothing() {
    let place = Playground::split(5000, "4+2", "100");
    let full = |arguments: &[&str]| -> Ran {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        gabion().args(arguments).current_dir(place.path("")).stdout(full).output().unwrap().into()
    };
    full(&["verify", "shards"]).expect(2).says("standard output: No space left");
    fs::remove_file(place.shard(2)).unwrap();
    full(&["repair", "shards"]).expect(2).says("standard output: No space left");
    place.run(&["verify", "shards"]).expect(0);
    (0..3).for_each(|index| fs::remove_file(place.shard(index)).unwrap());
    full(&["verify", "shards"]).expect(3);
    full(&["--help"]).expect(2);
}
