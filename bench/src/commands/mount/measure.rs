//! Cases of `gabion-bench mount`.

use super::load;
use crate::commands::figures::{BenchOptions, Line, shortest};
use crate::commands::files::{drop_caches, sync};
use anyhow::{Context, Result, bail, ensure};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Bench {
    pub(super) request: BenchOptions,
}

/// The cases by name, in the order in which they run.
pub(super) const CASES: [&str; 10] = [
    "write",
    "read cold",
    "read cold checked",
    "read cold passthrough",
    "read warm",
    "random read",
    "small files",
    "small write",
    "degraded read",
    "pool",
];

pub(super) const MIB: u64 = 1 << 20;
/// Rounds of a case, of which the best counts: other processes use the disk, too.
pub(super) const ROUNDS: usize = 5;

/// A file system that a program mounted for this bench; unmounted when the value is dropped.
pub(super) struct Mount {
    process: Child,
    at: PathBuf,
}

impl Mount {
    /// Starts a program that mounts a file system, and waits for the mount.
    pub(super) fn start(command: Command, at: &Path) -> Result<Mount> {
        Mount::start_printing(command, at, Stdio::null())
    }

    /// The same with another destination for what it prints.
    pub(super) fn start_printing(mut command: Command, at: &Path, to: Stdio) -> Result<Mount> {
        std::fs::create_dir_all(at)?;
        let outside = std::fs::metadata(at)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let process = command.stdout(to).spawn().with_context(|| name.clone())?;
        let mut mount = Mount { process, at: at.to_owned() };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            use std::os::unix::fs::MetadataExt;
            if std::fs::metadata(at).is_ok_and(|now| now.dev() != outside.dev()) {
                return Ok(mount);
            }
            if let Some(status) = mount.process.try_wait()?.filter(|status| !status.success()) {
                bail!("{name} ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("{name} has not mounted {} after 20 s", at.display())
    }

    fn gabion(source: &Path, at: &Path, repository: &Path) -> Result<Mount> {
        Mount::gabion_with(source, at, repository, &[])
    }

    fn gabion_with(source: &Path, at: &Path, repository: &Path, more: &[&str]) -> Result<Mount> {
        let mut command = crate::program::gabion()?;
        command.arg("mount").arg(source).arg(at).arg("--repository").arg(repository).args(more);
        Mount::start(command, at)
    }

    fn mergerfs(source: &Path, at: &Path) -> Result<Mount> {
        let mut command = Command::new("mergerfs");
        command.arg("-f").arg(source).arg(at);
        Mount::start(command, at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // If this fails, the process is ended below.
        let _ = Command::new("umount").arg(&self.at).status();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Seconds of the fastest round on our side and on the other.
pub(super) struct Fastest {
    pub(super) ours: f64,
    pub(super) other: f64,
}

/// Runs both sides in turn. The first side finds the disk in another state than the second, so the order alternates.
pub(super) fn in_turns(
    mut ours: impl FnMut() -> Result<f64>,
    mut other: impl FnMut() -> Result<f64>,
) -> Result<Fastest> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 1 {
            with.push(ours()?);
        }
        without.push(other()?);
        if round % 2 == 0 {
            with.push(ours()?);
        }
    }
    Ok(Fastest { ours: shortest(with), other: shortest(without) })
}

impl Bench {
    pub(super) fn run(&self, case: &str) -> Result<Vec<Line>> {
        ensure!(rustix::process::geteuid().is_root(), "mounts and dropped caches need root");
        match case {
            "write" => self.write(),
            "read cold" => self.read_cold(case, false, &[]),
            "read cold checked" => self.read_cold(case, true, &[]),
            "read cold passthrough" => self.read_cold(case, false, &["--passthrough"]),
            "read warm" => self.read_warm(),
            "random read" => self.random_read(),
            "small files" => self.small_files(),
            "small write" => self.small_write(),
            "degraded read" => self.degraded_read(),
            "pool" => self.pool(),
            other => bail!("no case {other:?}"),
        }
    }

    pub(super) fn size(&self) -> u64 {
        if self.request.quick { 128 * MIB } else { 512 * MIB }
    }

    /// Seconds to write four new files in parallel, after all pending writes of the disk.
    pub(super) fn write_four_new_files(&self, dir: &Path, disk: &Path) -> Result<f64> {
        for number in 0..4 {
            let _ = std::fs::remove_file(dir.join(format!("file {number}")));
        }
        sync(disk)?;
        load::write(dir, 4, self.size())
    }

    fn write(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (source, at, native) = places(place.path())?;
        let mount = Mount::gabion(&source, &at, &place.path().join("repository"))?;
        let size = self.size();
        let pass = |dir: &Path| self.write_four_new_files(dir, place.path());
        let took = in_turns(|| pass(&at), || pass(&native))?;
        load::read(&source, 4, size)?;
        drop(mount);
        let bytes = (4 * size) as f64 / 1e9;
        Ok(vec![line(
            "write 4 files",
            bytes / took.ours,
            "GB/s",
            "native",
            bytes / took.other,
            0.7,
            format!("4 files of {} MiB at once, 1 MiB requests, final fsync, best of {ROUNDS}", size / MIB),
        )])
    }

    /// With `protected`, the mount checks files against their signatures on reading.
    fn read_cold(&self, case: &str, protected: bool, options: &[&str]) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (source, at, native) = places(place.path())?;
        let size = self.size();
        load::write(&source, 2, size)?;
        load::write(&native, 2, size)?;
        let repository = place.path().join("repository");
        if protected {
            let mut protect = crate::program::gabion()?;
            protect.arg("protect").arg(&source).arg("--repository").arg(&repository).stdout(Stdio::null());
            ensure!(protect.status()?.success(), "the files could not be protected");
        }
        let mount = Mount::gabion_with(&source, &at, &repository, options)?;
        let pass = |dir: &Path| -> Result<f64> {
            ensure!(drop_caches()?, "the page cache can only be dropped by root");
            load::read(dir, 2, size)
        };
        let took = in_turns(|| pass(&at), || pass(&native))?;
        drop(mount);
        let bytes = (2 * size) as f64 / 1e9;
        let which = if protected { "protected files, checked as they are read," } else { "files" };
        let conditions =
            format!("2 {which} of {} MiB, 1 MiB requests, caches dropped, best of {ROUNDS}", size / MIB);
        Ok(vec![line(case, bytes / took.ours, "GB/s", "native", bytes / took.other, 0.8, conditions)])
    }

    fn read_warm(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (source, at, native) = places(place.path())?;
        let size = self.size();
        load::write(&source, 2, size)?;
        let other_at = place.path().join("mergerfs");
        let ours = Mount::gabion(&source, &at, &place.path().join("repository"))?;
        let other = Mount::mergerfs(&source, &other_at)?;
        drop(native);
        load::read(&at, 2, size)?;
        load::read(&other_at, 2, size)?;
        let took = in_turns(|| load::read(&at, 2, size), || load::read(&other_at, 2, size))?;
        let native = load::read(&source, 2, size)?;
        drop((ours, other));
        let bytes = (2 * size) as f64 / 1e9;
        let conditions = format!(
            "2 files of {} MiB, 1 MiB requests, in page cache, best of {ROUNDS}; native gives {:.1}",
            size / MIB,
            bytes / native
        );
        Ok(vec![line(
            "read warm",
            bytes / took.ours,
            "GB/s",
            "mergerfs",
            bytes / took.other,
            1.5,
            conditions,
        )])
    }

    fn random_read(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (source, at, _) = places(place.path())?;
        let size = self.size();
        load::write(&source, 1, size)?;
        let other_at = place.path().join("mergerfs");
        let ours = Mount::gabion(&source, &at, &place.path().join("repository"))?;
        let other = Mount::mergerfs(&source, &other_at)?;
        load::read(&at, 1, size)?;
        load::read(&other_at, 1, size)?;
        let count = if self.request.quick { 10_000 } else { 50_000 };
        let pass = |dir: &Path| load::read_at_random(dir, 8, size, count);
        let took = in_turns(|| pass(&at), || pass(&other_at))?;
        drop((ours, other));
        let reads = (8 * count) as f64;
        let conditions =
            format!("4 KiB of a file of {} MiB, 8 threads, in page cache, best of {ROUNDS}", size / MIB);
        Ok(vec![line(
            "random read",
            reads / took.ours,
            "reads/s",
            "mergerfs",
            reads / took.other,
            1.0,
            conditions,
        )])
    }

    fn small_files(&self) -> Result<Vec<Line>> {
        let place = self.request.place()?;
        let (source, at, native) = places(place.path())?;
        let other_source = place.path().join("other");
        std::fs::create_dir(&other_source)?;
        let other_at = place.path().join("mergerfs");
        let ours = Mount::gabion(&source, &at, &place.path().join("repository"))?;
        let other = Mount::mergerfs(&other_source, &other_at)?;
        let count = if self.request.quick { 3_000 } else { 10_000 };
        let round = Cell::new(0);
        let pass = |dir: &Path| load::create(&fresh(dir, &round)?, count);
        let took = in_turns(|| pass(&at), || pass(&other_at))?;
        let bare = pass(&native)?;
        drop((ours, other));
        let rate = |seconds: f64| count as f64 / seconds;
        let conditions = format!(
            "create, write and close of {count} files of 2 KiB, one thread, best of {ROUNDS}; native gives {:.0}",
            rate(bare)
        );
        Ok(vec![line(
            "small files",
            rate(took.ours),
            "files/s",
            "mergerfs",
            rate(took.other),
            1.0,
            conditions,
        )])
    }
}

/// A new empty directory for every round.
pub(super) fn fresh(dir: &Path, round: &Cell<u32>) -> Result<PathBuf> {
    round.set(round.get() + 1);
    let dir = dir.join(format!("round {}", round.get()));
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

/// Source, mount point, and a directory for the same load without a mount.
fn places(place: &Path) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let [source, at, native] = ["source", "mount", "native"].map(|name| place.join(name));
    for dir in [&source, &at, &native] {
        std::fs::create_dir(dir)?;
    }
    Ok((source, at, native))
}

pub(super) fn line(
    case: &str,
    value: f64,
    unit: &'static str,
    against: &str,
    reference: f64,
    bar: impl Into<Option<f64>>,
    conditions: String,
) -> Line {
    Line::new("mount", case, (value, unit), (against, reference), bar, conditions)
}
