//! Real file systems on loop devices, for the targets of a pool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Disks d1, d2, … in a directory: mounted ext4 images. Unmounted when dropped.
pub(crate) struct Disks {
    dir: PathBuf,
    count: usize,
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disks {
    pub(crate) fn image(&self, number: usize) -> PathBuf {
        self.dir.join(format!("image{number}"))
    }

    pub(crate) fn point(&self, number: usize) -> PathBuf {
        self.dir.join(format!("d{number}"))
    }

    pub(crate) fn make(dir: &Path, count: usize, size: &str) -> Result<Disks, String> {
        let disks = Disks { dir: dir.to_owned(), count };
        for number in 1..=count {
            fs::create_dir_all(disks.point(number)).map_err(|error| error.to_string())?;
            run(Command::new("truncate").args(["-s", size]).arg(disks.image(number)))?;
            let ext4 = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", "-m", "0"];
            run(Command::new("mkfs.ext4").args(ext4).arg(disks.image(number)))?;
            disks.mount(number)?;
        }
        Ok(disks)
    }

    pub(crate) fn mount(&self, number: usize) -> Result<(), String> {
        let mut mount = Command::new("mount");
        run(mount.args(["-o", "loop,errors=remount-ro"]).arg(self.image(number)).arg(self.point(number)))
    }

    pub(crate) fn unmount(&self, number: usize) {
        let _ = Command::new("umount").arg("-l").arg(self.point(number)).output();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        (1..=self.count).for_each(|number| self.unmount(number));
    }
}
