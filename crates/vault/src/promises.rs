//! Promises: which losses each way to store redundancy survives. The one definition; README, `gabion protect --help` and
//! `gabion status` print it, and nothing in the program may promise more.

use crate::storage::Target;
use std::fmt::Write;

/// A way to store redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A directory whose repository is on the same file system.
    SameDisk,
    /// A directory whose repository is on another disk.
    OtherDisk,
    /// A pool: files are striped over targets, redundancy is on other targets.
    Pool,
}

impl Mode {
    /// All, in the order of the table.
    pub const ALL: [Mode; 3] = [Mode::SameDisk, Mode::OtherDisk, Mode::Pool];

    /// Words for a row of the table.
    pub fn words(self) -> &'static str {
        match self {
            Mode::SameDisk => "directory, repository on the same disk",
            Mode::OtherDisk => "directory, repository on another disk",
            Mode::Pool => "pool",
        }
    }
}

/// Something that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Corrupt or overwritten parts of files.
    Corruption,
    /// A file that was deleted.
    DeletedFile,
    /// The disk with the files, or a target of a pool.
    Disk,
    /// The host with the files.
    Host,
}

impl Loss {
    /// All, in the order of the table.
    pub const ALL: [Loss; 4] = [Loss::Corruption, Loss::DeletedFile, Loss::Disk, Loss::Host];

    /// Words for the head of a column.
    pub fn words(self) -> &'static str {
        match self {
            Loss::Corruption => "bit rot, overwritten regions",
            Loss::DeletedFile => "a deleted file",
            Loss::Disk => "a lost disk",
            Loss::Host => "a lost host",
        }
    }
}

/// Whether a loss is survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Survives {
    /// Always, within the limit that the words name.
    Yes,
    /// Under a condition that the words name.
    Conditionally,
    /// Not at all.
    No,
}

/// A cell of the table: what a mode promises for a loss, whatever the code.
pub fn promise(mode: Mode, loss: Loss) -> (Survives, &'static str) {
    use Survives::{Conditionally, No, Yes};
    match (mode, loss) {
        (_, Loss::Corruption) => (Yes, "up to m blocks of each stripe"),
        (Mode::SameDisk | Mode::OtherDisk, Loss::DeletedFile) => {
            (Conditionally, "only if m >= k, until the next protect")
        }
        (Mode::OtherDisk, Loss::Disk) => (Conditionally, "only if m >= k"),
        (Mode::OtherDisk, Loss::Host) => {
            (Conditionally, "only if m >= k and the repository is on another host")
        }
        (Mode::SameDisk, Loss::Disk | Loss::Host) | (Mode::Pool, Loss::DeletedFile) => (No, "no"),
        (Mode::Pool, Loss::Disk) => (Yes, "any m targets"),
        (Mode::Pool, Loss::Host) => (Conditionally, "any m domains, if each host is one domain"),
    }
}

/// The whole table in Markdown.
pub fn table() -> String {
    let heads: Vec<&str> = Loss::ALL.iter().map(|loss| loss.words()).collect();
    let mut table = format!("| redundancy of a | {} |\n| --- | --- | --- | --- | --- |\n", heads.join(" | "));
    for mode in Mode::ALL {
        let cells: Vec<&str> = Loss::ALL.iter().map(|&loss| promise(mode, loss).1).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {} | {} |", mode.words(), cells.join(" | "));
    }
    table
}

/// Words for a pool where nothing more may go.
const NOTHING_LEFT: &str = "no: some files have no redundancy left, or their names are on one target only";

/// What a vault promises for a loss, by its codes and where its parts are.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// The loss.
    pub loss: Loss,
    /// Whether it is survived.
    pub survives: Survives,
    /// Why, and how much of it.
    pub words: String,
}

/// What a vault with files of these codes, given as (k, m), promises for each loss. It is never more than [`promise`] says. Of a pool, `left` targets
/// at most may go beyond those that are gone, by where columns and names are now.
pub fn kept(mode: Mode, codes: &[(usize, usize)], targets: &[Target], left: Option<usize>) -> Vec<Kept> {
    let least = codes.iter().map(|(_, m)| *m).chain(left).min().unwrap_or(0);
    let (there, gone): (Vec<&Target>, Vec<&Target>) =
        targets.iter().partition(|target| target.state.counts());
    // Of what is there now: what is gone may not be lost twice.
    let of = |number: usize, what: &str| match gone.is_empty() {
        true => format!("any {least} of {number} {what}"),
        false => format!(
            "any {least} of the {number} {what} that are left ({} of {} targets gone)",
            gone.len(),
            targets.len()
        ),
    };
    let all_come_back = !codes.is_empty() && codes.iter().all(|(k, m)| m >= k);
    let some_come_back = codes.iter().any(|(k, m)| m >= k);
    // What needs m >= k, by the codes that there are.
    let by_codes = |condition: &str| match (all_come_back, some_come_back) {
        (true, _) if condition.is_empty() => (Survives::Yes, "yes: m >= k".to_owned()),
        (true, _) => (Survives::Conditionally, format!("{condition} (m >= k)")),
        (false, true) => (Survives::Conditionally, "only files whose code has m >= k".to_owned()),
        (false, false) => (Survives::No, "no: that needs a code with m >= k".to_owned()),
    };
    let one = |loss: Loss| -> (Survives, String) {
        let (survives, words) = promise(mode, loss);
        match (mode, loss) {
            _ if codes.is_empty() => (Survives::No, "no: nothing is protected yet".to_owned()),
            (Mode::Pool, Loss::Corruption | Loss::Disk | Loss::Host) if least == 0 => {
                (Survives::No, NOTHING_LEFT.to_owned())
            }
            (_, Loss::Corruption) => (survives, format!("up to {least} blocks of each stripe")),
            (Mode::SameDisk | Mode::OtherDisk, Loss::DeletedFile) => by_codes("until the next protect"),
            (Mode::OtherDisk, Loss::Disk) => by_codes(""),
            (Mode::OtherDisk, Loss::Host) => by_codes("only if the repository is on another host"),
            (Mode::SameDisk, Loss::Disk) => {
                (survives, "no: data and redundancy are on one file system".to_owned())
            }
            (Mode::Pool, Loss::Disk) => (survives, of(there.len(), "targets")),
            (Mode::Pool, Loss::Host) => {
                let mut domains: Vec<&str> = there.iter().map(|target| &target.domain[..]).collect();
                domains.sort_unstable();
                domains.dedup();
                (survives, format!("{}, if each host is one domain", of(domains.len(), "domains")))
            }
            (Mode::SameDisk, Loss::Host) | (Mode::Pool, Loss::DeletedFile) => (survives, words.to_owned()),
        }
    };
    Loss::ALL
        .iter()
        .map(|&loss| {
            let (survives, words) = one(loss);
            Kept { loss, survives, words }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Loss, Mode, Survives, kept, promise, table};

    /// README said nothing of what a repository on another disk can do, and `protect --help` promised that it brings back what the
    /// first disk lost: with the usual 8+2, 3 of 75 files came back.
    #[test]
    fn readme_has_this_table() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        assert!(readme.contains(&table()), "README.md needs this table:\n{}", table());
    }

    /// A lost disk is survived with m >= k alone, and only where the repository is on another one.
    #[test]
    fn no_vault_promises_more_than_the_table() {
        let survives = |mode, codes: &[(usize, usize)], loss| {
            kept(mode, codes, &[], None).into_iter().find(|kept| kept.loss == loss).unwrap().survives
        };
        assert_eq!(survives(Mode::OtherDisk, &[(8, 2)], Loss::Disk), Survives::No);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2)], Loss::Disk), Survives::Yes);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2), (8, 2)], Loss::Disk), Survives::Conditionally);
        assert_eq!(survives(Mode::SameDisk, &[(2, 2)], Loss::Disk), Survives::No);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2)], Loss::Host), Survives::Conditionally);
        assert_eq!(survives(Mode::Pool, &[(4, 2)], Loss::Disk), Survives::Yes);
        for mode in Mode::ALL {
            for codes in [&[][..], &[(8, 2)], &[(1, 3)], &[(1, 3), (8, 2)]] {
                for kept in kept(mode, codes, &[], None) {
                    let most = promise(mode, kept.loss).0;
                    let conditions_are_met = most == Survives::Conditionally && codes == [(1, 3)];
                    let is_more =
                        kept.survives == Survives::Yes && most != Survives::Yes && !conditions_are_met;
                    assert!(
                        !is_more && (most != Survives::No || kept.survives == Survives::No),
                        "{mode:?} {kept:?}"
                    );
                }
            }
        }
    }
}
