//! `gabion doctor` on real parallel file systems.

use super::{PROGRAM, glusterfs, json, moosefs};
use gabion_testkit::MooseFs;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Deadline of tools that only a hanging tool reaches.
const PATIENT: &str = "240s";

fn targets(report: &Value, key: &str) -> Vec<(String, String)> {
    let list = report["targets"].as_array().unwrap_or_else(|| panic!("no targets: {report}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = list.iter().map(|target| (text(&target["name"]), text(&target[key]))).collect();
    found.sort();
    found
}

fn placed(report: &Value) -> Vec<&str> {
    let components =
        report["layout"]["components"].as_array().unwrap_or_else(|| panic!("no layout: {report}"));
    let placements = components.iter().flat_map(|component| component["placements"].as_array().unwrap());
    placements.map(|placement| placement["target"].as_str().unwrap_or("unknown")).collect()
}

/// A file is where its storage class puts it. A chunk server that is killed is named, and its chunk is on no target.
/// A master that does not answer makes everything unknown, within the deadline.
#[test]
fn moosefs_layout_and_states() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut system) = moosefs("moosefs_layout_and_states", &directory, 3) else { return };
    let root = system.root();
    system.create_class("on_b", 1).unwrap();
    std::fs::create_dir(root.join("b")).unwrap();
    system.set_class("on_b", &root.join("b")).unwrap();
    let file = root.join("b/file");
    let mut open = std::fs::File::create(&file).unwrap();
    open.write_all(&vec![7; 100_000]).unwrap();
    open.sync_all().unwrap();
    let doctor = |system: &MooseFs, path: &Path, deadline: &str| {
        json(system.command(PROGRAM).arg("doctor").arg(path).args(["--json", "--deadline", deadline]))
    };

    let (code, report) = doctor(&system, &file, PATIENT);
    assert_eq!(
        (code, &report["system"], &report["unknown"]),
        (0, &"moosefs".into(), &Value::Array(Vec::new()))
    );
    assert_eq!(placed(&report), [MooseFs::server(1)]);
    let expected: Vec<_> =
        ["A", "B", "C"].iter().enumerate().map(|(number, _)| MooseFs::server(number)).collect();
    assert_eq!(
        targets(&report, "state"),
        expected.iter().map(|it| (it.clone(), "online".to_owned())).collect::<Vec<_>>()
    );
    assert_eq!(report["targets"][0]["labels"].as_array().unwrap().len(), 1);
    assert_eq!(doctor(&system, &root.join("none"), PATIENT).0, 2);

    system.kill_server(1);
    let (code, report) = doctor(&system, &file, PATIENT);
    assert_eq!(code, 1);
    assert_eq!(targets(&report, "state")[1], (MooseFs::server(1), "offline".to_owned()));
    let copies = placed(&report);
    assert!(copies.is_empty(), "the only copy is gone: {copies:?}");
    assert!(report["unknown"].to_string().contains("on no target"), "{report}");

    // The tools, and perhaps the look at the path, hang now.
    system.suspend_master(true);
    let (code, report) = doctor(&system, &file, "2s");
    assert_eq!((code, &report["system"]), (1, &"moosefs".into()));
    assert_eq!((&report["targets"], &report["layout"]), (&Value::Null, &Value::Null));
    assert!(report["unknown"].to_string().contains("did not answer within 2000 ms"), "{report}");
    system.suspend_master(false);
}

/// A file of a distributed volume is on one brick. If that is killed, its state is known.
#[test]
fn glusterfs_layout_and_states() {
    let directory = tempfile::tempdir().unwrap();
    let Some(system) = glusterfs("glusterfs_layout_and_states", &directory, 3) else { return };
    let root = system.root();
    let doctor = |path: &Path| {
        let mut command = system.command(PROGRAM);
        json(
            command
                .arg("doctor")
                .arg(path)
                .args(["--json", "--deadline", PATIENT])
                .arg("--tools")
                .arg(system.tools()),
        )
    };
    let tree = root.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut bricks = Vec::new();
    for number in 0..8 {
        let file = tree.join(format!("file {number}"));
        std::fs::write(&file, "content").unwrap();
        let (code, report) = doctor(&file);
        assert_eq!((code, &report["system"]), (0, &"glusterfs".into()), "{report}");
        let [brick] = placed(&report)[..] else { panic!("{report}") };
        let number =
            (0..3).find(|number| system.brick(*number) == brick).unwrap_or_else(|| panic!("{report}"));
        assert!(
            system.brick_directory(number).join("tree").join(file.file_name().unwrap()).exists(),
            "{report}"
        );
        bricks.push(number);
    }
    assert!(bricks.iter().any(|brick| *brick != bricks[0]), "the files are spread: {bricks:?}");

    system.kill_brick(bricks[0]);
    let lost = system.brick(bricks[0]);
    gabion_testkit::until("the daemon knows that the brick is gone", || {
        targets(&doctor(&root).1, "state").contains(&(lost.clone(), "offline".to_owned()))
    });
    assert_eq!(doctor(&root).0, 1);
}
