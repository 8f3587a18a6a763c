//! Setuid programs and device nodes on a mount of root.

use super::fixture::{Fixture, can_mount};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ordinary user.
const USER: u32 = 12_345;

/// A disk in memory, until this is dropped.
struct Disk(PathBuf);

impl Disk {
    fn at(path: PathBuf, options: &str) -> Disk {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Disk(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Puts a program that tells its effective user, with a setuid bit, and `/dev/null` where they are wanted.
fn furnish(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("who");
    fs::copy("/usr/bin/id", &program).unwrap();
    chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let device = directory.join("null");
    let made = Command::new("mknod").args(["-m", "666"]).arg(&device).args(["c", "1", "3"]).status();
    assert!(made.unwrap().success());
}

/// Which user the program runs as, and whether the device can be opened, for an ordinary user.
fn found(directory: &Path) -> (String, bool) {
    let ran = Command::new(directory.join("who")).arg("-u").uid(USER).gid(USER).output().unwrap();
    let read = Command::new("cat").arg(directory.join("null")).uid(USER).gid(USER).output().unwrap();
    (String::from_utf8(ran.stdout).unwrap().trim().to_owned(), read.status.success())
}

/// A disk of a stranger's is mounted nosuid and nodev. Through a mount by root its programs ran as root for
/// everybody, and its device nodes opened.
#[test]
fn mounts_are_nosuid_and_nodev_like_their_source_unless_asked() {
    if !can_mount("mounts_are_nosuid_and_nodev") {
        return;
    }
    let nobody = || (USER.to_string(), false);
    for (options, more, expected) in [
        ("nosuid,nodev,mode=755", &[][..], nobody()),
        ("nosuid,nodev,mode=755", &["--suid", "--dev"], nobody()),
        ("mode=755", &[], nobody()),
        ("mode=755", &["--suid"], ("0".to_owned(), false)),
        ("mode=755", &["--suid", "--dev"], ("0".to_owned(), true)),
    ] {
        let mut fixture = Fixture::new();
        fs::set_permissions(fixture.path(), Permissions::from_mode(0o755)).unwrap();
        let disk = Disk::at(fixture.source(""), options);
        furnish(&disk.0);
        fixture.mount(more);
        assert_eq!(found(&fixture.at("")), expected, "{options} {more:?}");
        let told = fixture.captured().contains("nosuid");
        assert_eq!(told, options.contains("nosuid") && !more.is_empty(), "{}", fixture.captured());
        fixture.unmount();
        drop(disk);
    }
}

/// One target of a pool that is not trusted is enough.
#[test]
fn a_pool_is_nosuid_if_a_target_is() {
    if !can_mount("a_pool_is_nosuid_if_a_target_is") {
        return;
    }
    let mut fixture = Fixture::new();
    fs::set_permissions(fixture.path(), Permissions::from_mode(0o755)).unwrap();
    for target in ["t1", "t2", "t3"] {
        fs::create_dir(fixture.path().join(target)).unwrap();
    }
    let disk = Disk::at(fixture.path().join("t2"), "nosuid,nodev,mode=755");
    let create = ["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "1"];
    fixture.expect(0, &[&create[..], &["--targets", "t1", "t2", "t3"]].concat());
    fs::write(fixture.path().join("policy.toml"), "[default]\ncode = \"2+1\"\nquiet = \"0s\"\n").unwrap();
    fixture.mount_source("t1", &["--suid", "--dev"]);
    furnish(&fixture.at(""));
    assert_eq!(found(&fixture.at("")), (USER.to_string(), false));
    fixture.unmount();
    drop(disk);
}
