//! Programs that sync through a mount.

use crate::can_mount::can_mount;
use crate::disks::Disks;
use crate::fixture::{Files, Fixture, PROGRAM, assert_same, bytes, files_below};
use crate::pool::{DISKS, Tank};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Acknowledged steps of a program; power is cut after each of them.
const STEPS: u64 = 6;

/// A mount that is served by a process; the end of the test ends it.
struct Mount {
    fixture: Fixture,
    child: Child,
}

impl Mount {
    fn start(fixture: &Fixture, args: &[&str]) -> Mount {
        fs::create_dir_all(fixture.path("mount")).unwrap();
        let mut command = fixture.with(Command::new(PROGRAM), args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line}");
        Mount { fixture: fixture.clone(), child }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The machine has no power: the process does not come to an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ =
            Command::new("umount").arg("-l").arg(self.fixture.path("mount")).stderr(Stdio::null()).status();
    }
}

/// Makes the acknowledged steps up to the one with number `last`, each on what the one before left, and begins others
/// that nobody waits for.
fn work(mount: &Path, last: u64, files: &mut Files) {
    let at = |name: &str| mount.join(name);
    let sync_directory = || File::open(mount).unwrap().sync_all().unwrap();
    for step in 0..=last {
        match step {
            0 | 3 => {
                let (name, content) = (format!("new{step}"), bytes(20_000, step));
                let file = File::create(at(&name)).unwrap();
                file.write_all_at(&content, 0).unwrap();
                file.sync_all().unwrap();
                sync_directory();
                files.insert(name, content);
            }
            1 | 4 => {
                let part = bytes(6000, step);
                let file = File::options().write(true).open(at("new0")).unwrap();
                file.write_all_at(&part, 3000).unwrap();
                file.sync_data().unwrap();
                files.get_mut("new0").unwrap()[3000..9000].copy_from_slice(&part);
            }
            2 => {
                fs::rename(at("old"), at("renamed")).unwrap();
                sync_directory();
                let content = files.remove("old").unwrap();
                files.insert("renamed".to_owned(), content);
            }
            _ => {
                let content = bytes(15_000, step);
                fs::write(at("draft"), &content).unwrap();
                File::open(at("draft")).unwrap().sync_all().unwrap();
                fs::rename(at("draft"), at("new0")).unwrap();
                sync_directory();
                files.insert("new0".to_owned(), content);
            }
        }
    }
    // Not synced: it may be there or not, whole or in part.
    fs::write(at("unsynced"), bytes(30_000, 77)).unwrap();
}

/// Everything but what was not synced.
fn acknowledged(mut files: Files) -> Files {
    files.remove("unsynced");
    files
}

/// Removes a file that was not synced if its name is there and its content is not. Reading it has to fail then.
fn remove_if_lost(tank: &Tank, told: &str, name: &str) {
    let got = tank.fixture.run(&["pool", "get", "tank", name, "lost", "--pools", "names"]);
    let error = String::from_utf8_lossy(&got.stderr);
    let is_lost = ["cannot be read and have no redundancy: the object on target", "was truncated to"];
    if is_lost.iter().any(|words| error.contains(words)) {
        println!("{told}: {}", error.trim());
        tank.expect(told, &["pool", "rm", "tank", name]);
    } else {
        assert!(got.status.success() || error.contains("not in the pool"), "{told}: {error}");
    }
}

/// For programs on a mounted directory: what `fsync` acknowledged is in the directory after a power cut.
#[test]
fn synced_files_of_a_mounted_directory_survive_a_power_cut() {
    let test = "synced_files_of_a_mounted_directory_survive_a_power_cut";
    if !can_mount(test) {
        return;
    }
    for last in 0..STEPS {
        let fixture = Fixture::new();
        let Some(disks) = Disks::make(test, &fixture, 1) else { return };
        let policy =
            "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nquiet = \"0s\"\n[guard]\nat_least = 100000\n";
        fs::write(fixture.path("policy.toml"), policy).unwrap();
        fs::write(disks.point(1).join("old"), bytes(9000, 50)).unwrap();
        fixture.expect("at first", &["protect", "d1", "--policy", "policy.toml"]);
        assert!(Command::new("sync").arg("-f").arg(disks.point(1)).status().unwrap().success());
        let mut files = Files::from([("old".to_owned(), bytes(9000, 50))]);
        let mount = Mount::start(&fixture, &["mount", "d1", "mount"]);
        work(&fixture.path("mount"), last, &mut files);
        disks.cut();
        drop(mount);
        disks.mount_again();
        let told = format!("power was cut after step {last}");
        assert_same(&told, &acknowledged(files_below(&disks.point(1))), &files);
        for args in [&["protect", "d1"][..], &["scrub", "d1"], &["status", "d1"]] {
            fixture.expect(&told, args);
        }
        assert_same(&told, &acknowledged(files_below(&disks.point(1))), &files);
    }
}

/// The same for a mounted pool, whose files and names are on several disks.
#[test]
fn synced_files_of_a_mounted_pool_survive_a_power_cut() {
    let test = "synced_files_of_a_mounted_pool_survive_a_power_cut";
    if !can_mount(test) {
        return;
    }
    for last in 0..STEPS {
        let Some(mut tank) = Tank::new(test) else { return };
        fs::write(tank.fixture.path("source"), bytes(9000, 50)).unwrap();
        tank.expect("at first", &["pool", "put", "tank", "source", "old"]);
        tank.expect("at first", &["protect", "tank", "--policy", "policy.toml"]);
        let mut files = Files::from([("old".to_owned(), bytes(9000, 50))]);
        let mount = Mount::start(&tank.fixture, &["mount", "tank", "mount", "--pools", "names"]);
        work(&tank.fixture.path("mount"), last, &mut files);
        // A disk may have written what nobody synced while another has not.
        let one = tank.disks.point(1 + last as usize % DISKS);
        assert!(Command::new("sync").arg("-f").arg(one).status().unwrap().success());
        tank.disks.cut();
        drop(mount);
        tank.disks.mount_again();
        let told = format!("power was cut after step {last}");
        remove_if_lost(&tank, &told, "unsynced");
        let found = tank.seen(&told);
        assert_same(&told, &acknowledged(found.clone()), &files);
        tank.files = found;
        tank.converge(&told);
    }
}
