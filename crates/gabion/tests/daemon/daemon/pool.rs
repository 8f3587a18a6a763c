//! A daemon with a watched directory and a mounted pool: writes, corruption, lost targets, rebuilds.

use super::disks::Disks;
use super::fixture::{Fixture, can_mount, files_below, rot};
use super::test_rng::TestRng;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Writes files through the mount.
fn fill(fixture: &Fixture) -> BTreeMap<String, Vec<u8>> {
    let mut seed = TestRng(77);
    let sizes = [5, 4096, 50_000, 12_288, 200_001, 30_000];
    let files: BTreeMap<String, Vec<u8>> = sizes
        .iter()
        .enumerate()
        .map(|(number, &size)| (format!("file {number}"), seed.bytes(size)))
        .collect();
    for (name, bytes) in &files {
        std::fs::write(fixture.path("mnt").join(name), bytes).unwrap();
    }
    files
}

fn assert_right(fixture: &Fixture, files: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        assert!(
            std::fs::read(fixture.path("mnt").join(name)).unwrap() == *bytes,
            "{name} is not what it was"
        );
    }
}

/// The directory of a target and its name in the pool; not the one with the vault.
fn target(fixture: &Fixture, number: usize) -> (String, String) {
    let status: Value =
        serde_json::from_slice(&fixture.run(&["pool", "status", "tank", "--json"]).stdout).unwrap();
    let name = status["status"]["targets"][number - 1]["name"].as_str().unwrap().to_owned();
    (format!("t{number}"), name)
}

fn pull(fixture: &Fixture, directory: &str) {
    std::fs::rename(fixture.path(directory), fixture.path(&format!("{directory}.away"))).unwrap();
}

fn put_back(fixture: &Fixture, directory: &str) {
    std::fs::rename(fixture.path(&format!("{directory}.away")), fixture.path(directory)).unwrap();
}

fn state_of(source: &Value, name: &str) -> String {
    let targets = source["pool"]["targets"].as_array().cloned().unwrap_or_default();
    let found = targets.iter().find(|target| target["name"] == name);
    found.and_then(|target| target["state"].as_str()).unwrap_or("?").to_owned()
}

#[test]
fn mounted_corruption_is_repaired_and_a_lost_target_rebuilt() {
    if !can_mount("rot_and_loss") {
        return;
    }
    let mut fixture = Fixture::new();
    let scrub = "scrub = { every = '2s', repair = true }";
    let photos = fixture.watched("photos", scrub);
    let tank = fixture.pool(&format!("{scrub}\nrebuild = {{ after = '2s', look = '1s' }}"));
    fixture.configure(&format!("{photos}{tank}"));
    fixture.start();
    let files = fill(&fixture);
    fixture.until_protected("photos", "photos", 4);
    fixture.until_protected("tank", "tank", 6);
    // Rot in redundancy, and in an object of the pool: nobody hears of either.
    let redundancy = files_below(&fixture.path("photos/.gabion/redundancy"));
    let largest = |list: &[std::path::PathBuf]| {
        list.iter().max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap().clone()
    };
    // Which targets have something is chance.
    let objects: Vec<_> =
        (1..=8).flat_map(|number| files_below(&fixture.path(&format!("t{number}/objects")))).collect();
    let victims = [largest(&redundancy), largest(&objects)];
    let before: Vec<Vec<u8>> = victims.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for victim in &victims {
        rot(victim, std::fs::metadata(victim).unwrap().len() / 2, 1);
    }
    for (name, victim) in ["photos", "tank"].iter().zip(victims.iter().zip(&before)) {
        let mended = |_: &Value| std::fs::read(victim.0).unwrap() == *victim.1;
        fixture.until(name, "rot is mended", mended);
        fixture.until(name, "nothing is damaged", |source| source["files"]["damaged"] == 0);
    }
    // A target is pulled out: named, then given up, then made anew elsewhere.
    let (directory, name) = target(&fixture, 5);
    pull(&fixture, &directory);
    fixture.until("tank", "it is named", |source| {
        source["pool"]["notice"]["gone"].as_array().is_some_and(|gone| gone.iter().any(|it| *it == name))
            || state_of(source, &name) != "present"
    });
    let source = fixture.until("tank", "it is rebuilt", |source| state_of(source, &name) == "replaced");
    assert_eq!(source["last"]["rebuild"]["outcome"], "fine", "{source:#}");
    assert_right(&fixture, &files);
    // It comes back, is verified and in service again.
    put_back(&fixture, &directory);
    fixture.until("tank", "it is back", |source| state_of(source, &name) == "present");
    fixture.until("tank", "nothing is asked", |source| source["pool"]["verify"].is_null());
    assert_right(&fixture, &files);
    fixture.stop(Signal::TERM);
    assert_eq!(std::fs::read_dir(fixture.path("mnt")).unwrap().count(), 0, "it is still mounted");
    assert!(
        !fixture.path("photos/.gabion/daemon").exists() && !fixture.path("photos/.gabion/mounted").exists()
    );
    fixture.expect(0, &["scrub", "tank"]);
    fixture.expect(0, &["scrub", "photos"]);
}

#[test]
fn mounted_mass_failure_waits_for_confirmation() {
    if !can_mount("mass_failure") {
        return;
    }
    let mut fixture = Fixture::new();
    let tank = fixture.pool("rebuild = { after = '1s', look = '1s' }");
    fixture.configure(&tank);
    fixture.start();
    let files = fill(&fixture);
    fixture.until_protected("tank", "tank", 6);
    let gone: Vec<(String, String)> = [4, 6, 8].map(|number| target(&fixture, number)).into();
    gone.iter().for_each(|(directory, _)| pull(&fixture, directory));
    let source = fixture.until("tank", "it asks", |source| {
        source["pool"]["ask"]["gone"].as_array().is_some_and(|gone| gone.len() == 3)
    });
    assert!(source["last"]["rebuild"].is_null(), "nothing is rebuilt: {source:#}");
    // What that means for files is known by name.
    let source_with_files = fixture.until("tank", "files are named", |source| {
        source["pool"]["files"]["named"].as_array().is_some_and(|named| !named.is_empty())
    });
    let named = &source_with_files["pool"]["files"]["named"][0];
    assert!(files.contains_key(named["path"].as_str().unwrap()), "{named}");
    // Nothing that counts files says that all are whole.
    let missed = &source_with_files["pool"]["files"];
    let counted = &source_with_files["files"];
    for state in ["degraded", "lost"] {
        assert!(counted[state].as_u64() >= missed[state].as_u64(), "{state}: {source_with_files:#}");
    }
    assert!(missed["degraded"].as_u64() > Some(0) || missed["lost"].as_u64() > Some(0), "{missed}");
    let metrics = fixture.http("GET", "/metrics", "").body;
    let sample = |state: &str| {
        let name = format!("gabion_files{{source=\"tank\",state=\"{state}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    for state in ["degraded", "lost"] {
        assert_eq!(sample(state), counted[state].as_u64(), "{state}: {metrics}");
    }
    for list in ["problems", "redundancy", "files"] {
        let answer = fixture.get(&format!("/api/v1/sources/tank/{list}"));
        let mut absent: Vec<String> = serde_json::from_value(answer["targets_absent"].clone()).unwrap();
        absent.sort();
        let mut expected: Vec<String> = gone.iter().map(|it| it.1.clone()).collect();
        expected.sort();
        assert_eq!(absent, expected, "{answer:#}");
    }
    let asked = source["pool"]["ask"]["agreement"].as_str().unwrap().to_owned();
    let text = String::from_utf8(fixture.run(&["daemon", "status"]).stdout).unwrap();
    assert!(text.contains("CONFIRM") && text.contains(&asked) && text.contains(&gone[0].1), "{text}");
    // Others than those that were shown are not agreed to.
    let wrong = fixture.refused(&["daemon", "rebuild", "tank", "--agree", "0123456789ab"]);
    assert!(wrong.contains(&asked), "{wrong}");
    let done = fixture.run(&["daemon", "rebuild", "tank", "--agree", &asked, "--json"]);
    assert!(matches!(done.status.code(), Some(0 | 1 | 3)), "{done:?}");
    let source = fixture.until("tank", "nothing is asked", |source| {
        source["pool"]["ask"].is_null()
            && gone.iter().all(|it| ["replaced", "given up"].contains(&&*state_of(source, &it.1)))
    });
    assert!(source["last"]["rebuild"].is_object(), "{source:#}");
    // Whoever was not lost is what it was; who was comes back with its targets.
    gone.iter().for_each(|(directory, _)| put_back(&fixture, directory));
    fixture
        .until("tank", "all are back", |source| gone.iter().all(|it| state_of(source, &it.1) == "present"));
    assert_right(&fixture, &files);
    fixture.stop(Signal::INT);
}

/// Disks with file systems of their own. One is taken from under the pool while programs write.
#[test]
fn mounted_a_disk_is_pulled_under_load_and_comes_back_stale() {
    if !can_mount("a_disk_is_pulled_under_load") {
        return;
    }
    let mut fixture = Fixture::new();
    let Some(disks) = Disks::make(&fixture, 8) else { return };
    let tank = fixture.pool("rebuild = { after = '2s', look = '1s' }");
    fixture.configure(&tank);
    fixture.start();
    let mut files = fill(&fixture);
    fixture.until_protected("tank", "tank", 6);
    let (directory, name) = target(&fixture, 5);
    // Writes and reads go on all the time; what they left is compared at the end.
    let (stop, noticed, rounds) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
    let source = std::thread::scope(|scope| {
        let (fixture, stop, files, noticed, rounds) = (&fixture, &stop, &mut files, &noticed, &rounds);
        let load = scope.spawn(move || {
            let mut seed = TestRng(5);
            let (mut round, mut after) = (0, 0);
            // All of them once more when the disk is made good: what was on it only, and not protected yet, went with
            // it.
            while after < 5 {
                let name = format!("load {}", round % 5);
                let bytes = seed.bytes(20_000 + 777 * (round % 9));
                let known = noticed.load(Ordering::SeqCst);
                std::fs::write(fixture.path("mnt").join(&name), &bytes).unwrap();
                match std::fs::read(fixture.path("mnt").join(&name)) {
                    Ok(found) => assert!(found == bytes, "{name} in round {round}"),
                    // Bytes that a disk took along are an error, never other bytes. Once the loss is known, files go
                    // elsewhere.
                    Err(error) if error.raw_os_error() == Some(5) => {
                        assert!(!known, "{name} in round {round}")
                    }
                    Err(error) => panic!("{name} in round {round}: {error}"),
                }
                files.insert(name, bytes);
                round += 1;
                after += usize::from(stop.load(Ordering::Relaxed));
                rounds.store(round, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        });
        gabion_testkit::until("files are written", || {
            rounds.load(Ordering::Relaxed) >= 5 || load.is_finished()
        });
        disks.pull(5);
        fixture.until("tank", "the loss is known", |source| state_of(source, &name) != "present");
        noticed.store(true, Ordering::SeqCst);
        let source = fixture.until("tank", "it is rebuilt", |source| state_of(source, &name) == "replaced");
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        source
    });
    assert_eq!(source["last"]["rebuild"]["outcome"], "fine", "{source:#}");
    assert_eq!(
        std::fs::read_dir(fixture.path(&directory)).unwrap().count(),
        0,
        "nothing below a mount point"
    );
    assert_right(&fixture, &files);
    disks.mount(5);
    fixture.until("tank", "it is back", |source| state_of(source, &name) == "present");
    assert_right(&fixture, &files);
    fixture.until_protected("tank", "tank", files.len() as u64);
    fixture.stop(Signal::TERM);
    fixture.expect(0, &["scrub", "tank"]);
}

/// The target with the vault is the one that goes: the source begins anew with another vault.
#[test]
fn mounted_pool_survives_the_loss_of_its_vault() {
    if !can_mount("loss_of_vault") {
        return;
    }
    let mut fixture = Fixture::new();
    let tank = fixture.pool("rebuild = { after = '1s', look = '1s' }");
    fixture.configure(&tank);
    fixture.start();
    let files = fill(&fixture);
    fixture.until_protected("tank", "tank", 6);
    let source = fixture.source("tank");
    let repository = source["repository"]["path"].as_str().unwrap().to_owned();
    let directory =
        std::path::Path::new(&repository).parent().unwrap().file_name().unwrap().to_str().unwrap();
    let number: usize = directory[1..].parse().unwrap();
    let (directory, name) = target(&fixture, number);
    pull(&fixture, &directory);
    let source = fixture.until("tank", "it is rebuilt", |source| {
        source["state"] == "running" && state_of(source, &name) == "replaced"
    });
    assert_ne!(source["repository"]["path"].as_str(), Some(repository.as_str()));
    assert_right(&fixture, &files);
    fixture.stop(Signal::TERM);
}
