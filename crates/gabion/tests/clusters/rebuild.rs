//! `gabion rebuild` after a chunk server of a real MooseFS was killed.

use super::{PROGRAM, json, moosefs, write};
use gabion_testkit::MooseFs;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

fn names(list: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        list.as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Data on server A, redundancy on B, of one file on A as well. A is killed: everything but that file is on other
/// servers afterwards, with the same content, owner, permissions, attributes and times. Then the server with the
/// redundancy of a file is killed, and that is made anew.
#[test]
fn files_are_rebuilt_after_a_chunk_server_died() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut system) = moosefs("files_are_rebuilt_after_a_chunk_server_died", &directory, 4) else {
        return;
    };
    let root = system.root();
    let (tree, repository) = (root.join("tree"), root.join("repository"));
    for (server, (class, path)) in [("on_a", &tree), ("on_b", &repository)].into_iter().enumerate() {
        system.create_class(class, server).unwrap();
        fs::create_dir(path).unwrap();
        system.set_class(class, path).unwrap();
    }
    fs::create_dir(tree.join("inner")).unwrap();
    let mut contents: Vec<(&str, Vec<u8>)> = (0..4u8)
        .map(|number| {
            let bytes = (0..300_000 + u32::from(number) * 4001)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ number);
            (["one", "two", "inner/three", "doomed"][usize::from(number)], bytes.collect())
        })
        .collect();
    // A hole.
    contents[1].1[50_000..200_000].fill(0);
    for (name, bytes) in &contents {
        write(&tree.join(name), bytes);
    }
    fs::set_permissions(tree.join("two"), fs::Permissions::from_mode(0o640)).unwrap();
    chown(tree.join("two"), Some(1234), Some(4321)).unwrap();
    fs::hard_link(tree.join("one"), tree.join("second name")).unwrap();
    let gabion = |system: &MooseFs, command: &str, options: &[&str]| {
        let mut program = system.command(PROGRAM);
        program.args([command, "--json", "--repository"]).arg(&repository).args(options);
        json(program.arg("--").arg(&tree))
    };
    let (code, report) = gabion(&system, "protect", &["--code", "2+2"]);
    assert_eq!(code, 0, "{report}");
    let doomed = repository.join("redundancy/doomed");
    system.set_class("on_a", &doomed).unwrap();
    let failed = [MooseFs::server(0), MooseFs::server(1)];
    gabion_testkit::until("the redundancy of one file is beside its data", || {
        gabion(&system, "whatif", &["--lose", &failed[0]]).1["result"]["lost"]["files"] == 1
    });
    let before = fs::metadata(tree.join("two")).unwrap();
    system.kill_server(0);

    let (code, plan) = gabion(&system, "rebuild", &["--failed", &failed[0], "--dry-run"]);
    assert_eq!((code, names(&plan["lost"])), (3, vec!["doomed"]), "{plan}");
    assert_eq!(names(&plan["files"]), ["inner/three", "one", "second name", "two"], "{plan}");
    assert_eq!(fs::metadata(tree.join("two")).unwrap().ino(), before.ino(), "nothing was changed");
    let (code, report) = gabion(&system, "rebuild", &["--failed", &failed[0]]);
    assert_eq!((code, names(&report["lost"])), (3, vec!["doomed"]), "{report}");
    assert_eq!(names(&report["rebuilt"]), ["inner/three", "two"], "{report}");
    // A new file would have one name.
    assert_eq!(names(&report["left"]), ["one", "second name"], "{report}");
    for (name, bytes) in contents.iter().filter(|(name, _)| ["two", "inner/three"].contains(name)) {
        assert!(fs::read(tree.join(name)).unwrap() == *bytes, "{name}");
    }
    let after = fs::metadata(tree.join("two")).unwrap();
    let kept = |it: &fs::Metadata| (it.mode(), it.uid(), it.gid(), it.size(), it.mtime(), it.mtime_nsec());
    assert_eq!(kept(&after), kept(&before));
    assert_ne!(after.ino(), before.ino());
    let drafts = |path: &Path| {
        fs::read_dir(path)
            .unwrap()
            .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().starts_with(".gabion-rebuild"))
            .count()
    };
    assert_eq!(drafts(&tree) + drafts(&tree.join("inner")), 0);
    let (code, report) = gabion(&system, "check", &["--read"]);
    assert!(code > 0 && report["verdicts"]["verified"].as_u64() >= Some(2), "{report}");

    // Redundancy of one file moves to server C, which is killed as well.
    for name in ["one", "second name"] {
        fs::remove_file(tree.join(name)).unwrap();
    }
    let (_, report) = gabion(&system, "protect", &[]);
    assert_eq!((&report["failures"], &report["removed"]), (&0.into(), &2.into()), "{report}");
    system.create_class("on_c", 2).unwrap();
    system.set_class("on_c", &repository.join("redundancy/two")).unwrap();
    let lost = MooseFs::server(2);
    gabion_testkit::until("the redundancy of one file is on server C", || {
        let (_, report) = gabion(&system, "rebuild", &["--dry-run", "--failed", &lost]);
        report["files"].as_array().unwrap().iter().any(|it| it["path"] == "two" && it["loses_data"] == false)
    });
    system.kill_server(2);
    let (code, report) = gabion(&system, "rebuild", &["--failed", &failed[0], &lost]);
    let rebuilt = names(&report["rebuilt"]);
    assert!(code == 3 && rebuilt.contains(&"two"), "{report}");
    assert_eq!((names(&report["lost"]), names(&report["left"])), (vec!["doomed"], vec![]), "{report}");
    let (_, report) = gabion(&system, "whatif", &["--lose", &lost]);
    assert_eq!(report["result"]["unaffected"]["files"], 2, "{report}");
    for (name, bytes) in contents.iter().filter(|(name, _)| ["two", "inner/three"].contains(name)) {
        assert!(fs::read(tree.join(name)).unwrap() == *bytes, "{name}");
    }
}
