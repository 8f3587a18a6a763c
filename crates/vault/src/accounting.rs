//! Sums of protected files by directory, owner or extension: what they take, what their redundancy takes, and how much
//! of them is exposed. From the catalogue; owners are read from the tree.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::tree::split;
use crate::vault::Vault;
use std::collections::BTreeMap;

/// By what files are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// Directories, this many levels below the root of the account; deeper ones count there.
    Directory(usize),
    /// User ids; none for files that cannot be found now.
    Owner,
    /// What follows the last dot of names, in lower case.
    Extension,
}

/// A group of files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A directory; empty for the root.
    Directory(Vec<u8>),
    /// A user id.
    Owner(Option<u32>),
    /// An extension; empty for names without one.
    Extension(Vec<u8>),
}

/// Sums of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of their redundancy.
    pub redundancy: u64,
    /// Files with less redundancy than their policy wants, or with damage.
    pub exposed_files: u64,
    /// Bytes of these.
    pub exposed_bytes: u64,
    /// Files that are lost.
    pub lost_files: u64,
    /// Files that were never verified by a scrub.
    pub never_scrubbed: u64,
}

impl Sums {
    fn count(&mut self, entry: &Entry) {
        let size = entry.generation.size;
        self.files += 1;
        self.bytes += size;
        self.redundancy += entry.redundancy;
        if entry.state != State::Protected || entry.columns < entry.wanted {
            self.exposed_files += 1;
            self.exposed_bytes += size;
        }
        self.lost_files += u64::from(entry.state == State::Lost);
        self.never_scrubbed += u64::from(entry.scrubbed_at.is_none());
    }

    /// Adds another group's sums.
    pub fn add(&mut self, other: &Sums) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.redundancy += other.redundancy;
        self.exposed_files += other.exposed_files;
        self.exposed_bytes += other.exposed_bytes;
        self.lost_files += other.lost_files;
        self.never_scrubbed += other.never_scrubbed;
    }
}

/// Sums of the protected files at and below a path.
///
/// # Errors
/// The catalogue fails.
pub fn account(vault: &Vault, below: &[u8], by: GroupBy) -> Result<BTreeMap<Group, Sums>, CatalogueError> {
    let mut groups: BTreeMap<Group, Sums> = BTreeMap::new();
    vault.catalogue.each_page(below, |page| -> Result<(), CatalogueError> {
        for (path, entry) in page {
            let group = match by {
                GroupBy::Directory(levels) => Group::Directory(directory(&path, below, levels).to_vec()),
                GroupBy::Owner => {
                    let found = vault.storage.find(&path).ok().flatten();
                    Group::Owner(found.map(|stat| stat.uid))
                }
                GroupBy::Extension => Group::Extension(extension(&path)),
            };
            groups.entry(group).or_default().count(&entry);
        }
        Ok(())
    })?;
    Ok(groups)
}

/// The directory of a path, cut off `levels` below `below`.
fn directory<'a>(path: &'a [u8], below: &[u8], levels: usize) -> &'a [u8] {
    let parent = split(path).0;
    let start = match below.is_empty() {
        true => 0,
        // A file that is the root of the account itself is in its own directory.
        false if parent.len() < below.len() => return parent,
        false => (below.len() + 1).min(parent.len()),
    };
    if levels == 0 {
        return &parent[..start.saturating_sub(1)];
    }
    let slashes = parent[start..].iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let end = slashes.map(|(at, _)| start + at).nth(levels - 1);
    &parent[..end.unwrap_or(parent.len())]
}

fn extension(path: &[u8]) -> Vec<u8> {
    let name = split(path).1;
    match name.iter().rposition(|byte| *byte == b'.') {
        // A name that begins with its only dot has none.
        None | Some(0) => Vec::new(),
        Some(at) => name[at + 1..].to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::{directory, extension};

    #[test]
    fn directories_are_cut_off() {
        let cut = |path: &str, below: &str, levels| {
            String::from_utf8(directory(path.as_bytes(), below.as_bytes(), levels).to_vec()).unwrap()
        };
        for (path, below, levels, wanted) in [
            ("a", "", 1, ""),
            ("x/a", "", 1, "x"),
            ("x/y/z/a", "", 1, "x"),
            ("x/y/z/a", "", 2, "x/y"),
            ("x/y/z/a", "", 9, "x/y/z"),
            ("x/y/z/a", "", 0, ""),
            ("x/y/z/a", "x", 1, "x/y"),
            ("x/a", "x", 1, "x"),
            ("x/y/z/a", "x/y", 0, "x/y"),
            ("x/a", "x/a", 1, "x"),
            ("a", "a", 3, ""),
        ] {
            assert_eq!(cut(path, below, levels), wanted, "{path} below {below}, {levels} levels");
        }
    }

    #[test]
    fn extensions_follow_the_last_dot_of_a_name() {
        for (path, wanted) in
            [("a.d/b", ""), ("x.tar.GZ", "gz"), (".profile", ""), ("a/.x.rc", "rc"), ("end.", "")]
        {
            assert_eq!(extension(path.as_bytes()), wanted.as_bytes(), "{path}");
        }
    }
}
