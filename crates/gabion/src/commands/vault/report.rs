//! `gabion report`.

use super::Which;
use crate::output::{OutputArgs, bytes, count, print_json, table};
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::report::{AccountReport, GroupName};
use gabion_vault::accounting::{GroupBy, Sums, account};
use std::collections::HashMap;

const EXAMPLES: &str = "\
Examples:
  gabion report /srv/photos
  gabion report /srv/photos/2026 --by directory --depth 2
  gabion report /srv/home --by owner --format csv > report.csv
  gabion report /srv/photos --by extension --json | jq '.groups[:5]'

Counts protected files, largest groups first: their bytes, those of their redundancy, and what is exposed, that is, has less \
redundancy than its policy wants, or damage. From the catalogue, as of the last protect and scrub; `gabion status` compares with the \
tree.
Exit codes: 0 printed, 2 error.";

/// Arguments of `gabion report`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// What files are summed by
    #[arg(long, value_enum, default_value_t = By::Directory)]
    by: By,
    /// With --by directory: levels of directories; deeper ones count in these
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "json")]
    format: Format,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Directory,
    Owner,
    Extension,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Csv,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open_to_examine()?;
        let by = match self.by {
            By::Directory => GroupBy::Directory(self.depth),
            By::Owner => GroupBy::Owner,
            By::Extension => GroupBy::Extension,
        };
        let users = if self.by == By::Owner { users() } else { HashMap::new() };
        let name = |uid: u32| users.get(&uid).cloned();
        let mut groups: Vec<(GroupName, Sums)> = account(&vault, &inside, by)?
            .into_iter()
            .map(|(group, sums)| (GroupName::new(&group, name), sums))
            .collect();
        // Stable: equal ones stay in the order of their names.
        groups.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.bytes));
        let mut total = Sums::default();
        groups.iter().for_each(|(_, sums)| total.add(sums));
        match self.format {
            _ if self.output.json => print_json(&AccountReport::new(&vault.root, &groups, &total)),
            Format::Csv => print_csv(&groups),
            Format::Text => print_text(&groups, &total),
        }
        Ok(Outcome::Fine)
    }
}

fn print_text(groups: &[(GroupName, Sums)], total: &Sums) {
    let head = ["", "files", "bytes", "redundancy", "exposed", "exposed bytes", "never scrubbed"];
    let row = |name: String, sums: &Sums| {
        vec![
            name,
            count(sums.files),
            bytes(sums.bytes),
            bytes(sums.redundancy),
            count(sums.exposed_files),
            bytes(sums.exposed_bytes),
            count(sums.never_scrubbed),
        ]
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(groups.iter().map(|(name, sums)| row(name.to_string(), sums)));
    rows.push(row("total".to_owned(), total));
    table(&rows, |at| at > 0).iter().for_each(|line| outln!("{line}"));
}

fn print_csv(groups: &[(GroupName, Sums)]) {
    outln!("group,files,bytes,redundancy_bytes,exposed_files,exposed_bytes,lost_files,never_scrubbed");
    for (name, sums) in groups {
        let Sums { files, bytes, redundancy, exposed_files, exposed_bytes, lost_files, never_scrubbed } =
            sums;
        let name = field(&name.to_string());
        outln!(
            "{name},{files},{bytes},{redundancy},{exposed_files},{exposed_bytes},{lost_files},{never_scrubbed}"
        );
    }
}

/// A field of CSV (RFC 4180). A leading character that spreadsheets take for a formula gets a quote before it: names of
/// files come from anybody.
fn field(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains(['"', ',', '\n', '\r', '\'']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// Names of users, as far as this host knows them in its file.
fn users() -> HashMap<u32, String> {
    let text = std::fs::read("/etc/passwd").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted_and_no_formulas() {
        assert_eq!(field("photos"), "photos");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("a\"b"), "\"a\"\"b\"");
        assert_eq!(field("=1+2"), "\"'=1+2\"");
    }
}
