//! Model: the files and directories that must exist, independent of the state of targets.

use std::collections::{BTreeMap, BTreeSet};

/// One version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Size and seed of its content.
    pub(crate) content: (usize, u64),
    /// A command that protects came to its end since it was put, and did not name it as failed.
    pub(crate) protected: bool,
    /// It was not protected when bytes of it went with a target.
    pub(crate) doomed: bool,
}

/// The names of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) files: BTreeMap<String, File>,
    pub(crate) directories: BTreeSet<String>,
}

impl Model {
    /// Every name, directories with a slash behind them.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let directories = self.directories.iter().map(|name| format!("{name}/"));
        self.files.keys().cloned().chain(directories).collect()
    }

    pub(crate) fn put(&mut self, name: &str, content: (usize, u64)) {
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.directories.insert(directory.to_owned());
        }
        self.files.insert(name.to_owned(), File { content, protected: false, doomed: false });
    }

    /// Moves a file, over another one if it is there, or a directory with all that is in it.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if self.directories.remove(from) {
            self.directories.insert(to.to_owned());
        }
        let below = format!("{from}/");
        let is_moved = |name: &String| name == from || name.starts_with(&below);
        let moved: Vec<String> = self.files.keys().filter(|name| is_moved(name)).cloned().collect();
        for name in moved {
            let file = self.files.remove(&name).unwrap();
            self.files.insert(format!("{to}{}", &name[from.len()..]), file);
        }
    }
}
