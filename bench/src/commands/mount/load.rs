//! Load on a directory, timed.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Bytes of one request, except for random reads and small files.
const PIECE: usize = 1 << 20;

/// Content of a file at an offset: cheap to generate and to check.
fn pattern(file: usize, piece: &mut [u8], offset: u64) {
    for (at, word) in piece.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&((offset + 8 * at as u64) ^ ((file as u64) << 56)).to_le_bytes());
    }
}

/// Runs `work` for `count` numbers in parallel. Returns the seconds until the last ends.
fn at_once(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| (number, &work)).collect();
        let threads: Vec<_> =
            threads.into_iter().map(|(number, work)| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Writes `files` files in parallel, each with a final fsync.
pub(super) fn write(dir: &Path, files: usize, size: u64) -> Result<f64> {
    at_once(files, |number| {
        let mut file = File::create(dir.join(format!("file {number}")))?;
        let mut piece = vec![0; PIECE];
        pattern(number, &mut piece, 0);
        for offset in (0..size).step_by(PIECE) {
            // A new first word makes every piece different at no cost.
            piece[..8].copy_from_slice(&(offset ^ ((number as u64) << 56)).to_le_bytes());
            file.write_all(&piece)?;
        }
        Ok(file.sync_all()?)
    })
}

/// Reads files that [`write`] wrote, one after the other, and checks their content.
pub(super) fn read(dir: &Path, files: usize, size: u64) -> Result<f64> {
    let start = Instant::now();
    let mut piece = vec![0; PIECE];
    for number in 0..files {
        let path = dir.join(format!("file {number}"));
        let mut file = File::open(&path)?;
        for offset in (0..size).step_by(PIECE) {
            file.read_exact(&mut piece).with_context(|| path.display().to_string())?;
            let first = u64::from_le_bytes(piece[..8].try_into()?);
            ensure!(first == offset ^ ((number as u64) << 56), "{} is wrong at {offset}", path.display());
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Reads 4 KiB at random offsets of a file, `count` times on each of `threads` threads.
pub(super) fn read_at_random(dir: &Path, threads: usize, size: u64, count: u64) -> Result<f64> {
    at_once(threads, |number| {
        let file = File::open(dir.join("file 0"))?;
        let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut block = [0; 4096];
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            file.read_exact_at(&mut block, state % (size / 4096) * 4096)?;
        }
        Ok(())
    })
}

/// Creates `count` files of 2 KiB.
pub(super) fn create(dir: &Path, count: u64) -> Result<f64> {
    let start = Instant::now();
    let content = [0x5a; 2048];
    for number in 0..count {
        File::create(dir.join(number.to_string()))?.write_all(&content)?;
    }
    Ok(start.elapsed().as_secs_f64())
}
