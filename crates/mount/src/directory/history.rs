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
//! The same memory tells the versions between which ranges are recorded in the changelog ([`Spans`]), for workers of
//! other processes.
//!
//! In a deployment of several hosts these are [`windows`](super::windows) instead.
//!
//! Limits: a direct write is missed if it happens during a write through the mount, or in the same clock step (up to 10
//! ms) before Linux 6.13. Later kernels give a file a new mtime once the last one was read, which happens here after
//! each change. File systems with mtimes in whole seconds get no history.

use super::resolve::stat_of;
use super::windows::{FileWindows, Seen, UnderWay};
use crate::pending::{Close, Spans};
use gabion_platform::sync;
use gabion_vault::changelog::{Ranges, Span, VersionName};
use gabion_vault::storage::plain::DirectoryWriter;
use gabion_vault::tree::{Generation, Stat};
use gabion_vault::version::{is_in_doubt, name_of};
use gabion_vault::world::{Timestamp, unique_id};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, RwLock};

/// Most files with a history.
const MAX_FILES: usize = 1 << 16;

/// Size and mtime of a file. Renames and changes of attributes make no other version here, but they end a span.
type Version = (u64, Timestamp);

fn version_of(generation: &Generation) -> Version {
    (generation.size, generation.mtime)
}

/// Write history by inode number.
#[derive(Debug)]
pub(super) struct History {
    files: Mutex<HashMap<u64, Tracked>>,
    /// Files created through the mount and not encoded since, with the changes in progress. They have no redundancy to
    /// compare with, so they get no history, and their version is not read.
    new: Mutex<HashMap<u64, u32>>,
    /// Held for reading during a change, for writing while a worker repairs blocks. Files share 64 locks.
    changing: [RwLock<()>; 64],
    under_way: UnderWay,
    /// Other hosts write, too.
    is_shared: bool,
}

/// History of one file.
#[derive(Debug)]
struct Tracked {
    /// Versions that may be protected, with the ranges written since.
    versions: Vec<(Version, Ranges)>,
    /// Version after the last change, if known.
    last: Option<Generation>,
    /// The version up to which ranges were recorded, or a name that holds the span open.
    recorded: Option<VersionName>,
    windows: FileWindows,
    /// Changes in progress.
    changes: u32,
}

impl Tracked {
    fn new(version: Option<Generation>) -> Tracked {
        let versions = version.map(|version| (version_of(&version), Ranges::new())).into_iter().collect();
        let recorded = version.and_then(|it| name_of(&it));
        Tracked { versions, last: version, recorded, windows: FileWindows::default(), changes: 0 }
    }

    /// True if only the mount wrote to the file up to this version.
    fn is_at(&self, version: Version) -> bool {
        self.changes == 0 && self.last.is_some_and(|last| version_of(&last) == version)
    }

    fn written_since(&self, version: Version) -> Option<&Ranges> {
        self.versions.iter().find(|(known, _)| *known == version).map(|(_, written)| written)
    }
}

impl History {
    pub(super) fn new(is_shared: bool) -> History {
        let changing = std::array::from_fn(|_| RwLock::default());
        let (files, new, under_way) = (Mutex::default(), Mutex::default(), UnderWay::default());
        History { files, new, changing, under_way, is_shared }
    }

    pub(super) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Tracked>> {
        sync::lock(&self.files)
    }

    fn lock_of(&self, number: u64) -> &RwLock<()> {
        &self.changing[number as usize % self.changing.len()]
    }

    fn new_files(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        sync::lock(&self.new)
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

    /// Runs an append, which returns where it wrote: that is known only afterwards. Nobody asks for the ranges of a
    /// file while it is changed.
    pub(super) fn append(
        &self,
        number: u64,
        file: impl AsFd,
        act: impl FnOnce() -> io::Result<Range<u64>>,
    ) -> io::Result<Range<u64>> {
        let size = Cell::new(None);
        let range = |before| {
            size.set(Some(before));
            before..before
        };
        self.change(number, file, range, || {
            let place = act()?;
            if let (Some(size), Some(tracked)) = (size.get(), self.files().get_mut(&number)) {
                if place.start != size && tracked.changes == 1 {
                    // Somebody else changed the size since it was read.
                    *tracked = Tracked { changes: 1, ..Tracked::new(None) };
                }
                tracked.versions.iter_mut().for_each(|(_, written)| written.insert(place.clone()));
            }
            Ok(place)
        })
    }

    /// Runs a change of the content. `range` returns the affected bytes, given the size before.
    pub(super) fn change<T>(
        &self,
        number: u64,
        file: impl AsFd,
        range: impl FnOnce(u64) -> Range<u64>,
        act: impl FnOnce() -> T,
    ) -> T {
        self.under_way.during(|| self.change_counted(number, file, range, act))
    }

    fn change_counted<T>(
        &self,
        number: u64,
        file: impl AsFd,
        range: impl FnOnce(u64) -> Range<u64>,
        act: impl FnOnce() -> T,
    ) -> T {
        let _no_repair = sync::read(self.lock_of(number));
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
        let version = || {
            let stat = stat_of(&file).ok().map(Stat::from)?;
            Some((stat.generation(), stat.links == 1))
        };
        self.begin(number, version(), range);
        let done = act();
        self.end(number, version());
        done
    }

    fn begin(&self, number: u64, seen: Seen, range: impl FnOnce(u64) -> Range<u64>) {
        let before = seen.map(|(before, _)| before);
        let mut files = self.files();
        if files.len() >= MAX_FILES && !files.contains_key(&number) {
            let idle = files.iter().find(|(_, tracked)| tracked.changes == 0).map(|(number, _)| *number);
            idle.map(|number| files.remove(&number));
        }
        let tracked = files.entry(number).or_insert_with(|| Tracked::new(before));
        if self.is_shared && tracked.changes == 0 {
            tracked.windows.begin(tracked.last, seen, self.under_way.tick());
        }
        if tracked.changes == 0 && tracked.last.is_none_or(|last| Some(last) != before) {
            if !before.is_some_and(|before| tracked.is_at(version_of(&before))) {
                let windows = std::mem::take(&mut tracked.windows);
                *tracked = Tracked { windows, ..Tracked::new(before) };
            }
            tracked.recorded = before.and_then(|before| name_of(&before));
        }
        let range = range(before.map_or(0, |before| before.size));
        tracked.versions.iter_mut().for_each(|(_, written)| written.insert(range.clone()));
        tracked.changes += 1;
    }

    fn end(&self, number: u64, seen: Seen) {
        if let Some(tracked) = self.files().get_mut(&number) {
            tracked.changes = tracked.changes.saturating_sub(1);
            // A whole second is taken as a sign of a file system that stores whole seconds.
            tracked.last = seen.map(|(after, _)| after).filter(|after| after.mtime.parts().1 != 0);
            if seen.is_some_and(|(_, has_one_name)| !has_one_name) {
                tracked.windows.forget();
            }
        }
    }

    /// Notes that the mtime of a file was set. After a write this is part of copying (`rsync`, `cp -p`), and the
    /// history stays. Without one it declares the current content intended (`touch`), and the history is discarded.
    pub(super) fn set_times(&self, number: u64, before: &Generation, after: &Generation) {
        let mut files = self.files();
        let Some(tracked) = files.get_mut(&number) else { return };
        if tracked.changes == 0 && tracked.last != Some(*before) {
            tracked.windows.end(tracked.last);
        }
        let is_written = tracked.versions.iter().any(|(_, written)| !written.is_empty());
        if is_written && tracked.is_at(version_of(before)) {
            tracked.last = Some(*after);
        } else if tracked.changes == 0 {
            files.remove(&number);
        }
    }
}

impl Spans for History {
    fn close(&self, number: u64, now: Timestamp) -> Close {
        if let Entry::Occupied(new) = self.new_files().entry(number) {
            // It is tracked from the next change on.
            if *new.get() == 0 {
                new.remove();
            }
            return Close::Never;
        }
        let mut files = self.files();
        let Some(tracked) = files.get_mut(&number) else { return Close::Never };
        if self.is_shared && tracked.changes == 0 {
            tracked.windows.end(tracked.last);
            return Close::Windows(tracked.windows.take());
        }
        let Some(last) = tracked.last.filter(|_| tracked.changes == 0) else {
            return if tracked.changes > 0 { Close::Later } else { Close::Never };
        };
        if is_in_doubt(last.mtime.max(last.ctime), now) {
            return Close::Later;
        }
        let Some(to) = name_of(&last) else { return Close::Never };
        let from = tracked.recorded.replace(to);
        from.map_or(Close::Never, |from| Close::Now(Span { from, to }))
    }

    fn hold_open(&self, number: u64) -> Option<Span> {
        if self.is_shared {
            return None;
        }
        let mut files = self.files();
        let tracked = files.get_mut(&number)?;
        let to = unique_id().ok();
        let from = std::mem::replace(&mut tracked.recorded, to);
        Some(Span { from: from?, to: to? })
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
        let _no_writes = sync::write(self.lock_of(number));
        if !self.files().get(&number).is_some_and(|tracked| tracked.is_at(version_of(now))) {
            return false;
        }
        let after = act();
        if let (Some(after), Some(tracked)) = (after, self.files().get_mut(&number)) {
            tracked.last = Some(after);
        }
        after.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::History;
    use crate::pending::{Close, Spans};
    use gabion_vault::changelog::Span;
    use gabion_vault::storage::plain::DirectoryWriter;
    use gabion_vault::tree::{Generation, stat_of};
    use gabion_vault::version::name_of;
    use gabion_vault::world::SECOND;
    use std::fs::File;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    struct Fixture {
        history: History,
        file: File,
        number: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let file = tempfile::tempfile().unwrap();
            let number = stat_of(&file).unwrap().inode;
            Fixture { history: History::new(false), file, number }
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

    /// Names of versions: those of a span, or none.
    fn closed(it: &Fixture, after: Duration) -> Option<Span> {
        match it.history.close(it.number, it.now().ctime + after) {
            Close::Now(span) => Some(span),
            Close::Windows(_) | Close::Later | Close::Never => None,
        }
    }

    #[test]
    fn spans_join_and_end_with_versions_that_no_write_can_share() {
        let it = Fixture::new();
        let first = it.now();
        let mut inside = None;
        it.write(0..100, || inside = it.history.hold_open(it.number));
        let inside = inside.unwrap();
        assert_eq!(inside.from, name_of(&first).unwrap());
        assert_eq!(closed(&it, Duration::ZERO), None, "another write may give the same mtime");
        let span = closed(&it, SECOND).unwrap();
        assert_eq!(span, Span { from: inside.to, to: name_of(&it.now()).unwrap() });
        it.write(200..300, || assert_eq!(closed(&it, SECOND), None, "it is being written"));
        let next = closed(&it, SECOND).unwrap();
        assert_eq!(next, Span { from: span.to, to: name_of(&it.now()).unwrap() });
        // Somebody else wrote: the next span begins with that version.
        it.file.set_len(5000).unwrap();
        let theirs = it.now();
        it.write(0..10, || ());
        let span = closed(&it, SECOND).unwrap();
        assert_eq!(span.from, name_of(&theirs).unwrap());
        assert_ne!(span.from, next.to);
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
