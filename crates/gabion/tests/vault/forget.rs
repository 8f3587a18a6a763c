//! `gabion forget`: the protection of a directory ends, its files stay, and a removal that was killed is repeated.

use super::fixture::Fixture;
use gabion_testkit::kill::{Call, Point, can_kill};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

impl Fixture {
    /// Runs a command that has to be refused, and gives what it said.
    fn refusal(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "gabion {}: {output:?}", args.join(" "));
        error
    }

    /// Names of Gabion in the tree, and whether the repository elsewhere is there.
    fn left(&self) -> Vec<&'static str> {
        let names = [".gabion", ".gabion.draft", "../other"];
        names.into_iter().filter(|name| self.path(name).symlink_metadata().is_ok()).collect()
    }
}

#[test]
fn the_repository_goes_and_the_files_stay() {
    for repository in [&[][..], &["--repository", "other"]] {
        let fixture = Fixture::new();
        let content = fixture.content();
        fixture.expect(0, &[&["protect", "tree"], repository].concat());
        let plan = fixture.json(0, &["forget", "tree", "--dry-run"]);
        assert_eq!((plan["files"].as_u64(), plan["removed"].as_bool()), (Some(5), Some(false)), "{plan}");
        assert_eq!(plan["pointer"].is_object(), !repository.is_empty(), "{plan}");
        assert!(plan["bytes"].as_u64().unwrap() > 1_000_000, "{plan}");
        let refusal = fixture.refusal(&["forget", "tree"]);
        assert!(refusal.contains("--yes"), "{refusal}");
        fixture.expect(0, &["scrub", "tree"]);
        assert_eq!(fixture.json(0, &["forget", "tree", "--yes"])["removed"], true);
        assert_eq!(fixture.left(), [""; 0]);
        assert_eq!(fixture.content(), content);
        let refusal = fixture.refusal(&["forget", "tree", "--yes"]);
        assert!(refusal.contains("is not protected"), "{refusal}");
        assert_eq!(fixture.json(0, &["protect", "tree"])["encoded"], 5);
    }
}

#[test]
fn nothing_of_users_is_removed() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", "--repository", "other"]);
    std::fs::write(fixture.dir().join("other/letter"), b"mine").unwrap();
    std::fs::create_dir_all(fixture.dir().join("outside")).unwrap();
    std::fs::write(fixture.dir().join("outside/file"), b"mine").unwrap();
    // Links lead out of the repository.
    std::os::unix::fs::symlink("../../outside", fixture.dir().join("other/redundancy/link")).unwrap();
    std::os::unix::fs::symlink("../outside", fixture.dir().join("other/approved")).unwrap();
    // Content that repair replaced.
    let place = fixture.dir().join("other/replaced/2026-01-01-00-00-00-UTC");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("a"), b"what a program wrote").unwrap();
    let refusal = fixture.refusal(&["forget", "tree", "--yes"]);
    assert!(refusal.contains("--with-replaced"), "{refusal}");
    assert!(fixture.dir().join("other/redundancy/a").exists(), "a refusal removes nothing");
    let report = fixture.json(0, &["forget", "tree", "--yes", "--with-replaced"]);
    assert!(report["kept"][0]["path"].as_str().unwrap().ends_with("other/letter"), "{report}");
    let names: Vec<_> = std::fs::read_dir(fixture.dir().join("other")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(std::fs::read(fixture.dir().join("outside/file")).unwrap(), b"mine");
    assert_eq!(fixture.left(), ["../other"]);
}

#[test]
fn parts_pools_and_vaults_in_use_are_refused() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    let refusal = fixture.refusal(&["forget", "tree/sub", "--yes"]);
    assert!(refusal.contains("is part of"), "{refusal}");
    let targets: Vec<String> = (0..6).map(|number| format!("d{number}")).collect();
    for target in &targets {
        std::fs::create_dir(fixture.dir().join(target)).unwrap();
    }
    let pools = ["--pools", "pools"];
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let create = ["pool", "create", "tank", "--stripe", "3", "--redundancy", "2", "--targets"];
    fixture.expect(0, &[&create[..], &targets, &pools].concat());
    let refusal = fixture.refusal(&["forget", "tank", "--yes", "--pools", "pools"]);
    assert!(refusal.contains("is a pool"), "{refusal}");

    let mut watch = fixture.command(&["watch", "tree", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let began = lines.by_ref().map_while(Result::ok).find(|line| line.contains("watch_started"));
    let began = began.expect("the watch says that it began");
    let refusal = fixture.refusal(&["forget", "tree", "--yes", "--force"]);
    assert!(refusal.contains("watch"), "{began}: {refusal}");
    watch.kill().unwrap();
    watch.wait().unwrap();
    fixture.expect(0, &["scrub", "tree"]);
    fixture.expect(0, &["forget", "tree", "--yes"]);
    assert_eq!(fixture.left(), [""; 0]);
}

/// Killed at calls of each kind: nothing opens the vault until the command is repeated, or all is as it was; repeated,
/// nothing is left. Files are never touched.
#[test]
fn a_killed_removal_is_repeated() {
    if !can_kill("a_killed_removal_is_repeated") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write("a", b"short");
    let content = fixture.content();
    let (mut killed, mut refused) = (0, 0);
    for repository in [&[][..], &["--repository", "other"]] {
        for (call, step) in [(Call::Unlink, 5), (Call::Rename, 1), (Call::Sync, 5)] {
            for nth in (1..200).step_by(step) {
                fixture.expect(0, &[&["protect", "tree", "--quiet"], repository].concat());
                let is_killed = fixture.run_killed(Point { call, nth }, &["forget", "tree", "--yes"]);
                killed += u32::from(is_killed);
                if is_killed {
                    let scrub = fixture.run(&["scrub", "tree"]);
                    let said = String::from_utf8_lossy(&scrub.stderr).into_owned();
                    match scrub.status.code() {
                        // Before the mark.
                        Some(0) => {}
                        Some(2) if said.contains("gabion forget") => refused += 1,
                        Some(2) => assert!(said.contains("is not protected"), "{call:?} {nth}: {said}"),
                        other => panic!("{call:?} {nth}: exit code {other:?}: {said}"),
                    }
                    let again = fixture.run(&["forget", "tree", "--yes"]);
                    let said = String::from_utf8_lossy(&again.stderr).into_owned();
                    let is_done = again.status.success() || said.contains("is not protected");
                    assert!(is_done, "{call:?} {nth}: {said}");
                }
                assert_eq!(fixture.left(), [""; 0], "{call:?} {nth}, killed: {is_killed}");
                if !is_killed {
                    break;
                }
            }
        }
    }
    assert_eq!(fixture.content(), content);
    assert!(killed > 5 && refused > 3, "{killed} killed, {refused} refused in between");
}
