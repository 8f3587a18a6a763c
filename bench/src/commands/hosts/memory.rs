//! Memory of a worker in a deployment of many files.

use super::deployment::{Deployment, record_all};
use crate::commands::figures::{BenchOptions, Line};
use crate::commands::files::fill;
use anyhow::{Context, Result, ensure};
use gabion_vault::catalogue::CatalogueError;
use gabion_vault::world::Stopwatch;
use std::path::Path;
use std::time::Duration;

/// Files that are there, and are encoded.
const FILES: u64 = 200;
const SIZE: u64 = 1 << 20;

/// Files of one directory.
const IN_DIRECTORY: u64 = 1000;

/// Entries of the catalogue that are written together.
const TOGETHER: u64 = 10_000;

/// Peak memory of a worker that makes its copy of the catalogue and encodes some files.
pub(super) fn of_a_worker(request: &BenchOptions) -> Result<Vec<Line>> {
    let known: u64 = if request.quick { 100_000 } else { 10_000_000 };
    let deployment = Deployment::new(1, request.place()?)?;
    let tree = deployment.tree("tree")?;
    let first = "first".to_owned();
    fill(&tree.join(&first), SIZE, 0)?;
    deployment.expect("protect", &tree, &[])?;
    let names: Vec<String> = (0..FILES).map(|number| format!("changed {number}")).collect();
    for (name, seed) in names.iter().zip(1..) {
        fill(&tree.join(name), SIZE, seed)?;
    }
    // The catalogue says that they are there, which is all that a worker sees of files that do not change.
    let bytes = deployment.with_vault(&tree, |vault| {
        let like = vault.catalogue.find(first.as_bytes())?.context("the first file is not protected")?;
        for from in (0..known).step_by(TOGETHER as usize) {
            vault.catalogue.together(|| -> Result<(), CatalogueError> {
                for number in from..(from + TOGETHER).min(known) {
                    let mut entry = like.clone();
                    entry.generation.inode = like.generation.inode + number + FILES * 2;
                    entry.id.0[..8].copy_from_slice(&number.to_le_bytes());
                    let path = format!("directory {}/file {number}", number / IN_DIRECTORY);
                    vault.catalogue.put(path.as_bytes(), &entry)?;
                }
                Ok(())
            })?;
        }
        let journal = vault.changelog.journal().context("the changelog has no journal")?;
        record_all(vault, &names)?;
        Ok(journal.size()?)
    })?;
    let clock = Stopwatch::start();
    let worker = deployment.worker(1, &tree, "1GiB/s")?;
    let seconds = clock.seconds();
    deployment.with_vault(&tree, |vault| {
        while vault.changelog.pending()?.entries() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })?;
    let peak = peak_memory(worker.process())? as f64 / f64::from(1 << 20);
    let sums = worker.stop()?;
    ensure!(sums["encoded"] == FILES, "not all files were encoded: {sums}");
    let conditions = format!(
        "{known} files known, journal of {} MiB read into a new copy in {seconds:.0} s, then {FILES} files of 1 MiB encoded, 1 thread",
        bytes >> 20
    );
    Ok(vec![
        Line::new("hosts", "memory of a worker", (peak, "MiB"), ("256 MiB", 256.0), 1.0, conditions)
            .inverted(),
    ])
}

/// Most bytes that a process had in memory.
fn peak_memory(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(Path::new(&path)).context(path)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak of memory")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}
