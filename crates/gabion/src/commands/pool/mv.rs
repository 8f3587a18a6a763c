//! `gabion pool mv`.

use super::terminal::{Which, inside, warn};
use crate::output::{OutputArgs, print_json};
use anyhow::{Context, ensure};
use gabion::exit::Outcome;
use gabion::report::pool::MoveReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::Storage;
use gabion_vault::tree::{Kind, join, split};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const EXAMPLES: &str = "\
Examples:
  gabion pool mv tank film.mkv films/
  gabion pool mv tank photos/2024 photos/2025

An existing file is replaced. Only names change; content is not copied.";

/// Arguments of `gabion pool mv`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// A file or directory in the pool
    from: OsString,
    /// Its new name, or the destination directory
    to: OsString,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, from, to, dry_run, output } = self;
        let pool = which.open()?;
        let into = to.as_bytes().ends_with(b"/");
        let (from, mut to) = (inside(&from), inside(&to));
        let find = |path: &[u8]| pool.find(path).with_context(|| DisplayPath::bytes(path).to_string());
        ensure!(find(&from)?.is_some(), "{}: not in the pool", DisplayPath::bytes(&from));
        if to.is_empty() || find(&to)?.is_some_and(|stat| stat.kind == Kind::Directory) {
            to = join(&to, split(&from).1);
        } else {
            ensure!(!into, "{}: no such directory in the pool", DisplayPath::bytes(&to));
        }
        if !dry_run {
            warn(&pool.rename(&from, &to)?);
        }
        if output.json {
            let (from, to) = (String::from_utf8_lossy(&from), String::from_utf8_lossy(&to));
            print_json(&MoveReport { dry_run, from: &from, to: &to });
        }
        let verb = if dry_run { "would move" } else { "moved" };
        output.print_line(format!("{verb} {} to {}", DisplayPath::bytes(&from), DisplayPath::bytes(&to)));
        Ok(Outcome::Fine)
    }
}
