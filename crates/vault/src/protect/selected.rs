//! Protection of selected files: exactly these are encoded, now, without a scan of the tree.
//!
//! Only the selection is compared with the catalogue, and only its entries of the changelog are claimed, before they
//! are due. Nothing is removed: a selected file that is gone may have been moved out of the selection, and its
//! redundancy must be there for whoever finds it under its new name. A file that was moved into the selection is
//! found by its inode and takes its redundancy along, so that corruption on the way is seen.

use super::{ProtectError, SLICE, change, order, renamed, scan_within, with_worker, would_hold};
use crate::catalogue::{Class, State};
use crate::changelog::Change;
use crate::display_path::DisplayPath;
use crate::guard::Held;
use crate::missing::{self, UnavailableTargets};
use crate::policy::UserDecision;
use crate::retry::{Failure, Retry};
use crate::run::{Progress, RunContext};
use crate::scan::Seen;
use crate::tree::Kind;
use crate::vault::Vault;
use crate::worker::{self, Done, Scanned, WorkerOptions};
use crate::write_once;
use std::collections::BTreeSet;

/// Maximum number of listed files. All are counted.
const MAX_LISTED: usize = 10_000;

/// Paths that were asked for, sorted by what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Files and directories that exist, each once.
    pub within: Vec<Vec<u8>>,
    /// Paths at which there is nothing.
    pub missing: Vec<Vec<u8>>,
    /// Files that the policy excludes, with the name of the rule.
    pub excluded: Vec<(Vec<u8>, String)>,
    /// Paths that cannot be protected, with reasons: symbolic links, sockets, unreadable directories.
    pub refused: Vec<(Vec<u8>, Failure)>,
}

impl Selection {
    /// Looks up paths relative to the vault's root.
    pub fn of(vault: &Vault, paths: impl IntoIterator<Item = Vec<u8>>) -> Selection {
        let mut selection = Selection::default();
        let paths: BTreeSet<Vec<u8>> = paths.into_iter().collect();
        let refuse = |why: &str| Failure::new(why, Retry::AfterChange);
        for path in paths {
            match vault.storage.find(&path) {
                Ok(None) => selection.missing.push(path),
                Ok(Some(stat)) => match stat.kind {
                    Kind::Directory => selection.within.push(path),
                    Kind::File => {
                        let decision = vault.policy.decide(&path, &stat, vault.clock.now());
                        match decision.treatment {
                            Some(_) => selection.within.push(path),
                            None => {
                                let own = || vault.policy.rule_name(decision.rule).to_owned();
                                let of_user = |user: &UserDecision| {
                                    format!("{} of {}", user.rule, DisplayPath::bytes(&user.file))
                                };
                                let rule = decision.user.as_ref().map_or_else(own, of_user);
                                selection.excluded.push((path, rule));
                            }
                        }
                    }
                    Kind::Link => {
                        selection.refused.push((path, refuse("symbolic links are not protected")));
                    }
                    Kind::Special => {
                        let why = "sockets, pipes and devices are not protected";
                        selection.refused.push((path, refuse(why)));
                    }
                },
                Err(error) => selection.refused.push((path, error.into())),
            }
        }
        selection
    }
}

/// Results of protecting a selection.
#[derive(Debug)]
pub struct SelectedReport {
    /// Results of the scan of the selection.
    pub seen: Seen,
    /// Results of the workers.
    pub done: Done,
    /// Set if the guard holds the changed files of the selection. Its digest is not one to approve: that needs a scan
    /// of the tree.
    pub held: Option<Held>,
    /// Changes of selected files that are still pending.
    pub pending: u64,
    /// Selected files that are not fully protected, with their states: the first of them.
    pub affected: Vec<(Vec<u8>, State)>,
    /// Number of selected files that are not fully protected.
    pub affected_files: u64,
}

/// Compares the selection with the catalogue, and asks the guard. Records nothing.
///
/// # Errors
/// See [`ProtectError`].
pub fn preview(
    vault: &Vault,
    selection: &Selection,
    context: RunContext<'_>,
) -> Result<(Seen, Option<Held>), ProtectError> {
    let seen = scan_within(vault, &selection.within, context)?;
    let held = would_hold(vault, &seen)?.held().cloned();
    Ok((seen, held))
}

/// Protects the selected files. The caller holds the vault's lock.
///
/// # Errors
/// See [`ProtectError`].
pub fn protect_selected(
    vault: &Vault,
    selection: &Selection,
    context: RunContext<'_>,
) -> Result<SelectedReport, ProtectError> {
    worker::recover(&*vault.storage, &vault.coders, &vault.catalogue)?;
    let (seen, held) = preview(vault, selection, context)?;
    write_once::note(&vault.catalogue, &seen.write_once)?;
    if held.is_none() {
        renamed::follow(vault)?;
    }
    let mut classes = order(held.is_some());
    classes.retain(|&class| class != Class::Removed);
    let sum = |amount: &dyn Fn((u64, u64)) -> u64| -> u64 {
        classes.iter().map(|&class| amount(seen.changes.of(class))).sum()
    };
    let ahead = (sum(&|(files, _)| files), sum(&|(_, bytes)| bytes));
    (context.progress)(Progress::Step("protecting", Some(ahead)));
    let scanned = Scanned::default();
    // A person typed this command: a drain is about workers.
    let heeds_drain = false;
    let options = WorkerOptions { hold: held.is_some(), heeds_drain, ..WorkerOptions::new(&scanned) };
    let (mut done, mut pending) = (Done::default(), 0);
    with_worker(vault, context, options, |worker| -> Result<(), ProtectError> {
        let mut paths = Vec::new();
        for &class in &classes {
            vault.catalogue.each_change(class, |page| -> Result<(), ProtectError> {
                let now = vault.clock.now();
                let changes: Vec<Change> = page.iter().map(|found| change(found, now)).collect();
                vault.changelog.record(&changes)?;
                paths.extend(page.iter().map(|found| found.path.clone()));
                if paths.len() >= SLICE {
                    pending += worker.drain_paths(&std::mem::take(&mut paths), &mut done)?;
                }
                Ok(())
            })?;
        }
        pending += worker.drain_paths(&paths, &mut done)?;
        Ok(())
    })?;
    if seen.changes.of(Class::Moved).0 > 0 {
        vault.catalogue.forget_empty_directories()?;
    }
    let mut report = SelectedReport { seen, done, held, pending, affected: Vec::new(), affected_files: 0 };
    report.find_affected(vault, &selection.within)?;
    Ok(report)
}

impl SelectedReport {
    fn find_affected(&mut self, vault: &Vault, within: &[Vec<u8>]) -> Result<(), ProtectError> {
        let unavailable = UnavailableTargets::of(&vault.storage.targets());
        let may_lack = vault.pool.is_some() && !unavailable.untrusted.is_empty();
        for path in within {
            vault.catalogue.each_page(path, |page| -> Result<(), ProtectError> {
                for (path, mut entry) in page {
                    if may_lack {
                        missing::apply_losses(vault, &path, &unavailable, &mut entry);
                    }
                    if entry.state == State::Protected || vault.storage.find(&path)?.is_none() {
                        continue;
                    }
                    self.affected_files += 1;
                    if self.affected.len() < MAX_LISTED {
                        self.affected.push((path, entry.state));
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
