//! `gabion work`.

use super::scrub::print_damage;
use super::{Effort, Which};
use crate::commands::device::{self, DeviceArgs};
use crate::output::{OutputArgs, bytes, files, print_json};
use gabion::exit::Outcome;
use gabion::report::WorkReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::protect::work;
use gabion_vault::run::Progress;
use gabion_vault::worker::Done;

const EXAMPLES: &str = "\
Examples:
  gabion work /srv/photos
  gabion work /srv/photos --limit 100MiB/s

Protects the changes that are due, in parallel with other workers: in other processes with the embedded changelog, on other \
hosts with a Redis server. Each file is claimed by one worker at a time; files of a dead worker go to another.";

/// Arguments of `gabion work`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let compute = self.device.open()?;
        let (mut vault, _) = self.which.open()?;
        vault.coders = compute.coders(self.effort.threads())?;
        let ahead = (vault.changelog.pending()?.entries(), 0);
        let done = self.output.run(&self.effort, |context| {
            (context.progress)(Progress::Step("working", Some(ahead)));
            work(&vault, context)
        })??;
        let left = vault.changelog.pending()?;
        let waiting = left.entries().saturating_sub(left.claimed);
        if self.output.json {
            print_json(&device::add_to(WorkReport::new(&done, left.claimed, waiting), &compute));
        } else {
            let (encoded, size) = (files(done.encoded), bytes(done.encoded_bytes));
            self.output.print_line(format!(
                "encoded {encoded} ({size}), moved {}, removed {}",
                done.moved, done.removed
            ));
            device::print(&compute, |line| self.output.print_line(line));
            if left.claimed > 0 {
                let claimed = files(left.claimed);
                self.output.print_line(format!(
                    "{claimed} claimed by other workers; files of a dead worker on another host become due 10 s after its last heartbeat"
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
        Ok(match done {
            Done { failures: 1.., .. } => Outcome::Failed,
            Done { damaged, write_once, held, .. }
                if !damaged.is_empty() || !write_once.is_empty() || held > 0 =>
            {
                Outcome::Found
            }
            _ => Outcome::Fine,
        })
    }
}
