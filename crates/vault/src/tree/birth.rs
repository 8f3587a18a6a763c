//! When files were made.

use super::{Tree, nanos, split};
use crate::world::Nanos;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::io;

impl Tree {
    /// When the file at a path was made; nothing where the file system does not record that. A link is not followed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn birth(&self, path: &[u8]) -> io::Result<Option<Nanos>> {
        let (directory, name) = split(path);
        let found = statx(self.directory(directory)?, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME)?;
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        Ok(is_known.then(|| nanos(found.stx_btime)))
    }
}
