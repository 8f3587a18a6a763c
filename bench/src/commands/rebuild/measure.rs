//! A pool loses a target: speed of the rebuild, and of reads until it is done.

use crate::commands::figures::Line;
use crate::commands::files::{drop_caches, fill, plain_write, sync};
use crate::commands::vault::measure::{MIB, number};
use anyhow::{Context, Result, bail, ensure};
use gabion_engine::{Code, Engine, Signer};
use gabion_vault::coder::Coders;
use gabion_vault::degraded::DegradedReader;
use gabion_vault::format::Metadata;
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use gabion_vault::world::Timestamp;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The cases by name, in the order in which they run.
pub(super) const CASES: [&str; 2] = ["degraded read", "rebuild"];

const K: usize = 4;
const TARGETS: usize = 8;
const BLOCK: usize = 1 << 20;
const ROUNDS: usize = 3;

/// A pool with protected files.
pub(super) struct Bench {
    dir: tempfile::TempDir,
    files: usize,
    size: u64,
}

impl Bench {
    pub(super) fn new(dir: &Path, quick: bool) -> Result<Bench> {
        let dir = tempfile::Builder::new().prefix("gabion-bench-").tempdir_in(dir)?;
        let (files, size) = if quick { (8, 128 * MIB) } else { (16, 256 * MIB) };
        let bench = Bench { dir, files, size };
        let target = |number: usize| NewTarget { path: bench.target(number), domain: None };
        let targets: Vec<NewTarget> = (0..TARGETS).map(target).collect();
        let pool = Pool::create("bench", &targets, K, BLOCK as u64, 2, Options::default())?;
        let source = bench.dir.path().join("source");
        for number in 0..files {
            fill(&source, size, number as u64)?;
            pool.put(
                &name(number),
                &mut File::open(&source)?,
                &Metadata::default(),
                Timestamp::from_nanoseconds(5),
            )?;
        }
        std::fs::remove_file(source)?;
        gabion(&["protect", "--json"], &bench.target(1), &[])?;
        Ok(bench)
    }

    fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    pub(super) fn run(&self, case: &str) -> Result<Vec<Line>> {
        match case {
            "rebuild" => self.rebuild(),
            "degraded read" => self.degraded_read(),
            other => bail!("no case {other:?}; there are: {}", CASES.join(", ")),
        }
    }

    /// Several times: removes a target, rebuilds, and brings the target back without the rebuilt content.
    fn rebuild(&self) -> Result<Vec<Line>> {
        let (mut ours, mut limits) = (0f64, [0f64; 3]);
        let mut moved = 0;
        for round in 0..ROUNDS {
            let lost = TARGETS - 1 - round;
            let away = self.dir.path().join("away");
            std::fs::rename(self.target(lost), &away)?;
            sync(self.dir.path())?;
            ensure!(drop_caches()?, "the page cache can only be dropped by root");
            let (seconds, report) = gabion(&["pool", "rebuild"], &self.target(1), &["--json"])?;
            let bytes = number(&report, "bytes")?;
            moved = moved.max(bytes);
            ours = ours.max(bytes as f64 / 1e9 / seconds);
            limits[0] = limits[0].max(self.read_limit(bytes, lost)?);
            limits[1] = limits[1].max(reconstruction_rate()?);
            limits[2] = limits[2].max(self.write_limit(bytes)?);
            std::fs::rename(&away, self.target(lost))?;
            gabion(&["pool", "rebuild"], &self.target(1), &["--json"])?;
        }
        let names = ["read", "encode", "write"];
        let slowest = (0..3).min_by(|&a, &b| limits[a].total_cmp(&limits[b])).unwrap_or(0);
        let conditions = format!(
            "{moved} bytes rebuilt, 4+2, blocks of 1 MiB, {TARGETS} directories on one disk, caches dropped, sync included, best of \
             {ROUNDS}; limits: read {:.2}, encode {:.2}, write {:.2}",
            limits[0], limits[1], limits[2]
        );
        let against = format!("{}-limit", names[slowest]);
        Ok(vec![Line::new(
            "rebuild",
            "rebuild of a lost target",
            (ours, "GB/s"),
            (&against, limits[slowest]),
            0.8,
            conditions,
        )])
    }

    /// Bytes rebuilt per second if only reading the sources took time, on all threads.
    fn read_limit(&self, bytes: u64, lost: usize) -> Result<f64> {
        drop_caches()?;
        let mut objects = Vec::new();
        for number in (0..TARGETS).filter(|&number| number != lost) {
            collect(&self.target(number).join("objects"), &mut objects)?;
        }
        let threads = std::thread::available_parallelism()?.get();
        let want = K as u64 * bytes;
        let next = std::sync::atomic::AtomicUsize::new(0);
        let read = std::sync::atomic::AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            let work = || -> Result<()> {
                let mut piece = vec![0; BLOCK];
                while read.load(std::sync::atomic::Ordering::Relaxed) < want {
                    let Some(path) = objects.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    else {
                        break;
                    };
                    let mut file = File::open(path)?;
                    loop {
                        let got = file.read(&mut piece)?;
                        let all = read.fetch_add(got as u64, std::sync::atomic::Ordering::Relaxed);
                        if got == 0 || all >= want {
                            break;
                        }
                    }
                }
                Ok(())
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|it| it.join().unwrap_or_else(|_| bail!("a thread died")))
        })?;
        let read = read.into_inner();
        ensure!(read > 0, "there is nothing to read");
        Ok(read as f64 / K as f64 / 1e9 / start.elapsed().as_secs_f64())
    }

    /// Bytes rebuilt per second if only writing them durably took time.
    fn write_limit(&self, bytes: u64) -> Result<f64> {
        let path = self.dir.path().join("written");
        let start = Instant::now();
        plain_write(&path, bytes)?;
        let seconds = start.elapsed().as_secs_f64();
        std::fs::remove_file(path)?;
        Ok(bytes as f64 / 1e9 / seconds)
    }

    fn degraded_read(&self) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for (cold, state) in [(true, "cold"), (false, "warm")] {
            let (mut healthy, mut degraded) = (0f64, 0f64);
            for _ in 0..ROUNDS {
                healthy = healthy.max(self.read_all(cold, false)?);
                let away = self.dir.path().join("away");
                std::fs::rename(self.target(3), &away)?;
                let read = self.read_all(cold, true);
                std::fs::rename(&away, self.target(3))?;
                degraded = degraded.max(read?);
            }
            let conditions = format!(
                "{} files of {} MiB, by one reader in pieces of 1 MiB, every block checked, best of {ROUNDS}",
                self.files,
                self.size / MIB
            );
            let case = format!("degraded sequential read {state}");
            lines.push(Line::new(
                "rebuild",
                &case,
                (degraded, "GB/s"),
                ("healthy", healthy),
                0.6,
                conditions,
            ));
        }
        Ok(lines)
    }

    /// Reads all files with data on the lost target. Returns 1e9 bytes per second.
    fn read_all(&self, cold: bool, without: bool) -> Result<f64> {
        let pool = Pool::open_at(&[self.target(1)], Options::default())?;
        let coders = Coders::new()?;
        let concerned: Vec<Vec<u8>> = (0..self.files)
            .map(name)
            .filter(|name| pool.stub(name).is_ok_and(|stub| stub.targets.iter().any(|it| it == "d3")))
            .collect();
        ensure!(!concerned.is_empty(), "no file has data on the target that is taken away");
        let mut buffer = vec![0; BLOCK];
        if !cold {
            for name in &concerned {
                read_file(&pool, &coders, name, &mut buffer)?;
            }
        } else {
            sync(self.dir.path())?;
            ensure!(drop_caches()?, "the page cache can only be dropped by root");
        }
        let (start, mut bytes, mut made) = (Instant::now(), 0, 0);
        for name in &concerned {
            let (read, reconstructed) = read_file(&pool, &coders, name, &mut buffer)?;
            bytes += read;
            made += reconstructed;
        }
        let seconds = start.elapsed().as_secs_f64();
        ensure!((made > 0) == without, "{made} blocks were reconstructed");
        Ok(bytes as f64 / 1e9 / seconds)
    }
}

fn name(number: usize) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn read_file(pool: &Pool, coders: &Coders, name: &[u8], buffer: &mut [u8]) -> Result<(u64, u64)> {
    let reader = DegradedReader::open(pool, coders, name)?;
    let mut at = 0;
    while at < reader.size() {
        at += reader.read(at, buffer)? as u64;
    }
    Ok((at, reader.report().reconstructed))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// Runs `gabion`. Returns the seconds and its JSON output.
fn gabion(args: &[&str], target: &Path, more: &[&str]) -> Result<(f64, Value)> {
    let start = Instant::now();
    let done = crate::program::gabion()?
        .args(args)
        .arg(target)
        .args(more)
        .output()
        .context("gabion cannot be run")?;
    let seconds = start.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "gabion {} failed: {said}", args.join(" "));
    Ok((seconds, serde_json::from_slice(&done.stdout)?))
}

/// Reconstruction in memory on all threads, 1e9 bytes per second: for each reconstructed byte four are read and
/// checked.
fn reconstruction_rate() -> Result<f64> {
    let code: Code = "4+2".parse()?;
    let threads = std::thread::available_parallelism()?.get();
    let stripes = 24;
    let pass = || -> Result<f64> {
        let repairer = Engine::new(1)?.repairer(&code);
        let signer = Signer::independent()?;
        let data = vec![1u8; stripes * K * BLOCK];
        let mut made = vec![0u8; BLOCK];
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            let start = Instant::now();
            for stripe in data.chunks_exact(K * BLOCK) {
                let mut blocks: Vec<Option<&[u8]>> = stripe.chunks_exact(BLOCK).map(Some).collect();
                blocks.insert(0, None);
                blocks.resize(code.blocks(), None);
                for block in blocks.iter().flatten() {
                    signer.sign(block)?;
                }
                repairer.repair(&blocks, &[0], &mut [&mut made[..]])?;
                signer.sign(&made)?;
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let seconds: Result<Vec<f64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(pass)).collect();
        workers.into_iter().map(|it| it.join().unwrap_or_else(|_| bail!("a thread died"))).collect()
    });
    let bytes = (threads * stripes * BLOCK) as f64;
    Ok(bytes / 1e9 / seconds?.into_iter().fold(0.0, f64::max))
}
