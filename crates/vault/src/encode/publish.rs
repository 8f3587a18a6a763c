//! What was encoded is made durable and put in place.

use super::Encoded;
use crate::redundancy::{Draft, PartPath};
use crate::tree::{Tree, split};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Makes the names durable that [`Encoded::publish`] gave, where the file system does not do that as a whole; each directory once.
///
/// # Errors
/// What the operating system says.
pub(crate) fn sync_names<'a>(published: impl Iterator<Item = &'a Encoded>) -> io::Result<()> {
    let mut directories: BTreeMap<(PathBuf, Vec<u8>), &Tree> = BTreeMap::new();
    for PartPath { tree, path } in published.flat_map(|encoded| &encoded.published) {
        let mut directory = split(path).0;
        // Those above it may be new, too.
        while directories.insert((tree.path().to_owned(), directory.to_vec()), tree).is_none() {
            if directory.is_empty() {
                break;
            }
            directory = split(directory).0;
        }
    }
    for ((_, directory), tree) in directories {
        if !tree.syncs_as_a_whole()? {
            tree.sync_directory(&directory)?;
        }
    }
    Ok(())
}

impl Encoded {
    /// Whether files wait to be made durable and put in place.
    pub fn is_draft(&self) -> bool {
        !self.drafts.is_empty()
    }

    /// Makes the drafts durable one by one; for many of them, sync the file system instead.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn sync(&self) -> io::Result<()> {
        self.drafts.iter().try_for_each(Draft::sync)
    }

    /// Makes those drafts durable whose file system does not do that as a whole.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn sync_untrusted(&self) -> io::Result<()> {
        for draft in &self.drafts {
            if !draft.place().tree.syncs_as_a_whole()? {
                draft.sync()?;
            }
        }
        Ok(())
    }

    /// Puts the drafts, durable by now, in place, and removes redundancy that they replace elsewhere. What failed can be tried again.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn publish(&mut self) -> io::Result<()> {
        for draft in &mut self.drafts {
            draft.put_in_place()?;
            self.published.push(draft.place().clone());
        }
        self.drafts.clear();
        // What stays on a disk that turned read-only has a lower revision and does not count.
        let remove = |place: PartPath| place.tree.remove_if_writable(&place.path).map(|_| ());
        self.obsolete.drain(..).try_for_each(remove)
    }
}
