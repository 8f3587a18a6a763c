//! `gabion mount`.

use super::vault::Elsewhere;
use super::vault::events::EventPrinter;
use super::vault::protection_args::ProtectionArgs;
use anyhow::Context;
use gabion::exit::Outcome;
use gabion::live::{Access, MountPlan, Source};
use gabion::privileges;
use gabion_mount::Outage;
use gabion_platform::shown::Shown;
use gabion_vault::monitor;
use serde_json::json;
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
  gabion mount /srv/photos /mnt/photos                 show a directory, and protect what is written through it
  gabion mount /srv/photos /mnt/photos --background    return as soon as it is mounted
  gabion mount /srv/data /mnt/data --repository /mnt/other-disk/data.gabion --code 10+4
  gabion mount tank /mnt/tank                          a pool of disks
  umount /mnt/photos                                   ends it; so does Ctrl-C

Programs use MOUNTPOINT as any other directory. Every change is remembered before a program is told that it is durable, and \
protected when the file has rested as long as the policy says; reads and writes never wait for that. What was there before is \
protected as well. Files that are only read are checked: blocks that are damaged are made from others on the way, and noted in \
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
    protection: ProtectionArgs,
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
    /// Others may use it, as far as permissions go, or there is no mount. Without this and --private they may if root mounts, or
    /// if /etc/fuse.conf says user_allow_other
    #[arg(long, conflicts_with = "private")]
    allow_other: bool,
    /// Nothing can be changed through it
    #[arg(long)]
    read_only: bool,
    /// Let setuid bits and capabilities of programs count, unless the source is mounted nosuid
    #[arg(long)]
    suid: bool,
    /// Let device nodes be opened, unless the source is mounted nodev
    #[arg(long)]
    dev: bool,
    /// Give programs what is there, without looking whether it is what was protected
    #[arg(long)]
    no_verify: bool,
    /// Let the kernel read files of a directory by itself that are opened for reading only and are not checked: less
    /// work, and nothing in memory twice; while someone reads a file so, nobody can map it writable
    #[arg(long)]
    passthrough: bool,
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

/// How often to look for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// How long programs that use the mount are waited for when it ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a mount in the background says when it is ready.
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
            keeping: monitor::Options {
                command: "mount",
                threads: self.workers,
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
        if self.detached {
            let repository = &mounted.location().repository;
            detach(repository).with_context(|| repository.display().to_string())?;
        }
        let printer = Arc::new(EventPrinter::new(self.json, true));
        mounted.keep(Arc::new(move |notice| printer.notice(notice)))?;
        while !stop.load(Ordering::Relaxed) && !mounted.is_unmounted() {
            std::thread::sleep(LOOK);
        }
        mounted.stop(PATIENCE)?;
        Ok(Outcome::Fine)
    }

    fn say_ready(&self, source: &Path, mountpoint: &Path) {
        let process = std::process::id();
        if self.json {
            outln!(
                "{}",
                json!({ "event": READY, "source": source, "mountpoint": mountpoint, "process": process })
            );
        } else {
            outln!(
                "{READY} {} at {}, process {process}; end it with Ctrl-C or umount",
                Shown::path(source),
                Shown::path(mountpoint)
            );
        }
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
        // It ends with the process, or when that talks to its log from now on.
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

/// Lets go of whoever started us: from now on we talk to a file in the repository.
fn detach(repository: &Path) -> std::io::Result<()> {
    let log = gabion_vault::private::append(repository, "mount.log")?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(rustix::stdio::dup2_stderr(&log)?)
}

fn is_background(argument: &OsStr) -> bool {
    argument == "--background" || argument == "-b"
}
