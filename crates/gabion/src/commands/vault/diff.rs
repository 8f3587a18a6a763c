//! `gabion diff`.

use super::{Effort, Which};
use crate::output::{OutputArgs, bytes, count, print_json};
use gabion::exit::Outcome;
use gabion::report::{ChangeReport, DiffReport, changes};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::{CatalogueError, Change, Class, Counts};
use gabion_vault::protect::scan;
use gabion_vault::tree::is_below;

const EXAMPLES: &str = "\
Examples:
  gabion diff /srv/photos
  gabion diff /srv/photos/2026 --json | jq .changes

added, copied: new since the last protect; moved: under another name; changed: size or mtime differs; \
restored: a new file with the same size and mtime; touched: only owner, permissions or attributes differ; recoded: the \
policy has another code; removed: missing. Only names, sizes and times are read, no content.
Exit codes: 0 no changes, 1 changes.";

/// Arguments of `gabion diff`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open_to_examine()?;
        let seen = self.output.run(&Effort::ALL, |context| scan(&vault, context))??;
        let mut listed = Vec::new();
        for class in Class::ALL {
            vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
                for change in page.iter().filter(|change| is_below(&change.path, &inside)) {
                    if self.output.json {
                        listed.push(ChangeReport::new(change));
                    } else {
                        self.output.print_line(line(change));
                    }
                }
                Ok(())
            })?;
        }
        if self.output.json {
            print_json(&DiffReport { changes: changes(&seen.changes), files: listed });
        } else {
            print_counts(&self.output, &seen.changes);
        }
        Ok(if seen.changes.is_empty() { Outcome::Fine } else { Outcome::Found })
    }
}

fn line(change: &Change) -> String {
    let from = change.from.as_ref().map(|from| format!(" (from {})", DisplayPath::bytes(from)));
    format!("{:<9} {}{}", change.class.word(), DisplayPath::bytes(&change.path), from.unwrap_or_default())
}

/// Prints the classes that occur, one per line.
pub(super) fn print_counts(output: &OutputArgs, counts: &Counts) {
    if counts.is_empty() {
        output.print_line("nothing changed since the last protect");
    }
    for class in Class::ALL {
        let (files, size) = counts.of(class);
        if files > 0 {
            output.print_line(format!("{:<9} {:>12}  {:>12}", class.word(), count(files), bytes(size)));
        }
    }
}
