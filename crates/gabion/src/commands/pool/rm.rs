//! `gabion pool rm`.

use super::terminal::{FileErrors, Which, inside, warn};
use crate::output::{OutputArgs, print_json};
use gabion::exit::Outcome;
use gabion::report::pool::RemoveReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::Storage;
use gabion_vault::storage::pool::Pool;
use gabion_vault::tree::{Kind, join};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  gabion pool rm tank notes.txt
  gabion pool rm tank photos -r --dry-run

Continues after errors, and reports each file that cannot be removed.";

/// Arguments of `gabion pool rm`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Files in the pool
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Also remove directories with their content
    #[arg(short, long)]
    recursive: bool,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, paths, recursive, dry_run, output } = self;
        let pool = which.open()?;
        let mut errors = FileErrors::default();
        let mut found = Vec::new();
        for path in &paths {
            let path = inside(path);
            match pool.find(&path) {
                Ok(Some(stat)) if stat.kind == Kind::Directory && !recursive => {
                    errors.report(&path, &"is a directory; -r removes it with its content");
                }
                Ok(Some(stat)) => collect(&pool, path, stat.kind == Kind::Directory, &mut found, &mut errors),
                Ok(None) => errors.report(&path, &"not in the pool"),
                // A file with an unreadable stub can still be removed.
                Err(_) => found.push(path),
            }
        }
        let mut removed = Vec::new();
        for path in found {
            let done = if dry_run { Ok(Vec::new()) } else { pool.remove(&path) };
            match done {
                Ok(faults) => {
                    warn(&faults);
                    let verb = if dry_run { "would remove" } else { "removed" };
                    output.print_line(format!("{verb} {}", DisplayPath::bytes(&path)));
                    removed.push(String::from_utf8_lossy(&path).into_owned());
                }
                Err(error) => errors.report(&path, &error),
            }
        }
        if output.json {
            print_json(&RemoveReport { dry_run, removed: &removed, failed: errors.texts() });
        }
        Ok(errors.outcome())
    }
}

/// The files at and below a path, each directory after its content.
fn collect(pool: &Pool, path: Vec<u8>, directory: bool, found: &mut Vec<Vec<u8>>, errors: &mut FileErrors) {
    if directory {
        match pool.list(&path) {
            Ok(listed) => {
                for (name, listed) in listed {
                    let directory = listed.is_ok_and(|listed| listed.stat.kind == Kind::Directory);
                    collect(pool, join(&path, &name), directory, found, errors);
                }
            }
            Err(error) => return errors.report(&path, &error),
        }
    }
    // The root of the pool is not removed.
    if !path.is_empty() {
        found.push(path);
    }
}
