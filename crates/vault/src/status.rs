//! Status of a vault: wanted and actual redundancy, pending changes, damage by file name.

use crate::catalogue::{CatalogueError, Class, Counts, Entry, Piece, Problem, State};
use crate::changelog::Monitors;
use crate::changelog::monitors::{KnownMonitor, MonitorState};
use crate::deduplication::{self, SharedAmount};
use crate::degraded;
use crate::displaced;
use crate::guard::{GuardError, Held, Judgement};
use crate::missing::{UnavailableTargets, apply_losses, remaining_columns, restore_if_complete};
use crate::monitor::status::FILESYSTEM_WIDE;
use crate::promises::{self, Mode, VaultPromise};
use crate::protect::{scan, user_policy_warnings, would_hold};
use crate::replaced;
use crate::run::RunContext;
use crate::scan::{ScanError, Seen};
use crate::scrub::{Due, Overdue};
use crate::storage::Target;
use crate::storage::pool::{Mirrors, Pool};
use crate::tree::{Stat, is_below};
use crate::vault::Vault;
use crate::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Files and bytes.
pub type Amount = (u64, u64);

/// A file that is degraded, damaged or lost.
#[derive(Debug, Clone)]
pub struct Affected {
    /// Path of the file.
    pub path: Vec<u8>,
    /// State of the file.
    pub state: State,
    /// Known damaged ranges.
    pub problems: Vec<Problem>,
}

/// Status of a vault or a part of it.
#[derive(Debug)]
pub struct Status {
    /// Files and bytes by wanted and actual redundancy columns. Files that changed since they were protected have none.
    pub matrix: BTreeMap<(u32, u32), Amount>,
    /// Files by state, as last examined.
    pub states: BTreeMap<State, Amount>,
    /// Files whose present version is not protected.
    pub pending: Amount,
    /// Time of the oldest unprotected change.
    pub oldest: Option<Timestamp>,
    /// Degraded, damaged and lost files, up to the requested number.
    pub affected: Vec<Affected>,
    /// Files that grew and also changed in blocks that existed before, with the number of ranges: by a program or by
    /// corruption.
    pub changed_in_growth: Vec<(Vec<u8>, u64)>,
    /// Results of a scan, if there was one.
    pub seen: Option<Seen>,
    /// Judgement of the guard on the changes of the scan; none without a scan.
    pub judgement: Option<Judgement>,
    /// Warnings about users' policies at the last scan.
    pub user_policies: usize,
    /// Entries of the changelog that are pending or in progress.
    pub queued: u64,
    /// Monitors of the deployment, running and lost; none if the changelog is for one host.
    pub monitors: Vec<KnownMonitor>,
    /// Time by which all files were last scrubbed.
    pub last_scrub: Option<Timestamp>,
    /// Files that were never scrubbed.
    pub never_scrubbed: u64,
    /// Files whose scrub is overdue by their policy.
    pub overdue: Overdue,
    /// End of the last protect, or the last time a watch protected a file.
    pub last_protect: Option<Timestamp>,
    /// Bytes of protected files, and of their redundancy. Of a whole vault, what files share counts once.
    pub data_bytes: u64,
    /// See `data_bytes`.
    pub redundancy_bytes: u64,
    /// Targets and their disk space.
    pub targets: Vec<Target>,
    /// Reason why the running watch receives events of the whole file system, if it does.
    pub filesystem_wide: Option<String>,
    /// Codes of the files.
    pub codes: BTreeSet<String>,
    /// Smallest number of redundancy columns that a protected file has beyond the lost ones; none if no file is
    /// protected.
    pub least: Option<u32>,
    /// Mirrors of a pool's namespace.
    pub mirrors: Option<Mirrors>,
    /// Degraded reads that were served.
    pub degraded_reads: Option<degraded::Record>,
    /// Displaced redundancy; none if it cannot be listed.
    pub displaced: Option<Amount>,
    /// Redundancy that files of the vault share; none if it cannot be counted.
    pub shared: Option<SharedAmount>,
    /// Runs of repair whose replaced content is still kept, oldest first; none if they cannot be listed.
    pub replaced: Option<Vec<replaced::Run>>,
}

/// Error of a status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The tree cannot be scanned.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The guard cannot judge the changes.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The changelog failed.
    #[error("the changelog: {0}")]
    Changelog(#[from] crate::changelog::Error),
}

/// Collects the status of everything at and below `path`. With `look`, the tree is scanned; without, only recorded
/// changes are known. At most `names` files are listed.
///
/// # Errors
/// See [`StatusError`].
pub fn status(
    vault: &Vault,
    path: &[u8],
    look: bool,
    names: usize,
    context: RunContext<'_>,
) -> Result<Status, StatusError> {
    let (catalogue, now) = (&vault.catalogue, vault.clock.now());
    if let Some(pool) = &vault.pool {
        pool.probe();
    }
    let seen = if look { Some(scan(vault, context)?) } else { None };
    let judgement = seen.as_ref().map(|seen| would_hold(vault, seen)).transpose()?;
    let mut status = Status {
        matrix: BTreeMap::new(),
        states: BTreeMap::new(),
        pending: (0, 0),
        oldest: None,
        affected: Vec::new(),
        changed_in_growth: catalogue.changed_in_growth(path)?,
        seen,
        judgement,
        user_policies: user_policy_warnings(vault)?.unwrap_or(0),
        queued: 0,
        monitors: vault.changelog.monitors().map_or(Ok(Vec::new()), Monitors::known_monitors)?,
        last_scrub: catalogue.time_note("last scrub")?,
        never_scrubbed: 0,
        overdue: Overdue::default(),
        last_protect: catalogue.time_note("last protect")?,
        data_bytes: 0,
        redundancy_bytes: 0,
        targets: vault.storage.targets(),
        filesystem_wide: catalogue.note(FILESYSTEM_WIDE)?,
        codes: BTreeSet::new(),
        least: None,
        mirrors: vault.pool.as_ref().map(Pool::mirrors),
        degraded_reads: degraded::recorded(catalogue)?,
        displaced: set_aside(vault).ok(),
        shared: deduplication::amount(vault).ok(),
        replaced: replaced::runs(&vault.repository).ok(),
    };
    let missing = UnavailableTargets::of(&status.targets);
    // Classes of files that have nothing as they are now, if there are any.
    let is_there = |class: &Class| status.seen.as_ref().is_some_and(|seen| seen.changes.of(*class).0 > 0);
    let changed: Vec<Class> = [Class::Changed, Class::Removed].into_iter().filter(is_there).collect();
    // Write-once files that were changed: their redundancy is that of the content before.
    let overwritten: HashSet<Vec<u8>> =
        status.seen.iter().flat_map(|seen| &seen.write_once).cloned().collect();
    let by_identity = look && vault.storage.keeps_by_identity();
    let due = Due::new(&vault.policy, &*vault.storage, now);
    catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        for (known, entry) in page {
            // A moved file is reported under its new name.
            let moved = if by_identity { catalogue.moved_to(&known)? } else { None };
            // Changed files are counted below, with their present redundancy.
            let mut is_current = true;
            for class in changed.iter().filter(|_| moved.is_none()) {
                is_current &= !catalogue.is_change(*class, &known)?;
            }
            let path = moved.unwrap_or_else(|| known.clone());
            let may_be_another = by_identity && (!is_current || entry.state != State::Protected);
            let (known, mut entry) =
                if may_be_another { of_its_file(vault, &path, known, entry)? } else { (known, entry) };
            if by_identity && entry.state == State::Degraded && catalogue.problems(&known)?.is_empty() {
                restore_if_complete(vault, &path, &mut entry);
            }
            if !missing.untrusted.is_empty() {
                apply_losses(vault, &path, &missing, &mut entry);
            }
            let is_overwritten = overwritten.contains(&path);
            status.count(&entry, is_current && !is_overwritten);
            if is_overwritten {
                let amount = status.matrix.entry((entry.wanted, 0)).or_default();
                *amount = (amount.0 + 1, amount.1 + entry.generation.size);
            }
            if let Some(verified) = due.since(&path, &entry) {
                status.overdue.count(&path, verified);
            }
            if !status.codes.contains(&entry.code) {
                status.codes.insert(entry.code.clone());
            }
            // A time in the future is from before the clock was set back.
            if entry.protected_at <= now {
                status.last_protect = status.last_protect.max(Some(entry.protected_at));
            }
            if entry.state != State::Protected && status.affected.len() < names {
                let mut problems = catalogue.problems(&known)?;
                problems.retain(|problem| problem.piece != Piece::Changed);
                status.affected.push(Affected { path, state: entry.state, problems });
            }
        }
        Ok(())
    })?;
    if look {
        status.count_changes(vault, path)?;
        status.count_unknown(vault, path, &missing, names)?;
    }
    if let Some(shared) = status.shared.filter(|_| path.is_empty()) {
        status.redundancy_bytes = status.redundancy_bytes.saturating_sub(shared.saved);
    }
    let summary = vault.changelog.pending()?;
    status.queued = summary.entries();
    status.oldest = [status.oldest, summary.oldest].into_iter().flatten().min();
    Ok(status)
}

impl Status {
    /// Which losses the vault survives now, by its codes, what is left of the redundancy of its files, and where
    /// names are.
    pub fn promises(&self, vault: &Vault) -> Vec<VaultPromise> {
        let is_one_disk = || match &self.targets[..] {
            [data, redundancy] => data.domain == redundancy.domain,
            _ => true,
        };
        let mode = match &vault.pool {
            Some(_) => Mode::Pool,
            None if is_one_disk() => Mode::SameDisk,
            None => Mode::OtherDisk,
        };
        let shape = |code: &String| {
            let coder = vault.coders.get(code).ok()?;
            Some((coder.code().k(), coder.code().m()))
        };
        // An unknown code promises nothing.
        let codes: Vec<(usize, usize)> =
            self.codes.iter().map(|code| shape(code).unwrap_or((usize::MAX, 0))).collect();
        let names = self.mirrors.as_ref().map(|mirrors| mirrors.current.saturating_sub(1));
        let left =
            names.into_iter().chain(self.least.filter(|_| names.is_some()).map(|least| least as usize)).min();
        promises::vault_promises(mode, &codes, &self.targets, left)
    }
}

impl Status {
    /// Monitors that are lost: what they changed last may be unknown until a scan.
    pub fn lost_monitors(&self) -> impl Iterator<Item = &KnownMonitor> {
        self.monitors.iter().filter(|it| it.state != MonitorState::Running)
    }
}

/// Displaced redundancy of all repositories.
fn set_aside(vault: &Vault) -> std::io::Result<Amount> {
    vault.storage.repositories().iter().try_fold((0, 0), |sum: Amount, repository| {
        let (files, bytes) = displaced::amount(repository)?;
        Ok((sum.0 + files, sum.1 + bytes))
    })
}

/// Catalogue entry of the file that has this name in the pool now: it may be known under another name. For an unknown
/// file no damage is known.
fn of_its_file(
    vault: &Vault,
    path: &[u8],
    known: Vec<u8>,
    entry: Entry,
) -> Result<(Vec<u8>, Entry), CatalogueError> {
    let now = match vault.storage.find(path) {
        Ok(Some(stat)) if stat.inode == entry.generation.inode => return Ok((known, entry)),
        // If the lookup fails, the entry under this name is used.
        Err(_) => return Ok((known, entry)),
        Ok(now) => now,
    };
    if let Some(stat) = now
        && let Some(name) = vault.catalogue.by_inode(&stat.generation())?.into_iter().next()
        && let Some(entry) = vault.catalogue.find(&name)?
    {
        return Ok((name, entry));
    }
    Ok((known, Entry { state: State::Protected, ..entry }))
}

impl Status {
    fn count(&mut self, entry: &Entry, is_current: bool) {
        let size = entry.generation.size;
        let add = |amount: &mut Amount| *amount = (amount.0 + 1, amount.1 + size);
        if is_current {
            add(self.matrix.entry((entry.wanted, entry.columns)).or_default());
        }
        add(self.states.entry(entry.state).or_default());
        self.least = Some(self.least.map_or(entry.columns, |least| least.min(entry.columns)));
        self.never_scrubbed += u64::from(entry.scrubbed_at.is_none());
        self.data_bytes += size;
        self.redundancy_bytes += entry.redundancy;
    }

    /// Counts changed files, whose present version has no redundancy.
    fn count_changes(&mut self, vault: &Vault, below: &[u8]) -> Result<(), CatalogueError> {
        for class in Class::ALL {
            // A file with only a new name, owner or inode keeps its redundancy until a difference is found.
            let kept = matches!(class, Class::Moved | Class::Touched | Class::Restored | Class::Recoded);
            vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
                for change in page.iter().filter(|change| is_below(&change.path, below)) {
                    self.pending = (self.pending.0 + 1, self.pending.1 + change.size);
                    if kept {
                        continue;
                    }
                    if class != Class::Removed {
                        let amount = self.matrix.entry((change.wanted, 0)).or_default();
                        *amount = (amount.0 + 1, amount.1 + change.size);
                        let stat = vault.storage.find(&change.path).ok().flatten();
                        let since = stat.map(|stat| self.unprotected_since(&stat, vault.clock.now()));
                        self.oldest = [self.oldest, since].into_iter().flatten().min();
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Time since which a pending file is unprotected. If its mtime is older than its arrival or in the future, the
    /// ctime is used.
    fn unprotected_since(&self, stat: &Stat, now: Timestamp) -> Timestamp {
        let plausible =
            self.last_protect.is_none_or(|last| last <= stat.mtime || last > now) && stat.mtime <= now;
        if plausible { stat.mtime } else { stat.ctime.min(now) }
    }

    /// Files of a pool that the catalogue does not know by name and that miss columns on offline targets. Files that
    /// were never protected are lost; moved files are degraded or lost according to their own redundancy. A known name
    /// is included if its file was moved, which is reported under the new name.
    fn count_unknown(
        &mut self,
        vault: &Vault,
        below: &[u8],
        missing: &UnavailableTargets,
        names: usize,
    ) -> Result<(), CatalogueError> {
        let Some(pool) = vault.pool.as_ref().filter(|_| !missing.offline.is_empty()) else { return Ok(()) };
        for class in [Class::Added, Class::Copied, Class::Changed] {
            vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
                for change in page.iter().filter(|change| is_below(&change.path, below)) {
                    if class == Class::Changed && vault.catalogue.moved_to(&change.path)?.is_none() {
                        continue;
                    }
                    // A further hard link of a protected file shares its redundancy.
                    let code = format!("{}+{}", pool.config().stripe, vault.default_code.m());
                    let Some(left) = remaining_columns(vault, &change.path, &code, &missing.offline) else {
                        continue;
                    };
                    let spare = left.redundancy.checked_sub(left.data_gone);
                    let state = match spare {
                        None => State::Lost,
                        Some(spare) if left.redundancy_now > 0 && spare < change.wanted as usize => {
                            State::Degraded
                        }
                        Some(_) => continue,
                    };
                    let amount = self.states.entry(state).or_default();
                    *amount = (amount.0 + 1, amount.1 + change.size);
                    if self.affected.len() < names {
                        let (path, problems) = (change.path.clone(), Vec::new());
                        self.affected.push(Affected { path, state, problems });
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Changes by class, if the tree was scanned.
    pub fn changes(&self) -> Option<&Counts> {
        self.seen.as_ref().map(|seen| &seen.changes)
    }

    /// The change-set that waits for an approval, if the tree was scanned.
    pub fn held(&self) -> Option<&Held> {
        self.judgement.as_ref().and_then(Judgement::held)
    }

    /// Changed write-once files, if the tree was scanned.
    pub fn write_once(&self) -> &[Vec<u8>] {
        self.seen.as_ref().map_or(&[], |seen| &seen.write_once)
    }

    /// Number of files in a state.
    pub fn files(&self, state: State) -> u64 {
        self.states.get(&state).map_or(0, |amount| amount.0)
    }
}
