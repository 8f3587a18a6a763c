//! `gabion pool ls`.

use super::terminal::{FileErrors, Which, inside};
use crate::output::{OutputArgs, print_json};
use anyhow::{Context, ensure};
use gabion::exit::Outcome;
use gabion::report::pool::{EntryReport, ListReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::Storage;
use gabion_vault::storage::pool::stub::Special;
use gabion_vault::storage::pool::{DirectoryEntry, Pool};
use gabion_vault::tree::{Kind, join, split};
use gabion_vault::world::Timestamp;
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  gabion pool ls tank
  gabion pool ls tank photos -l       with sizes, times (UTC) and targets
  gabion pool ls tank -R --json";

/// Arguments of `gabion pool ls`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// A file or directory in the pool
    #[arg(default_value = "/")]
    path: OsString,
    /// Also print permissions, owner, size, time and targets
    #[arg(short, long)]
    long: bool,
    /// Also list subdirectories
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    output: OutputArgs,
}

struct Printer {
    long: bool,
    recursive: bool,
    output: OutputArgs,
    entries: Vec<EntryReport>,
    errors: FileErrors,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, path, long, recursive, output } = self;
        let pool = which.open()?;
        let mut printer =
            Printer { long, recursive, output, entries: Vec::new(), errors: FileErrors::default() };
        let path = inside(&path);
        let shown = || DisplayPath::bytes(&path).to_string();
        let found = pool.find(&path).with_context(shown)?;
        ensure!(path.is_empty() || found.is_some(), "{}: not in the pool", shown());
        let listed = pool.list(&path)?;
        // The list of a file is the file itself; its name is already in its path.
        let is_file =
            matches!(&listed[..], [(_, Ok(only))] if only.stub.is_some() && pool.stub(&path).is_ok());
        let base = if is_file { split(&path).0 } else { &path };
        printer.print(&pool, base, listed);
        if printer.output.json {
            print_json(&ListReport { entries: &printer.entries, failed: printer.errors.texts() });
        }
        Ok(printer.errors.outcome())
    }
}

impl Printer {
    fn print<E: std::fmt::Display>(
        &mut self,
        pool: &Pool,
        base: &[u8],
        listed: Vec<(Vec<u8>, Result<DirectoryEntry, E>)>,
    ) {
        for (name, listed) in listed {
            let path = join(base, &name);
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) => {
                    self.errors.report(&path, &error);
                    continue;
                }
            };
            let shown = if self.recursive { DisplayPath::bytes(&path) } else { DisplayPath::bytes(&name) }
                .to_string();
            match self.output.json {
                true => self.entries.push(EntryReport::new(&path, &listed)),
                false => self.output.print_line(line(&shown, &listed, self.long)),
            }
            if self.recursive && listed.stat.kind == Kind::Directory {
                match pool.list(&path) {
                    Ok(below) => self.print(pool, &path, below),
                    Err(error) => self.errors.report(&path, &error),
                }
            }
        }
    }
}

/// Type letter of a pipe, a socket or a device.
fn special(listed: &DirectoryEntry) -> char {
    match listed.stub.as_ref().and_then(|stub| stub.special) {
        Some(Special::Pipe) => 'p',
        Some(Special::Socket) => 's',
        Some(Special::Character(..)) => 'c',
        Some(Special::Block(..)) => 'b',
        None => '?',
    }
}

fn line(shown: &str, listed: &DirectoryEntry, long: bool) -> String {
    let stat = &listed.stat;
    let (letter, behind) = match stat.kind {
        Kind::Directory => ('d', "/".to_owned()),
        Kind::Link => {
            let to = listed.stub.as_ref().and_then(|stub| stub.link.as_deref()).unwrap_or_default();
            ('l', format!(" -> {}", DisplayPath::bytes(to)))
        }
        Kind::Special => (special(listed), String::new()),
        Kind::File => ('-', String::new()),
    };
    if !long {
        return format!("{shown}{}", if letter == 'd' { "/" } else { "" });
    }
    let size = if letter == 'd' { "-".to_owned() } else { stat.size.to_string() };
    let targets = listed.stub.as_ref().map_or_else(String::new, |stub| stub.targets.join(","));
    format!(
        "{letter}{} {:>5} {:>5} {size:>14} {} {:<12} {shown}{behind}",
        permissions(stat.mode),
        stat.uid,
        stat.gid,
        time(stat.mtime),
        targets
    )
}

fn permissions(mode: u32) -> String {
    (0..9).rev().map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' }).collect()
}

/// Date and time, UTC.
fn time(time: Timestamp) -> String {
    let (seconds, _) = time.parts();
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since March of the year 0, in eras of 400 years: leap days are the last day of a year and need no special
    // case.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::{permissions, time};
    use gabion_vault::world::Timestamp;

    /// Expected values are those of `date -u`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_234_567_890, "2009-02-13 23:31"),
            (4_107_542_399, "2100-02-28 23:59"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(time(Timestamp::from_seconds(seconds)), text);
        }
    }

    #[test]
    fn permissions_are_written_as_ls_does() {
        assert_eq!(permissions(0o754), "rwxr-xr--");
    }
}
