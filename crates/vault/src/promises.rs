//! Guarantees: which losses each storage mode survives. README, `gabion protect --help` and `gabion status` print this
//! one definition, and no other text may promise more.

use crate::storage::Target;
use std::fmt::Write;

/// Storage mode of redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A directory with its repository on the same file system.
    SameDisk,
    /// A directory with its repository on another disk.
    OtherDisk,
    /// A pool: files are striped over targets, with redundancy on other targets.
    Pool,
}

impl Mode {
    /// All modes, in the order of the table.
    pub const ALL: [Mode; 3] = [Mode::SameDisk, Mode::OtherDisk, Mode::Pool];

    /// Heading of a row.
    pub fn words(self) -> &'static str {
        match self {
            Mode::SameDisk => "directory, repository on the same disk",
            Mode::OtherDisk => "directory, repository on another disk",
            Mode::Pool => "pool",
        }
    }
}

/// A kind of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Corrupt or overwritten parts of files.
    Corruption,
    /// A deleted file.
    DeletedFile,
    /// The disk with the files, or a target of a pool.
    Disk,
    /// The host with the files.
    Host,
}

impl Loss {
    /// All losses, in the order of the table.
    pub const ALL: [Loss; 4] = [Loss::Corruption, Loss::DeletedFile, Loss::Disk, Loss::Host];

    /// Heading of a column.
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
    /// Always, within the limit that the text names.
    Yes,
    /// Under a condition that the text names.
    Conditionally,
    /// Never.
    No,
}

/// A cell of the table: the guarantee of a mode for a loss, for any code.
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

/// Text for a pool without any redundancy left.
const NOTHING_LEFT: &str = "no: some files have no redundancy left, or their names are on one target only";

/// Guarantee of a vault for one loss, from its codes and the present locations of columns.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct VaultPromise {
    /// Loss.
    pub loss: Loss,
    /// Whether it is survived.
    pub survives: Survives,
    /// Condition or limit.
    pub words: String,
}

/// Guarantees of a vault with files of these codes, given as (k, m); never more than [`promise`]. In a pool at most
/// `left` further targets may be lost, by the present locations of columns and names.
pub fn vault_promises(
    mode: Mode,
    codes: &[(usize, usize)],
    targets: &[Target],
    left: Option<usize>,
) -> Vec<VaultPromise> {
    let least = codes.iter().map(|(_, m)| *m).chain(left).min().unwrap_or(0);
    let (there, gone): (Vec<&Target>, Vec<&Target>) =
        targets.iter().partition(|target| target.state.has_valid_content());
    // Relative to the present targets: those already lost are not counted again.
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
    // Losses that need m >= k, by the codes in use.
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
            VaultPromise { loss, survives, words }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Loss, Mode, Survives, promise, table, vault_promises};

    /// Regression: with the usual 8+2, a repository on another disk restores few files of a lost disk.
    #[test]
    fn readme_has_this_table() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        assert!(readme.contains(&table()), "README.md needs this table:\n{}", table());
    }

    /// A lost disk is survived only if m >= k and the repository is on another disk.
    #[test]
    fn no_vault_promises_more_than_the_table() {
        let survives = |mode, codes: &[(usize, usize)], loss| {
            vault_promises(mode, codes, &[], None)
                .into_iter()
                .find(|promised| promised.loss == loss)
                .unwrap()
                .survives
        };
        assert_eq!(survives(Mode::OtherDisk, &[(8, 2)], Loss::Disk), Survives::No);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2)], Loss::Disk), Survives::Yes);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2), (8, 2)], Loss::Disk), Survives::Conditionally);
        assert_eq!(survives(Mode::SameDisk, &[(2, 2)], Loss::Disk), Survives::No);
        assert_eq!(survives(Mode::OtherDisk, &[(2, 2)], Loss::Host), Survives::Conditionally);
        assert_eq!(survives(Mode::Pool, &[(4, 2)], Loss::Disk), Survives::Yes);
        for mode in Mode::ALL {
            for codes in [&[][..], &[(8, 2)], &[(1, 3)], &[(1, 3), (8, 2)]] {
                for promised in vault_promises(mode, codes, &[], None) {
                    let most = promise(mode, promised.loss).0;
                    let conditions_are_met = most == Survives::Conditionally && codes == [(1, 3)];
                    let is_more =
                        promised.survives == Survives::Yes && most != Survives::Yes && !conditions_are_met;
                    assert!(
                        !is_more && (most != Survives::No || promised.survives == Survives::No),
                        "{mode:?} {promised:?}"
                    );
                }
            }
        }
    }
}
