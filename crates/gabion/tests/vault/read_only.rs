//! Read-only repositories: commands that only read work, others are refused and leave nothing behind.

use super::fixture::Fixture;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A repository that is mounted read-only over itself, until this is dropped.
struct Sealed(PathBuf);

impl Sealed {
    fn new(repository: PathBuf) -> Option<Sealed> {
        let mount = |args: &[&str]| {
            Command::new("mount").args(args).arg(&repository).status().is_ok_and(|status| status.success())
        };
        let bound = mount(&["--bind", repository.to_str()?]);
        let sealed = bound.then_some(Sealed(repository.clone()))?;
        mount(&["-o", "remount,bind,ro"]).then_some(sealed)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// All that is below a directory, with sizes and times.
fn inventory(of: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let (mut found, mut ahead) = (BTreeMap::new(), vec![of.to_owned()]);
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let (path, stat) = entry.map(|it| (it.path(), it.metadata().unwrap())).unwrap();
            if stat.is_dir() {
                ahead.push(path.clone());
            }
            found.insert(path, (stat.len(), stat.modified().unwrap()));
        }
    }
    found
}

const AT: [&str; 2] = ["--repository", "other"];

/// Rot and a change, and a repository that can only be read.
fn assert_is_served(fixture: &Fixture, seal: impl Fn() -> Option<Box<dyn std::any::Any>>, test: &str) {
    fixture.expect(0, &["protect", "tree", AT[0], AT[1]]);
    fixture.write("sub/c", b"written since");
    let rotten = fixture.path("a");
    let modified = std::fs::metadata(&rotten).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&rotten).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"rot", 1_000_000).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    let before = inventory(&fixture.dir().join("other"));
    let Some(sealed) = seal() else {
        gabion_testkit::skip!("{test}: nothing can be mounted here");
        return;
    };
    let with = |command: &[&'static str]| [command, &AT].concat();
    // Who looks finds what there is.
    let changes = &fixture.json(1, &with(&["status", "tree"]))["changes"];
    assert_eq!((&changes["changed"]["files"], &changes["touched"]["files"]), (&1.into(), &1.into()));
    assert_eq!(fixture.json(1, &with(&["diff", "tree"]))["changes"]["changed"]["files"], 1);
    fixture.json(0, &with(&["whatif", "tree", "--lose", "repository"]));
    assert_eq!(fixture.json(0, &with(&["policy", "explain", "tree/a"]))["rule"], "default");
    // A file that somebody wrote to is not lost: it has the content that its owner gave it.
    let scrub = fixture.json(1, &with(&["scrub", "tree"]));
    assert_eq!((&scrub["recorded"], &scrub["damage"][0]["path"]), (&false.into(), &"a".into()), "{scrub}");
    let edited = &scrub["damage"][1];
    assert_eq!((&edited["path"], &edited["changed"]), (&"sub/c".into(), &true.into()), "{scrub}");
    let said = fixture.run(&with(&["scrub", "tree", "--quiet"]));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("not recorded") && said.contains("other"), "{said}");
    assert_eq!(fixture.json(0, &with(&["protect", "tree", "--dry-run"]))["changes"]["changed"]["files"], 1);
    assert_eq!(fixture.json(1, &with(&["repair", "tree", "--dry-run"]))["plan"][0]["path"], "a");
    // Who would write is told where he cannot, and why.
    let digest = "0123456789abcdef0123456789abcdef";
    for command in [
        &["protect", "tree"][..],
        &["repair", "tree", "--yes"],
        &["approve", digest, "tree"],
        &["work", "tree"],
        &["catalogue", "rebuild", "tree"],
    ] {
        let output = fixture.run(&with(command));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
        let why = ["ead-only file system", "Operation not permitted"];
        assert!(error.contains("other") && why.iter().any(|why| error.contains(why)), "{command:?}: {error}");
    }
    assert_eq!(inventory(&fixture.dir().join("other")), before, "something was left behind");
    drop(sealed);
    // And a copy that can be written serves to repair.
    let copied = Command::new("cp").arg("-a").arg("other").arg("copy").current_dir(fixture.dir()).status();
    assert!(copied.unwrap().success());
    // The file that was written to is skipped.
    fixture.expect(1, &["repair", "tree", "--yes", "--keep-changed", "--repository", "copy"]);
    fixture.expect(0, &["protect", "tree", AT[0], AT[1]]);
    fixture.expect(0, &["scrub", "tree", AT[0], AT[1]]);
}

#[test]
fn a_repository_on_a_read_only_mount_is_served() {
    let fixture = Fixture::new();
    let seal = || Sealed::new(fixture.dir().join("other")).map(|it| Box::new(it) as Box<dyn std::any::Any>);
    assert_is_served(&fixture, seal, "a_repository_on_a_read_only_mount_is_served");
}

/// The catalogue is a cache: where it is not there, and cannot be put there, it is made for this one command.
#[test]
fn a_repository_without_its_caches_is_served_as_well() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", AT[0], AT[1]]);
    let repository = fixture.dir().join("other");
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(repository.join(name));
    }
    std::fs::remove_dir_all(repository.join("changelog")).unwrap();
    let before = inventory(&repository);
    let Some(_sealed) = Sealed::new(repository.clone()) else {
        gabion_testkit::skip!(
            "a_repository_without_its_caches_is_served_as_well: nothing can be mounted here"
        );
        return;
    };
    assert_eq!(fixture.json(0, &["status", "tree", AT[0], AT[1]])["matrix"][0]["files"], 5);
    assert_eq!(fixture.json(0, &["scrub", "tree", AT[0], AT[1]])["files"], 5);
    assert_eq!(inventory(&repository), before);
}
