//! Disk images whose power can be cut.

use crate::fixture::Fixture;
use gabion_testkit::until;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Stops file systems at once: `FS_IOC_SHUTDOWN` with `FS_SHUTDOWN_FLAGS_NOLOGFLUSH`.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
for point in sys.argv[1:]: fcntl.ioctl(os.open(point, os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// Journals are not committed by time: a slow machine is to lose as much as a fast one.
const OPTIONS: &str = "loop,commit=3600,noatime";

/// Disks d1, d2, … in a directory: images with ext4 on them, mounted. Unmounted when dropped.
pub(crate) struct Disks {
    fixture: Fixture,
    count: usize,
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disks {
    /// Nothing, and a skip of `test`, where loop devices are not to be had.
    pub(crate) fn make(test: &str, fixture: &Fixture, count: usize) -> Option<Disks> {
        let disks = Disks { fixture: fixture.clone(), count };
        match (1..=count).try_for_each(|number| disks.format(number)) {
            Ok(()) => Some(disks),
            Err(why) => {
                gabion_testkit::skip(test, why);
                None
            }
        }
    }

    fn format(&self, number: usize) -> Result<(), String> {
        let (image, point) = (self.image(number), self.point(number));
        fs::create_dir(&point).map_err(|error| error.to_string())?;
        run(Command::new("truncate").args(["-s", "24M"]).arg(&image))?;
        let ext4 = ["-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1"];
        run(Command::new("mkfs.ext4").args(ext4).arg(&image))?;
        self.mount(number)?;
        // Targets of a pool have to be empty.
        fs::remove_dir(point.join("lost+found")).map_err(|error| error.to_string())
    }

    fn image(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("image{number}"))
    }

    pub(crate) fn point(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("d{number}"))
    }

    pub(crate) fn mount(&self, number: usize) -> Result<(), String> {
        run(Command::new("mount").args(["-o", OPTIONS]).arg(self.image(number)).arg(self.point(number)))
    }

    /// Takes a disk away that nobody uses.
    pub(crate) fn unmount(&self, number: usize) {
        gabion_testkit::unmount_image(&self.image(number), &self.point(number));
    }

    /// Cuts the power of all disks.
    pub(crate) fn cut(&self) {
        let points = (1..=self.count).map(|number| self.point(number));
        run(Command::new("python3").args(["-I", "-B", "-c", SHUTDOWN]).args(points)).unwrap();
    }

    /// Mounts all disks again after their power was cut.
    pub(crate) fn mount_again(&self) {
        for number in 1..=self.count {
            self.unmount(number);
            self.mount(number).unwrap();
        }
    }

    pub(crate) fn cut_and_mount_again(&self) {
        self.cut();
        self.mount_again();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for number in 1..=self.count {
            let _ = Command::new("umount").arg("-l").arg(self.point(number)).output();
        }
    }
}

/// Regression: the power suite read EIO after a cut when a namespace of another test held a copy of the mount.
#[test]
fn a_cut_ends_although_a_namespace_has_a_copy_of_the_mount() {
    let test = "a_cut_ends_although_a_namespace_has_a_copy_of_the_mount";
    let fixture = Fixture::new();
    let Some(disks) = Disks::make(test, &fixture, 1) else { return };
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo held; read -r _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    disks.cut();
    let point = disks.point(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("unmounted here", || run(Command::new("mountpoint").arg("-q").arg(&point)).is_err());
            // Long enough for a mount that does not wait; one that waits does so however long this takes.
            std::thread::sleep(Duration::from_millis(300));
            drop(holder.stdin.take());
            holder.wait().unwrap();
        });
        disks.mount_again();
    });
    fs::write(disks.point(1).join("file"), b"has power again").unwrap();
}

/// These tests can fail: what was not synced is gone after a cut, and what was synced is there.
#[test]
fn a_cut_takes_what_was_not_synced() {
    let fixture = Fixture::new();
    let Some(disks) = Disks::make("a_cut_takes_what_was_not_synced", &fixture, 1) else { return };
    let at = |name: &str| disks.point(1).join(name);
    fs::write(at("synced"), b"synced").unwrap();
    fs::File::open(at("synced")).unwrap().sync_all().unwrap();
    fs::File::open(disks.point(1)).unwrap().sync_all().unwrap();
    fs::write(at("not synced"), b"not synced").unwrap();
    fs::write(at("synced"), b"replaced").unwrap();
    disks.cut_and_mount_again();
    assert!(!at("not synced").exists());
    assert_ne!(fs::read(at("synced")).unwrap(), b"replaced");
}
