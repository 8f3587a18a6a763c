//! How much faster several hosts are than one: many files, and one large file.

use super::deployment::{Deployment, Follower, record_all};
use crate::commands::figures::{BenchOptions, Line};
use crate::commands::files::fill;
use anyhow::{Context, Result, ensure};
use gabion_vault::world::Stopwatch;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Interval at which the changelog is asked whether everything is done.
const POLL: Duration = Duration::from_millis(10);

/// What is encoded, and how fast a host may do it.
struct Load {
    files: u64,
    size: u64,
    /// MiB per second of each host.
    limit: u64,
    rounds: usize,
}

impl Load {
    fn names(&self) -> Vec<String> {
        (0..self.files).map(|number| format!("{number:04}")).collect()
    }

    fn bytes(&self) -> u64 {
        self.files * self.size
    }

    fn conditions(&self) -> String {
        format!(
            "{} files of {} MiB, 10+4, each host limited to {} MiB/s of data, 1 thread, data in the page cache if it fits, \
             best of {}, scrubbed after each",
            self.files,
            self.size / MIB,
            self.limit,
            self.rounds
        )
    }
}

/// What several hosts did.
struct Encoded {
    seconds: f64,
    /// Bytes of each host.
    shares: Vec<u64>,
}

impl Encoded {
    /// The part of the work of each host, in percent.
    fn percentages(&self) -> Vec<u64> {
        let sum: u64 = self.shares.iter().sum();
        self.shares.iter().map(|share| (share * 100 + sum / 2) / sum.max(1)).collect()
    }
}

/// Files to be encoded again and again by hosts of one deployment.
struct Bench {
    deployment: Deployment,
    load: Load,
    /// The directory where the files are now.
    files: PathBuf,
    trees: usize,
}

impl Bench {
    fn new(request: &BenchOptions, workers: usize, load: Load) -> Result<Bench> {
        let deployment = Deployment::new(workers, request.place()?)?;
        let files = deployment.path("files");
        std::fs::create_dir(&files)?;
        for (seed, name) in load.names().iter().enumerate() {
            fill(&files.join(name), load.size, seed as u64)?;
        }
        Ok(Bench { deployment, load, files, trees: 0 })
    }

    /// Encodes all files by a number of hosts, in a vault of their own.
    fn encode(&mut self, hosts: usize) -> Result<Encoded> {
        self.trees += 1;
        let (tree, names) = (self.deployment.tree(&format!("tree{}", self.trees))?, self.load.names());
        for name in &names {
            std::fs::rename(self.files.join(name), tree.join(name))?;
        }
        let former = std::mem::replace(&mut self.files, tree.clone());
        std::fs::remove_dir_all(former)?;
        let limit = format!("{}MiB/s", self.load.limit);
        let workers = (1..=hosts).map(|host| self.deployment.worker(host, &tree, &limit));
        let workers = workers.collect::<Result<Vec<Follower>>>()?;
        let seconds = self.deployment.with_vault(&tree, |vault| {
            let clock = Stopwatch::start();
            record_all(vault, &names)?;
            while vault.changelog.pending()?.entries() > 0 {
                std::thread::sleep(POLL);
            }
            Ok(clock.seconds())
        })?;
        let done = workers.into_iter().map(Follower::stop).collect::<Result<Vec<_>>>()?;
        let bytes =
            |sums: &serde_json::Value, key: &str| sums[key].as_u64().with_context(|| sums.to_string());
        // The host that published a file counts all of it; what others did of it, they count as help.
        let (mut shares, helped) = (Vec::new(), done.iter().map(|it| bytes(it, "helped_bytes")));
        let helped = helped.collect::<Result<Vec<u64>>>()?;
        for (sums, &own) in done.iter().zip(&helped) {
            let encoded = bytes(sums, "encoded_bytes")?;
            let by_others = if encoded == 0 { 0 } else { helped.iter().sum::<u64>() - own };
            shares.push((encoded + own).saturating_sub(by_others));
        }
        let all: u64 = shares.iter().sum();
        ensure!(all == self.load.bytes(), "{all} of {} bytes were encoded: {shares:?}", self.load.bytes());
        self.verify(&tree)?;
        Ok(Encoded { seconds, shares })
    }

    fn verify(&self, tree: &Path) -> Result<()> {
        let output = self.deployment.expect("scrub", tree, &["--json"])?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        ensure!(report["files"] == self.load.files, "not all files were verified: {report}");
        Ok(())
    }

    /// Several rounds of each number of hosts, in turns. Returns the fastest of each.
    fn race(&mut self, hosts: &[usize]) -> Result<Vec<Encoded>> {
        let mut best: Vec<Option<Encoded>> = hosts.iter().map(|_| None).collect();
        for _ in 0..self.load.rounds {
            for (best, &hosts) in best.iter_mut().zip(hosts) {
                let encoded = self.encode(hosts)?;
                if best.as_ref().is_none_or(|best| encoded.seconds < best.seconds) {
                    *best = Some(encoded);
                }
            }
        }
        Ok(best.into_iter().flatten().collect())
    }

    /// A line for each number of hosts but the first, beside the first.
    fn lines(&mut self, hosts: &[usize], bar: Option<f64>) -> Result<Vec<Line>> {
        let encoded = self.race(hosts)?;
        let rate = |encoded: &Encoded| self.load.bytes() as f64 / MIB as f64 / encoded.seconds;
        let one = rate(&encoded[0]);
        let line = |(encoded, &hosts): (&Encoded, &usize)| {
            let conditions = format!("{}; shares {:?} %", self.load.conditions(), encoded.percentages());
            let (files, mib) = (self.load.files, self.load.size / MIB);
            let case = match files {
                1 => format!("one file of {mib} MiB, {hosts} hosts"),
                _ => format!("{files} files of {mib} MiB, {hosts} hosts"),
            };
            Line::new("hosts", &case, (rate(encoded), "MiB/s"), ("one host", one), bar, conditions)
        };
        Ok(encoded.iter().zip(hosts).skip(1).map(line).collect())
    }
}

pub(super) fn two_workers(request: &BenchOptions) -> Result<Vec<Line>> {
    let (files, size) = if request.quick { (40, 4 * MIB) } else { (200, 16 * MIB) };
    let load = Load { files, size, limit: if request.quick { 25 } else { 100 }, rounds: 2 };
    let mut bench = Bench::new(request, 2, load)?;
    bench.lines(&[1, 2], Some(1.8))
}

pub(super) fn scaling(request: &BenchOptions) -> Result<Vec<Line>> {
    let size = if request.quick { MIB } else { 4 * MIB };
    let load = Load { files: 200, size, limit: if request.quick { 12 } else { 25 }, rounds: 2 };
    let mut bench = Bench::new(request, 8, load)?;
    bench.lines(&[1, 2, 4, 8], None)
}

pub(super) fn large_file(request: &BenchOptions) -> Result<Vec<Line>> {
    let size = if request.quick { 1 << 30 } else { 8 << 30 };
    let load = Load { files: 1, size, limit: 100, rounds: if request.quick { 1 } else { 2 } };
    let mut bench = Bench::new(request, 4, load)?;
    bench.lines(&[1, 4], Some(3.4))
}
