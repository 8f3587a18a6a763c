//! Disk images with file systems, mounted as targets of a pool.

use super::fixture::Fixture;
use std::path::PathBuf;
use std::process::Command;

/// Disks below t1, t2, …; unmounted when dropped.
pub(crate) struct Disks {
    images: Vec<PathBuf>,
    points: Vec<PathBuf>,
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disks {
    /// Nothing where loop devices are not to be had; that is said.
    pub(crate) fn make(fixture: &Fixture, count: usize) -> Option<Disks> {
        let images = (1..=count).map(|number| fixture.path(&format!("image{number}"))).collect();
        let points = (1..=count).map(|number| fixture.path(&format!("t{number}"))).collect();
        let disks = Disks { images, points };
        for number in 1..=count {
            if let Err(why) = disks.format(number) {
                gabion_testkit::skip!("disks: {why}");
                return None;
            }
        }
        Some(disks)
    }

    fn format(&self, number: usize) -> Result<(), String> {
        let (image, point) = (&self.images[number - 1], &self.points[number - 1]);
        std::fs::create_dir(point).map_err(|error| error.to_string())?;
        run(Command::new("truncate").args(["-s", "24M"]).arg(image))?;
        let ext4 = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", "-m", "0"];
        run(Command::new("mkfs.ext4").args(ext4).arg(image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point))?;
        // Targets have to be empty.
        std::fs::remove_dir(point.join("lost+found")).map_err(|error| error.to_string())
    }

    pub(crate) fn mount(&self, number: usize) {
        let (image, point) = (&self.images[number - 1], &self.points[number - 1]);
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point)).unwrap();
    }

    /// Takes it away, whoever uses it.
    pub(crate) fn pull(&self, number: usize) {
        run(Command::new("umount").arg("-l").arg(&self.points[number - 1])).unwrap();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for point in &self.points {
            let _ = Command::new("umount").arg("-l").arg(point).output();
        }
    }
}
