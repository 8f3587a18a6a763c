//! `gabion bench watch`: what watching costs those who write.
//!
//! The same archive of small files is unpacked into empty directories, in turn with and without a watch, so that whatever else
//! the machine does hits both. What counts is the fastest round of each: where others use the machine too, rounds differ by half
//! and more, and whatever disturbs one only makes it longer. The median of the ratios of rounds is told as well. Root
//! unpacks into a file system that nobody has used before: one that much was removed from is slower for minutes, and then it is
//! chance what is measured. The watch is this program, as people run it: nothing is encoded within the quiet period, so what is
//! measured is hearing of changes and remembering them.

use super::figures::{Line, Request, least, median};
use super::files::{fill, sync};
use anyhow::{Context, Result, bail, ensure};
use gabion::exit::{Outcome, told};
use gabion_vault::world::Stopwatch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const EXAMPLES: &str = "\
Examples:
  gabion bench watch
  gabion bench watch --dir /mnt/disk --source inotify
  gabion bench watch --quick --json

Unpacks an archive of small files below --dir, in turn with and without `gabion watch` on the directory: a ratio of 0.95 means \
that unpacking takes 5 % longer while it is watched. The fastest round of each counts. The second case lets the \
disk write everything, too. What was heard is checked: every file, or a gap. Root gets a new ext4 in a file below --dir for all of it.";

/// Arguments of `gabion bench watch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: Request,
    /// Where events come from: auto, fanotify or inotify
    #[arg(long, default_value = "auto")]
    source: String,
}

const CASES: [&str; 1] = ["untar"];

/// Bytes of a file.
const SIZE: u64 = 2048;

/// Files in one directory.
const PER_DIRECTORY: u64 = 100;

/// Seconds of one round: unpacked, and on the disk.
type Seconds = (f64, f64);

/// A word for the case, and which seconds count.
type Case = (&'static str, fn(&Seconds) -> f64);

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.request.run(&CASES, |_| self.untar())
    }

    fn untar(&self) -> Result<Vec<Line>> {
        let (count, rounds) = if self.request.quick { (10_000, 3) } else { (50_000, 15) };
        let place = self.request.place()?;
        let disk = Disk::for_files(count * (2 * rounds + 3), place.path());
        let (place, disk) = match &disk {
            Some(disk) => (disk.path.as_path(), "a new ext4 in a file"),
            None => (place.path(), "the file system of --dir"),
        };
        let archive = pack(place, count)?;
        // The first round of each is not counted: it pays for what later ones find in memory.
        let (mut with, mut without, mut gaps) = (Vec::new(), Vec::new(), 0);
        for round in 0..=rounds {
            let mut watched = || -> Result<()> {
                let (seconds, lost) =
                    self.unpack_watched(&place.join(format!("watched {round}")), &archive, count)?;
                gaps += lost;
                with.push(seconds);
                Ok(())
            };
            // Whoever comes first has another disk than who comes second.
            if round % 2 == 1 {
                watched()?;
            }
            without.push(unpack(&place.join(format!("unwatched {round}")), &archive, count)?);
            if round % 2 == 0 {
                watched()?;
            }
        }
        let cases: [Case; 2] = [("", |it| it.0), ("and sync ", |it| it.1)];
        let line = |(what, of): Case| {
            let rate = |all: &[Seconds]| count as f64 / least(all[1..].iter().map(of));
            let (ours, reference) = (rate(&with), rate(&without));
            let ratios: Vec<f64> =
                with.iter().zip(&without).skip(1).map(|(with, without)| of(without) / of(with)).collect();
            let (lowest, highest) =
                (least(ratios.iter().copied()), ratios.iter().copied().fold(0.0, f64::max));
            let conditions = format!(
                "{count} files of {SIZE} bytes, {PER_DIRECTORY} to a directory, on {disk}, best of {rounds} rounds in turn; the ratios of rounds are {lowest:.2} to {highest:.2}, their median {:.2}; source {}, gaps {gaps}",
                median(ratios),
                self.source
            );
            Line {
                bench: "watch",
                case: format!("untar {what}{count} files"),
                value: ours,
                unit: "files/s",
                against: "unwatched".to_owned(),
                reference,
                ratio: ours / reference,
                bar: Some(0.95),
                conditions,
            }
        };
        Ok(cases.into_iter().map(line).collect())
    }

    /// Unpacks under a watch; gives what it took, and how often events were lost.
    fn unpack_watched(&self, place: &Path, archive: &Path, count: u64) -> Result<(Seconds, u64)> {
        let (tree, repository) = (place.join("tree"), place.join("repository"));
        fresh(&tree)?;
        let mut watch = Watch::start(&tree, &repository, &self.source)?;
        let seconds = timed(archive, &tree)?;
        let last = watch.stop()?;
        let number = |key: &str| last[key].as_u64().with_context(|| format!("no number {key} in {last}"));
        let (recorded, gaps) = (number("recorded")?, number("gaps")?);
        ensure!(recorded >= count || gaps > 0, "{recorded} changes were recorded for {count} files");
        Ok((seconds, gaps))
    }
}

/// A file system of its own, in a file: mounted until this is dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// None for those who cannot mount one.
    fn for_files(count: u64, place: &Path) -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let made = Disk::new(count, place);
        made.inspect_err(|error| eprintln!("gabion: no file system of its own: {}", told(error))).ok()
    }

    /// With room for so many small files, and for what a watch writes.
    fn new(count: u64, place: &Path) -> Result<Disk> {
        let (image, path) = (place.join("disk"), place.join("mounted"));
        std::fs::File::create(&image)?.set_len(count * 8192 + (1 << 30))?;
        std::fs::create_dir(&path)?;
        // All tables are there from the beginning: the kernel would make them while we measure.
        let at_once = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-N"];
        let inodes = (count + count / 8).to_string();
        run(Command::new("mkfs.ext4").args(at_once).arg(inodes).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path))?;
        Ok(Disk { path })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What cannot be unmounted now goes when nobody uses it any more.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.path));
    }
}

fn run(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// A watch by this very program.
struct Watch {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watch {
    /// Returns when everything was scanned and only events are waited for.
    fn start(tree: &Path, repository: &Path, source: &str) -> Result<Watch> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["watch", "--json", "--source", source, "--repository"])
            .arg(repository)
            .arg(tree)
            .stdout(Stdio::piped())
            .spawn()
            .context("this program cannot be run once more")?;
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
        bail!("the watch ended without saying {event:?}")
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
        // After an error, nothing is left running; after `stop`, there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An archive of `count` small files.
fn pack(place: &Path, count: u64) -> Result<PathBuf> {
    let source = place.join("source");
    fresh(&source)?;
    for number in 0..count {
        let directory = source.join(format!("{:04}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            std::fs::create_dir(&directory)?;
        }
        fill(&directory.join(format!("file {number}")), SIZE, number)?;
    }
    let archive = place.join("archive.tar");
    tar(&["--create", "--file"], &archive, &source, &["."])?;
    Ok(archive)
}

fn tar(action: &[&str], archive: &Path, directory: &Path, more: &[&str]) -> Result<()> {
    run(Command::new("tar").args(action).arg(archive).arg("--directory").arg(directory).args(more))
}

/// An empty directory, on a disk that has nothing left to write. Nothing is removed before the end: some disks are busy
/// with that for long.
fn fresh(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path)?;
    sync(path)
}

fn timed(archive: &Path, tree: &Path) -> Result<Seconds> {
    let watch = Stopwatch::start();
    tar(&["--extract", "--file"], archive, tree, &[])?;
    let unpacked = watch.seconds();
    sync(tree)?;
    Ok((unpacked, watch.seconds()))
}

fn unpack(place: &Path, archive: &Path, count: u64) -> Result<Seconds> {
    let tree = place.join("tree");
    fresh(&tree)?;
    let seconds = timed(archive, &tree)?;
    let directories = std::fs::read_dir(&tree)?.count() as u64;
    ensure!(directories == count.div_ceil(PER_DIRECTORY), "tar made {directories} directories");
    Ok(seconds)
}
