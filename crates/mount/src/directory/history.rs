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
    /// Files that were made through the mount and not encoded since, with the changes that are under way. There is no redundancy that they could be
    /// compared with, so nothing is remembered of them, and their version is not asked for.
    new: Mutex<HashMap<u64, u32>>,
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
        let changing = std::array::from_fn(|_| RwLock::default());
        History { files: Mutex::default(), new: Mutex::default(), changing }
    }
}

impl History {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, Tracked>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, number: u64) -> &RwLock<()> {
        &self.changing[number as usize % self.changing.len()]
    }

    fn new_files(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file was made.
    pub(super) fn made(&self, number: u64) {
        self.files().remove(&number);
        let mut new = self.new_files();
        // One more is tracked like any other file.
        if new.len() < MAX_FILES {
            new.insert(number, 0);
        }
    }

    /// The number of a file may stand for another one from now on.
    pub(super) fn forget(&self, number: u64) {
        self.new_files().remove(&number);
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
        if let Some(changes) = self.new_files().get_mut(&number) {
            *changes += 1;
        } else {
            return self.change_tracked(number, file, range, act);
        }
        let done = act();
        if let Some(changes) = self.new_files().get_mut(&number) {
            *changes = changes.saturating_sub(1);
        }
        done
    }

    fn change_tracked<T>(
        &self,
        number: u64,
        file: impl AsFd,
        range: impl FnOnce(u64) -> Range<u64>,
        act: impl FnOnce() -> T,
    ) -> T {
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
        let mut new = self.new_files();
        match new.get(&now.inode) {
            // What is encoded may have part of a change that is under way: nothing is known of this version then.
            Some(1..) => return,
            // It is tracked from the next change on, which finds this version if nobody else writes before.
            Some(0) => {
                new.remove(&now.inode);
                return;
            }
            None => drop(new),
        }
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

#[cfg(test)]
mod tests {
    use super::History;
    use gabion_vault::storage::plain::DirectoryWriter;
    use gabion_vault::tree::{Generation, stat_of};
    use std::fs::File;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;

    struct Fixture {
        history: History,
        file: File,
        number: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let file = tempfile::tempfile().unwrap();
            let number = stat_of(&file).unwrap().inode;
            Fixture { history: History::default(), file, number }
        }

        fn write(&self, range: Range<u64>, during: impl FnOnce()) {
            self.history.change(
                self.number,
                &self.file,
                |_| range.clone(),
                || {
                    during();
                    self.file
                        .write_all_at(&vec![7; (range.end - range.start) as usize], range.start)
                        .unwrap();
                },
            );
        }

        fn now(&self) -> Generation {
            stat_of(&self.file).unwrap().generation()
        }

        fn written_since(&self, version: &Generation) -> Option<Vec<Range<u64>>> {
            self.history.written_since(version, &self.now())
        }
    }

    #[test]
    fn new_files_are_tracked_from_their_first_encoding_on() {
        let it = Fixture::new();
        it.history.made(it.number);
        it.write(0..100, || ());
        assert!(it.history.files().is_empty(), "nothing is remembered");
        assert_eq!(it.written_since(&it.now()), None);
        let encoded = it.now();
        it.history.note_encoding_start(None, &encoded);
        it.write(10..20, || ());
        it.write(50..60, || ());
        assert_eq!(it.written_since(&encoded), Some(vec![10..20, 50..60]));
    }

    /// What was encoded may have a part of what was being written, with the same mtime.
    #[test]
    fn a_new_file_that_is_encoded_while_it_is_written_stays_unknown() {
        let it = Fixture::new();
        it.history.made(it.number);
        let mut encoded = None;
        it.write(0..100, || {
            let now = it.now();
            it.history.note_encoding_start(None, &now);
            encoded = Some(now);
        });
        it.write(100..200, || ());
        assert_eq!(it.written_since(&encoded.unwrap()), None);
        assert_eq!(it.written_since(&it.now()), None);
    }

    #[test]
    fn files_that_were_there_are_tracked_from_their_first_change_on() {
        let it = Fixture::new();
        let before = it.now();
        it.write(0..100, || ());
        assert_eq!(it.written_since(&before).as_deref(), Some(std::slice::from_ref(&(0..100))));
        it.file
            .set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1500))
            .unwrap();
        assert_eq!(it.written_since(&before), None, "somebody else changed it");
    }
}
