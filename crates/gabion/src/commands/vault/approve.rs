//! `gabion approve`.

use super::protect::reason;
use super::{Effort, FIRST, Which};
use crate::commands::served;
use crate::output::{OutputArgs, files, print_json};
use gabion::exit::Outcome;
use gabion::report::{AcceptReport, ApproveReport, HeldReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::accept;
use gabion_vault::guard::{self, Digest};
use gabion_vault::protect::{Approval, approval};
use gabion_vault::vault::Vault;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion approve 3f0a9c5e11d84b7fa2c6e0d94b1877aa /srv/photos
  gabion approve /srv/photos/archive/1998.tif

With a digest: approves the change-set that `gabion protect` held, and no other: if further files disappear or change before \
the next protect, the change-set is held again. Files that change continuously are identified by name only, as long as they are \
fewer than the guard allows.
With a path: accepts the current content of changed write-once files at and below the path. A file that changes again before the \
next protect is reported again. Write ./ before a file name that looks like a digest.";

/// Arguments of `gabion approve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The digest that `gabion protect` printed, or the path of changed write-once files
    #[arg(value_name = "DIGEST|PATH")]
    what: OsString,
    /// Print what would be approved, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(mut self) -> anyhow::Result<Outcome> {
        if let Some(digest) = self.what.to_str().and_then(|text| text.parse::<Digest>().ok()) {
            return self.approve(&digest);
        }
        anyhow::ensure!(
            self.which.path == Path::new("."),
            "{:?} is not the digest of a change-set (32 hexadecimal digits); for write-once files give exactly one path",
            self.what
        );
        self.which.path = PathBuf::from(&self.what);
        self.accept()
    }

    /// Approves the held change-set.
    fn approve(&self, digest: &Digest) -> anyhow::Result<Outcome> {
        let (vault, _) = self.which.open()?;
        let found =
            self.output.run(&Effort::ALL, |context| approval(&vault, digest, self.dry_run, context))??;
        let held = match found {
            Approval::Held(held) => Some(held),
            Approval::Given => None,
            Approval::Other(held) => {
                anyhow::bail!("the change-set that is held now is {}, not this one", held.digest)
            }
            Approval::Nothing => anyhow::bail!("no change-set is held"),
        };
        if held.is_some() && !self.dry_run {
            guard::approve(&vault.repository, digest)?;
        }
        if self.output.json {
            let (digest, approved_before) = (digest.to_string(), held.is_none());
            let held = held.as_ref().map(HeldReport::new);
            print_json(&ApproveReport { dry_run: self.dry_run, digest, held, approved_before });
        }
        let who = carried_out_by(&vault);
        self.output.print_line(match &held {
            Some(held) if self.dry_run => format!("would approve: {}", reason(held)),
            Some(held) => format!("approved: {}; {who}", reason(held)),
            None => format!("it was approved before; {who}"),
        });
        Ok(Outcome::Fine)
    }

    /// Accepts the current content of write-once files.
    fn accept(&self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open()?;
        let mut paths =
            self.output.run(&Effort::ALL, |context| accept::changed(&vault, &inside, context))??;
        anyhow::ensure!(
            !paths.is_empty(),
            "no write-once file changed at or below {}: there is nothing to approve",
            DisplayPath::path(&self.which.path)
        );
        if !self.dry_run {
            paths = accept::accept(&vault, &paths)?;
        }
        if self.output.json {
            print_json(&AcceptReport::new(self.dry_run, &paths));
            return Ok(Outcome::Fine);
        }
        let verb = if self.dry_run { "would accept" } else { "accepted " };
        for path in paths.iter().take(FIRST) {
            self.output.print_line(format!("{verb} {}", DisplayPath::bytes(path)));
        }
        if paths.len() > FIRST {
            self.output.print_line(format!("and {} more", files((paths.len() - FIRST) as u64)));
        }
        if !self.dry_run {
            self.output.print_line(carried_out_by(&vault));
        }
        Ok(Outcome::Fine)
    }
}

/// What carries out an approval.
pub(super) fn carried_out_by(vault: &Vault) -> &'static str {
    match served::by(vault) {
        Some(_) => "the daemon carries it out",
        None => "`gabion protect` carries it out",
    }
}
