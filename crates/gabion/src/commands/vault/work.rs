//! `gabion work`.

mod follow;
pub(super) mod hosts;

use super::scrub::print_damage;
use super::{Effort, Which};
use crate::commands::device::{self, DeviceArgs};
use crate::output::{OutputArgs, bytes, files, left_undone, print_json, unless_interrupted};
use gabion::exit::Outcome;
use gabion::report::WorkReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::changelog::Limits;
use gabion_vault::policy::DurationText as Span;
use gabion_vault::protect::{work, work_attending};
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::vault::Vault;
use gabion_vault::worker::{self, Done, WorkError};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion work /srv/photos
  gabion work /srv/photos --limit 100MiB/s
  gabion work /srv/photos --follow
  gabion work /srv/photos --list
  gabion work /srv/photos --drain
  gabion work /srv/photos --resume
  gabion work /srv/photos --set-limits node2 --limit 100MiB/s --at-once 2
  gabion work /srv/photos --set-limits --all-hosts --limit 200MiB/s
  gabion work /srv/photos --remove-limits node2

Protects the changes that are due, in parallel with other workers: in other processes with the embedded changelog, on other \
hosts with a Redis server. Each file is claimed by one worker at a time; files of a dead worker go to another. Equal workers get equal shares of a backlog. \
With --follow it stays: it works off what becomes due until SIGTERM or SIGINT, which makes it give its claims back and exit with \
0. It waits for a server or a repository that is away. Under systemd it reports readiness and feeds the watchdog.
Exit codes: 0 due work is done (--follow: stopped by a signal; --drain: no claims are left), 1 damaged or changed write-once \
files, a held change-set, or claims that are left after --timeout, 2 some files could not be protected.";

/// Arguments of `gabion work`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Stay, and work off what becomes due, until SIGTERM or SIGINT
    #[arg(long)]
    follow: bool,
    /// Let the workers of this host, or of HOST, finish the files at hand, give back the rest and claim nothing more
    /// until --resume; wait until they hold no claims
    #[arg(long, value_name = "HOST", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["follow", "resume", "list"])]
    drain: Option<String>,
    /// Longest time to wait with --drain: 90s, 10m
    #[arg(long, value_name = "TIME", requires = "drain")]
    timeout: Option<Span>,
    /// Let the workers of this host, or of HOST, claim again
    #[arg(long, value_name = "HOST", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["follow", "list"])]
    resume: Option<String>,
    /// Set limits for all workers of this host, or of HOST, together: a rate by --limit, a number of workers at once by
    /// --at-once. They replace earlier ones, hold at once, and outlive workers and server
    #[arg(long, value_name = "HOST", num_args = 0..=1, default_missing_value = "", group = "limited",
          conflicts_with_all = ["follow", "drain", "resume", "list", "threads"])]
    set_limits: Option<String>,
    /// Remove the limits of this host, or of HOST
    #[arg(long, value_name = "HOST", num_args = 0..=1, default_missing_value = "", group = "limited",
          conflicts_with_all = ["follow", "drain", "resume", "list", "threads", "limit", "at_once"])]
    remove_limits: Option<String>,
    /// With --set-limits: most workers of the host that work at the same time
    #[arg(long, value_name = "N", requires = "set_limits",
          value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// With --set-limits or --remove-limits: the limits of all hosts that have none of their own
    #[arg(long, requires = "limited")]
    all_hosts: bool,
    /// List the workers of all hosts with their claims, and the limits of hosts
    #[arg(long, conflicts_with = "follow")]
    list: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[arg(long, env = "NOTIFY_SOCKET", hide = true)]
    notify_socket: Option<PathBuf>,
    #[arg(long, env = "WATCHDOG_USEC", hide = true)]
    watchdog_usec: Option<u64>,
    #[arg(long, env = "WATCHDOG_PID", hide = true)]
    watchdog_pid: Option<u32>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.follow {
            return follow::follow(&self);
        }
        let (mut vault, _) = self.which.open()?;
        if let Some(host) = &self.drain {
            let timeout = self.timeout.map(|timeout| timeout.0);
            return hosts::drain(&vault, host, timeout, &self.output);
        }
        if let Some(host) = &self.resume {
            return hosts::resume(&vault, host, &self.output);
        }
        if let Some(host) = &self.set_limits {
            let limits = Limits { rate: self.effort.limit.map(|rate| rate.0), at_once: self.at_once };
            return hosts::set_limits(&vault, (host, self.all_hosts), Some(limits), &self.output);
        }
        if let Some(host) = &self.remove_limits {
            return hosts::set_limits(&vault, (host, self.all_hosts), None, &self.output);
        }
        if self.list {
            return hosts::list(&vault, &self.output);
        }
        let compute = self.device.open()?;
        vault.coders = compute.coders(self.effort.threads())?;
        let done = self.output.run(&self.effort, |context| work_once(&vault, context))??;
        let left = vault.changelog.pending()?;
        let waiting = left.entries().saturating_sub(left.claimed);
        if self.output.json {
            print_json(&device::add_to(WorkReport::new(&done, left.claimed, waiting), &compute));
        } else {
            let (encoded, size) = (files(done.encoded), bytes(done.encoded_bytes));
            self.output.print_line(format!(
                "encoded {encoded} ({size}), moved {}, removed {}{}",
                done.moved,
                done.removed,
                follow::help(done.helped, done.helped_bytes)
            ));
            device::print(&compute, |line| self.output.print_line(line));
            if done.draining {
                self.output.print_line("this host is draining: its workers claim nothing until --resume");
            }
            if done.limited {
                self.output.print_line(
                    "this host has as many workers at work as its limits allow: `gabion work DIR --list`",
                );
            }
            if left.claimed > 0 {
                let claimed = files(left.claimed);
                self.output.print_line(format!(
                    "{claimed} claimed by other workers; files of a dead worker on another host become due 6 s after its last sign of life"
                ));
            }
            if waiting > 0 {
                self.output.print_line(format!("{} pending, not due yet", files(waiting)));
            }
            for (path, why) in &done.failed {
                errln!("gabion: {}: {why}", DisplayPath::bytes(path));
            }
            print_damage(&done.damaged, true);
            if done.held > 0 {
                outln!(
                    "HELD: {} disappeared or changed, more than the policy's guard allows: their redundancy is kept. \
                    `gabion protect` prints the digest to approve",
                    files(done.held)
                );
            }
            for path in &done.write_once {
                outln!(
                    "WARNING: {} is write-once and changed: its redundancy is kept",
                    DisplayPath::bytes(path)
                );
            }
        }
        let is_left = waiting > 0 || left.claimed > 0;
        Ok(unless_interrupted(match done {
            Done { failures: 1.., .. } => Outcome::Failed,
            _ if is_left && left_undone(Outcome::Found) => Outcome::Failed,
            Done { damaged, write_once, held, .. }
                if !damaged.is_empty() || !write_once.is_empty() || held > 0 =>
            {
                Outcome::Found
            }
            _ => Outcome::Fine,
        }))
    }
}

/// Works off what is due. Workers that start at the same moment get equal shares.
fn work_once(vault: &Vault, context: RunContext<'_>) -> Result<Done, WorkError> {
    let ahead = vault.changelog.pending()?.entries();
    (context.progress)(Progress::Step("working", Some((ahead, 0))));
    if ahead == 0 {
        return work(vault, context);
    }
    let name =
        worker::unique_name().map_err(|source| WorkError::Repository { path: vault.root.clone(), source })?;
    vault.changelog.attend(&name, vault.clock.now())?;
    if let Err(moved) = vault.refuse_if_moved() {
        // If that fails, it is forgotten after a while.
        let _ = vault.changelog.leave(&name);
        return Err(WorkError::Repository { path: vault.root.clone(), source: std::io::Error::other(moved) });
    }
    std::thread::sleep(follow::SETTLE);
    let done = work_attending(vault, context, &name, &|_| {});
    // If that fails, the others forget this worker after a while.
    let _ = vault.changelog.leave(&name);
    done
}
