//! Inode table of a mount: inode numbers that the kernel knows, and their names.
//!
//! The kernel identifies files by number, the changelog and storage by path. A node exists from the first lookup until
//! the kernel forgets its number. Paths are computed from the names of a node and of the directories above it, so
//! renaming a directory costs the same for any number of files in it.

use gabion_platform::sync;
use gabion_vault::tree::Generation;
use gabion_vault::world::Stopwatch;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Inode number of the root, fixed by the protocol.
pub const ROOT: u64 = 1;

/// Longest wait for removed files to release their space, and the pause between checks.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Most files pinned at once. The kernel forgets removed files within moments; more accumulate only if it is prevented
/// from that.
const MAX_PINNED: usize = 1024;

/// A name: inode number of the directory, and the entry in it.
pub type Name = (u64, Box<[u8]>);

/// The inode table of a mount.
#[derive(Debug)]
pub struct Nodes {
    table: RwLock<Table>,
    /// Pinned files that are forgotten and not closed yet.
    ending: AtomicUsize,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<u64, Node>,
    by_name: HashMap<Name, u64>,
    /// Counts lookups; a new file with a reused number gets a new generation.
    generation: u64,
    /// Number of pinned nodes.
    pinned: usize,
}

#[derive(Debug)]
struct Node {
    /// Lookups replied to, less those that the kernel forgot.
    lookups: u64,
    /// Open handles.
    opens: u64,
    generation: u64,
    names: Vec<Name>,
    pinned: Option<Arc<OwnedFd>>,
    /// Version of the content whose pages the kernel may have cached.
    pages: Option<Generation>,
    shown: Shown,
}

/// What the kernel believes of a file, from the attributes that it was told and what it wrote since.
#[derive(Debug, Default)]
struct Shown {
    size: AtomicU64,
    /// Digest of the last version that it was told.
    version: AtomicU64,
}

/// What the kernel knows of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// All attributes.
    All,
    /// The size.
    Size,
    /// Neither.
    Nothing,
}

fn digest(version: &Generation) -> u64 {
    let Generation { size, mtime, ctime, inode } = *version;
    let mut hasher = DefaultHasher::new();
    (size, mtime, ctime, inode).hash(&mut hasher);
    hasher.finish()
}

impl Node {
    fn new(lookups: u64, generation: u64) -> Node {
        Node {
            lookups,
            opens: 0,
            generation,
            names: Vec::new(),
            pinned: None,
            pages: None,
            shown: Shown::default(),
        }
    }
}

impl Default for Nodes {
    fn default() -> Nodes {
        let nodes = HashMap::from([(ROOT, Node::new(1, 0))]);
        let table = Table { nodes, by_name: HashMap::new(), generation: 0, pinned: 0 };
        Nodes { table: RwLock::new(table), ending: AtomicUsize::new(0) }
    }
}

impl Nodes {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        sync::read(&self.table)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        sync::write(&self.table)
    }

    /// Notes a lookup reply: `name` in `parent` is `number`. Returns the generation for the reply.
    pub fn found(&self, parent: u64, name: &[u8], number: u64) -> u64 {
        let mut table = self.write();
        table.generation += 1;
        let generation = table.generation;
        if let Some(node) = table.nodes.get_mut(&number) {
            // No name, not open, not pinned: the number was reused for a new file.
            if node.names.is_empty() && node.opens == 0 && node.pinned.is_none() && number != ROOT {
                node.generation = generation;
            }
        }
        table.name(parent, name, number);
        let Some(node) = table.nodes.get_mut(&number) else { return 0 };
        // Moved to the front: other names may have been removed in the source without notice.
        let last = node.names.iter().position(|known| known.0 == parent && *known.1 == *name);
        node.names.swap(0, last.unwrap_or(0));
        node.lookups += 1;
        node.generation
    }

    /// Notes that a handle was opened (`true`) or closed.
    pub fn opened(&self, number: u64, open: bool) {
        if let Some(node) = self.write().nodes.get_mut(&number) {
            node.opens = if open { node.opens + 1 } else { node.opens.saturating_sub(1) };
        }
    }

    /// Notes the version of the content that the kernel caches pages of from now on; none if they may be of several
    /// versions. True if it was the same before.
    pub fn caches(&self, number: u64, version: Option<Generation>) -> bool {
        let mut table = self.write();
        let Some(node) = table.nodes.get_mut(&number) else { return false };
        let before = std::mem::replace(&mut node.pages, version);
        version.is_some() && before == version
    }

    /// Notes attributes that the kernel is told.
    pub fn shows(&self, number: u64, version: &Generation) {
        if let Some(Node { shown, .. }) = self.read().nodes.get(&number) {
            shown.size.store(version.size, Ordering::Relaxed);
            shown.version.store(digest(version), Ordering::Relaxed);
        }
    }

    /// Notes that the kernel wrote up to `end`.
    pub fn wrote(&self, number: u64, end: u64) {
        if let Some(Node { shown, .. }) = self.read().nodes.get(&number) {
            shown.size.fetch_max(end, Ordering::Relaxed);
        }
    }

    /// What the kernel knows of the present version of a file.
    pub fn knows(&self, number: u64, version: &Generation) -> Known {
        match self.read().nodes.get(&number) {
            Some(Node { shown, .. }) if shown.version.load(Ordering::Relaxed) == digest(version) => {
                Known::All
            }
            Some(Node { shown, .. }) if shown.size.load(Ordering::Relaxed) == version.size => Known::Size,
            _ => Known::Nothing,
        }
    }

    /// Keeps a file open that is about to lose its last name, until the kernel forgets it. Otherwise the source could
    /// reuse its inode number at once, and the kernel would report an I/O error to a program that is just opening the
    /// removed file.
    pub fn pin(&self, number: u64, file: OwnedFd) {
        let mut table = self.write();
        if table.pinned >= MAX_PINNED {
            return;
        }
        let Some(node) = table.nodes.get_mut(&number) else { return };
        if node.pinned.replace(Arc::new(file)).is_none() {
            table.pinned += 1;
        }
    }

    /// Undoes [`pin`](Nodes::pin): the file kept its name.
    pub fn unpin(&self, number: u64) {
        let mut table = self.write();
        if table.nodes.get_mut(&number).and_then(|node| node.pinned.take()).is_some() {
            table.pinned -= 1;
        }
    }

    /// A pinned file.
    pub fn pinned(&self, number: u64) -> Option<Arc<OwnedFd>> {
        self.read().nodes.get(&number)?.pinned.clone()
    }

    /// Waits briefly for removed files to release their space, if there are any and less than two seconds passed
    /// `since` the disk was full. Programs see a file as closed or removed before its release request arrives here.
    pub fn wait_for_space(&self, since: &Stopwatch) -> bool {
        let lingers = |node: &Node| node.names.is_empty() && (node.opens > 0 || node.pinned.is_some());
        let removed = self.read().nodes.iter().any(|(&number, node)| number != ROOT && lingers(node))
            || self.ending.load(Ordering::Acquire) > 0;
        let waits = removed && since.elapsed() < PATIENCE;
        if waits {
            std::thread::sleep(PAUSE);
        }
        waits
    }

    /// Notes that the kernel forgets `count` lookups. True if it does not know the number any more.
    pub fn forget(&self, number: u64, count: u64) -> bool {
        if number == ROOT {
            return false;
        }
        let mut table = self.write();
        let Some(node) = table.nodes.get_mut(&number) else { return true };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups > 0 {
            return false;
        }
        let Some(node) = table.nodes.remove(&number) else { return true };
        for name in &node.names {
            table.by_name.remove(name);
        }
        if let Some(pinned) = node.pinned {
            table.pinned -= 1;
            self.ending.fetch_add(1, Ordering::AcqRel);
            // Closing frees its blocks, which takes a while for a large file.
            drop(table);
            drop(pinned);
            self.ending.fetch_sub(1, Ordering::AcqRel);
        }
        true
    }

    /// The most recently looked up name of a node.
    pub fn name(&self, number: u64) -> Option<Name> {
        self.read().nodes.get(&number)?.names.first().cloned()
    }

    /// All known names of a node, the most recently looked up first.
    pub fn names(&self, number: u64) -> Vec<Name> {
        self.read().nodes.get(&number).map_or_else(Vec::new, |node| node.names.clone())
    }

    /// Inode number of a name, as last replied to the kernel.
    pub fn number(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.read().by_name.get(&(parent, name.into())).copied()
    }

    /// The path of a node relative to the root, with `/`; empty for the root. `None` if it has no name.
    pub fn path(&self, number: u64) -> Option<Vec<u8>> {
        let table = self.read();
        match number {
            ROOT => Some(Vec::new()),
            _ => table.path_of(table.nodes.get(&number)?.names.first()?),
        }
    }

    /// All known paths of a node.
    pub fn paths(&self, number: u64) -> Vec<Vec<u8>> {
        let table = self.read();
        let Some(node) = table.nodes.get(&number) else { return Vec::new() };
        node.names.iter().filter_map(|name| table.path_of(name)).collect()
    }

    /// The path of a name, which need not exist.
    pub fn path_of(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        self.read().path_of(&(parent, name.into()))
    }

    /// Notes that a name was removed.
    pub fn removed(&self, parent: u64, name: &[u8]) {
        self.write().unname(&(parent, name.into()));
    }

    /// Notes a rename; a file that had the new name loses it.
    pub fn renamed(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut table = self.write();
        if let Some(number) = table.unname(&(from.0, from.1.into())) {
            table.name(to.0, to.1, number);
        } else {
            table.unname(&(to.0, to.1.into()));
        }
    }

    /// Notes that two names were exchanged.
    pub fn exchanged(&self, one: (u64, &[u8]), other: (u64, &[u8])) {
        let mut table = self.write();
        let (first, second) =
            (table.unname(&(one.0, one.1.into())), table.unname(&(other.0, other.1.into())));
        if let Some(number) = first {
            table.name(other.0, other.1, number);
        }
        if let Some(number) = second {
            table.name(one.0, one.1, number);
        }
    }

    /// True if the kernel knows the number.
    pub fn is_known(&self, number: u64) -> bool {
        self.read().nodes.contains_key(&number)
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.read().nodes.len()
    }
}

impl Table {
    /// Gives the name to `number`, and to it alone.
    fn name(&mut self, parent: u64, name: &[u8], number: u64) {
        let name: Name = (parent, name.into());
        if self.by_name.get(&name) == Some(&number) {
            return;
        }
        self.unname(&name);
        self.by_name.insert(name.clone(), number);
        let generation = self.generation;
        let node = self.nodes.entry(number).or_insert_with(|| Node::new(0, generation));
        node.names.push(name);
    }

    fn unname(&mut self, name: &Name) -> Option<u64> {
        let number = self.by_name.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|other| other != name);
        }
        Some(number)
    }

    fn path_of(&self, name: &Name) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = vec![&name.1];
        let mut parent = name.0;
        while parent != ROOT {
            let above = self.nodes.get(&parent)?.names.first()?;
            parts.push(&above.1);
            parent = above.0;
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PINNED, Nodes, PATIENCE, ROOT};
    use gabion_vault::world::Stopwatch;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    #[test]
    fn paths_follow_renames_of_directories() {
        let nodes = Nodes::default();
        nodes.found(ROOT, b"a", 10);
        nodes.found(10, b"b", 11);
        nodes.found(11, b"file", 12);
        assert_eq!(nodes.path(12).unwrap(), b"a/b/file");
        nodes.renamed((10, b"b"), (ROOT, b"c"));
        assert_eq!(nodes.path(12).unwrap(), b"c/file");
        assert_eq!(nodes.path_of(11, b"new").unwrap(), b"c/new");
        assert_eq!(nodes.path(ROOT).unwrap(), b"");
    }

    #[test]
    fn a_reused_number_gets_a_new_generation() {
        let nodes = Nodes::default();
        let first = nodes.found(ROOT, b"a", 5);
        assert_eq!(nodes.found(ROOT, b"a", 5), first);
        // Open, its last name gone, and found by another name: the same file.
        nodes.opened(5, true);
        nodes.removed(ROOT, b"a");
        assert_eq!(nodes.found(ROOT, b"link", 5), first);
        nodes.removed(ROOT, b"link");
        nodes.opened(5, false);
        assert_ne!(nodes.found(ROOT, b"new", 5), first);
        // A rename does not change the generation.
        let now = nodes.found(ROOT, b"new", 5);
        nodes.renamed((ROOT, b"new"), (ROOT, b"newer"));
        assert_eq!(nodes.found(ROOT, b"newer", 5), now);
    }

    #[test]
    fn space_is_awaited_while_removed_files_are_open() {
        let nodes = Nodes::default();
        nodes.found(ROOT, b"a", 5);
        nodes.opened(5, true);
        assert!(!nodes.wait_for_space(&Stopwatch::start()), "it has a name");
        nodes.removed(ROOT, b"a");
        gabion_testkit::until("space is awaited", || nodes.wait_for_space(&Stopwatch::start()));
        let since = Stopwatch::start();
        while nodes.wait_for_space(&since) {}
        assert!(since.elapsed() >= PATIENCE, "it may stay open for ever");
        nodes.opened(5, false);
        assert!(!nodes.wait_for_space(&Stopwatch::start()));
    }

    #[test]
    fn a_pinned_file_keeps_its_number() {
        let nodes = Nodes::default();
        let first = nodes.found(ROOT, b"a", 5);
        let (file, ours) = std::io::pipe().map(|(reader, writer)| (reader, OwnedFd::from(writer))).unwrap();
        nodes.pin(5, ours);
        nodes.removed(ROOT, b"a");
        assert!(nodes.pinned(5).is_some());
        gabion_testkit::until("it occupies space", || nodes.wait_for_space(&Stopwatch::start()));
        assert_eq!(nodes.found(ROOT, b"link", 5), first, "no other file can have its number");
        nodes.removed(ROOT, b"link");
        nodes.forget(5, 2);
        assert!(nodes.pinned(5).is_none() && !nodes.wait_for_space(&Stopwatch::start()));
        // The last writer of the pipe is gone.
        assert_eq!((&file).read(&mut [0]).unwrap(), 0);
        // A file that keeps its name is unpinned; an unknown number cannot be pinned.
        nodes.found(ROOT, b"b", 6);
        for number in [6, 7] {
            nodes.pin(number, file.try_clone().unwrap().into());
            assert_eq!(nodes.pinned(number).is_some(), number == 6);
            nodes.unpin(number);
            assert!(nodes.pinned(number).is_none());
        }
    }

    #[test]
    fn pins_are_limited() {
        let nodes = Nodes::default();
        let (file, _) = std::io::pipe().unwrap();
        nodes.found(ROOT, b"a", 5);
        nodes.table.write().unwrap().pinned = MAX_PINNED;
        nodes.pin(5, file.try_clone().unwrap().into());
        assert!(nodes.pinned(5).is_none());
        nodes.table.write().unwrap().pinned = MAX_PINNED - 1;
        nodes.pin(5, file.into());
        assert!(nodes.pinned(5).is_some());
        nodes.unpin(5);
        assert_eq!(nodes.table.read().unwrap().pinned, MAX_PINNED - 1);
    }

    #[test]
    fn names_come_and_go() {
        let nodes = Nodes::default();
        nodes.found(ROOT, b"a", 5);
        nodes.found(ROOT, b"b", 5);
        assert_eq!(nodes.paths(5), [b"b", b"a"], "the one that was looked up last comes first");
        nodes.found(ROOT, b"c", 6);
        // Renamed over an existing name: the other file loses it.
        nodes.renamed((ROOT, b"c"), (ROOT, b"a"));
        assert_eq!((nodes.paths(5), nodes.paths(6)), (vec![b"b".to_vec()], vec![b"a".to_vec()]));
        nodes.exchanged((ROOT, b"a"), (ROOT, b"b"));
        assert_eq!((nodes.paths(5), nodes.paths(6)), (vec![b"a".to_vec()], vec![b"b".to_vec()]));
        nodes.removed(ROOT, b"a");
        assert_eq!((nodes.path(5), nodes.number(ROOT, b"a")), (None, None));
        nodes.forget(5, 1);
        assert_eq!(nodes.count(), 3);
        nodes.forget(5, 1);
        nodes.forget(6, 1);
        nodes.forget(ROOT, 9);
        assert_eq!(nodes.count(), 1);
        assert_eq!(nodes.number(ROOT, b"b"), None);
    }
}
