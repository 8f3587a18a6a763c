//! `gabion-bench watch`: the cost of a running watch for programs that write.
//!
//! The same archive of small files is unpacked on two file systems, one of them watched. On a shared machine the speed
//! of the same work varies by half within seconds. So the archive is split into parts, and every part is unpacked on
//! both file systems one right after the other, in alternating order: disturbances affect both. A pause between parts
//! lets the watch finish its background work. All rounds count; the result includes their spread. As root, each round
//! gets two new file systems, so that removed files and pending writes of the round before are not measured. The watch
//! is a `gabion watch` process: nothing is encoded within the quiet period, so the bench measures receiving and
//! recording events.

use super::figures::{BenchOptions, Line, shortest};
use super::files::{fill, sync};
use super::mounted::{Mounted, run};
use anyhow::{Context, Result, bail, ensure};
use gabion::exit::{Outcome, error_message};
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion-bench watch
  gabion-bench watch --dir /mnt/disk --source inotify
  gabion-bench watch --quick --json

Unpacks an archive of small files below --dir, part by part in turn with and without `gabion watch` on the directory: a ratio of 0.95 \
means that unpacking takes 5 % longer while it is watched. All rounds but the first count. The second case lets the \
disk write everything, too. What was heard is checked: every file, or a gap. Root gets two ext4 in files below --dir, new for each round.";

/// Arguments of `gabion-bench watch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: BenchOptions,
    /// Source of events: auto, fanotify or inotify
    #[arg(long, default_value = "auto")]
    source: String,
}

const CASES: [&str; 1] = ["untar"];

/// Bytes of a file.
const SIZE: u64 = 2048;

/// Files in one directory.
const PER_DIRECTORY: u64 = 100;

/// Parts of the archive. With more parts, more of the work of the watch would fall into the pauses, where it is not
/// measured.
const PARTS: usize = 5;

/// Longer than the time for which a watch collects events.
const PAUSE: Duration = Duration::from_millis(30);

/// Seconds of one round on one side: until unpacked, and until on the disk.
#[derive(Debug, Clone, Copy, Default)]
struct Seconds {
    unpacked: f64,
    synced: f64,
}

/// Addition to the name of the case, and the seconds that count.
type Case = (&'static str, fn(&Seconds) -> f64);

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.request.run(&CASES, |_| self.untar())
    }

    fn untar(&self) -> Result<Vec<Line>> {
        let (count, rounds) = if self.request.quick { (10_000, 3) } else { (50_000, 25) };
        let place = self.request.place()?;
        let archives = pack(place.path(), count)?;
        let disks = Disk::pair(count, place.path());
        let (mut seconds, mut gaps) = (Vec::new(), 0);
        for round in 0..=rounds {
            let (took, lost) = self.round(round, place.path(), disks.as_ref(), &archives, count)?;
            // The first round reads from the disk what later ones find in memory; it does not count.
            if round > 0 {
                seconds.push(took);
            }
            gaps += lost;
        }
        let on = if disks.is_some() { "two new ext4 in files" } else { "the file system of --dir" };
        let cases: [Case; 2] = [("", |it| it.unpacked), ("and sync ", |it| it.unpacked + it.synced)];
        let line = |(what, of): Case| {
            let files = (count * rounds as u64) as f64;
            let rate = |side: usize| files / seconds.iter().map(|sides| of(&sides[side])).sum::<f64>();
            let ratios: Vec<f64> =
                seconds.iter().map(|[watched, unwatched]| of(unwatched) / of(watched)).collect();
            let conditions = format!(
                "{count} files of {SIZE} bytes, {PER_DIRECTORY} to a directory, in {PARTS} parts, on {on}, {rounds} rounds together; the ratios of rounds are {}; source {}, gaps {gaps}",
                spread(&ratios),
                self.source
            );
            let (case, reference) = (format!("untar {what}{count} files"), ("unwatched", rate(1)));
            Line::new("watch", &case, (rate(0), "files/s"), reference, 0.95, conditions)
        };
        Ok(cases.into_iter().map(line).collect())
    }

    /// Unpacks with and without a watch. Returns the times, and how often events were lost.
    fn round(
        &self,
        round: usize,
        place: &Path,
        disks: Option<&[Disk; 2]>,
        archives: &[PathBuf],
        count: u64,
    ) -> Result<([Seconds; 2], u64)> {
        let mounted = match disks {
            Some([watched, unwatched]) => Some([watched.mount_new()?, unwatched.mount_new()?]),
            None => None,
        };
        let place = |side: usize| match &mounted {
            Some(mounted) => mounted[side].path().to_owned(),
            None => place.join(format!("{round} {side}")),
        };
        let places = [place(0), place(1)];
        let trees = [fresh(&places[0])?, fresh(&places[1])?];
        let mut watch = Watch::start(&trees[0], &places[0].join("repository"), &self.source)?;
        let mut seconds = [Seconds::default(); 2];
        // The first side finds the machine in another state than the second.
        let turns = |part: usize| if (round + part).is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for (part, archive) in archives.iter().enumerate() {
            for side in turns(part) {
                let clock = Stopwatch::start();
                tar(&["--extract", "--file"], archive, &trees[side], &[])?;
                seconds[side].unpacked += clock.seconds();
                std::thread::sleep(PAUSE);
            }
        }
        for side in turns(0) {
            let clock = Stopwatch::start();
            sync(&trees[side])?;
            seconds[side].synced = clock.seconds();
        }
        let last = watch.stop()?;
        let number = |key: &str| last[key].as_u64().with_context(|| format!("no number {key} in {last}"));
        let (recorded, gaps) = (number("recorded")?, number("gaps")?);
        ensure!(recorded >= count || gaps > 0, "{recorded} changes were recorded for {count} files");
        for tree in &trees {
            let directories = std::fs::read_dir(tree)?.count() as u64;
            ensure!(directories == count.div_ceil(PER_DIRECTORY), "tar made {directories} directories");
        }
        for mounted in mounted.into_iter().flatten() {
            mounted.unmount()?;
        }
        Ok((seconds, gaps))
    }
}

/// Mean with its standard error, least and largest value, as text.
fn spread(ratios: &[f64]) -> String {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let (lowest, highest) = (shortest(ratios.iter().copied()), ratios.iter().copied().fold(0.0, f64::max));
    format!("{mean:.3} ± {error:.3} in the mean, {lowest:.2} to {highest:.2}")
}

/// An image file with a file system.
struct Disk {
    image: PathBuf,
    inodes: u64,
}

impl Disk {
    /// Two images with space for so many small files; none without the permission to mount them.
    fn pair(count: u64, place: &Path) -> Option<[Disk; 2]> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let make = || -> Result<[Disk; 2]> {
            let disks =
                [Disk::new(count, place.join("watched"))?, Disk::new(count, place.join("unwatched"))?];
            disks[0].mount_new()?.unmount()?;
            Ok(disks)
        };
        make()
            .inspect_err(|error| {
                errln!("gabion-bench: no file systems of their own: {}", error_message(error))
            })
            .ok()
    }

    /// With space for the repository of the watch.
    fn new(count: u64, image: PathBuf) -> Result<Disk> {
        std::fs::File::create(&image)?.set_len(count * 8192 + (1 << 30))?;
        Ok(Disk { image, inodes: count + count / 8 })
    }

    fn mount_new(&self) -> Result<Mounted> {
        let path = self.image.with_extension("mounted");
        std::fs::create_dir_all(&path)?;
        // Inode tables and journal are written now: the kernel would do it while the bench measures. The image keeps
        // its blocks on the disk.
        let at_once = ["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-N"];
        run(Command::new("mkfs.ext4").args(at_once).arg(self.inodes.to_string()).arg(&self.image))?;
        let image = self.image.to_str().context("the name of --dir is no text")?;
        Mounted::new(["-o", "loop", image], &path)
    }
}

/// A running `gabion watch`.
struct Watch {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watch {
    /// Returns after the first scan.
    fn start(tree: &Path, repository: &Path, source: &str) -> Result<Watch> {
        let mut child = crate::program::gabion()?
            .args(["watch", "--json", "--source", source, "--repository"])
            .arg(repository)
            .arg(tree)
            .stdout(Stdio::piped())
            .spawn()
            .context("gabion cannot be run")?;
        let Some(output) = child.stdout.take() else { bail!("the watch has no output") };
        let mut watch = Watch { child, lines: BufReader::new(output) };
        watch.until("scanned")?;
        Ok(watch)
    }

    fn until(&mut self, event: &str) -> Result<Value> {
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            let value: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if value["event"] == event {
                return Ok(value);
            }
            line.clear();
        }
        bail!("the watch ended without the event {event:?}")
    }

    fn stop(&mut self) -> Result<Value> {
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(process, Signal::TERM)?;
        }
        let last = self.until("stopped")?;
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the watch ended with {ended}");
        Ok(last)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Ends the process after an error; after `stop` it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Archives with `count` small files in total.
fn pack(place: &Path, count: u64) -> Result<Vec<PathBuf>> {
    let source = place.join("source");
    std::fs::create_dir(&source)?;
    let directory = |number: u64| format!("{number:04}");
    for number in 0..count {
        let directory = source.join(directory(number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            std::fs::create_dir(&directory)?;
        }
        fill(&directory.join(format!("file {number}")), SIZE, number)?;
    }
    let directories: Vec<String> = (0..count.div_ceil(PER_DIRECTORY)).map(directory).collect();
    let parts = directories.chunks(directories.len().div_ceil(PARTS)).enumerate();
    let archives = parts.map(|(part, directories)| {
        let archive = place.join(format!("part {part}.tar"));
        tar(&["--create", "--file"], &archive, &source, directories)?;
        Ok(archive)
    });
    let archives = archives.collect::<Result<Vec<PathBuf>>>()?;
    sync(place)?;
    Ok(archives)
}

fn tar(action: &[&str], archive: &Path, directory: &Path, more: &[String]) -> Result<()> {
    run(Command::new("tar").args(action).arg(archive).arg("--directory").arg(directory).args(more))
}

/// An empty directory, on a disk without pending writes.
fn fresh(place: &Path) -> Result<PathBuf> {
    let tree = place.join("tree");
    std::fs::create_dir_all(&tree)?;
    sync(&tree)?;
    Ok(tree)
}
