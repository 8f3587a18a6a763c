//! Mounts of users who are not root, in a namespace where the system is set up for them: nothing outside of it is
//! changed.

use super::fixture::{Fixture, can_mount};
use super::posix::tools_are_required;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

/// A user that every system knows by name, which `fusermount3` asks for.
const USER: u32 = 65_534;

/// Another group of the process that mounts, and one that it is no member of.
const OTHER_GROUP: u32 = 4_242;
const FOREIGN_GROUP: u32 = 4_243;

/// A source of the user's; nothing, and a line that says why, where he cannot be given a device.
fn fixture(test: &str) -> Option<Fixture> {
    if !can_mount(test) {
        return None;
    }
    let fixture = Fixture::new();
    let dir = fixture.path();
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    for name in ["source", "mount"] {
        chown(dir.join(name), Some(USER), Some(USER)).unwrap();
    }
    fs::write(dir.join("fuse.conf"), "").unwrap();
    let made = Command::new("mknod").args(["-m", "666", "fuse", "c", "10", "229"]).current_dir(dir).status();
    let helps = Path::new("/etc/fuse.conf").exists()
        && Command::new("fusermount3")
            .arg("--version")
            .output()
            .is_ok_and(|captured| captured.status.success());
    assert!(helps || !tools_are_required(), "fusermount3 is not installed");
    let usable = helps
        && made.is_ok_and(|made| made.success())
        && File::options().read(true).write(true).open(dir.join("fuse")).is_ok();
    if !usable {
        gabion_testkit::skip!("{test}: no device or fusermount3 for users");
        return None;
    }
    Some(fixture)
}

/// Unmounts what other tests had mounted when this namespace copied all mounts: a file system lives until its last
/// copy is unmounted, so that the power of their disks could not be cut and their mounts did not end.
const DETACH_OTHERS: &str = r#"while read -r _ _ _ _ at _; do
  case $at in "${TMPDIR:-/tmp}"/*) umount -l "$at" 2>/dev/null ;; esac
done < /proc/self/mountinfo
"#;

/// Mounts as the user, where `/dev/fuse` is for everyone and `/etc/fuse.conf` is the one of the test.
fn mounting(fixture: &Fixture, more: &[&str]) -> Command {
    let script = format!(
        "{DETACH_OTHERS}mount --bind fuse /dev/fuse && mount --bind fuse.conf /etc/fuse.conf && \
         exec setpriv --reuid {USER} --regid {USER} --groups {USER},{OTHER_GROUP} \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_gabion")).args(["mount", "source", "mount", "--policy", "policy.toml"]);
    command.args(more).current_dir(fixture.path()).env_remove("GABION_REPOSITORY");
    command
}

/// Runs a script in the mount, as a user with one group.
fn within(fixture: &Fixture, user: u32, group: u32, script: &str) -> Output {
    let (user, group) = (user.to_string(), group.to_string());
    let process = fixture.process().as_raw_nonzero().to_string();
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target", &process, "setpriv", "--reuid", &user, "--regid", &group]);
    command.args(["--clear-groups", "sh", "-c", "cd \"$0\" && eval \"$1\""]).arg(fixture.at("")).arg(script);
    command.output().unwrap()
}

/// Who has no say in `/etc/fuse.conf` got no mount at all, unless he asked for a private one.
#[test]
fn mounted_for_oneself_where_users_may_not_mount_for_others() {
    let Some(mut fixture) = fixture("mounted for oneself") else { return };
    fixture.mount_by(mounting(&fixture, &[]));
    let told = fixture.captured();
    assert!(told.contains("only you can access this mount") && told.contains("user_allow_other"), "{told}");
    let written = within(&fixture, USER, USER, "echo mine > file && cat file");
    assert_eq!(String::from_utf8_lossy(&written.stdout), "mine\n", "{written:?}");
    for other in [0, 12_345] {
        let read = within(&fixture, other, other, "cat file");
        assert!(!read.status.success(), "{other}: {read:?}");
    }
    fixture.end();
    assert_eq!(fs::read(fixture.source("file")).unwrap(), b"mine\n");
    // Who insists is told what is missing.
    let refused = mounting(&fixture, &["--allow-other"]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), why.contains("user_allow_other")), (Some(2), true), "{why}");
}

#[test]
fn mounted_for_all_where_users_may_mount_for_others() {
    let Some(mut fixture) = fixture("mounted for all") else { return };
    fs::write(fixture.path().join("fuse.conf"), "# for all\nuser_allow_other\n").unwrap();
    fs::write(fixture.source("file"), "for all").unwrap();
    for (more, others) in [(&[][..], true), (&["--allow-other"], true), (&["--private"], false)] {
        fixture.mount_by(mounting(&fixture, more));
        let read = within(&fixture, 12_345, 12_345, "cat file");
        assert_eq!(read.stdout == b"for all", others, "{more:?}: {read:?}");
        assert_eq!(fixture.captured(), "", "{more:?}");
        fixture.end();
    }
}

/// What someone makes with another of his groups belongs to that group. With a group that the process which mounted
/// has not, he is refused: what he had made stayed there, with the wrong group, though he was told that it failed.
#[test]
fn mounted_files_have_the_group_they_were_made_with() {
    let Some(mut fixture) = fixture("groups") else { return };
    // The kernel lets nobody with another group use a mount that is for one user alone.
    fs::write(fixture.path().join("fuse.conf"), "user_allow_other\n").unwrap();
    let command = mounting(&fixture, &[]);
    fixture.mount_by(command);
    let make = "echo x > file && mkdir dir && ln -s file link && mkfifo pipe && mkdir -m 2777 shared && echo x > shared/file";
    let made = within(&fixture, USER, OTHER_GROUP, make);
    assert!(made.status.success(), "{made:?}");
    let again = within(&fixture, USER, USER, "echo x > shared/inherits && echo x > ours");
    assert!(again.status.success(), "{again:?}");
    let group = |name: &str| fs::symlink_metadata(fixture.source(name)).unwrap().gid();
    for name in ["file", "dir", "link", "pipe", "shared", "shared/file", "shared/inherits"] {
        assert_eq!(group(name), OTHER_GROUP, "{name}");
    }
    assert_eq!(group("ours"), USER);
    for make in ["echo x > foreign", "mkdir foreign", "ln -s file foreign", "mkfifo foreign"] {
        let made = within(&fixture, USER, FOREIGN_GROUP, make);
        assert!(!made.status.success(), "{make}");
        assert!(fs::symlink_metadata(fixture.source("foreign")).is_err(), "{make} left something behind");
    }
    // Where directories hand on their group, it does not matter which one he has.
    let made = within(&fixture, USER, FOREIGN_GROUP, "echo x > shared/foreign");
    assert!(made.status.success(), "{made:?}");
    assert_eq!(group("shared/foreign"), OTHER_GROUP);
    fixture.end();
}
