//! What the kernel knows of: numbers of files, and the names they have.
//!
//! The kernel speaks of files by number, the changelog and storage by path. A node is here as long as the kernel remembers
//! its number; its paths follow from its names and those of the directories above it, so renaming a directory renames all
//! that is in it at no cost.

use gabion_vault::world::Stopwatch;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The number of the root, by the protocol.
pub const ROOT: u64 = 1;

/// How long, and after which pauses, the end of files that were removed is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Files that are held at once. The kernel forgets what was removed within moments; more than this are only there if it is kept from that.
const MOST_HELD: usize = 1024;

/// A name in a directory.
pub type Name = (u64, Box<[u8]>);

/// The nodes of a mount.
#[derive(Debug)]
pub struct Nodes {
    table: RwLock<Table>,
    /// Held files that are forgotten and not closed yet.
    ending: AtomicUsize,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<u64, Node>,
    by_name: HashMap<Name, u64>,
    /// Tells a file from another that had its number before.
    generation: u64,
    /// How many nodes are held.
    held: usize,
}

#[derive(Debug)]
struct Node {
    /// How often the kernel was told of it, less how often it forgot.
    lookups: u64,
    /// How many handles are open.
    opens: u64,
    generation: u64,
    names: Vec<Name>,
    held: Option<Arc<OwnedFd>>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        let root = Node { lookups: 1, opens: 0, generation: 0, names: Vec::new(), held: None };
        let nodes = HashMap::from([(ROOT, root)]);
        let table = Table { nodes, by_name: HashMap::new(), generation: 0, held: 0 };
        Nodes { table: RwLock::new(table), ending: AtomicUsize::new(0) }
    }
}

impl Nodes {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told that `name` in `parent` stands for `number`. Gives the generation to tell it with.
    pub fn found(&self, parent: u64, name: &[u8], number: u64) -> u64 {
        let mut table = self.write();
        table.generation += 1;
        let generation = table.generation;
        if let Some(node) = table.nodes.get_mut(&number) {
            // The last name is gone and nobody has it: this is another file, which got its number.
            if node.names.is_empty() && node.opens == 0 && node.held.is_none() && number != ROOT {
                node.generation = generation;
            }
        }
        table.name(parent, name, number);
        let Some(node) = table.nodes.get_mut(&number) else { return 0 };
        // Others of its names may be gone, if it got this one behind our back.
        let last = node.names.iter().position(|known| known.0 == parent && *known.1 == *name);
        node.names.swap(0, last.unwrap_or(0));
        node.lookups += 1;
        node.generation
    }

    /// A handle was opened (`true`) or closed.
    pub fn opened(&self, number: u64, open: bool) {
        if let Some(node) = self.write().nodes.get_mut(&number) {
            node.opens = if open { node.opens + 1 } else { node.opens.saturating_sub(1) };
        }
    }

    /// Holds a file that is about to lose its last name until the kernel forgets it. Without that the source would give its number to
    /// another file at once, and the kernel, told of that one, would call the file broken which a program is just about to open.
    pub fn hold(&self, number: u64, file: OwnedFd) {
        let mut table = self.write();
        if table.held >= MOST_HELD {
            return;
        }
        let Some(node) = table.nodes.get_mut(&number) else { return };
        if node.held.replace(Arc::new(file)).is_none() {
            table.held += 1;
        }
    }

    /// It did not lose its name after all.
    pub fn let_go(&self, number: u64) {
        let mut table = self.write();
        if table.nodes.get_mut(&number).and_then(|node| node.held.take()).is_some() {
            table.held -= 1;
        }
    }

    /// A file that is held.
    pub fn held(&self, number: u64) -> Option<Arc<OwnedFd>> {
        self.read().nodes.get(&number)?.held.clone()
    }

    /// Waits a moment for files without a name to end, if there are any and it has not been long `since` there was no room: they
    /// take room until then, and programs are told that a file is closed or removed before we are.
    pub fn wait_for_room(&self, since: &Stopwatch) -> bool {
        let lingers = |node: &Node| node.names.is_empty() && (node.opens > 0 || node.held.is_some());
        let removed = self.read().nodes.iter().any(|(&number, node)| number != ROOT && lingers(node))
            || self.ending.load(Ordering::Acquire) > 0;
        let waits = removed && since.elapsed() < PATIENCE;
        if waits {
            std::thread::sleep(PAUSE);
        }
        waits
    }

    /// The kernel forgets `count` of the times it was told.
    pub fn forget(&self, number: u64, count: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.write();
        let Some(node) = table.nodes.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 {
            let Some(node) = table.nodes.remove(&number) else { return };
            for name in &node.names {
                table.by_name.remove(name);
            }
            if let Some(held) = node.held {
                table.held -= 1;
                self.ending.fetch_add(1, Ordering::AcqRel);
                // It ends here, and if it is large that takes a while.
                drop(table);
                drop(held);
                self.ending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// The name of a node that was looked up last; nothing if it has none that we know.
    pub fn name(&self, number: u64) -> Option<Name> {
        self.read().nodes.get(&number)?.names.first().cloned()
    }

    /// All names of a node that we know, the one that was looked up last first.
    pub fn names(&self, number: u64) -> Vec<Name> {
        self.read().nodes.get(&number).map_or_else(Vec::new, |node| node.names.clone())
    }

    /// What a name stands for, as far as the kernel was told.
    pub fn number(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.read().by_name.get(&(parent, name.into())).copied()
    }

    /// The path of a node from the root, parts divided by `/`; empty for the root. Nothing if it has no name any more.
    pub fn path(&self, number: u64) -> Option<Vec<u8>> {
        let table = self.read();
        match number {
            ROOT => Some(Vec::new()),
            _ => table.path_of(table.nodes.get(&number)?.names.first()?),
        }
    }

    /// All paths of a node that we know.
    pub fn paths(&self, number: u64) -> Vec<Vec<u8>> {
        let table = self.read();
        let Some(node) = table.nodes.get(&number) else { return Vec::new() };
        node.names.iter().filter_map(|name| table.path_of(name)).collect()
    }

    /// The path of a name, whether it stands for something or not.
    pub fn path_of(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        self.read().path_of(&(parent, name.into()))
    }

    /// A name is gone.
    pub fn removed(&self, parent: u64, name: &[u8]) {
        self.write().unname(&(parent, name.into()));
    }

    /// A name is another one now; what had that one is without it.
    pub fn renamed(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut table = self.write();
        if let Some(number) = table.unname(&(from.0, from.1.into())) {
            table.name(to.0, to.1, number);
        } else {
            table.unname(&(to.0, to.1.into()));
        }
    }

    /// Two names stand for what the other did.
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

    /// Whether the kernel remembers a number.
    pub fn is_known(&self, number: u64) -> bool {
        self.read().nodes.contains_key(&number)
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.read().nodes.len()
    }
}

impl Table {
    /// `number` has the name, and nothing else has it.
    fn name(&mut self, parent: u64, name: &[u8], number: u64) {
        let name: Name = (parent, name.into());
        if self.by_name.get(&name) == Some(&number) {
            return;
        }
        self.unname(&name);
        self.by_name.insert(name.clone(), number);
        let generation = self.generation;
        let fresh = || Node { lookups: 0, opens: 0, generation, names: Vec::new(), held: None };
        let node = self.nodes.entry(number).or_insert_with(fresh);
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
    use super::{MOST_HELD, Nodes, PATIENCE, ROOT};
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
    fn a_number_that_is_used_again_is_told_apart() {
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
        // A rename is none.
        let now = nodes.found(ROOT, b"new", 5);
        nodes.renamed((ROOT, b"new"), (ROOT, b"newer"));
        assert_eq!(nodes.found(ROOT, b"newer", 5), now);
    }

    #[test]
    fn room_is_waited_for_while_removed_files_are_open() {
        let nodes = Nodes::default();
        nodes.found(ROOT, b"a", 5);
        nodes.opened(5, true);
        assert!(!nodes.wait_for_room(&Stopwatch::start()), "it has a name");
        nodes.removed(ROOT, b"a");
        gabion_testkit::until("room is waited for", || nodes.wait_for_room(&Stopwatch::start()));
        let since = Stopwatch::start();
        while nodes.wait_for_room(&since) {}
        assert!(since.elapsed() >= PATIENCE, "it may stay open for ever");
        nodes.opened(5, false);
        assert!(!nodes.wait_for_room(&Stopwatch::start()));
    }

    #[test]
    fn what_is_held_keeps_its_number() {
        let nodes = Nodes::default();
        let first = nodes.found(ROOT, b"a", 5);
        let (file, ours) = std::io::pipe().map(|(reader, writer)| (reader, OwnedFd::from(writer))).unwrap();
        nodes.hold(5, ours);
        nodes.removed(ROOT, b"a");
        assert!(nodes.held(5).is_some());
        gabion_testkit::until("it takes room", || nodes.wait_for_room(&Stopwatch::start()));
        assert_eq!(nodes.found(ROOT, b"link", 5), first, "no other file can have its number");
        nodes.removed(ROOT, b"link");
        nodes.forget(5, 2);
        assert!(nodes.held(5).is_none() && !nodes.wait_for_room(&Stopwatch::start()));
        // The last writer of the pipe is gone.
        assert_eq!((&file).read(&mut [0]).unwrap(), 0);
        // What keeps its name is let go, and what nobody knows is not held.
        nodes.found(ROOT, b"b", 6);
        for number in [6, 7] {
            nodes.hold(number, file.try_clone().unwrap().into());
            assert_eq!(nodes.held(number).is_some(), number == 6);
            nodes.let_go(number);
            assert!(nodes.held(number).is_none());
        }
    }

    #[test]
    fn no_more_is_held_than_there_are_descriptors_for() {
        let nodes = Nodes::default();
        let (file, _) = std::io::pipe().unwrap();
        nodes.found(ROOT, b"a", 5);
        nodes.table.write().unwrap().held = MOST_HELD;
        nodes.hold(5, file.try_clone().unwrap().into());
        assert!(nodes.held(5).is_none());
        nodes.table.write().unwrap().held = MOST_HELD - 1;
        nodes.hold(5, file.into());
        assert!(nodes.held(5).is_some());
        nodes.let_go(5);
        assert_eq!(nodes.table.read().unwrap().held, MOST_HELD - 1);
    }

    #[test]
    fn names_come_and_go() {
        let nodes = Nodes::default();
        nodes.found(ROOT, b"a", 5);
        nodes.found(ROOT, b"b", 5);
        assert_eq!(nodes.paths(5), [b"b", b"a"], "the one that was looked up last comes first");
        nodes.found(ROOT, b"c", 6);
        // Over an existing name: that one's file has it no more.
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
