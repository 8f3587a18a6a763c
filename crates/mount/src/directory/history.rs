//! Which bytes of a file were written through the mount since it was protected.
//!
//! Others may write to the source directly. So the version of a file, its size and mtime, is read before and after each change: if it is another one
//! than the last change left, somebody else wrote, and nothing is known any more of what was written before. A worker asks
//! here before it makes redundancy: blocks that nobody wrote to and that differ from their signatures are damaged.
//!
//! A direct write in the same step of the clock as the write through the mount before it leaves the same mtime. Since Linux 6.13 the usual file systems
//! give a file another mtime once somebody has asked for the last one, as is done here after each change. Earlier kernels step by up to 10 ms, and such a
//! write is not noticed. File systems that count whole seconds are not relied on.
//!
//! Not noticed either: a direct write while a write through the mount is under way.

use super::reach::stat_of;
use gabion_vault::changelog::Ranges;
use gabion_vault::storage::plain::DirectoryWriter;
use gabion_vault::tree::{Generation, Stat};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Files that are remembered. What was written to others is not known.
const MAX_FILES: usize = 1 << 16;

/// Nanoseconds of a second. An mtime of a whole second says that the file system counts seconds.
const SECOND: i64 = 1_000_000_000;

/// Size and mtime of a file.
type Version = (u64, i64);

fn version_of(generation: &Generation) -> Version {
    (generation.size, generation.mtime)
}

/// What was written to files, by number.
#[derive(Debug)]
pub(super) struct History {
    files: Mutex<HashMap<u64, Tracked>>,
    /// Changes hold one of these for reading; a worker that repairs blocks of a file, for writing. A few locks do for all files.
    changing: [RwLock<()>; 64],
}

/// What is known of one file.
#[derive(Debug)]
struct Tracked {
    /// Versions that redundancy may be of, with what was written since.
    versions: Vec<(Version, Ranges)>,
    /// The version that the last change left; nothing if it is not known.
    last: Option<Version>,
    /// Changes that are under way.
    changes: u32,
}

impl Tracked {
    fn new(version: Option<Version>) -> Tracked {
        let versions = version.map(|version| (version, Ranges::new())).into_iter().collect();
        Tracked { versions, last: version, changes: 0 }
    }

    /// Whether nothing but the mount wrote to the file since it began to be tracked, up to this version.
    fn is_at(&self, version: Version) -> bool {
        self.changes == 0 && self.last == Some(version)
    }

    fn written_since(&self, version: Version) -> Option<&Ranges> {
        self.versions.iter().find(|(known, _)| *known == version).map(|(_, written)| written)
    }
}

impl Default for History {
    fn default() -> History {
        History { files: Mutex::default(), changing: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl History {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, Tracked>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, number: u64) -> &RwLock<()> {
        &self.changing[number as usize % self.changing.len()]
    }

    /// Changes the content of a file. `range` says which bytes, given the size that the file has before.
    pub(super) fn change<T>(
        &self,
        number: u64,
        file: impl AsFd,
        range: impl FnOnce(u64) -> Range<u64>,
        act: impl FnOnce() -> T,
    ) -> T {
        let _nobody_repairs = self.lock_of(number).read().unwrap_or_else(PoisonError::into_inner);
        let version = || stat_of(&file).ok().map(|stat| version_of(&Stat::from(stat).generation()));
        self.begin(number, version(), range);
        let done = act();
        self.end(number, version());
        done
    }

    fn begin(&self, number: u64, before: Option<Version>, range: impl FnOnce(u64) -> Range<u64>) {
        let mut files = self.files();
        if files.len() >= MAX_FILES && !files.contains_key(&number) {
            let idle = files.iter().find(|(_, tracked)| tracked.changes == 0).map(|(number, _)| *number);
            idle.map(|number| files.remove(&number));
        }
        let tracked = files.entry(number).or_insert_with(|| Tracked::new(before));
        if tracked.changes == 0 && (before.is_none() || tracked.last != before) {
            *tracked = Tracked::new(before);
        }
        let range = range(before.map_or(0, |(size, _)| size));
        tracked.versions.iter_mut().for_each(|(_, written)| written.insert(range.clone()));
        tracked.changes += 1;
    }

    fn end(&self, number: u64, after: Option<Version>) {
        if let Some(tracked) = self.files().get_mut(&number) {
            tracked.changes = tracked.changes.saturating_sub(1);
            tracked.last = after.filter(|(_, mtime)| mtime % SECOND != 0);
        }
    }

    /// The mtime of a file was set. Of a file that was written before, that is part of the writing (`rsync`, `cp -p`). Otherwise somebody says that
    /// its content is meant as it is (`touch`).
    pub(super) fn set_times(&self, number: u64, before: &Generation, after: &Generation) {
        let mut files = self.files();
        let Some(tracked) = files.get_mut(&number) else { return };
        let is_written = tracked.versions.iter().any(|(_, written)| !written.is_empty());
        if is_written && tracked.is_at(version_of(before)) {
            tracked.last = Some(version_of(after));
        } else if tracked.changes == 0 {
            files.remove(&number);
        }
    }
}

impl DirectoryWriter for History {
    fn written_since(&self, version: &Generation, now: &Generation) -> Option<Vec<Range<u64>>> {
        let files = self.files();
        let tracked = files.get(&now.inode).filter(|tracked| tracked.is_at(version_of(now)))?;
        let written = tracked.written_since(version_of(version)).filter(|_| version.inode == now.inode)?;
        Some(written.as_slice().to_vec())
    }

    fn note_encoding_start(&self, old: Option<&Generation>, now: &Generation) {
        let mut files = self.files();
        let version = version_of(now);
        let Some(tracked) = files.get_mut(&now.inode).filter(|tracked| tracked.is_at(version)) else {
            return;
        };
        let old = old.map(version_of);
        tracked.versions.retain(|(known, _)| Some(*known) == old || *known == version);
        if tracked.written_since(version).is_none() {
            tracked.versions.push((version, Ranges::new()));
        }
    }

    fn with_writes_paused(&self, now: &Generation, act: &mut dyn FnMut() -> Option<Generation>) -> bool {
        let number = now.inode;
        let _nobody_writes = self.lock_of(number).write().unwrap_or_else(PoisonError::into_inner);
        if !self.files().get(&number).is_some_and(|tracked| tracked.is_at(version_of(now))) {
            return false;
        }
        let after = act();
        if let (Some(after), Some(tracked)) = (after, self.files().get_mut(&number)) {
            tracked.last = Some(version_of(&after));
        }
        after.is_some()
    }
}
