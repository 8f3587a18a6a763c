//! Scan: compares the namespace with the catalogue, directory by directory, and stores the differences as a change-set.
//!
//! Both are sorted by name, so one pass over each suffices, and memory holds one directory. A directory that cannot be
//! read is reported and everything below it counts as unchanged: an offline disk must not look like a deletion.

mod ahead;

use crate::catalogue::{Catalogue, CatalogueError, Change, Class, Counts, Entry, State};
use crate::changelog::{MAX_PATH, is_within};
use crate::coder::Coders;
use crate::format::header::Version;
use crate::policy::{DirectoryPolicy, Policy, Treatment, UserDecision};
use crate::retry::Failure;
use crate::storage::Storage;
use crate::tree::{Generation, Kind, Stat, join, split};
use crate::version::is_in_doubt;
use crate::world::Timestamp;
use crate::write_once;
use ahead::Ahead;
use std::collections::{BTreeSet, HashSet};
use std::io;

/// Results of a scan.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Files that are to be protected, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Files that the policy excludes.
    pub left_out: u64,
    /// Symbolic links, which are not protected.
    pub links: u64,
    /// Sockets, pipes and devices, which are not protected.
    pub special: u64,
    /// Directories and files that could not be read, with reasons.
    pub unreadable: Vec<(Vec<u8>, Failure)>,
    /// Number of changes by class; the changes themselves are in the catalogue.
    pub changes: Counts,
    /// Files in the catalogue before the scan.
    pub known: u64,
    /// Changed write-once files, which keep their redundancy.
    pub write_once: Vec<Vec<u8>>,
    /// Files with redundancy of an older format version, if this was checked.
    pub outdated: u64,
    /// Users' policies that are ignored, and options of their rules beyond the bounds of `[users]`: the file, and what
    /// is wrong with it. The first of them.
    pub user_policies: BTreeSet<(Vec<u8>, String)>,
}

/// Maximum number of warnings about users' policies.
const MAX_USER_POLICIES: usize = 1000;

impl Seen {
    /// True if the tree is empty.
    pub fn is_nothing(&self) -> bool {
        let all = [self.files, self.left_out, self.links, self.special];
        all.iter().all(|&number| number == 0) && self.unreadable.is_empty()
    }
}

/// Maximum number of listed unreadable paths. All are counted.
const MAX_LISTED: usize = 10_000;

/// Error that ends a scan.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The root cannot be read.
    #[error("{}: {source}", path.display())]
    Root {
        /// Path of the root.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The scan was stopped.
    #[error("stopped")]
    Stopped,
}

/// A scan with its inputs.
pub struct Scanner<'a> {
    /// Storage of the files.
    pub storage: &'a dyn Storage,
    /// Catalogue to compare with; also receives the change-set.
    pub catalogue: &'a Catalogue,
    /// Policy.
    pub policy: &'a Policy,
    /// Paths to scan, with everything below; the empty path is the whole tree.
    pub within: &'a [Vec<u8>],
    /// Time, for rules about age.
    pub now: Timestamp,
    /// If set, headers of unchanged files' redundancy are read, to find older format versions.
    pub renews: Option<&'a Coders>,
    /// Called with the number of files seen.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Polled during the scan; true stops it.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Progress of a scan.
struct Walk {
    seen: Seen,
    visited: HashSet<i64>,
    /// Directories that could not be read.
    skipped: HashSet<Vec<u8>>,
}

impl Scanner<'_> {
    /// Compares the paths with the catalogue and stores the change-set there.
    ///
    /// # Errors
    /// See [`ScanError`].
    pub fn scan(&self) -> Result<Seen, ScanError> {
        self.catalogue.clear_changes()?;
        let mut walk = Walk { seen: Seen::default(), visited: HashSet::new(), skipped: HashSet::new() };
        walk.seen.known = self.catalogue.count()?;
        let root = self.storage.folder(b"");
        let root = root.map_err(|source| ScanError::Root { path: self.storage.shown(b""), source })?;
        drop(root);
        self.catalogue.as_of_now(|| -> Result<(), ScanError> {
            let mut directories = Vec::new();
            let tops = self.tops();
            tops.iter().try_for_each(|top| self.top(top, &mut walk, &mut directories))?;
            std::thread::scope(|scope| {
                self.directories(Ahead::of(directories, self.storage, scope), &mut walk)
            })?;
            tops.iter().try_for_each(|top| self.vanished(top, &walk))?;
            Ok(self.catalogue.settle_moves()?)
        })?;
        walk.seen.changes = self.catalogue.count_changes()?;
        Ok(walk.seen)
    }

    /// Paths to start from, without those below others.
    fn tops(&self) -> Vec<Vec<u8>> {
        let mut tops: Vec<Vec<u8>> = Vec::new();
        let mut within: Vec<&Vec<u8>> = self.within.iter().collect();
        within.sort_by_key(|path| path.len());
        for path in within {
            if !tops.iter().any(|top| is_within(path, top)) {
                tops.push(path.clone());
            }
        }
        tops
    }

    /// Starts with a path of any type, or one that does not exist.
    fn top(&self, path: &[u8], walk: &mut Walk, directories: &mut Vec<Vec<u8>>) -> Result<(), ScanError> {
        let known = self.catalogue.find(path)?;
        match self.storage.find(path) {
            Ok(Some(stat)) if stat.kind == Kind::File => {
                let (directory, name) = split(path);
                let policy = self.policy.in_directory(directory, self.now);
                self.file(&policy, directory, name, &stat, known.as_ref(), walk)
            }
            Ok(found) => {
                if found.is_some_and(|stat| stat.kind == Kind::Directory) {
                    directories.push(path.to_vec());
                }
                known.map_or(Ok(()), |known| self.removed(path.to_vec(), &known))
            }
            Err(error) => {
                walk.unreadable(path, error);
                walk.skipped.insert(path.to_vec());
                Ok(())
            }
        }
    }

    fn directories(&self, mut ahead: Ahead, walk: &mut Walk) -> Result<(), ScanError> {
        while let Some((path, read)) = ahead.directory() {
            if (self.stopped)() {
                return Err(ScanError::Stopped);
            }
            match read {
                Ok(()) => self.directory(&path, &mut ahead, walk)?,
                // Deleted since its parent was read; its files are reported as deleted.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    walk.unreadable(&path, error);
                    walk.skipped.insert(path);
                }
            }
        }
        Ok(())
    }

    fn directory(&self, path: &[u8], names: &mut Ahead, walk: &mut Walk) -> Result<(), ScanError> {
        let number = self.catalogue.directory(path)?;
        walk.visited.extend(number);
        let policy = self.policy.in_directory(path, self.now);
        for (file, why) in policy.ignored() {
            walk.warn_of_user_policy(file, format!("ignored: {why}"));
        }
        let mut count = 0;
        if let Some(number) = number {
            self.catalogue.each(number, |known, entry| -> Result<(), ScanError> {
                // First the names that only the directory has, then the one that both have.
                while let Some((name, stat)) = names.next_if(|name| name < known) {
                    count += 1;
                    self.name(&policy, path, name, stat, None, walk)?;
                }
                match names.next_if(|name| name == known) {
                    Some((name, stat)) => {
                        count += 1;
                        self.name(&policy, path, name, stat, Some(&entry), walk)
                    }
                    None => self.removed(join(path, known), &entry),
                }
            })?;
        }
        while let Some((name, stat)) = names.next_if(|_| true) {
            count += 1;
            self.name(&policy, path, name, stat, None, walk)?;
        }
        (self.progress)(count);
        Ok(())
    }

    fn name(
        &self,
        policy: &DirectoryPolicy<'_>,
        directory: &[u8],
        name: &[u8],
        stat: Option<io::Result<Stat>>,
        entry: Option<&Entry>,
        walk: &mut Walk,
    ) -> Result<(), ScanError> {
        let removed = || entry.map_or(Ok(()), |entry| self.removed(join(directory, name), entry));
        let stat = match stat.transpose() {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return removed(),
            Err(error) => {
                walk.unreadable(&join(directory, name), error);
                return Ok(());
            }
        };
        match stat {
            Some(stat) if stat.kind == Kind::File => self.file(policy, directory, name, &stat, entry, walk),
            other => {
                walk.seen.links += u64::from(other.is_some_and(|stat| stat.kind == Kind::Link));
                walk.seen.special += u64::from(other.is_some_and(|stat| stat.kind == Kind::Special));
                removed()
            }
        }
    }

    fn file(
        &self,
        policy: &DirectoryPolicy<'_>,
        directory: &[u8],
        name: &[u8],
        stat: &Stat,
        entry: Option<&Entry>,
        walk: &mut Walk,
    ) -> Result<(), ScanError> {
        let path = || join(directory, name);
        let full = path();
        if let Some(known) = entry
            && write_once::is_violated(self.catalogue, self.policy, &full, known, stat, self.now)?
        {
            walk.seen.files += 1;
            walk.seen.bytes += stat.size;
            if walk.seen.write_once.len() < MAX_LISTED {
                walk.seen.write_once.push(full);
            }
            return Ok(());
        }
        let decision = policy.decide(&full, stat, self.now);
        if let Some(UserDecision { file, rule, refused }) = &decision.user {
            for why in refused {
                walk.warn_of_user_policy(file.clone(), format!("rule {rule:?}: refused: {why}"));
            }
        }
        let Some(treatment) = decision.treatment.as_deref() else {
            walk.seen.left_out += 1;
            return entry.map_or(Ok(()), |entry| self.removed(path(), entry));
        };
        // The changelog cannot record it. It is reported, and other files are not affected.
        if full.len() > MAX_PATH {
            let why = format!("its path has more than {MAX_PATH} bytes");
            walk.unreadable(&path(), io::Error::new(io::ErrorKind::InvalidFilename, why));
            return Ok(());
        }
        walk.seen.files += 1;
        walk.seen.bytes += stat.size;
        let now = stat.generation();
        let Some(entry) = entry else {
            return self.new_file(path(), &now, treatment, walk.seen.known);
        };
        // Redundancy of a doubtful version is encoded again.
        let in_doubt =
            self.storage.kind() == "plain" && is_in_doubt(entry.generation.mtime, entry.protected_at);
        let class = class(&entry.generation, &now).or(in_doubt.then_some(Class::Touched));
        // Damaged files wait for repair: new redundancy must not be made from damaged data.
        let broken = matches!(entry.state, State::Damaged | State::Lost);
        if broken && !in_doubt && matches!(class, None | Some(Class::Touched)) {
            return Ok(());
        }
        let recoded = || (treatment.identity != entry.code).then_some(Class::Recoded);
        let thin =
            || (entry.state == State::Degraded && entry.columns < entry.wanted).then_some(Class::Recoded);
        let class = class.or_else(recoded).or_else(thin);
        let outdated = class.is_none() && self.is_outdated(&full);
        walk.seen.outdated += u64::from(outdated);
        if let Some(class) = class.or(outdated.then_some(Class::Recoded)) {
            self.note(&Change { class, path: path(), ..change_of(&now, treatment) })?;
        }
        Ok(())
    }

    /// True if some redundancy of the file has an older format version.
    fn is_outdated(&self, path: &[u8]) -> bool {
        let Some(coders) = self.renews else { return false };
        let Ok(holders) = self.storage.redundancy_locations(path) else { return false };
        let opened = holders.iter().map(|holder| holder.place.open(coders));
        opened.flatten().flatten().any(|part| part.header.version < Version::NEWEST)
    }

    /// Handles a file that the catalogue does not know by this name.
    fn new_file(
        &self,
        path: Vec<u8>,
        now: &Generation,
        treatment: &Treatment,
        known: u64,
    ) -> Result<(), ScanError> {
        let change = |class, from| Change { class, path: path.clone(), from, ..change_of(now, treatment) };
        if known == 0 {
            return self.note(&change(Class::Added, None));
        }
        for from in self.catalogue.by_inode(now)? {
            // A move if the old name is free or refers to another file now; otherwise a second hard link. If the old
            // name cannot be looked up, it is not taken for a move.
            let old = self.storage.find(&from);
            let left = old.is_ok_and(|old| old.is_none_or(|old| old.inode != now.inode));
            if left && !self.is_younger(&path, &from)? && !self.catalogue.is_moved(&from)? {
                return self.note(&change(Class::Moved, Some(from)));
            }
        }
        match self.catalogue.like(now.size, now.mtime)? {
            Some(from) if now.size > 0 => self.note(&change(Class::Copied, Some(from))),
            _ => self.note(&change(Class::Added, None)),
        }
    }

    /// True if the file was created after the other one with this inode number was protected, so that the number was
    /// reused.
    fn is_younger(&self, path: &[u8], from: &[u8]) -> Result<bool, ScanError> {
        let birth = self.storage.find(path).ok().flatten().and_then(|stat| stat.birth);
        let known = self.catalogue.find(from)?;
        Ok(birth.is_some_and(|birth| known.is_some_and(|known| known.protected_at < birth)))
    }

    fn removed(&self, path: Vec<u8>, entry: &Entry) -> Result<(), ScanError> {
        let Generation { size, mtime, ctime, .. } = entry.generation;
        let (class, times, wanted) = (Class::Removed, (mtime, ctime), entry.wanted);
        self.note(&Change { class, path, from: None, size, times, wanted, priority: 0 })
    }

    fn note(&self, change: &Change) -> Result<(), ScanError> {
        Ok(self.catalogue.note_change(change)?)
    }

    /// Known files in directories below `top` that the walk did not visit.
    fn vanished(&self, top: &[u8], walk: &Walk) -> Result<(), ScanError> {
        for (number, path) in self.catalogue.directories(top)? {
            if walk.visited.contains(&number) || walk.is_skipped(&path) {
                continue;
            }
            self.catalogue.each(number, |name, entry| self.removed(join(&path, name), &entry))?;
        }
        Ok(())
    }
}

impl Walk {
    /// True if the directory or one of its parents could not be read.
    fn is_skipped(&self, path: &[u8]) -> bool {
        if self.skipped.is_empty() {
            return false;
        }
        let ends = (0..path.len()).filter(|&end| path[end] == b'/').chain([0, path.len()]);
        ends.into_iter().any(|end| self.skipped.contains(&path[..end]))
    }

    fn warn_of_user_policy(&mut self, file: Vec<u8>, why: String) {
        if self.seen.user_policies.len() < MAX_USER_POLICIES {
            self.seen.user_policies.insert((file, why));
        }
    }

    fn unreadable(&mut self, path: &[u8], error: io::Error) {
        if self.seen.unreadable.len() < MAX_LISTED {
            self.seen.unreadable.push((path.to_vec(), error.into()));
        }
    }
}

/// Common fields of the change of a file that is to be protected.
fn change_of(now: &Generation, treatment: &Treatment) -> Change {
    let (wanted, priority) = (treatment.code.m() as u32, treatment.priority);
    let (size, times) = (now.size, (now.mtime, now.ctime));
    Change { class: Class::Changed, path: Vec::new(), from: None, size, times, wanted, priority }
}

/// Class of the difference of a file that is known by its name.
fn class(was: &Generation, now: &Generation) -> Option<Class> {
    match (was.size == now.size && was.mtime == now.mtime, was.inode == now.inode, was.ctime == now.ctime) {
        (false, ..) => Some(Class::Changed),
        (true, false, _) => Some(Class::Restored),
        (true, true, false) => Some(Class::Touched),
        (true, true, true) => None,
    }
}
