//! Files to measure with, and what plain reading and writing of them costs.

use anyhow::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Plain reads and writes are done in pieces of this size.
const PIECE: usize = 1 << 20;

/// A new file of bytes that do not compress and differ by `seed`.
pub(in crate::commands::bench) fn fill(path: &Path, size: u64, seed: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut piece = vec![0u8; PIECE.min(size as usize)];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut left = size;
    while left > 0 {
        for word in piece.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let bytes = left.min(piece.len() as u64);
        file.write_all(&piece[..bytes as usize])?;
        left -= bytes;
    }
    Ok(())
}

/// Makes everything on the file system of `path` durable.
pub(in crate::commands::bench) fn sync(path: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Empties the page cache; false if that is not allowed.
pub(in crate::commands::bench) fn drop_caches() -> Result<bool> {
    match std::fs::write("/proc/sys/vm/drop_caches", "3") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads all files below `path`, one after the other; gives the number of bytes.
pub(in crate::commands::bench) fn plain_read(path: &Path) -> Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    each_file(path, &mut |file| {
        let mut file = File::open(file)?;
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                bytes => total += bytes as u64,
            }
        }
    })?;
    Ok(total)
}

/// Brings all files below `path` into the page cache.
pub(in crate::commands::bench) fn warm(path: &Path) -> Result<()> {
    plain_read(path).map(|_| ())
}

/// Writes a file, and makes it durable.
pub(in crate::commands::bench) fn plain_write(path: &Path, size: u64) -> Result<()> {
    let piece = vec![0x5a; PIECE];
    let mut file = File::create(path)?;
    let mut left = size;
    while left > 0 {
        let bytes = left.min(PIECE as u64);
        file.write_all(&piece[..bytes as usize])?;
        left -= bytes;
    }
    Ok(file.sync_all()?)
}

/// Bytes on the disk and inodes of everything below `path`.
pub(in crate::commands::bench) fn usage(path: &Path) -> Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    let mut total = (metadata.blocks() * 512, 1);
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let (bytes, inodes) = usage(&entry?.path())?;
            total = (total.0 + bytes, total.1 + inodes);
        }
    }
    Ok(total)
}

fn each_file(path: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        match entry.file_type()? {
            kind if kind.is_dir() => each_file(&entry.path(), visit)?,
            kind if kind.is_file() => visit(&entry.path())?,
            _ => {}
        }
    }
    Ok(())
}
