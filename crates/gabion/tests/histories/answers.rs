//! Regressions: wrong answers of commands that random histories found, each reduced to a few commands.

use crate::fixture::{bytes, rot};
use crate::tank::{Placed, Shape, Tank, Targets};
use std::fs;

/// A pool of four targets, 2+1, with these files.
fn filled(names: &[&str]) -> Tank {
    let tank = Tank::new(Shape { targets: 4, stripe: 2, redundancy: 1 });
    names.iter().enumerate().for_each(|(number, name)| put(&tank, name, number as u64));
    tank
}

fn put(tank: &Tank, name: &str, seed: u64) {
    fs::write(tank.fixture.path("source"), bytes(20_000, seed)).unwrap();
    expect(tank, 0, &["pool", "put", "tank", "source", name]);
}

fn expect(tank: &Tank, code: i32, args: &[&str]) -> String {
    let (found, said) = tank.run(args);
    assert_eq!(found, code, "{}: {said}", args.join(" "));
    said
}

fn placed(tank: &Tank, name: &str) -> Placed {
    tank.listing(name).0.into_iter().find(|it| it.name == name).unwrap()
}

/// Targets that have data of a file.
fn data(tank: &Tank, name: &str) -> Vec<usize> {
    placed(tank, name).columns().map(|(_, target)| target).collect()
}

/// `whatif` told of protected files only: one that was just put would be gone with a target, and the answer was exit
/// code 0.
#[test]
fn whatif_counts_files_that_are_not_protected_yet() {
    let tank = filled(&["old"]);
    expect(&tank, 0, &["protect", "tank"]);
    put(&tank, "new", 7);
    expect(&tank, 0, &["pool", "mv", "tank", "old", "moved"]);
    let lose = format!("d{}", data(&tank, "new")[0]);
    let (code, said) = tank.json("whatif", &["whatif", "tank", "--lose", &lose]);
    assert_eq!((code, &said["lost_files"]), (3, &serde_json::json!([{ "path": "new" }])), "{said}");
    // The one that was moved has its redundancy.
    assert_eq!(said["unknown"], 0, "{said}");
}

/// `whatif` took targets that do not answer for present, so that one more loss looked harmless.
#[test]
fn whatif_adds_the_loss_to_absent_targets() {
    let mut tank = filled(&["file"]);
    expect(&tank, 0, &["protect", "tank"]);
    let data = data(&tank, "file");
    let (first, second) = (format!("d{}", data[0]), format!("d{}", data[1]));
    expect(&tank, 0, &["whatif", "tank", "--lose", &second]);
    tank.lose(data[0], false);
    let said = expect(&tank, 3, &["whatif", "tank", "--lose", &second]);
    assert!(said.contains("lost: file"), "{said}");
    expect(&tank, 0, &["whatif", "tank", "--lose", &first]);
}

/// While a target was gone, `status` called files degraded that had been removed or replaced since they were protected.
#[test]
fn removed_and_replaced_files_miss_nothing() {
    let mut tank = filled(&["removed", "replaced", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    expect(&tank, 0, &["pool", "rm", "tank", "removed"]);
    put(&tank, "replaced", 7);
    // One that has no data of the new file.
    let with_data: Targets = data(&tank, "replaced").into_iter().collect();
    let without = (1..=4).find(|number| !with_data.contains(number)).unwrap();
    tank.lose(without, false);
    let (code, said) = tank.json("status", &["status", "tank"]);
    let degraded = said["degraded"].as_array().unwrap();
    let names: Vec<&str> = degraded.iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert!(!names.contains(&"removed") && !names.contains(&"replaced"), "{said}");
    assert!(code == 1 && said["lost"] == serde_json::json!([]), "{said}");
    let counted: u64 =
        said["matrix"].as_array().unwrap().iter().map(|it| it["files"].as_u64().unwrap()).sum();
    assert_eq!(counted, 2, "there are two files: {said}");
}

/// After a log was rotated, `scrub` called the new one degraded and `repair` left it undone: it was put since the
/// last protect, and nothing is wrong with it.
#[test]
fn files_that_took_the_name_of_a_protected_one_are_pending_not_degraded() {
    let tank = filled(&["log", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    expect(&tank, 0, &["pool", "mv", "tank", "log", "log.1"]);
    put(&tank, "log", 7);
    for command in [&["scrub", "tank"][..], &["repair", "tank", "--yes"]] {
        expect(&tank, 0, command);
    }
    let said = expect(&tank, 1, &["status", "tank"]);
    assert!(said.contains("degraded   none") && said.contains("damaged    none"), "{said}");
    expect(&tank, 0, &["protect", "tank"]);
    expect(&tank, 0, &["status", "tank"]);
}

/// `status` named files as damaged that were removed, or whose names other files have, since a scrub found the damage.
#[test]
fn damage_of_removed_files_is_not_reported() {
    let tank = filled(&["removed", "replaced", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    for name in ["removed", "replaced"] {
        let it = placed(&tank, name);
        rot(&tank.object(&it, 0).unwrap(), 100, 200);
    }
    expect(&tank, 1, &["scrub", "tank"]);
    let said = expect(&tank, 1, &["status", "tank"]);
    assert!(said.contains("damaged   removed") && said.contains("damaged   replaced"), "{said}");
    expect(&tank, 0, &["pool", "rm", "tank", "removed"]);
    put(&tank, "replaced", 7);
    let said = expect(&tank, 1, &["status", "tank"]);
    assert!(said.contains("damaged    none") && said.contains("pending    2 files"), "{said}");
}

/// A file that was put and moved to the name of a protected one, which was moved elsewhere, was not among the lost
/// ones when its target went.
#[test]
fn a_lost_file_at_the_name_of_a_moved_one_is_reported() {
    let mut tank = filled(&["protected", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    put(&tank, "new", 7);
    expect(&tank, 0, &["pool", "mv", "tank", "protected", "moved"]);
    expect(&tank, 0, &["pool", "mv", "tank", "new", "protected"]);
    let number = data(&tank, "protected")[0];
    tank.lose(number, false);
    let (code, said) = tank.json("status", &["status", "tank"]);
    assert_eq!((code, &said["lost"][0]["path"]), (3, &serde_json::json!("protected")), "{said}");
    assert_eq!(said["lost"].as_array().unwrap().len(), 1, "{said}");
}

/// Two protected files whose names were exchanged are degraded when a target of both goes.
#[test]
fn exchanged_files_that_miss_columns_are_degraded() {
    let mut tank = filled(&["one", "other", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    for (from, to) in [("one", "between"), ("other", "one"), ("between", "other")] {
        expect(&tank, 0, &["pool", "mv", "tank", from, to]);
    }
    let number = data(&tank, "one")[0];
    let misses = |name: &str| {
        let redundancy = tank.redundancy(&placed(&tank, name));
        data(&tank, name).contains(&number) && !redundancy.contains(&number)
    };
    let wanted: Vec<&str> = ["one", "other"].into_iter().filter(|name| misses(name)).collect();
    tank.lose(number, false);
    let (code, said) = tank.json("status", &["status", "tank"]);
    let degraded = said["degraded"].as_array().unwrap();
    let found: Vec<&str> = degraded.iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert!(code == 1 && wanted.iter().all(|name| found.contains(name)), "{wanted:?}: {said}");
}

/// A read while two targets with the namespace were unplugged marked both stale: the vault, begun anew elsewhere,
/// took the right to change names. When they were back and the third one went, no file could be found, though both
/// had every name.
#[test]
fn reading_without_some_mirrors_leaves_them_current() {
    let shape = Shape { targets: 7, stripe: 3, redundancy: 2 };
    for gone in [[1, 2], [2, 3]] {
        let mut tank = Tank::new(shape);
        ["one", "two"].iter().enumerate().for_each(|(number, name)| put(&tank, name, number as u64));
        expect(&tank, 0, &["protect", "tank"]);
        gone.iter().for_each(|&number| tank.lose(number, false));
        for (codes, command) in [
            (0..=0, &["pool", "get", "tank", "one", "out"][..]),
            (0..=0, &["pool", "ls", "tank"]),
            (1..=1, &["pool", "status", "tank"]),
            (1..=1, &["status", "tank"]),
            (0..=1, &["scrub", "tank"]),
            (0..=3, &["whatif", "tank", "--lose", "d4"]),
            (0..=1, &["diff", "tank"]),
            (2..=2, &["pool", "rm", "tank", "none of them"]),
        ] {
            let (code, said) = tank.run(command);
            assert!(codes.contains(&code), "{}: {code}: {said}", command.join(" "));
        }
        gone.iter().for_each(|&number| tank.bring_back(number));
        let (code, said) = tank.json("pool status", &["pool", "status", "tank"]);
        assert_eq!(code, 0, "{gone:?}: {said}");
        let third = (1..=3).find(|number| !gone.contains(number)).unwrap();
        tank.lose(third, false);
        for name in ["one", "two"] {
            expect(&tank, 0, &["pool", "get", "tank", name, &format!("{name}.{third}")]);
        }
    }
}

/// With one target left that has the current namespace, `whatif` said of its loss that nothing would be lost.
#[test]
fn whatif_tells_that_the_namespace_would_be_lost() {
    let mut tank = Tank::new(Shape { targets: 7, stripe: 3, redundancy: 2 });
    put(&tank, "one", 1);
    expect(&tank, 0, &["protect", "tank"]);
    [1, 2].iter().for_each(|&number| tank.lose(number, false));
    put(&tank, "two", 2);
    [1, 2].iter().for_each(|&number| tank.bring_back(number));
    let (code, said) = tank.json("whatif", &["whatif", "tank", "--lose", "d3"]);
    assert_eq!(
        (code, &said["lost_files"]),
        (3, &serde_json::json!([{ "path": "one" }, { "path": "two" }])),
        "{said}"
    );
    assert_eq!(said["namespace_lost"], true, "{said}");
    let said = expect(&tank, 3, &["whatif", "tank", "--lose", "d3"]);
    assert!(said.contains("no target with the current namespace would be left"), "{said}");
    // As many mirrors as before.
    expect(&tank, 0, &["pool", "status", "tank", "--heal"]);
    expect(&tank, 0, &["protect", "tank"]);
    let said = expect(&tank, 0, &["whatif", "tank", "--lose", "d3"]);
    assert!(!said.contains("namespace"), "{said}");
}

/// `protect` made the redundancy of files anew that missed a column, though nothing could take its place. What the
/// target had that came back was then of an older revision, and files had lost a column for good. `status` called
/// them degraded until the next `protect` even where all columns were there.
#[test]
fn columns_are_whole_again_when_their_target_comes_back() {
    let mut tank = Tank::new(Shape { targets: 4, stripe: 2, redundancy: 2 });
    (0..8).for_each(|number| put(&tank, &format!("file {number}"), number));
    expect(&tank, 0, &["protect", "tank"]);
    let redundancy = |tank: &Tank| -> Vec<Vec<u8>> {
        let (placed, _) = tank.listing("redundancy");
        let on = |it: &Placed, number| fs::read(tank.redundancy_file(it, number)).ok();
        placed.iter().flat_map(|it| (2..=4).filter_map(|number| on(it, number)).collect::<Vec<_>>()).collect()
    };
    let before = redundancy(&tank);
    // The first one has the vault, too: it is begun anew elsewhere, and its catalogue made from what is there.
    tank.lose(1, false);
    let (code, said) = tank.json("protect", &["protect", "tank"]);
    assert_eq!((code, &said["encoded"]), (1, &serde_json::json!(0)), "{said}");
    assert!(redundancy(&tank) == before, "nothing could be gained");
    tank.bring_back(1);
    let (_, said) = tank.json("status", &["status", "tank"]);
    assert_eq!(said["degraded"], serde_json::json!([]), "{said}");
    let (code, said) = tank.json("protect", &["protect", "tank"]);
    assert_eq!((code, &said["encoded"]), (0, &serde_json::json!(0)), "{said}");
    expect(&tank, 0, &["status", "tank"]);
    expect(&tank, 0, &["scrub", "tank"]);
}

/// `protect` said that all files were protected, exit code 0, while targets were gone that files have columns on.
#[test]
fn protect_lists_missing_files() {
    let mut tank = filled(&["one", "two", "three"]);
    expect(&tank, 0, &["protect", "tank"]);
    // Two targets that the first file needs, not the one with the vault: its catalogue says what was true before.
    let it = placed(&tank, "one");
    let needed = data(&tank, "one").into_iter().chain(tank.redundancy(&it));
    let [first, second, ..] = needed.filter(|&number| number != 1).collect::<Vec<_>>()[..] else {
        panic!("it has three columns: {it:?}")
    };
    tank.lose(first, false);
    let said = expect(&tank, 1, &["protect", "tank"]);
    assert!(said.contains("degraded: see `gabion status`") && !said.contains("are protected"), "{said}");
    tank.lose(second, false);
    let (code, said) = tank.json("protect", &["protect", "tank"]);
    assert!(code == 1 && said["affected"]["lost"].as_u64() > Some(0), "{said}");
    tank.bring_back(first);
    tank.bring_back(second);
    expect(&tank, 0, &["protect", "tank"]);
}

/// Redundancy that was made elsewhere while targets were gone is removed when they come back. What they had was
/// called older than what was protected last then, by `scrub`, though it is of the same version.
#[test]
fn redundancy_that_comes_back_is_as_good_as_before() {
    let mut tank = Tank::new(Shape { targets: 7, stripe: 3, redundancy: 2 });
    (0..40).for_each(|number| put(&tank, &format!("file {number}"), number));
    expect(&tank, 0, &["protect", "tank"]);
    // The redundancy of a file goes, and the vault: its redundancy is made anew on the target that is left beside its
    // data. The namespace is on the first three: one of the others has data of the file, and stays.
    let is_it = |name: &String| {
        let kept = data(&tank, name);
        !kept.contains(&1) && (kept.contains(&2) || kept.contains(&3))
    };
    let name = (0..40).map(|number| format!("file {number}")).find(is_it).unwrap();
    let kept = data(&tank, &name);
    let mut gone = tank.redundancy(&placed(&tank, &name));
    gone.insert(1);
    let more: Vec<usize> =
        (1..=7).filter(|number| !kept.contains(number) && !gone.contains(number)).collect();
    gone.extend(more.iter().take(3 - gone.len()));
    gone.iter().for_each(|&number| tank.lose(number, false));
    let (code, said) = tank.json("protect", &["protect", "tank"]);
    assert!(code > 0 && said["encoded"].as_u64() > Some(0), "{gone:?}: {said}");
    gone.iter().for_each(|&number| tank.bring_back(number));
    for command in
        [&["pool", "rebuild", "tank"][..], &["protect", "tank"], &["scrub", "tank"], &["status", "tank"]]
    {
        expect(&tank, 0, command);
    }
}

/// A directory in the place of an object, as a repair of a file system may leave it, could not be mended by any
/// command.
#[test]
fn an_object_that_is_a_directory_is_repaired() {
    let tank = filled(&["file", "other"]);
    expect(&tank, 0, &["protect", "tank"]);
    for link in [false, true] {
        let object = tank.object(&placed(&tank, "file"), 0).unwrap();
        let before = fs::read(&object).unwrap();
        fs::remove_file(&object).unwrap();
        match link {
            true => std::os::unix::fs::symlink("/etc/passwd", &object).unwrap(),
            false => {
                fs::create_dir(&object).unwrap();
                fs::write(object.join("found"), b"someone's").unwrap();
            }
        }
        expect(&tank, 1, &["scrub", "tank"]);
        expect(&tank, 0, &["pool", "get", "tank", "file", if link { "out 1" } else { "out 0" }]);
        expect(&tank, 0, &["repair", "tank", "--yes"]);
        for command in ["scrub", "protect", "status"] {
            expect(&tank, 0, &[command, "tank"]);
        }
        assert!(object.symlink_metadata().unwrap().is_file() && fs::read(&object).unwrap() == before);
        let beside = fs::read_dir(object.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let aside: Vec<_> = beside.filter(|path| path.extension().is_some_and(|it| it == "aside")).collect();
        assert_eq!(aside.len(), usize::from(link) + 1, "{aside:?}");
    }
}

/// `repair` looked at a new file without redundancy at the name of a protected one that was moved, and noted what it
/// found for that one: `status` called a file lost of which every byte was there.
#[test]
fn findings_are_recorded_for_their_file() {
    let mut tank = filled(&["log", "kept"]);
    expect(&tank, 0, &["protect", "tank"]);
    expect(&tank, 0, &["pool", "mv", "tank", "log", "log.1"]);
    put(&tank, "log", 7);
    // Not the one with the vault.
    let number = data(&tank, "log").into_iter().find(|&number| number != 1).unwrap();
    tank.lose(number, false);
    for command in [&["repair", "tank", "--yes"][..], &["scrub", "tank"]] {
        let (code, said) = tank.run(command);
        assert!(code > 0, "{said}");
        let (code, said) = tank.json("status", &["status", "tank"]);
        let lost = said["lost"].as_array().unwrap();
        let names: Vec<&str> = lost.iter().map(|it| it["path"].as_str().unwrap()).collect();
        assert_eq!((code, names), (3, vec!["log"]), "{}: {said}", command[0]);
    }
    expect(&tank, 0, &["pool", "get", "tank", "log.1", "out"]);
}
