//! When files were made.

use super::{Tree, nanos, split};
use crate::world::Nanos;
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use std::io;
use std::os::fd::AsFd;

fn told(found: &Statx) -> Option<Nanos> {
    let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    is_known.then(|| nanos(found.stx_btime))
}

/// When an open file was made; nothing where the file system does not record that.
///
/// # Errors
/// What the operating system says.
pub fn birth_of(file: impl AsFd) -> io::Result<Option<Nanos>> {
    Ok(told(&statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?))
}

impl Tree {
    /// When the file at a path was made; nothing where the file system does not record that. A link is not followed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn birth(&self, path: &[u8]) -> io::Result<Option<Nanos>> {
        let (directory, name) = split(path);
        let found = statx(self.directory(directory)?, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME)?;
        Ok(told(&found))
    }
}
