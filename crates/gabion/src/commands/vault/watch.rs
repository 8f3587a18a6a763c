//! `gabion watch`.

use super::events::EventPrinter;
use super::protection_args::{ProtectionArgs, directory};
use super::{Elsewhere, warn};
use crate::commands::device::{self, DeviceArgs};
use crate::commands::workers::{Workers, at_least_one};
use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::privileges;
use gabion::shell::ApproveCommand;
use gabion_vault::monitor::{Choice, Live, Options};
use gabion_vault::policy::DurationText as Span;
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

Receives file events from the kernel, records them in the changelog, and protects each file after the quiet period of its \
policy (by default one minute). Starts with a scan, which finds earlier changes. Scans again when events were lost, and at the \
interval --rescan. Stop it with Ctrl-C or SIGTERM; the next watch or protect continues where this one ended. \
As root it uses fanotify: events of names on the whole file system, of content below DIR. Other users get one inotify watch \
per directory. \
Other commands can run at the same time: protect, scrub, repair, status, approve. When very many files disappear or change at \
once, their redundancy is kept until `gabion approve`. \
Writes through memory maps cause no event until the file is closed; a scan finds them.
Exit codes: 0 stopped by a signal, 1 changes are held, 2 the tree cannot be watched.";

/// Arguments of `gabion watch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory to watch; it is protected first if necessary
    dir: PathBuf,
    #[command(flatten)]
    protection: ProtectionArgs,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Number of encoding threads; `all` for one per processor
    #[arg(long, value_name = "N", default_value = "all", value_parser = at_least_one)]
    workers: Workers,
    /// Limit of the read rate, such as 200MiB/s
    #[arg(long, value_name = "RATE")]
    limit: Option<gabion_vault::policy::Rate>,
    /// Interval between full scans: 90s, 10m, 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    rescan: Span,
    /// Source of file events
    #[arg(long, value_enum, default_value_t = From::Auto)]
    source: From,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Print errors and warnings only
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// Fanotify if available, inotify otherwise
    Auto,
    /// Events of the whole file system; root only
    Fanotify,
    /// One watch per directory
    Inotify,
}

/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(100);

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let pool = self.elsewhere.pool(&self.dir)?;
        anyhow::ensure!(
            pool.is_none(),
            "a pool cannot be watched: use `gabion mount`, or `gabion protect` after changes"
        );
        directory(&self.dir)?;
        privileges::drop_unneeded().context("giving up privileges")?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let compute = self.device.open_for_long(self.json, self.quiet)?;
        let threads = self.workers.threads();
        let location = Location::to_protect(&self.dir, self.elsewhere.repository.as_deref())?;
        let mut vault = self.protection.to_options().set_up(&location, &warn)?;
        vault.coders = compute.coders(threads)?;
        let source = match self.source {
            From::Auto => Choice::Auto,
            From::Fanotify => Choice::Fanotify,
            From::Inotify => Choice::Inotify,
        };
        let options = Options {
            source,
            threads,
            rate: self.limit.map(|rate| rate.0),
            rescan: self.rescan.0,
            ..Options::default()
        };
        let clock = vault.clock.clone();
        let approve = ApproveCommand::of_vault(&vault);
        let printer = Arc::new(EventPrinter::new(approve, self.json, self.quiet));
        let events = Arc::clone(&printer);
        let live = Live::start(vault, options, Arc::new(move |notice| events.notice(notice)))?;
        while !stop.load(Ordering::Relaxed) && !live.is_over() {
            std::thread::sleep(LOOK);
            printer.update_status(&live.status(), clock.now());
        }
        let status = live.stop()?;
        printer.stopped(&status, clock.now());
        device::print_warning(&compute);
        Ok(if status.held.is_some() { Outcome::Found } else { Outcome::Fine })
    }
}
