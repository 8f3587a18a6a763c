//! Conversion of events to changes: several events of one path become one change, in an order that keeps their meaning.

use crate::changelog::{Change, MAX_PATH, What, When, is_within};
use crate::world::Timestamp;
use gabion_platform::event::{Change as Kind, Event};
use std::collections::HashMap;
use std::time::Duration;

/// State of the tree while events are read.
pub(super) trait View {
    /// The time.
    fn now(&self) -> Timestamp;
    /// Quiet period and priority of a file; none if it is not to be protected.
    fn rest(&self, path: &[u8]) -> Option<(Duration, u8)>;
    /// Time for which redundancy of deleted files is kept.
    fn rest_of_gone(&self) -> Duration;
    /// True if the path is a directory now, none if it does not exist.
    fn is_directory(&self, path: &[u8]) -> Option<bool>;
}

/// A file that changes continuously is due after this number of quiet periods, but not before `MIN_CAP`.
const CAP: u32 = 10;
const MIN_CAP: Duration = Duration::from_secs(600);

/// Due time of a change after a quiet period.
pub(super) fn rested(now: Timestamp, quiet: Duration, priority: u8) -> When {
    When::after_rest(now, quiet, quiet.saturating_mul(CAP).max(MIN_CAP), priority)
}

/// Deleted files often reappear, for example with editors and package managers, so they wait for the quiet period.
fn gone(view: &dyn View) -> When {
    rested(view.now(), view.rest_of_gone(), 0)
}

/// Renames are due at once: they cost little, and redundancy is found by the new name only.
fn at_once(view: &dyn View) -> When {
    When::now(view.now(), u8::MAX)
}

/// Changes to be recorded.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order; none where a later change made an earlier one obsolete.
    changes: Vec<Option<Change>>,
    /// Modifications that can still be merged, by path.
    open: HashMap<Vec<u8>, usize>,
    live: usize,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Returns the changes and leaves the batch empty.
    pub(super) fn take(&mut self) -> Vec<Change> {
        self.open.clear();
        self.live = 0;
        self.changes.drain(..).flatten().collect()
    }

    /// Adds the change that an event describes.
    pub(super) fn add(&mut self, event: Event, view: &dyn View) {
        match event {
            // The content of a new directory has events of its own.
            Event::Changed { directory: true, change, .. } if change != Kind::Deleted => {}
            Event::Changed { path, change: Kind::Deleted, directory } => {
                self.delete(path, directory, view);
            }
            Event::Changed { path, .. } => self.modify(path, view),
            Event::Moved { from: Some(from), to: Some(to), directory } => {
                self.rename(from, to, directory, view);
            }
            Event::Moved { from: None, to: Some(to), directory: true } => self.gap(to, at_once(view)),
            Event::Moved { from: None, to: Some(to), directory: false } => self.modify(to, view),
            Event::Moved { from: Some(from), to: None, directory } => {
                self.delete(from, directory, view);
            }
            Event::Moved { from: None, to: None, .. } => {}
            Event::Gap(_) => self.gap(Vec::new(), at_once(view)),
        }
    }

    fn push(&mut self, change: Change) {
        // Longer paths cannot be processed; scans report them.
        let paths = match &change.what {
            What::Modify { path, .. } | What::Delete { path } | What::Gap { root: path } => [path, path],
            What::Rename { from, to } => [from, to],
        };
        if paths.iter().all(|path| path.len() <= MAX_PATH) {
            self.live += 1;
            self.changes.push(Some(change));
        }
    }

    fn modify(&mut self, path: Vec<u8>, view: &dyn View) {
        let open = self.open.get(&path).copied();
        if let Some(Some(change)) = open.and_then(|at| self.changes.get_mut(at)) {
            // The quiet period restarts.
            let quiet = change.when.due.since(change.when.at);
            change.when.at = view.now();
            change.when.due = change.when.at + quiet;
            return;
        }
        let Some((quiet, priority)) = view.rest(&path) else { return };
        let at = self.changes.len();
        self.push(Change::modify_whole(path.clone(), rested(view.now(), quiet, priority)));
        if self.changes.len() > at {
            self.open.insert(path, at);
        }
    }

    fn drop_open(&mut self, path: &[u8]) {
        if let Some(at) = self.open.remove(path) {
            self.changes[at] = None;
            self.live -= 1;
        }
    }

    fn delete(&mut self, path: Vec<u8>, directory: bool, view: &dyn View) {
        if !directory {
            self.drop_open(&path);
            self.push(Change::delete(path, gone(view)));
            return;
        }
        self.open.clear();
        self.push(Change::delete(path.clone(), gone(view)));
        // The deletion cancels entries below it, but the source may have reported content of a new directory with this
        // name before the deletion of the old one.
        if view.is_directory(&path) == Some(true) {
            self.gap(path, at_once(view));
        }
    }

    fn rename(&mut self, from: Vec<u8>, to: Vec<u8>, directory: bool, view: &dyn View) {
        match directory {
            true => self.open.clear(),
            false => {
                self.open.remove(&from);
                self.drop_open(&to);
            }
        }
        let when = at_once(view);
        // The two paths were resolved at different times and do not form a valid rename.
        if from != to && (is_within(&from, &to) || is_within(&to, &from)) {
            self.gap(from, when);
            self.gap(to, when);
            return;
        }
        self.push(Change::rename(from.clone(), to, when));
        // The kernel may have merged later events of the old name into an earlier one, which must not follow the
        // rename.
        match view.is_directory(&from) {
            Some(true) => self.gap(from, when),
            Some(false) => self.modify(from, view),
            None => {}
        }
    }

    fn gap(&mut self, root: Vec<u8>, when: When) {
        let again = |change: &Option<Change>| matches!(change, Some(Change { what: What::Gap { root: known }, .. }) if *known == root);
        if !self.changes.last().is_some_and(again) {
            self.push(Change::gap(root, when));
        }
    }
}

#[cfg(test)]
mod tests;
