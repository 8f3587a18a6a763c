//! How a vault is: wanted beside actual redundancy, what is exposed, what is broken, by name.

use crate::catalogue::{CatalogueError, Class, Counts, Entry, Piece, Problem, State};
use crate::degraded;
use crate::displaced;
use crate::missing::{UnavailableTargets, apply_losses, remaining_columns, restore_if_complete};
use crate::monitor::status::WIDE;
use crate::promises::{self, Mode, VaultPromise};
use crate::protect::scan;
use crate::replaced;
use crate::run::RunContext;
use crate::scan::{ScanError, Seen};
use crate::scrub::{Due, Overdue};
use crate::storage::Target;
use crate::storage::pool::{Mirrors, Pool};
use crate::tree::{Stat, is_below};
use crate::vault::Vault;
use crate::world::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Files and bytes.
pub type Amount = (u64, u64);

/// A file that is not as it should be.
#[derive(Debug, Clone)]
pub struct Affected {
    /// Which one.
    pub path: Vec<u8>,
    /// How it is.
    pub state: State,
    /// What is known to be damaged.
    pub problems: Vec<Problem>,
}

/// How a vault, or a part of it, is.
#[derive(Debug)]
pub struct Status {
    /// Files and bytes by wanted and actual redundancy columns. What changed since it was protected has none.
    pub matrix: BTreeMap<(u32, u32), Amount>,
    /// Files by state, as they were last examined.
    pub states: BTreeMap<State, Amount>,
    /// Files that are not protected as they are now.
    pub pending: Amount,
    /// When the oldest change happened that is not protected.
    pub oldest: Option<Nanos>,
    /// Damaged, degraded and lost files, as many as were asked for.
    pub affected: Vec<Affected>,
    /// Files that changed within the part that they had when they grew, with the number of ranges: by a program or by corruption.
    pub changed_in_growth: Vec<(Vec<u8>, u64)>,
    /// What a look at the tree saw, if there was one.
    pub seen: Option<Seen>,
    /// Entries of the changelog that wait or are worked on.
    pub queued: u64,
    /// When everything was scrubbed last.
    pub last_scrub: Option<Nanos>,
    /// Files that were never scrubbed.
    pub never_scrubbed: u64,
    /// Files whose scrub is overdue by their policy.
    pub overdue: Overdue,
    /// When protect came to its end last, or a file was protected by whoever watches.
    pub last_protect: Option<Nanos>,
    /// Bytes of protected files, and of their redundancy.
    pub data_bytes: u64,
    /// See `data_bytes`.
    pub redundancy_bytes: u64,
    /// Where things are.
    pub targets: Vec<Target>,
    /// Why the watch that began last hears of every write on the whole file system, if it does.
    pub wide_watch: Option<String>,
    /// Codes of the files.
    pub codes: BTreeSet<String>,
    /// The fewest redundancy columns that a protected file has beyond what is gone; nothing where none is protected.
    pub least: Option<u32>,
    /// Where the namespace of a pool is.
    pub mirrors: Option<Mirrors>,
    /// Reads that were served with the help of redundancy.
    pub degraded_reads: Option<degraded::Record>,
    /// Redundancy that is kept for files whose name is not known now; nothing if it cannot be listed.
    pub displaced: Option<Amount>,
    /// Runs of repair that replaced content which is still kept, the oldest first; nothing if they cannot be listed.
    pub replaced: Option<Vec<replaced::Run>>,
}

/// Why nobody knows.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The tree cannot be looked at.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The changelog fails.
    #[error("the changelog: {0}")]
    Changelog(#[from] crate::changelog::Error),
}

/// Gathers the status of what is at and below `path`. With `look`, the tree is compared with what is protected; without,
/// changes that nobody recorded are not seen. At most `names` files are listed.
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
    let mut status = Status {
        matrix: BTreeMap::new(),
        states: BTreeMap::new(),
        pending: (0, 0),
        oldest: None,
        affected: Vec::new(),
        changed_in_growth: catalogue.changed_in_growth(path)?,
        seen,
        queued: 0,
        last_scrub: note(vault, "last scrub")?,
        never_scrubbed: 0,
        overdue: Overdue::default(),
        last_protect: note(vault, "last protect")?,
        data_bytes: 0,
        redundancy_bytes: 0,
        targets: vault.storage.targets(),
        wide_watch: catalogue.note(WIDE)?,
        codes: BTreeSet::new(),
        least: None,
        mirrors: vault.pool.as_ref().map(Pool::mirrors),
        degraded_reads: degraded::recorded(catalogue)?,
        displaced: set_aside(vault).ok(),
        replaced: replaced::runs(&vault.repository).ok(),
    };
    let missing = UnavailableTargets::of(&status.targets);
    // Classes of files that have nothing as they are now, if there are any.
    let is_there = |class: &Class| status.seen.as_ref().is_some_and(|seen| seen.changes.of(*class).0 > 0);
    let changed: Vec<Class> = [Class::Changed, Class::Removed].into_iter().filter(is_there).collect();
    let by_identity = look && vault.storage.keeps_by_identity();
    let due = Due::new(&vault.policy, &*vault.storage, now);
    catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        for (known, entry) in page {
            // A file that got another name is told of by that.
            let moved = if by_identity { catalogue.moved_to(&known)? } else { None };
            // What changed is counted with what it has now, below.
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
            status.count(&entry, is_current);
            if let Some(verified) = due.since(&path, &entry) {
                status.overdue.count(&path, verified);
            }
            if !status.codes.contains(&entry.code) {
                status.codes.insert(entry.code.clone());
            }
            // A time that lies ahead is from before the clock was set back.
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
    let summary = vault.changelog.pending()?;
    status.queued = summary.entries();
    status.oldest = [status.oldest, summary.oldest].into_iter().flatten().min();
    Ok(status)
}

impl Status {
    /// Which losses the vault survives now, by its codes, what is left of the redundancy of its files, and where names are.
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
        // A code that is not known here promises nothing.
        let codes: Vec<(usize, usize)> =
            self.codes.iter().map(|code| shape(code).unwrap_or((usize::MAX, 0))).collect();
        let names = self.mirrors.as_ref().map(|mirrors| mirrors.current.saturating_sub(1));
        let left =
            names.into_iter().chain(self.least.filter(|_| names.is_some()).map(|least| least as usize)).min();
        promises::vault_promises(mode, &codes, &self.targets, left)
    }
}

/// Redundancy in all repositories that is kept for files whose name is not known now.
fn set_aside(vault: &Vault) -> std::io::Result<Amount> {
    vault.storage.repositories().iter().try_fold((0, 0), |sum: Amount, repository| {
        let (files, bytes) = displaced::amount(repository)?;
        Ok((sum.0 + files, sum.1 + bytes))
    })
}

/// What is known of the file that has a name of a pool now: it may be known under another name, and takes its redundancy along. Of one that is not known
/// nothing was found to be wrong.
fn of_its_file(
    vault: &Vault,
    path: &[u8],
    known: Vec<u8>,
    entry: Entry,
) -> Result<(Vec<u8>, Entry), CatalogueError> {
    let now = match vault.storage.find(path) {
        Ok(Some(stat)) if stat.inode == entry.generation.inode => return Ok((known, entry)),
        // It cannot be told: what was found counts.
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

fn note(vault: &Vault, key: &str) -> Result<Option<Nanos>, CatalogueError> {
    Ok(vault.catalogue.note(key)?.and_then(|note| note.parse().ok()))
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

    /// Counts what changed: there is no redundancy for it as it is now.
    fn count_changes(&mut self, vault: &Vault, below: &[u8]) -> Result<(), CatalogueError> {
        for class in Class::ALL {
            // What only got another name, owner or inode keeps what it has until someone finds otherwise.
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

    /// Since when a file that is pending has been. It may have come with the time that it had elsewhere, or with one that lies
    /// ahead: then the file system knows when it came.
    fn unprotected_since(&self, stat: &Stat, now: Nanos) -> Nanos {
        let plausible =
            self.last_protect.is_none_or(|last| last <= stat.mtime || last > now) && stat.mtime <= now;
        if plausible { stat.mtime } else { stat.ctime.min(now) }
    }

    /// Files of a pool that the catalogue does not know under their names, and that miss columns on targets which do not answer: those that were never
    /// protected are lost, those that were moved are degraded or lost by their own redundancy. A name that the catalogue knows is looked at here
    /// if the file that it knows was moved: that one was told under its new name.
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
                    // A name more of a file that is protected has the redundancy of that file.
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

    /// Changes by class, where the tree was looked at.
    pub fn changes(&self) -> Option<&Counts> {
        self.seen.as_ref().map(|seen| &seen.changes)
    }

    /// Files of write-once rules that changed all the same, where the tree was looked at.
    pub fn write_once(&self) -> &[Vec<u8>] {
        self.seen.as_ref().map_or(&[], |seen| &seen.write_once)
    }

    /// Files in a state.
    pub fn files(&self, state: State) -> u64 {
        self.states.get(&state).map_or(0, |amount| amount.0)
    }
}
