//! `gabion-bench workers`: how evenly workers share a backlog.
//!
//! Several `gabion work` processes with a rate limit each process the same backlog. The reference is the number of
//! bytes divided by the sum of the limits. A worker that claims more than it can process delays the others, and files
//! that are encoded twice take twice as long: both show in the time. Files that were encoded twice are also counted.

use super::figures::{BenchOptions, Line};
use super::files::fill;
use anyhow::{Context, Result, ensure};
use gabion::exit::Outcome;
use gabion_vault::changelog::{Change, When};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

const EXAMPLES: &str = "\
Examples:
  gabion-bench workers
  gabion-bench workers --dir /mnt/disk --only 4
  gabion-bench workers --quick --json

Two to four `gabion work --limit 1MiB/s --threads 1` work off 1,000 changed files below --dir. The reference is the arithmetic time: all bytes, \
divided by the limits of all workers together. A ratio of 0.77 means that they took 1.3 times as long. It is an error if a file was encoded twice, or not at all.";

/// Arguments of `gabion-bench workers`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: BenchOptions,
}

/// Numbers of workers.
const CASES: [&str; 3] = ["2", "3", "4"];

const FILES: u64 = 1000;

/// Bytes per second of one worker.
const LIMIT: u64 = 1 << 20;

/// Target: at most this many times the arithmetic time.
const ALLOWED: f64 = 1.3;

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.request.run(&CASES, |case| self.run_case(case.parse()?))
    }

    fn run_case(&self, workers: u64) -> Result<Vec<Line>> {
        let size: u64 = if self.request.quick { 16 << 10 } else { 64 << 10 };
        let place = self.request.place()?;
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree)?;
        (0..FILES).try_for_each(|number| fill(&tree.join(number.to_string()), size, number))?;
        record(&tree)?;
        let clock = Stopwatch::start();
        // All start before the first is waited for.
        let started = (0..workers).map(|_| start(&tree)).collect::<Result<Vec<Child>>>()?;
        let encoded = started.into_iter().map(finish).collect::<Result<Vec<u64>>>()?;
        let seconds = clock.seconds();
        let sum: u64 = encoded.iter().sum();
        ensure!(sum <= FILES, "{} files were encoded twice: {encoded:?}", sum - FILES);
        ensure!(sum == FILES, "{} files were not encoded: {encoded:?}", FILES - sum);
        let left = Vault::open(&Location::of(&tree, None), Clock::System)?.changelog.pending()?.entries();
        ensure!(left == 0, "{left} files are still pending: {encoded:?}");
        let arithmetic = (FILES * size) as f64 / (workers * LIMIT) as f64;
        let conditions = format!(
            "{FILES} files of {size} bytes, 1 MiB/s and 1 thread for each worker, embedded changelog; each encoded {encoded:?} files, none twice"
        );
        let case = format!("{workers} workers");
        let line = Line::new(
            "workers",
            &case,
            (seconds, "s"),
            ("arithmetic time", arithmetic),
            1.0 / ALLOWED,
            conditions,
        );
        Ok(vec![line.inverted()])
    }
}

/// Creates a vault for a tree and records all files as changed.
fn record(tree: &Path) -> Result<()> {
    let vault = Vault::create(&Location::of(tree, None), None, Clock::System)?;
    let now = When::now(Clock::System.now(), 0);
    let changes: Vec<Change> =
        (0..FILES).map(|number| Change::modify_whole(number.to_string(), now)).collect();
    vault.changelog.record(&changes)?;
    Ok(())
}

/// Starts a worker.
fn start(tree: &Path) -> Result<Child> {
    crate::program::gabion()?
        .args(["work", "--json", "--limit", "1MiB/s", "--threads", "1"])
        .arg(tree)
        .stdout(Stdio::piped())
        .spawn()
        .context("gabion cannot be run")
}

/// Number of files that a worker has encoded.
fn finish(worker: Child) -> Result<u64> {
    let done = worker.wait_with_output()?;
    ensure!(done.status.success(), "a worker ended with {}", done.status);
    let said = String::from_utf8_lossy(&done.stdout);
    let last = said.lines().last().context("a worker printed nothing")?;
    let report: Value = serde_json::from_str(last).with_context(|| last.to_owned())?;
    report["encoded"].as_u64().with_context(|| format!("no number of files in {report}"))
}
