//! File systems mounted for one measurement.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount point; unmounted when the value is dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// Runs `mount` with these arguments; needs root.
    pub(super) fn new<'a>(arguments: impl IntoIterator<Item = &'a str>, at: &Path) -> Result<Mounted> {
        run(Command::new("mount").args(arguments).arg(at))?;
        Ok(Mounted(at.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Unmounts, which writes everything back.
    pub(super) fn unmount(mut self) -> Result<()> {
        run(Command::new("umount").arg(std::mem::take(&mut self.0)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // A file system that is still in use is detached when its last user closes it.
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        }
    }
}

/// Runs a program to its end. The error contains its standard error.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}
