//! Full disks, missing permissions, little memory.

use super::captured_output::CapturedOutput;
use super::playground::{Playground, Ran, bytes, contents, gabion};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A small file system, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: PathBuf, size: &str) -> Option<Tmpfs> {
        fs::create_dir_all(&at).unwrap();
        let option = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Tmpfs(at))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    let place = Playground::new();
    let Some(_disk) = Tmpfs::mount(place.path("shards"), "400k") else {
        gabion_testkit::skip!("a_full_disk_leaves_what_was_there: cannot mount a tmpfs here");
        return;
    };
    fs::write(place.path("file"), bytes(100_000, 1)).unwrap();
    let split = ["split", "file", "--code", "4+2", "--block", "4KiB", "--out", "shards"];
    place.run(&split).expect(0);
    let before = place.contents();
    fs::write(place.path("file"), bytes(1_000_000, 2)).unwrap();
    place.run(&[&split[..], &["--force"]].concat()).expect(2).says("no space left on device");
    assert!(place.contents() == before);
    // Repair: no room for the new shards beside a file that fills the rest.
    fs::remove_file(place.shard(0)).unwrap();
    let filler: usize = (1..=400)
        .rev()
        .find(|kib| fs::write(place.path("shards/filler"), vec![1; kib << 10]).is_ok())
        .unwrap();
    assert!(filler > 100);
    let before = place.contents();
    place.run(&["repair", "shards"]).expect(2).says("no space left");
    assert!(place.contents() == before);
    place.run(&["join", "shards", "-o", "shards/joined"]).expect(2).says("no space left");
    assert!(place.contents() == before);
}

/// Runs the command as somebody without privileges; `None` where that cannot be.
fn as_nobody(place: &Playground, arguments: &[&str]) -> Option<Ran> {
    if !rustix::process::geteuid().is_root() {
        return Some(place.run(arguments));
    }
    // The binary may lie in a directory that only root can enter.
    let copy = place.path("gabion");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_gabion"), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .arg("shard")
        .args(arguments);
    command.current_dir(place.path("")).output().ok().map(Ran::from)
}

#[test]
fn permissions_are_reported_by_file() {
    let place = Playground::split(5000, "4+2", "100");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let Some(ran) = as_nobody(&place, &["verify", "shards"]) else {
        gabion_testkit::skip!("permissions_are_reported_by_file: no setpriv");
        return;
    };
    ran.expect(0);
    set(&place.shard(1), 0o000);
    let ran = as_nobody(&place, &["verify", "shards"]).unwrap().expect(1);
    assert!(
        ran.out.contains("file.001.gabion: header damaged: cannot read it: permission denied"),
        "{}",
        ran.out
    );
    as_nobody(&place, &["join", "shards", "-o", "-"]).unwrap().expect(0);
    set(&place.path("file"), 0o000);
    let split = ["split", "file", "--code", "2+1", "--out", "shards"];
    as_nobody(&place, &split).unwrap().expect(2).says("cannot read file: permission denied");
    set(&place.path("file"), 0o644);
    set(&place.path("shards"), 0o555);
    let split = ["split", "file", "--code", "2+1", "--name", "n", "--out", "shards"];
    as_nobody(&place, &split).unwrap().expect(2).says("cannot create a file in shards: permission denied");
    set(&place.path("shards"), 0o000);
    as_nobody(&place, &["verify", "shards"]).unwrap().expect(2).says("directory shards: permission denied");
    set(&place.path("shards"), 0o755);
    assert_eq!(contents(&place.path("shards")).len(), 6);
}

/// The most memory the child ever had, in KiB, looked at until it ends.
fn peak_memory(arguments: &[&str], place: &Playground) -> u64 {
    let (mut command, captured) = (gabion(), CapturedOutput::new());
    command.args(arguments).current_dir(place.path("")).stdout(Stdio::null()).stderr(captured.as_stdio());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(now.unwrap_or(0));
        thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let place = Playground::new();
    // All of it a hole: it is read, coded and signed like any other, and takes no disk.
    File::create(place.path("file")).unwrap().set_len(192 << 20).unwrap();
    let split = ["split", "file", "--code", "4+2", "--block", "64KiB", "--threads", "2", "--out", "shards"];
    let peak = peak_memory(&split, &place);
    assert!(peak > 0 && peak < 48 << 10, "split of 192 MiB took {peak} KiB");
    fs::remove_file(place.shard(1)).unwrap();
    let peak = peak_memory(&["join", "shards", "-o", "joined", "--threads", "2"], &place);
    assert!(peak > 0 && peak < 48 << 10, "join of 192 MiB took {peak} KiB");
    assert_eq!(fs::metadata(place.path("joined")).unwrap().len(), 192 << 20);
}
