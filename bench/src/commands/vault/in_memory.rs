//! Protection of files in memory, beside the engine alone.

use super::measure::{Bench, forget, line, protect, verify};
use crate::commands::figures::{Line, place_in};
use crate::commands::files::{self, copies, drop_caches, sync, warm};
use crate::commands::mounted::Mounted;
use anyhow::{Context, Result, bail};
use gabion_bench::engine::meminfo;
use gabion_engine::{Code, Engine, Signer};
use std::path::Path;
use std::time::Instant;

impl Bench {
    /// Files and repository on a file system in memory: no disk and no sync takes part.
    pub(super) fn protect_warm(&self) -> Result<Vec<Line>> {
        let memory = Path::new(files::MEMORY);
        let (dir, on) = if memory.is_dir() {
            (memory, "on tmpfs")
        } else {
            (self.request.dir.as_path(), "on the disk, sync included")
        };
        let place = place_in(dir)?;
        self.protect_in("protect 8+2 warm", place.path(), on).map(|line| vec![line])
    }

    /// The same with pages of up to 2 MiB, which ext4, XFS and others use for large reads and writes. The system has
    /// such pages only where free memory is contiguous.
    pub(super) fn protect_warm_in_large_pages(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        drop_caches()?;
        let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
        let tmpfs = ["-t", "tmpfs", "-o", "huge=always", "gabion-bench"];
        let mounted = Mounted::new(tmpfs, place.path()).context("a file system in memory needs root")?;
        self.protect_in("protect 8+2 warm, large pages", mounted.path(), "on tmpfs (huge=always)")
            .map(|line| vec![line])
    }

    fn protect_in(&self, case: &str, place: &Path, on: &str) -> Result<Line> {
        let before = in_large_pages();
        let (tree, data) = self.tree_of_large_files(place)?;
        let large = 100 * in_large_pages().saturating_sub(before) / data;
        let repository = place.join("repository");
        let (mut best, mut copied) = (f64::INFINITY, f64::INFINITY);
        let mut encode = 0f64;
        for _ in 0..3 {
            forget(&tree, &repository);
            sync(&tree)?;
            warm(&tree)?;
            best = best.min(protect(&tree, &repository, &[])?.0);
            encode = encode.max(encode_rate("8+2", 64 << 10)?);
            copied = copied.min(copies(&tree, &place.join("copies"), (8, 2), 64 << 10)?);
        }
        verify(&tree, &repository)?;
        let rate = data as f64 / 1e9 / best;
        let copied = data as f64 / 1e9 / copied;
        let conditions = format!(
            "{data} bytes in large files, in page cache, {on}, {large} % in pages of 2 MiB, best of 3; copying them out of the page cache and as \
             much redundancy in, without coding: {copied:.1} GB/s"
        );
        Ok(line(case, rate, "GB/s", "encode-signed", encode, 0.6, conditions))
    }
}

/// Bytes that file systems in memory keep in pages of 2 MiB; 0 on systems without such pages.
fn in_large_pages() -> u64 {
    meminfo("ShmemHugePages").unwrap_or(0)
}

/// Encoding with signatures in memory on all threads: 1e9 bytes of data per second.
fn encode_rate(code: &str, block: usize) -> Result<f64> {
    let code: Code = code.parse()?;
    let threads = std::thread::available_parallelism()?.get();
    let stripes = (256 << 20) / (code.k() * block);
    let seconds: Result<Vec<f64>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| encode_all(&code, block, stripes))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a thread died"))).collect()
    });
    let bytes = (threads * stripes * code.k() * block) as f64;
    Ok(bytes / 1e9 / seconds?.into_iter().fold(0.0, f64::max))
}

/// Bytes of a cache line.
const LINE: usize = 64;

fn encode_all(code: &Code, block: usize, stripes: usize) -> Result<f64> {
    let encode = Engine::new(1)?.compile(&code.encode_plan()?)?;
    let signer = Signer::independent()?;
    // On cache lines, where the engine is fastest.
    let room = |blocks: usize| vec![1u8; stripes * blocks * block + LINE];
    let (data, mut redundancy) = (room(code.k()), room(code.m()));
    let data = &data[data.as_ptr().align_offset(LINE)..];
    let start = redundancy.as_ptr().align_offset(LINE);
    let redundancy = &mut redundancy[start..];
    let mut pass = || -> Result<f64> {
        let start = Instant::now();
        let outputs = redundancy.chunks_exact_mut(code.m() * block);
        for (inputs, outputs) in data.chunks_exact(code.k() * block).zip(outputs) {
            let inputs: Vec<&[u8]> = inputs.chunks_exact(block).collect();
            let mut outputs: Vec<&mut [u8]> = outputs.chunks_exact_mut(block).collect();
            encode.run_signed(&signer, &inputs, &mut outputs)?;
        }
        Ok(start.elapsed().as_secs_f64())
    };
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        best = best.min(pass()?);
    }
    Ok(best)
}
