//! Directories after a power cut: redundancy that `protect` and files that `repair` reported are durable.

use crate::disks::Disks;
use crate::fixture::{Files, Fixture, assert_same, bytes, files_below, rot};
use gabion_testkit::kill::can_kill;
use std::fs;
use std::path::Path;
use std::process::Command;

const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n\n[guard]\nat_least = 100000\n";

/// A directory on a disk of its own, and its repository in it or on another disk.
struct Vault {
    disks: Disks,
    fixture: Fixture,
    files: Files,
}

fn sync(path: &Path) {
    assert!(Command::new("sync").arg("-f").arg(path).status().unwrap().success());
}

impl Vault {
    fn new(test: &str, elsewhere: bool) -> Option<Vault> {
        let fixture = Fixture::new();
        let disks = Disks::make(test, &fixture, 2)?;
        fs::write(fixture.path("policy.toml"), POLICY).unwrap();
        let mut vault = Vault { disks, fixture, files: Files::new() };
        for (number, name) in ["quiet", "changed", "removed0", "moved0"].into_iter().enumerate() {
            vault.write(name, &bytes(30_000, number as u64));
        }
        let repository = ["--repository", "d2/repository"];
        let args = ["protect", "d1", "--policy", "policy.toml"];
        vault.fixture.expect("at first", &[&args[..], if elsewhere { &repository } else { &[] }].concat());
        sync(&vault.disks.point(1));
        Some(vault)
    }

    fn write(&mut self, name: &str, content: &[u8]) {
        fs::write(self.disks.point(1).join(name), content).unwrap();
        self.files.insert(name.to_owned(), content.to_vec());
    }

    /// Work of a user, who syncs it.
    fn change(&mut self, round: u64) {
        let at = |name: String| self.disks.point(1).join(name);
        fs::remove_file(at(format!("removed{round}"))).unwrap();
        self.files.remove(&format!("removed{round}"));
        fs::rename(at(format!("moved{round}")), at(format!("moved{}", round + 1))).unwrap();
        let content = self.files.remove(&format!("moved{round}")).unwrap();
        self.files.insert(format!("moved{}", round + 1), content);
        self.write(&format!("removed{}", round + 1), &bytes(9000, round * 10 + 1));
        self.write("changed", &bytes(20_000 + round as usize % 7 * 3000, round * 10 + 2));
        sync(&self.disks.point(1));
    }

    fn found(&self) -> Files {
        files_below(&self.disks.point(1)).into_iter().filter(|(name, _)| name != ".gabion").collect()
    }

    fn converge(&self, told: &str) {
        assert_same(told, &self.found(), &self.files);
        for args in [&["protect", "d1"][..], &["scrub", "d1"], &["status", "d1"]] {
            self.fixture.expect(told, args);
        }
        assert_same(told, &self.found(), &self.files);
    }

    /// Every file is damaged and comes back.
    fn damage_and_repair(&self, told: &str) {
        for name in self.files.keys() {
            rot(&self.disks.point(1).join(name), 100, 300);
        }
        self.fixture.expect(told, &["repair", "d1", "--yes"]);
        assert_same(told, &self.found(), &self.files);
    }
}

/// For whoever protects a directory: redundancy that was acknowledged brings files back after a power cut, and a run
/// that was cut is made up for.
fn protect(test: &str, elsewhere: bool) {
    if !can_kill(test) {
        return;
    }
    let Some(mut vault) = Vault::new(test, elsewhere) else { return };
    let runner = vault.fixture.clone();
    runner.kill_everywhere(test, 4, &["protect", "d1"], &mut vault, Vault::change, |vault, round, told| {
        vault.disks.cut_and_mount_again();
        let told = format!("{told}, power was cut");
        if round == 0 {
            // It was acknowledged: nothing is left to do, and redundancy is worth something.
            let protected = vault.fixture.json(&told, &["protect", "d1"]);
            assert_eq!(protected["encoded"], 0, "{told}: {protected}");
            vault.damage_and_repair(&told);
            vault.disks.cut_and_mount_again();
            assert_same(&format!("{told}, after repair"), &vault.found(), &vault.files);
        }
        vault.converge(&told);
    });
}

#[test]
fn redundancy_in_the_directory_survives_a_power_cut() {
    protect("redundancy_in_the_directory_survives_a_power_cut", false);
}

#[test]
fn redundancy_on_another_disk_survives_a_power_cut() {
    protect("redundancy_on_another_disk_survives_a_power_cut", true);
}

/// For whoever repairs: files that were brought back are so after a power cut, and a repair that was cut is finished
/// by the next.
#[test]
fn repaired_files_survive_a_power_cut() {
    let test = "repaired_files_survive_a_power_cut";
    if !can_kill(test) {
        return;
    }
    let Some(mut vault) = Vault::new(test, false) else { return };
    let runner = vault.fixture.clone();
    let args = ["repair", "d1", "--yes"];
    runner.kill_everywhere(
        test,
        4,
        &args,
        &mut vault,
        |vault, round| {
            for (at, name) in vault.files.keys().enumerate() {
                rot(&vault.disks.point(1).join(name), round * 777 % 5000 + at as u64 * 50, 3000);
            }
            sync(&vault.disks.point(1));
        },
        |vault, round, told| {
            vault.disks.cut_and_mount_again();
            let told = format!("{told}, power was cut");
            if round > 0 {
                vault.fixture.expect(&told, &args);
            }
            assert_same(&told, &vault.found(), &vault.files);
            vault.converge(&told);
        },
    );
}
