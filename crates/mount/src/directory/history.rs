//! Write history of a mounted directory: the bytes of each file that were written through the mount since it was
//! protected.
//!
//! A worker asks for these ranges before it encodes a file: a block that was not written and differs from its signature
//! is corrupt and must not be encoded.
//!
//! Programs may also write to the source directly. So the version of a file (size, mtime) is read before and after each
//! change; if it differs from the version after the last change, another program wrote, and the history of the file is
//! discarded.
//!
//! Limits: a direct write is missed if it happens during a write through the mount, or in the same clock step (up to 10
//! ms) before Linux 6.13. Later kernels give a file a new mtime once the last one was read, which happens here after
//! each change. File systems with mtimes in whole seconds get no history.

use super::resolve::stat_of;
use gabion_platform::sync;
use gabion_vault::changelog::Ranges;
use gabion_vault::storage::plain::DirectoryWriter;
use gabion_vault::tree::{Generation, Stat};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, RwLock};

/// Most files with a history.
const MAX_FILES: usize = 1 << 16;

/// Nanoseconds per second. An mtime that is a multiple of it is taken as a sign of a file system that stores whole
/// seconds.
const SECOND: i64 = 1_000_000_000;

/// Size and mtime of a file.
type Version = (u64, i64);

fn version_of(generation: &Generation) -> Version {
    (generation.size, generation.mtime)
}

/// Write history by inode number.
#[derive(Debug)]
pub(super) struct History {
    files: Mutex<HashMap<u64, Tracked>>,
    /// Held for reading during a change, for writing while a worker repairs blocks. Files share 64 locks.
    changing: [RwLock<()>; 64],
}

/// History of one file.
#[derive(Debug)]
struct Tracked {
    /// Versions that may be protected, with the ranges written since.
    versions: Vec<(Version, Ranges)>,
    /// Version after the last change, if known.
    last: Option<Version>,
    /// Changes in progress.
    changes: u32,
}

impl Tracked {
    fn new(version: Option<Version>) -> Tracked {
        let versions = version.map(|version| (version, Ranges::new())).into_iter().collect();
        Tracked { versions, last: version, changes: 0 }
    }

    /// True if only the mount wrote to the file up to this version.
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
        sync::lock(&self.files)
    }

    fn lock_of(&self, number: u64) -> &RwLock<()> {
        &self.changing[number as usize % self.changing.len()]
    }

    /// Runs a change of the content. `range` returns the affected bytes, given the size before.
    pub(super) fn change<T>(
        &self,
        number: u64,
        file: impl AsFd,
        range: impl FnOnce(u64) -> Range<u64>,
        act: impl FnOnce() -> T,
    ) -> T {
        let _no_repair = sync::read(self.lock_of(number));
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

    /// Notes that the mtime of a file was set. After a write this is part of copying (`rsync`, `cp -p`), and the
    /// history stays. Without one it declares the current content intended (`touch`), and the history is discarded.
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
        let _no_writes = sync::write(self.lock_of(number));
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
