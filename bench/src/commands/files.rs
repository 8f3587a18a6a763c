//! Test files, and plain reads and writes of them as references.

use anyhow::Result;
use gabion_bench::engine::available_memory;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Bytes of one read or write of the references.
const PIECE: usize = 1 << 20;

/// Mount point of a file system in memory, on most systems.
pub(in crate::commands) const MEMORY: &str = "/dev/shm";

/// True if a file system in memory has this much space, and a third of the free memory remains.
pub(in crate::commands) fn has_memory_for(bytes: u64) -> bool {
    let available = available_memory().unwrap_or(0);
    let room = rustix::fs::statvfs(MEMORY).map_or(0, |about| about.f_bavail * about.f_frsize);
    room.min(available / 3 * 2) >= bytes
}

/// Writes a file with incompressible content that depends on `seed`.
pub(in crate::commands) fn fill(path: &Path, size: u64, seed: u64) -> Result<()> {
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

/// Flushes the file system of `path` to the disk.
pub(in crate::commands) fn sync(path: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Drops the page cache; false without the permission.
pub(in crate::commands) fn drop_caches() -> Result<bool> {
    match std::fs::write("/proc/sys/vm/drop_caches", "3") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads all files below `path`, one after the other. Returns the number of bytes.
pub(in crate::commands) fn plain_read(path: &Path) -> Result<u64> {
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

/// Reads all files below `path` into the page cache.
pub(in crate::commands) fn warm(path: &Path) -> Result<()> {
    plain_read(path).map(|_| ())
}

/// Writes a file with a final fsync.
pub(in crate::commands) fn plain_write(path: &Path, size: u64) -> Result<()> {
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

/// Allocated bytes and number of inodes below `path`.
pub(in crate::commands) fn usage(path: &Path) -> Result<(u64, u64)> {
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

/// Reads all files of a tree with one thread per core and writes as many bytes as their redundancy has, stripe by
/// stripe: the I/O of protecting without the coding. Returns the seconds.
///
/// # Errors
/// What the operating system says.
pub(in crate::commands) fn copies(
    tree: &Path,
    to: &Path,
    (k, m): (usize, usize),
    block: usize,
) -> Result<f64> {
    let files: Vec<_> = std::fs::read_dir(tree)?.collect::<std::io::Result<_>>()?;
    let files: Vec<_> = files.iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    std::fs::create_dir(to)?;
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let mut buffer = vec![0; k * block];
        while let Some((at, path)) = files.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let (from, redundancy) = (File::open(path)?, File::create(to.join(at.to_string()))?);
            let (mut read, mut written) = (0, 0);
            while read < from.metadata()?.len() {
                for block in buffer.chunks_exact_mut(block) {
                    read += from.read_at(block, read)? as u64;
                }
                redundancy.write_all_at(&buffer[..m * block], written)?;
                written += (m * block) as u64;
            }
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let threads = std::thread::available_parallelism()?.get();
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work()?;
        others.into_iter().try_for_each(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(to)?;
    Ok(seconds)
}
