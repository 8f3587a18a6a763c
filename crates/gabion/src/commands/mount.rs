//! `gabion mount`.

use super::device::{self, DeviceArgs};
use super::vault::Elsewhere;
use super::vault::events::EventPrinter;
use super::vault::protection_args::ProtectionArgs;
use crate::commands::workers::Workers;
use crate::output::print_json;
use anyhow::Context;
use gabion::exit::Outcome;
use gabion::live::{Access, MountPlan, MountedSource, Source};
use gabion::privileges;
use gabion::report::Event;
use gabion::shell::ApproveCommand;
use gabion_mount::Outage;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::monitor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion mount /srv/photos /mnt/photos                 mount a directory, and protect what is written through the mount
  gabion mount /srv/photos /mnt/photos --background    return as soon as it is mounted
  gabion mount /srv/data /mnt/data --repository /mnt/other-disk/data.gabion --code 10+4
  gabion mount tank /mnt/tank                          a pool of disks
  umount /mnt/photos                                   end the mount; Ctrl-C does too

Programs use MOUNTPOINT like any directory. Each change is in the changelog before fsync returns, and is protected after the \
quiet period of the policy; reads and writes never wait for that. Existing files are protected too. Files opened read-only are \
verified: damaged blocks are reconstructed for the reader and recorded for `gabion status`. The source can still be used \
directly; the next `gabion protect` finds such changes.";

/// Arguments of `gabion mount`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory or pool to mount
    source: PathBuf,
    /// The mount point: an empty directory outside of the source
    mountpoint: PathBuf,
    #[command(flatten)]
    protection: ProtectionArgs,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Return as soon as it is mounted, and run in the background
    #[arg(long, short)]
    background: bool,
    /// Number of encoding threads; `all` for one per processor, 0 leaves that to `gabion work` elsewhere
    #[arg(long, value_name = "N", default_value = "1")]
    workers: Workers,
    /// Number of threads that serve requests
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// Only the mounting user may access the mount
    #[arg(long)]
    private: bool,
    /// Require access for other users, subject to permissions. Without this and --private, other users have access if
    /// root mounts or /etc/fuse.conf has user_allow_other
    #[arg(long, conflicts_with = "private")]
    allow_other: bool,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
    /// Honour setuid bits and file capabilities, unless the source is mounted nosuid
    #[arg(long)]
    suid: bool,
    /// Allow device nodes, unless the source is mounted nodev
    #[arg(long)]
    dev: bool,
    /// Do not verify reads
    #[arg(long)]
    no_verify: bool,
    /// Let the kernel read files of a directory directly (FUSE passthrough) that are opened read-only and not verified:
    /// less CPU time and no double caching; while a file is read this way, it cannot be mapped writable
    #[arg(long)]
    passthrough: bool,
    /// Do not block writes while the changelog (a Redis server) is unavailable; a full scan follows when it is
    /// available again
    #[arg(long)]
    continue_without_changelog: bool,
    #[command(flatten)]
    device: DeviceArgs,
    /// Set for the background process
    #[arg(long, hide = true)]
    detached: bool,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait at the end for programs that use the mount.
const PATIENCE: Duration = Duration::from_secs(10);

/// A word of the line, text or JSON, that a mount prints when it is ready.
const READY: &str = "mounted";

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.background {
            return self.in_background();
        }
        privileges::drop_unneeded().context("giving up privileges")?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let compute = self.device.open_for_long(self.json, false)?;
        let source = match self.elsewhere.pool(&self.source)? {
            Some((pool, inside)) => {
                anyhow::ensure!(inside.is_empty(), "a pool is mounted as a whole");
                Source::Pool(pool, self.source.clone())
            }
            None => Source::Directory(self.source.clone(), self.elsewhere.repository.clone()),
        };
        let name = match &source {
            Source::Pool(_, name) => name.clone(),
            Source::Directory(path, _) => {
                std::fs::canonicalize(path).with_context(|| path.display().to_string())?
            }
        };
        let plan = MountPlan {
            source,
            mountpoint: self.mountpoint.clone(),
            protection: self.protection.to_options(),
            compute: compute.clone(),
            keeping: monitor::Options {
                command: "mount",
                threads: self.workers.threads(),
                ..monitor::Options::default()
            },
            threads: self.threads,
            access: match (self.private, self.allow_other) {
                (true, _) => Access::Owner,
                (_, true) => Access::Everyone,
                _ => Access::AsAllowed,
            },
            read_only: self.read_only,
            suid: self.suid,
            dev: self.dev,
            verify: !self.no_verify,
            passthrough: self.passthrough,
            outage: if self.continue_without_changelog { Outage::Continue } else { Outage::Wait },
        };
        let mut mounted = plan.start(Arc::new(|text| errln!("gabion: {text}")))?;
        self.say_ready(&name, mounted.mountpoint());
        if let Err(error) = self.begin_work(&mut mounted) {
            mounted.stop(PATIENCE)?;
            return Err(error);
        }
        while !stop.load(Ordering::Relaxed) && !mounted.is_unmounted() {
            std::thread::sleep(LOOK);
        }
        mounted.stop(PATIENCE)?;
        device::print_warning(&compute);
        Ok(Outcome::Fine)
    }

    fn begin_work(&self, mounted: &mut MountedSource) -> anyhow::Result<()> {
        if self.detached {
            let repository = &mounted.location().repository;
            detach(repository).with_context(|| repository.display().to_string())?;
        }
        let approve = ApproveCommand::of_location(mounted.location());
        let printer = Arc::new(EventPrinter::new(approve, self.json, true));
        Ok(mounted.keep(Arc::new(move |notice| printer.notice(notice)))?)
    }

    fn say_ready(&self, source: &Path, mountpoint: &Path) {
        if self.json {
            return print_json(&Event::mounted(source, mountpoint));
        }
        outln!(
            "{READY} {} at {}, process {}; end it with Ctrl-C or umount",
            DisplayPath::path(source),
            DisplayPath::path(mountpoint),
            std::process::id()
        );
    }

    /// Starts this program again without a terminal, and waits until it is ready.
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
        // Ends when the process ends, or redirects its output to the log.
        if let Some(messages) = child.stderr.take() {
            for message in BufReader::new(messages).split(b'\n') {
                errln!("{}", String::from_utf8_lossy(&message?));
            }
        }
        if line.contains(READY) {
            out!("{line}");
            return Ok(Outcome::Fine);
        }
        child.wait()?;
        Ok(Outcome::Failed)
    }
}

/// Redirects the output to a log file in the repository.
fn detach(repository: &Path) -> std::io::Result<()> {
    let log = gabion_vault::private::append(repository, "mount.log")?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(rustix::stdio::dup2_stderr(&log)?)
}

fn is_background(argument: &OsStr) -> bool {
    argument == "--background" || argument == "-b"
}
