//! Events become changes: many of one path become one, in an order that keeps their meaning.

use crate::changelog::{Change, MAX_PATH, What, When, is_within};
use crate::world::{Nanos, SECOND};
use gabion_platform::event::{Change as Kind, Event};
use std::collections::HashMap;

/// What is known of the tree while events are read.
pub(super) trait View {
    /// The time.
    fn now(&self) -> Nanos;
    /// How long a file has to rest, and how urgent it is; nothing for what is not protected.
    fn rest(&self, path: &[u8]) -> Option<(Nanos, u8)>;
    /// How long the redundancy of what is gone is kept.
    fn rest_of_gone(&self) -> Nanos;
    /// What is there now: whether it is a directory.
    fn is_directory(&self, path: &[u8]) -> Option<bool>;
}

/// However often a file changes, it is due after so many quiet periods, but not before `MIN_CAP`.
const CAP: Nanos = 10;
const MIN_CAP: Nanos = 600 * SECOND;

/// When a change is due whose file has to rest.
pub(super) fn rested(now: Nanos, quiet: Nanos, priority: u8) -> When {
    When::after_rest(now, quiet, quiet.saturating_mul(CAP).max(MIN_CAP), priority)
}

/// Something that is gone comes back often enough: editors and package managers do that.
fn gone(view: &dyn View) -> When {
    rested(view.now(), view.rest_of_gone(), 0)
}

/// A name costs nothing to follow, and nothing is found by its old one.
fn at_once(view: &dyn View) -> When {
    When::now(view.now(), u8::MAX)
}

/// Changes that wait to be recorded.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order; nothing where a later change took all meaning from an earlier one.
    changes: Vec<Option<Change>>,
    /// Modifications that nothing has touched since, by path.
    open: HashMap<Vec<u8>, usize>,
    live: usize,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Hands the changes over, and is empty then.
    pub(super) fn take(&mut self) -> Vec<Change> {
        self.open.clear();
        self.live = 0;
        self.changes.drain(..).flatten().collect()
    }

    /// Adds what an event means.
    pub(super) fn add(&mut self, event: Event, view: &dyn View) {
        match event {
            // What is in a new directory is told by itself.
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
        // A longer path cannot be worked on either: scans name it.
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
            // It rests from now on.
            let passed = view.now().saturating_sub(change.when.at);
            change.when.at = change.when.at.saturating_add(passed);
            change.when.due = change.when.due.saturating_add(passed);
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
        // The deletion cancels what was recorded beneath it; a source may have told of what is in a new directory of that
        // name before it told that the old one went.
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
        // Paths that were found at different times may be anything.
        if from != to && (is_within(&from, &to) || is_within(&to, &from)) {
            self.gap(from, when);
            self.gap(to, when);
            return;
        }
        self.push(Change::rename(from.clone(), to, when));
        // The kernel may have put what happened afterwards to the old name into an event from before: that must not go
        // along with the new one.
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
