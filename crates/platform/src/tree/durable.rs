//! Durability: fsync of files and directories, and syncfs where a file system honours it.

use super::{Kind, Tree, absent_is_none, join, split};
use rustix::fs::OFlags;
use std::io;

impl Tree {
    /// Makes changes of a directory durable.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn sync_directory(&self, path: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?)?)
    }

    /// True if [`sync_all`](Tree::sync_all) makes everything durable. `syncfs` reaches the server of a FUSE file
    /// system only if that is virtiofs, and data that a server has not synced is lost in a power cut. Only file
    /// systems that are known to write everything back are trusted; on others files and directories are synced one by
    /// one.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn syncs_as_a_whole(&self) -> io::Result<bool> {
        // ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, JFS, tmpfs, ramfs, overlayfs, FAT, exFAT, NTFS; from
        // <linux/magic.h> and their sources.
        const TRUSTED: [i64; 13] = [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0xf2f5_2010,
            0x2fc1_2fc1,
            0xca45_1a4e,
            0x3153_464a,
            0x0102_1994,
            0x8584_58f6,
            0x794c_7630,
            0x4d44,
            0x2011_bab0,
            0x7366_746e,
        ];
        Ok(TRUSTED.contains(&(self.file_system()? & 0xffff_ffff)))
    }

    /// Makes a directory and its parents durable, up to the root: some of them may be new.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn sync_directories(&self, path: &[u8]) -> io::Result<()> {
        let mut directory = path;
        loop {
            self.sync_directory(directory)?;
            if directory.is_empty() {
                return Ok(());
            }
            directory = split(directory).0;
        }
    }

    /// Makes files and directories at and beneath a path durable, one by one if
    /// [`syncs_as_a_whole`](Tree::syncs_as_a_whole) is false.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn sync_beneath(&self, path: &[u8]) -> io::Result<()> {
        self.sync_all()?;
        match self.syncs_as_a_whole()? {
            true => Ok(()),
            false => self.sync_each(path),
        }
    }

    /// Files that are removed meanwhile are skipped.
    fn sync_each(&self, path: &[u8]) -> io::Result<()> {
        let Some(directory) = absent_is_none(self.directory(path))? else { return Ok(()) };
        for (name, _) in directory.names()?.iter() {
            let path = join(path, name);
            match self.find(&path)?.map(|stat| stat.kind) {
                Some(Kind::Directory) => self.sync_each(&path)?,
                Some(Kind::File) => {
                    absent_is_none(self.read(&path).and_then(|file| file.sync_all()))?;
                }
                _ => {}
            }
        }
        absent_is_none(self.sync_directory(path)).map(|_| ())
    }

    /// Makes everything durable that was written to the root's file system; see
    /// [`syncs_as_a_whole`](Tree::syncs_as_a_whole).
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self.open_with(b"", OFlags::RDONLY | OFlags::DIRECTORY, 0)?)?)
    }
}
