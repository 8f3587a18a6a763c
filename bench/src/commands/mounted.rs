//! File systems that a measurement has for itself.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where one is mounted until the value is dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// As `mount` with these arguments does it; for root.
    pub(super) fn new<'a>(arguments: impl IntoIterator<Item = &'a str>, at: &Path) -> Result<Mounted> {
        run(Command::new("mount").args(arguments).arg(at))?;
        Ok(Mounted(at.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns when nothing of it is left to be written.
    pub(super) fn unmount(mut self) -> Result<()> {
        run(Command::new("umount").arg(std::mem::take(&mut self.0)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What is still in use goes when nobody uses it any more.
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        }
    }
}

/// Runs a program to its end; what it says of a failure is the error.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}
