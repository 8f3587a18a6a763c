//! Cases of `gabion-bench vault`: the `gabion` program on real files, beside the disk and other tools.
//!
//! Every result is a ratio within one run. Cold: the page cache was dropped before, which needs root; warm: everything
//! was read before. Times are of whole processes, final sync included.

use crate::commands::figures::{BenchOptions, Line, place_in};
use crate::commands::files::{self, drop_caches, fill, plain_read, plain_write, sync, usage, warm};
use anyhow::{Context, Result, bail, ensure};
use gabion_changelog::measure::{Load, measure};
use gabion_vault::changelog::{Changelog, Embedded};
use gabion_vault::vault::OWN;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The bench and its options.
pub(super) struct Bench {
    /// Directory and duration.
    pub(super) request: BenchOptions,
}

/// The cases by name, in the order in which they run.
pub(super) const CASES: [&str; 10] = [
    "protect cold",
    "protect warm",
    "protect warm, large pages",
    "scrub cold",
    "small files",
    "second protect",
    "changelog",
    "par2",
    "snapraid",
    "memory",
];

/// Target for the changelog, in changes per second.
const WANTED_CHANGES: u64 = 200_000;

pub(in crate::commands) const MIB: u64 = 1 << 20;

/// Memory of a small file and its redundancy on a file system in memory: a page and an inode each.
const TINY_FILE: u64 = 2 * (4096 + 1024);

impl Bench {
    /// Runs one case.
    ///
    /// # Errors
    /// A step of the case fails.
    pub(super) fn run(&self, case: &str) -> Result<Vec<Line>> {
        match case {
            "protect cold" => self.protect_cold(),
            "protect warm" => self.protect_warm(),
            "protect warm, large pages" => self.protect_warm_in_large_pages(),
            "scrub cold" => self.scrub_cold(),
            "small files" => self.small_files(),
            "second protect" => self.second_protect(),
            "changelog" => self.changelog(),
            "par2" => super::tools::par2(self),
            "snapraid" => super::tools::snapraid(self),
            "memory" => self.memory(),
            other => bail!("no case {other:?}; there are: {}", CASES.join(", ")),
        }
    }

    fn large_files(&self) -> (u64, u64) {
        if self.request.quick { (2, 256 * MIB) } else { (4, 1024 * MIB) }
    }

    pub(super) fn tree_of_large_files(&self, place: &Path) -> Result<(PathBuf, u64)> {
        let (count, size) = self.large_files();
        let tree = place.join("tree");
        std::fs::create_dir(&tree)?;
        for number in 0..count {
            fill(&tree.join(format!("file {number}")), size, number)?;
        }
        sync(&tree)?;
        Ok((tree, count * size))
    }

    fn protect_cold(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (tree, data) = self.tree_of_large_files(place.path())?;
        let repository = place.path().join("repository");
        let mut best = (f64::INFINITY, f64::INFINITY);
        let mut redundancy = 0;
        for _ in 0..3 {
            forget(&tree, &repository);
            sync(&tree)?;
            let state = drop_caches()?;
            ensure!(state, "the page cache can only be dropped by root");
            let (seconds, report) = protect(&tree, &repository, &[])?;
            redundancy = number(&report, "redundancy_bytes")?;
            best.0 = best.0.min(seconds);
            drop_caches()?;
            let copy = place.path().join("copy");
            let start = Instant::now();
            plain_read(&tree)?;
            plain_write(&copy, redundancy)?;
            best.1 = best.1.min(start.elapsed().as_secs_f64());
            std::fs::remove_file(copy)?;
        }
        verify(&tree, &repository)?;
        let moved = (data + redundancy) as f64 / 1e9;
        Ok(vec![line(
            "protect 8+2 cold",
            moved / best.0,
            "GB/s",
            "plain-read-and-write",
            moved / best.1,
            0.85,
            format!("{data} bytes in large files, caches dropped, best of 3, sync included"),
        )])
    }

    fn scrub_cold(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (tree, _) = self.tree_of_large_files(place.path())?;
        let repository = place.path().join("repository");
        protect(&tree, &repository, &[])?;
        sync(&tree)?;
        let (mut ours, mut plain) = (0f64, 0f64);
        for _ in 0..3 {
            ensure!(drop_caches()?, "the page cache can only be dropped by root");
            let (seconds, report) = gabion(&["scrub", "--json"], &tree, &repository)?;
            ours = ours.max(number(&report, "bytes")? as f64 / 1e9 / seconds);
            drop_caches()?;
            let start = Instant::now();
            let read = plain_read(&tree)? + plain_read(&repository.join("redundancy"))?;
            plain = plain.max(read as f64 / 1e9 / start.elapsed().as_secs_f64());
        }
        let conditions = "data and redundancy, caches dropped, best of 3".to_owned();
        Ok(vec![line("scrub 8+2 cold", ours, "GB/s", "plain-read", plain, 0.9, conditions)])
    }

    fn small_count(&self) -> u64 {
        if self.request.quick { 20_000 } else { 100_000 }
    }

    fn tree_of_small_files(&self, place: &Path, count: u64) -> Result<PathBuf> {
        let tree = place.join("tree");
        for number in 0..count {
            if number % 1000 == 0 {
                std::fs::create_dir_all(tree.join(format!("{:04}", number / 1000)))?;
            }
            fill(&tree.join(format!("{:04}/file {number}", number / 1000)), 2048, number)?;
        }
        sync(&tree)?;
        Ok(tree)
    }

    fn small_files(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let count = self.small_count();
        let tree = self.tree_of_small_files(place.path(), count)?;
        let repository = place.path().join("repository");
        warm(&tree)?;
        let (seconds, _) = protect(&tree, &repository, &[])?;
        verify(&tree, &repository)?;
        let conditions = format!("{count} files of 2 KiB, in page cache, 8+2, sync included");
        let rate = count as f64 / seconds;
        let (bytes, inodes) = usage(&repository)?;
        let size = (count * 2048) as f64;
        Ok(vec![
            line("protect small files", rate, "files/s", "wanted", 5000.0, 1.0, conditions.clone()),
            line(
                "redundancy of small files",
                bytes as f64 / size,
                "x",
                "3 x their size",
                3.0,
                1.0,
                conditions.clone(),
            )
            .inverted(),
            line(
                "inodes of small files",
                inodes as f64 / count as f64,
                "inodes",
                "4 each",
                4.0,
                1.0,
                conditions,
            )
            .inverted(),
        ])
    }

    fn second_protect(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let count = self.small_count();
        let tree = self.tree_of_small_files(place.path(), count)?;
        let repository = place.path().join("repository");
        protect(&tree, &repository, &[])?;
        let marker = place.path().join("marker");
        std::fs::write(&marker, b"")?;
        let (mut ours, mut find) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..5 {
            ours = ours.min(protect(&tree, &repository, &[])?.0);
            let start = Instant::now();
            let found = Command::new("find").arg(&tree).arg("-newer").arg(&marker).output()?;
            ensure!(found.status.success() && found.stdout.is_empty(), "find found something newer");
            find = find.min(start.elapsed().as_secs_f64());
        }
        let rate = |seconds: f64| count as f64 / seconds;
        let conditions = format!("{count} files, nothing changed, names in cache, best of 5");
        Ok(vec![line("second protect", rate(ours), "files/s", "find -newer", rate(find), 0.5, conditions)])
    }

    fn changelog(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let changelog = Embedded::open(&place.path().join("changelog"))?;
        let time = Duration::from_secs(if self.request.quick { 3 } else { 10 });
        // Calls in flight: those of 40 ms at the target rate. With more of them, a changelog at that rate would exceed
        // the target for waits by the queue alone.
        let load = Load { writers: 8, files: 10_000, batch: 1, in_flight: 1000, rate: 0, time };
        let measured = measure(&[&changelog], &load)?;
        ensure!(changelog.sequence()?.0 == measured.changes, "changes were lost");
        let offered = Load { rate: WANTED_CHANGES, ..load };
        let steady = measure(&[&changelog], &offered)?;
        let conditions = |how: &str| {
            format!(
                "8 writers, 10000 files, one change per call, 1000 calls of each on their way, {:.0} s, {how}",
                time.as_secs_f64()
            )
        };
        let (full, even) = (conditions("as fast as they can"), conditions("200000 changes/s offered"));
        let rate = measured.per_second();
        let wait = |case: &str, wait: Duration, conditions: &str| {
            let milliseconds = wait.as_secs_f64() * 1e3;
            line(case, milliseconds, "ms", "50 ms", 50.0, 1.0, conditions.to_owned()).inverted()
        };
        Ok(vec![
            line("changelog embedded", rate, "changes/s", "wanted", WANTED_CHANGES as f64, 1.0, full.clone()),
            wait("changelog longest wait, full load", measured.worst, &full),
            wait("changelog p99 wait, full load", measured.p99, &full),
            wait("changelog longest wait", steady.worst, &even),
            wait("changelog p99 wait", steady.p99, &even),
        ])
    }

    fn memory(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (size, count) = if self.request.quick { (512 * MIB, 50_000) } else { (4096 * MIB, 1_000_000) };
        let mut lines = Vec::new();
        let large = place.path().join("large");
        std::fs::create_dir(&large)?;
        fill(&large.join("file"), size, 1)?;
        let repository = place.path().join("repository of large");
        let (_, report) = protect(&large, &repository, &[])?;
        lines.push(self.memory_line(&format!("a file of {} MiB", size / MIB), "on the disk", &report)?);
        std::fs::remove_dir_all(&large)?;
        std::fs::remove_dir_all(&repository)?;
        // The memory of the process does not depend on the disk, and a disk may need minutes for so many names.
        let in_memory = files::has_memory_for(count * TINY_FILE);
        let place = if in_memory { place_in(Path::new(files::MEMORY))? } else { self.request.place()? };
        let many = place.path().join("tree");
        for number in 0..count {
            if number % 1000 == 0 {
                std::fs::create_dir_all(many.join(format!("{:04}", number / 1000)))?;
            }
            std::fs::write(many.join(format!("{:04}/file {number}", number / 1000)), number.to_string())?;
        }
        let repository = place.path().join("repository of many");
        let (_, report) = protect(&many, &repository, &[])?;
        let on = if in_memory { "on tmpfs" } else { "on the disk" };
        lines.push(self.memory_line(&format!("{count} files"), on, &report)?);
        Ok(lines)
    }

    fn memory_line(&self, what: &str, on: &str, report: &Value) -> Result<Line> {
        let peak = number(report, "peak_memory")? as f64 / MIB as f64;
        let (case, conditions) =
            (format!("memory protecting {what}"), format!("peak of resident memory, {on}"));
        Ok(line(&case, peak, "MiB", "256 MiB", 256.0, 1.0, conditions).inverted())
    }
}

/// A line of this bench.
pub(super) fn line(
    case: &str,
    value: f64,
    unit: &'static str,
    against: &str,
    reference: f64,
    bar: f64,
    conditions: String,
) -> Line {
    Line::new("vault", case, (value, unit), (against, reference), bar, conditions)
}

/// Runs `gabion` on a tree. Returns the seconds and its JSON output; damage is an error.
pub(super) fn gabion(args: &[&str], tree: &Path, repository: &Path) -> Result<(f64, Value)> {
    let start = Instant::now();
    let done = crate::program::gabion()?
        .args(args)
        .arg(tree)
        .arg("--repository")
        .arg(repository)
        .output()
        .context("gabion cannot be run")?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        done.status.success(),
        "gabion {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok((seconds, serde_json::from_slice(&done.stdout)?))
}

/// Removes the repository of a tree and the file that leads to it.
pub(super) fn forget(tree: &Path, repository: &Path) {
    // Neither exists the first time.
    let _ = std::fs::remove_dir_all(repository);
    let _ = std::fs::remove_file(tree.join(OWN));
}

pub(super) fn protect(tree: &Path, repository: &Path, more: &[&str]) -> Result<(f64, Value)> {
    gabion(&[&["protect", "--json"], more].concat(), tree, repository)
}

/// Checks the result before it is reported.
pub(super) fn verify(tree: &Path, repository: &Path) -> Result<()> {
    gabion(&["scrub", "--json", "--cached"], tree, repository).map(|_| ())
}

pub(in crate::commands) fn number(report: &Value, key: &str) -> Result<u64> {
    report[key].as_u64().with_context(|| format!("the report has no number {key}"))
}
