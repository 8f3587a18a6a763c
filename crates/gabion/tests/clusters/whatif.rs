//! `gabion whatif` with the loss of chunk servers and bricks, compared with where the files really are.

use super::{PROGRAM, glusterfs, json, moosefs, write};
use gabion_testkit::{GlusterFs, MooseFs};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of files of each class, in the order unaffected, exposed, degraded, lost; then unknown ones.
fn counts(report: &Value) -> [u64; 5] {
    let files = |class: &str| report["result"][class]["files"].as_u64().unwrap_or_else(|| panic!("{report}"));
    let unknown = report["unknown"].as_u64().unwrap_or_else(|| panic!("{report}"));
    [files("unaffected"), files("exposed"), files("degraded"), files("lost"), unknown]
}

/// The tree is on server A, the redundancy on B: each may be lost alone. A file whose copy of redundancy is beside it
/// is lost with it.
#[test]
fn losses_of_chunk_servers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut system) = moosefs("losses_of_chunk_servers", &directory, 3) else { return };
    let root = system.root();
    let (tree, repository) = (root.join("tree"), root.join("repository"));
    for (server, (class, path)) in [("on_a", &tree), ("on_b", &repository)].into_iter().enumerate() {
        system.create_class(class, server).unwrap();
        fs::create_dir(path).unwrap();
        system.set_class(class, path).unwrap();
    }
    for name in ["one", "two", "three"] {
        write(&tree.join(name), name.repeat(30_000).as_bytes());
    }
    let gabion = |system: &MooseFs, arguments: &[&str]| {
        let mut command = system.command(PROGRAM);
        json(command.args(arguments).arg(&tree).arg("--repository").arg(&repository).arg("--json"))
    };
    let (code, report) = gabion(&system, &["protect", "--code", "2+2"]);
    assert_eq!(code, 0, "{report}");
    let lose = |system: &MooseFs, servers: &[usize]| {
        let names: Vec<String> = servers.iter().map(|server| MooseFs::server(*server)).collect();
        let names = names.iter().map(String::as_str);
        let arguments: Vec<&str> = ["whatif", "--lose"].into_iter().chain(names).chain(["--"]).collect();
        let mut command = system.command(PROGRAM);
        // Options go before the separator.
        let options = ["--json", "--repository", repository.to_str().unwrap()];
        json(command.arg(arguments[0]).args(options).args(&arguments[1..]).arg(&tree))
    };
    let results = [&[0][..], &[1], &[2], &[0, 1], &[1, 2]].map(|servers| {
        let (code, report) = lose(&system, servers);
        (code, counts(&report))
    });
    let expected = [
        (0, [0, 0, 3, 0, 0]),
        (0, [0, 3, 0, 0, 0]),
        (0, [3, 0, 0, 0, 0]),
        (3, [0, 0, 0, 3, 0]),
        (0, [0, 3, 0, 0, 0]),
    ];
    assert_eq!(results, expected);

    // A copy of a file's redundancy on another server does not make it lost, one on the same server does.
    system.set_class("on_a", &repository).unwrap();
    write(&tree.join("two"), &[5; 90_000]);
    assert_eq!(gabion(&system, &["protect"]).0, 0);
    gabion_testkit::until("all redundancy has moved to server A", || {
        let (code, report) = lose(&system, &[1]);
        code == 0 && counts(&report) == [3, 0, 0, 0, 0]
    });
    assert_eq!(counts(&lose(&system, &[0]).1), [0, 0, 0, 3, 0]);

    // A server that is offline counts as lost, whatever else is asked.
    system.kill_server(0);
    let (code, report) = lose(&system, &[2]);
    assert!(code == 3 || counts(&report)[4] > 0, "nothing is safe: {report}");
    let unknown = lose(&system, &[7]);
    assert_eq!(unknown.0, 2);
    assert!(
        unknown.1["error"].as_str().unwrap().contains("there is no target 10.77.1.8:9422"),
        "{}",
        unknown.1
    );
}

/// Each file of a distributed volume is on one brick, and so is its redundancy: the bricks themselves tell which.
#[test]
fn losses_of_bricks() {
    const BRICKS: usize = 3;
    let directory = tempfile::tempdir().unwrap();
    let Some(system) = glusterfs("losses_of_bricks", &directory, BRICKS) else { return };
    let tree = system.root().join("tree");
    fs::create_dir(&tree).unwrap();
    let names: Vec<String> = (0..12).map(|number| format!("file {number}")).collect();
    for (number, name) in names.iter().enumerate() {
        write(&tree.join(name), &vec![number as u8; 50_000]);
    }
    let (code, report) =
        json(system.command(PROGRAM).args(["protect", "--code", "2+2", "--json"]).arg(&tree));
    assert_eq!(code, 0, "{report}");
    for brick in 0..BRICKS {
        let mut expected = [0; 5];
        for name in &names {
            let holds = |path: PathBuf| holds(&system, brick, &path);
            let (data, redundancy) =
                (holds(Path::new("tree").join(name)), holds(Path::new("tree/.gabion/redundancy").join(name)));
            expected[match (data, redundancy) {
                (false, false) => 0,
                (false, true) => 1,
                (true, false) => 2,
                (true, true) => 3,
            }] += 1;
        }
        let mut command = system.command(PROGRAM);
        command.args(["whatif", "--json", "--lose", &system.brick(brick), "--tools"]).arg(system.tools());
        let (code, report) = json(command.arg("--").arg(&tree));
        assert_eq!(counts(&report), expected, "brick {brick}: {report}");
        assert_eq!(code, if expected[3] > 0 { 3 } else { 0 });
    }
}

/// True if a brick holds a file; links to other bricks have no content.
fn holds(system: &GlusterFs, brick: usize, path: &Path) -> bool {
    fs::metadata(system.brick_directory(brick).join(path)).is_ok_and(|found| found.len() > 0)
}
