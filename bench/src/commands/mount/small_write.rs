//! A small write into a protected file: what a worker reads to protect the file again.

use super::load;
use super::measure::{Bench, MIB, Mount, line};
use crate::commands::figures::Line;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sizes of the file; the last one in the full run only.
const SIZES: [u64; 4] = [MIB, 64 * MIB, 1 << 30, 10 << 30];

const WRITTEN: u64 = 4096;

/// The code, and the bytes of its stripe.
const POLICY: &str = "[default]\ncode = \"10+4\"\nblock = \"64KiB\"\nquiet = \"0s\"\n";
const STRIPE: u64 = 10 * (64 << 10);

/// After this time the mount has recorded the version that a write made.
const RECORDED: Duration = Duration::from_millis(1500);

const PATIENCE: Duration = Duration::from_secs(120);

/// Place of the worker.
#[derive(Clone, Copy, PartialEq)]
enum Worker {
    Mount,
    OtherProcess,
}

/// A source with its mount point and its repository.
struct Places {
    source: PathBuf,
    at: PathBuf,
    repository: PathBuf,
    policy: PathBuf,
    /// What the mount prints.
    events: PathBuf,
}

impl Places {
    fn mount(&self, workers: &str) -> Result<Mount> {
        let mut command = crate::program::gabion()?;
        command.arg("mount").arg(&self.source).arg(&self.at).arg("--repository").arg(&self.repository);
        command.arg("--policy").arg(&self.policy).args(["--json", "--workers", workers]);
        Mount::start_printing(command, &self.at, File::create(&self.events)?.into())
    }

    /// Runs a command on the source. Returns what it printed.
    fn gabion(&self, command: &str) -> Result<String> {
        let mut run: Command = crate::program::gabion()?;
        run.arg(command).arg(&self.source).arg("--repository").arg(&self.repository).arg("--json");
        let done = run.stderr(Stdio::inherit()).output()?;
        ensure!(done.status.success(), "gabion {command} ended with {}", done.status);
        Ok(String::from_utf8(done.stdout)?)
    }
}

/// Bytes that a worker read for the one file that it encoded, by its own report; none if it has encoded nothing yet.
fn read_bytes(reports: &str) -> Result<Option<u64>> {
    for line in reports.lines().filter(|line| line.contains("encoded_bytes")) {
        let report: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if report["encoded"].as_u64() == Some(1) {
            return Ok(report["encoded_bytes"].as_u64());
        }
    }
    Ok(None)
}

impl Bench {
    pub(super) fn small_write(&self) -> Result<Vec<Line>> {
        let sizes = if self.request.quick { &SIZES[..3] } else { &SIZES[..] };
        let workers = [Worker::Mount, Worker::OtherProcess];
        sizes.iter().flat_map(|&size| workers.map(|worker| self.one_small_write(size, worker))).collect()
    }

    fn one_small_write(&self, size: u64, worker: Worker) -> Result<Line> {
        let place = self.request.place()?;
        let [source, at, repository, policy, events] =
            ["source", "mount", "repository", "policy.toml", "events"].map(|name| place.path().join(name));
        std::fs::create_dir(&source)?;
        std::fs::write(&policy, POLICY)?;
        let places = Places { source, at, repository, policy, events };
        // Bytes at the beginning, in the middle and at the end; holes are read as zeros.
        load::write(&places.source, 1, MIB)?;
        let file = File::options().write(true).open(places.source.join("file 0"))?;
        file.set_len(size)?;
        [size / 2, size - WRITTEN].iter().try_for_each(|&offset| file.write_all_at(&[1; 4096], offset))?;
        drop(file);
        let mount = places.mount("0")?;
        places.gabion("protect")?;
        drop(mount);
        let mount = places.mount(if worker == Worker::Mount { "1" } else { "0" })?;
        let file = File::options().write(true).open(places.at.join("file 0"))?;
        file.write_all_at(&[2; WRITTEN as usize], size / 2 + WRITTEN / 2)?;
        file.sync_all()?;
        drop(file);
        let read = match worker {
            Worker::Mount => until_encoded(&places.events)?,
            Worker::OtherProcess => {
                std::thread::sleep(RECORDED);
                read_bytes(&places.gabion("work")?)?.context("the worker encoded nothing")?
            }
        };
        drop(mount);
        // It fails if a block does not match its redundancy.
        places.gabion("scrub")?;
        let worker = if worker == Worker::Mount { "worker of the mount" } else { "other process" };
        let conditions = format!(
            "{WRITTEN} bytes written and synced, {read} read of a file of {size}, stripes of {STRIPE}; no damage found after it"
        );
        let case = format!("small write, {} MiB, {worker}", size / MIB);
        let reference = (2 * STRIPE) as f64 / 1024.0;
        Ok(line(&case, read as f64 / 1024.0, "KiB read", "two stripes", reference, 1.0, conditions)
            .inverted())
    }
}

/// Waits until the mount reports that it encoded the file. Returns the bytes that it read for it.
fn until_encoded(events: &Path) -> Result<u64> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let printed = std::fs::read_to_string(events)?;
        // The last line may not be complete yet.
        let complete = printed.rfind('\n').map_or("", |end| &printed[..end]);
        if let Some(read) = read_bytes(complete)? {
            return Ok(read);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the mount encoded nothing in {} s", PATIENCE.as_secs())
}
