//! Cases on a mounted pool: the cost of striping, and reads without one target.

use super::load;
use super::measure::{Bench, MIB, Mount, ROUNDS, fresh, in_turns, line};
use crate::commands::figures::Line;
use crate::commands::files::{drop_caches, sync};
use anyhow::{Context, Result, ensure};
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use std::cell::Cell;
use std::path::{Path, PathBuf};

const K: usize = 4;
const M: usize = 2;

/// Creates a pool of directories on the disk to be measured.
fn create_pool(place: &Path) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = (1..=K + M).map(|number| place.join(format!("d{number}"))).collect();
    let targets: Vec<NewTarget> =
        paths.iter().map(|path| NewTarget { path: path.clone(), domain: None }).collect();
    Pool::create("bench", &targets, K, MIB, M, Options::default())?;
    Ok(paths)
}

fn mounted(target: &Path, at: &Path) -> Result<Mount> {
    let mut command = crate::program::gabion()?;
    // No worker or scan runs beside the load.
    command.arg("mount").arg(target).arg(at).args(["--workers", "0"]);
    Mount::start(command, at)
}

impl Bench {
    /// Sequential reads of files of a pool, complete and without one target.
    pub(super) fn degraded_read(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let targets = create_pool(place.path())?;
        let at = place.path().join("mount");
        let size = self.size();
        {
            let _mount = mounted(&targets[0], &at)?;
            load::write(&at, 2, size)?;
        }
        let protect = crate::program::gabion()?.arg("protect").arg(&targets[0]).output()?;
        ensure!(protect.status.success(), "protect: {}", String::from_utf8_lossy(&protect.stderr));
        // The last target with content of the first file: the vault lies on the first target.
        let stub = Pool::open_at(&targets[..1], Options::default())?.stub(b"file 0")?;
        let lost = targets.iter().rev().find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            stub.targets.iter().any(|target| Some(target.as_str()) == name)
        });
        let (lost, away) = (lost.context("no target has content")?, place.path().join("away"));
        let _mount = mounted(&targets[0], &at)?;
        let pass = || -> Result<f64> {
            sync(place.path())?;
            ensure!(drop_caches()?, "the page cache can only be dropped by root");
            load::read(&at, 2, size)
        };
        let degraded = || -> Result<f64> {
            std::fs::rename(lost, &away)?;
            let read = pass();
            std::fs::rename(&away, lost)?;
            read
        };
        let took = in_turns(degraded, pass)?;
        let bytes = (2 * size) as f64 / 1e9;
        let conditions = format!(
            "2 files of {} MiB in a pool of {K}+{M}, blocks of 1 MiB, on one disk, one target away, 1 MiB requests through the \
             mount, caches dropped, best of {ROUNDS}",
            size / MIB
        );
        Ok(vec![line(
            "pool read degraded",
            bytes / took.ours,
            "GB/s",
            "healthy",
            bytes / took.other,
            0.6,
            conditions,
        )])
    }

    /// Large and small files written to a pool, beside a directory of the same disk.
    pub(super) fn pool(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let targets = create_pool(place.path())?;
        let (at, native) = (place.path().join("mount"), place.path().join("native"));
        std::fs::create_dir(&native)?;
        let mount = mounted(&targets[0], &at)?;
        let size = self.size();
        let pass = |dir: &Path| self.write_four_new_files(dir, place.path());
        let written = in_turns(|| pass(&at), || pass(&native))?;
        load::read(&at, 4, size)?;
        let count = if self.request.quick { 3_000 } else { 10_000 };
        let round = Cell::new(0);
        let small = |dir: &Path| load::create(&fresh(dir, &round)?, count);
        let made = in_turns(|| small(&at), || small(&native))?;
        drop(mount);
        let bytes = (4 * size) as f64 / 1e9;
        let how = format!("pool of {K}+{M} on one disk, best of {ROUNDS}");
        let write = format!("4 files of {} MiB at once, 1 MiB requests, final fsync, {how}", size / MIB);
        let small = format!("create, write and close of {count} files of 2 KiB, one thread, {how}");
        let rate = |seconds: f64| count as f64 / seconds;
        Ok(vec![
            line(
                "pool write 4 files",
                bytes / written.ours,
                "GB/s",
                "native",
                bytes / written.other,
                None,
                write,
            ),
            line("pool small files", rate(made.ours), "files/s", "native", rate(made.other), None, small),
        ])
    }
}
