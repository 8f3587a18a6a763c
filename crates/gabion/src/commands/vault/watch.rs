//! `gabion watch`.

use super::events::EventPrinter;
use super::protection_args::{ProtectionArgs, directory};
use super::{Effort, Elsewhere, warn};
use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::privileges;
use gabion_vault::monitor::{Choice, Live, Options};
use gabion_vault::policy::Duration as Span;
use gabion_vault::vault::Location;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion watch /srv/photos
  gabion watch /srv/data --policy policy.toml --repository /mnt/other-disk/data.gabion
  gabion watch /srv/photos --workers 1 --limit 100MiB/s
  gabion watch /srv/photos --json --rescan 6h

Hears of changes from the kernel, remembers them, and protects each file when it has rested for the quiet period of its \
policy (a minute unless the policy says otherwise). It begins with a scan: what changed while nobody watched is found. When \
events are lost, and every --rescan, the tree is scanned again. Stop it with ctrl-c or SIGTERM; whatever ends it, \
nothing is lost: the next watch or protect begins where this one ended. \
As root, fanotify hears of names on the whole file system and of content below DIR; others get one inotify watch for each \
directory. \
Other commands work beside it: protect, scrub, repair, status, approve. When very many files vanish or change at once, \
their redundancy stays as it is until `gabion approve`, which this command notices by itself. \
Stores through memory maps give no event: closing the file does, and a scan finds the rest.
Exit codes: 0 stopped by a signal, 1 changes are held, 2 the tree cannot be watched.";

/// Arguments of `gabion watch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory to watch; it is protected if it was not
    dir: PathBuf,
    #[command(flatten)]
    protection: ProtectionArgs,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Threads that encode, 0 for all there are
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Read at most so much per second, such as 200MiB/s
    #[arg(long, value_name = "RATE")]
    limit: Option<gabion_vault::policy::Rate>,
    /// Scan everything again after so long: 90s, 10m, 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    rescan: Span,
    /// Where events come from
    #[arg(long, value_enum, default_value_t = From::Auto)]
    source: From,
    /// Print one JSON object per line for all that happens
    #[arg(long)]
    json: bool,
    /// Print errors and warnings only
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// Fanotify if it works here, inotify otherwise
    Auto,
    /// Names on the whole file system, content below DIR; root only
    Fanotify,
    /// One watch for each directory
    Inotify,
}

/// How often to look for a signal.
const LOOK: Duration = Duration::from_millis(100);

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let pool = self.elsewhere.pool(&self.dir)?;
        anyhow::ensure!(
            pool.is_none(),
            "a pool changes only through `gabion pool`: there is nothing to watch"
        );
        directory(&self.dir)?;
        privileges::drop_unneeded().context("giving up privileges")?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let location = Location::to_protect(&self.dir, self.elsewhere.repository.as_deref())?;
        let vault = self.protection.to_options().set_up(&location, &warn)?;
        let source = match self.source {
            From::Auto => Choice::Auto,
            From::Fanotify => Choice::Fanotify,
            From::Inotify => Choice::Inotify,
        };
        let options = Options {
            source,
            threads: Effort { threads: self.workers, limit: None }.threads(),
            rate: self.limit.map(|rate| rate.0),
            rescan: self.rescan.0,
            ..Options::default()
        };
        let clock = vault.clock.clone();
        let printer = Arc::new(EventPrinter::new(self.json, self.quiet));
        let events = Arc::clone(&printer);
        let live = Live::start(vault, options, Arc::new(move |notice| events.notice(notice)))?;
        while !stop.load(Ordering::Relaxed) && !live.is_over() {
            std::thread::sleep(LOOK);
            printer.update_status(&live.status(), clock.now());
        }
        let status = live.stop()?;
        printer.stopped(&status, clock.now());
        Ok(if status.held.is_some() { Outcome::Found } else { Outcome::Fine })
    }
}
