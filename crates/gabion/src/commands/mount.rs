//! `gabion mount`.

use super::vault::Elsewhere;
use super::vault::talk::Talker;
use super::vault::wanted::{Wanted, directory};
use anyhow::Context;
use gabion::exit::Outcome;
use gabion::shard::Shown;
use gabion_mount::{Directory, Guarded, Mounted, Options, Outage, Pool, Recorder, mount};
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{self, Report};
use gabion_vault::monitor::{self, Live};
use gabion_vault::vault::{Location, OWN, Vault};
use gabion_vault::world::Clock;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion mount /srv/photos /mnt/photos                 show a directory, and protect what is written through it
  gabion mount /srv/photos /mnt/photos --background    return as soon as it is mounted
  gabion mount /srv/data /mnt/data --repository /mnt/other-disk/data.gabion --code 10+4
  gabion mount tank /mnt/tank                          a pool of disks
  umount /mnt/photos                                   ends it; so does Ctrl-C

Programs use MOUNTPOINT as any other directory. Every change is remembered before a program is told that it is durable, and
protected when the file has rested as long as the policy says; reads and writes never wait for that. What was there before is
protected as well. Files that are only read are checked: blocks that are damaged are made from others on the way, and noted in
`gabion status`. The source may still be used directly: such changes are found by the next `gabion protect`.";

/// Arguments of `gabion mount`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory or pool to show
    source: PathBuf,
    /// Where to show it: an empty directory outside of the source
    mountpoint: PathBuf,
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Return as soon as it is mounted, and go on in the background
    #[arg(long, short)]
    background: bool,
    /// Threads that protect what changed; 0 leaves that to `gabion work` elsewhere
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Threads that serve programs
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// Only who mounts may use it
    #[arg(long)]
    private: bool,
    /// Nothing can be changed through it
    #[arg(long)]
    read_only: bool,
    /// Give programs what is there, without looking whether it is what was protected
    #[arg(long)]
    no_verify: bool,
    /// While the changelog does not answer (a Redis server that is away), writes go on instead of waiting; everything is looked
    /// at once it is back
    #[arg(long)]
    continue_without_changelog: bool,
    /// We are the one in the background
    #[arg(long, hide = true)]
    detached: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// What a mount in the background says when it is ready.
const READY: &str = "mounted";

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.background {
            return self.in_background();
        }
        let mountpoint =
            std::fs::canonicalize(&self.mountpoint).with_context(|| self.mountpoint.display().to_string())?;
        directory(&self.mountpoint)?;
        let pool = self.elsewhere.pool(&self.source)?;
        let (source, location) = match &pool {
            Some((pool, inside)) => {
                anyhow::ensure!(inside.is_empty(), "a pool is mounted as a whole");
                for target in pool.paths() {
                    refuse_overlap(&std::fs::canonicalize(&target).unwrap_or(target), &mountpoint)?;
                }
                (self.source.clone(), Location::of_pool(pool)?)
            }
            None => {
                let source =
                    std::fs::canonicalize(&self.source).with_context(|| self.source.display().to_string())?;
                directory(&self.source)?;
                refuse_overlap(&source, &mountpoint)?;
                let location = Location::of(&source, self.elsewhere.repository.as_deref());
                (source, location)
            }
        };
        let policy = self.wanted.policy_text()?;
        let mut vault = self.wanted.open(&location, policy.as_deref())?;
        if let Some(text) = &policy {
            vault.set_policy(text)?;
        }
        let outage = if self.continue_without_changelog { Outage::Continue } else { Outage::Wait };
        let repository = vault.repository.path().to_owned();
        let (changelog, rules) = (Arc::clone(&vault.changelog), vault.read_policy()?);
        let recorder = Recorder::start(changelog, rules, Clock::System, outage, &repository)
            .with_context(|| repository.display().to_string())?;
        let recorder = Arc::new(recorder);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let options = Options {
            name: source.display().to_string(),
            threads: self.threads,
            allow_other: !self.private,
            read_only: self.read_only,
        };
        let named = || source.display().to_string();
        let mounted = match pool {
            Some((pool, _)) => {
                let files = Pool::new(pool, Coders::new()?, Clock::System, Arc::clone(&recorder));
                mount(files.with_context(named)?, &mountpoint, &options)?
            }
            None => {
                let hidden = hidden_name(&source, &repository);
                let guarded = if self.no_verify { None } else { Some(guarded(&location)?) };
                let files = Directory::new(&source, hidden, Arc::clone(&recorder), guarded);
                mount(files.with_context(named)?, &mountpoint, &options)?
            }
        };
        self.say_ready(&source, &mountpoint);
        if self.detached {
            detach(&repository).with_context(|| repository.display().to_string())?;
        }
        let talker = Arc::new(Talker::new(self.json, true));
        let keeping = monitor::Options { threads: self.workers, ..monitor::Options::default() };
        let live = match self.workers {
            0 => None,
            _ => Some(Live::keep(vault, keeping, Arc::new(move |notice| talker.tell(notice)))?),
        };
        wait(mounted, &stop, &mountpoint)?;
        live.map(Live::stop).transpose()?;
        recorder.finish().context("the mark of the mount")?;
        Ok(Outcome::Fine)
    }

    fn say_ready(&self, source: &Path, mountpoint: &Path) {
        let process = std::process::id();
        if self.json {
            println!(
                "{}",
                json!({ "event": READY, "source": source, "mountpoint": mountpoint, "process": process })
            );
        } else {
            println!(
                "{READY} {} at {}, process {process}; end it with Ctrl-C or umount",
                Shown::path(source),
                Shown::path(mountpoint)
            );
        }
        // Whoever waits for this line may be gone by now.
        let _ = std::io::stdout().flush();
    }

    /// Starts this program once more, without a terminal, and waits until it says that it is ready.
    fn in_background(&self) -> anyhow::Result<Outcome> {
        let program = std::env::current_exe()?;
        let arguments = std::env::args_os().skip(1).filter(|argument| !is_background(argument));
        let mut child = Command::new("setsid")
            .arg(program)
            .args(arguments)
            .arg("--detached")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("setsid")?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.contains(READY) {
            print!("{line}");
            return Ok(Outcome::Fine);
        }
        if let Some(mut error) = child.stderr.take() {
            std::io::copy(&mut error, &mut std::io::stderr())?;
        }
        child.wait()?;
        Ok(Outcome::Failed)
    }
}

/// Lets go of whoever started us: from now on we talk to a file in the repository.
fn detach(repository: &Path) -> std::io::Result<()> {
    let log = std::fs::File::options().create(true).append(true).open(repository.join("mount.log"))?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(rustix::stdio::dup2_stderr(&log)?)
}

/// A mount must not show itself.
fn refuse_overlap(source: &Path, mountpoint: &Path) -> anyhow::Result<()> {
    if source.starts_with(mountpoint) || mountpoint.starts_with(source) {
        let (mountpoint, path) = (mountpoint.to_owned(), source.to_owned());
        return Err(gabion_mount::MountError::Overlap { mountpoint, path }.into());
    }
    Ok(())
}

fn is_background(argument: &OsStr) -> bool {
    argument == "--background" || argument == "-b"
}

/// The directory of ours that lies in the source, if it does.
fn hidden_name<'a>(source: &Path, repository: &'a Path) -> &'a OsStr {
    let inside = std::fs::canonicalize(repository).is_ok_and(|path| path.parent() == Some(source));
    repository.file_name().filter(|_| inside).unwrap_or(OsStr::new(OWN))
}

/// What reads are checked against, and where they are noted.
fn guarded(location: &Location) -> anyhow::Result<Guarded> {
    let Vault { storage, coders, catalogue, clock, .. } = Vault::open(location, Clock::System)?;
    let catalogue = Mutex::new(catalogue);
    let note = move |path: &[u8], report: &Report| {
        let path = Shown::bytes(path);
        let (blocks, causes) = (report.reconstructed, report.causes());
        eprintln!(
            "gabion: {path}: {blocks} blocks were made from others to read it ({causes}); see `gabion scrub`"
        );
        let catalogue = catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = degraded::note(&catalogue, report, clock.now()) {
            eprintln!("gabion: that cannot be noted: {error}");
        }
    };
    Ok(Guarded { storage, coders, note: Box::new(note) })
}

/// Waits for a signal, or until someone unmounts.
fn wait(mounted: Mounted, stop: &AtomicBool, mountpoint: &Path) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if mounted.is_over() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    mounted.unmount().with_context(|| format!("{} cannot be unmounted", Shown::path(mountpoint)))
}
