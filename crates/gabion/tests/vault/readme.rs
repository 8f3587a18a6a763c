//! The tour of pools in README, run as it is printed.

use super::fixture::Fixture;
use super::test_rng::TestRng;
use std::path::Path;
use std::process::Command;

/// The commands of the console block of README that begins with this one, without their comments.
fn commands(first: &str) -> Vec<String> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("$ {first}")));
    let lines = lines.take_while(|line| !line.starts_with("```")).filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split(" # ").next().unwrap_or(line).trim_end().to_owned()).collect()
}

/// After `pool put tank photos /`, the tour's `pool get tank beach.raw` was "not in the pool", and `put` had copied
/// `photos/.gabion` as well. The paths of the disks are put into a directory of the test; all else is run as it
/// stands there.
#[test]
fn the_tour_of_pools_works_as_it_is_printed() {
    let fixture = Fixture::new();
    let content = TestRng(7).bytes(9_000_000);
    std::fs::create_dir(fixture.dir().join("photos")).unwrap();
    std::fs::write(fixture.dir().join("photos/beach.raw"), &content).unwrap();
    fixture.expect(0, &["protect", "photos"]);
    let disks = fixture.dir().join("mnt");
    let disk = |name: &str| disks.join(name);
    (1..=8).for_each(|number| std::fs::create_dir_all(disk(&format!("d{number}"))).unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_gabion")).parent().unwrap();
    let run = |command: &str, code: i32| {
        let mut shell = Command::new("sh");
        shell.current_dir(fixture.dir()).env("HOME", fixture.dir());
        shell.env_remove("XDG_CONFIG_HOME").env_remove("GABION_POOLS").env_remove("GABION_REPOSITORY");
        let command = command.replace("/mnt/", &format!("{}/", disks.display()));
        let shell = shell.arg("-c").arg(format!("PATH=\"{}:$PATH\"\n{command}", program.display()));
        let output = shell.output().unwrap();
        let [out, error] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(output.status.code(), Some(code), "{command}: {out}{error}");
        out
    };
    let commands = commands("gabion pool create tank");
    let mut commands = commands.iter();
    let mut next = |begins: &str| {
        let command = commands.next().unwrap_or_else(|| panic!("the tour ends before {begins}"));
        assert!(command.starts_with(begins), "{command}");
        command
    };
    run(next("gabion pool create tank"), 0);
    run(next("gabion pool put tank photos /"), 0);
    let listed = run("gabion pool ls tank photos", 0);
    assert!(listed.contains("beach.raw") && !listed.contains(".gabion"), "{listed}");
    run(next("gabion protect tank"), 0);
    run(next("gabion whatif tank --lose"), 0);
    for gone in ["d1", "d5"] {
        std::fs::rename(disk(gone), disk(&format!("{gone} is gone"))).unwrap();
    }
    run(next("gabion pool get tank"), 0);
    assert!(std::fs::read(fixture.dir().join("beach.raw")).unwrap() == content);
    run(next("gabion pool rebuild tank"), 0);
    // The disks are there again, before another one is to go.
    for gone in ["d1", "d5"] {
        std::fs::rename(disk(&format!("{gone} is gone")), disk(gone)).unwrap();
    }
    run("gabion pool rebuild tank", 0);
    run(next("gabion pool retire tank d3"), 0);
    run(next("gabion pool replace tank d4"), 0);
    assert_eq!(commands.next(), None);
}
