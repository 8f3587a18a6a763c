//! Publication of encoded redundancy: drafts are made durable and renamed into place.

use super::Encoded;
use crate::redundancy::{Draft, PartPath};
use crate::tree::{Tree, split};
use gabion_platform::lock::Lockable;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Makes the names durable that [`Encoded::publish`] created, on file systems without a whole-system sync. Each
/// directory is synced once.
///
/// # Errors
/// The operating system fails.
pub(crate) fn sync_names<'a>(published: impl Iterator<Item = &'a Encoded>) -> io::Result<()> {
    let mut directories: BTreeMap<(PathBuf, Vec<u8>), &Tree> = BTreeMap::new();
    for PartPath { tree, path } in published.flat_map(|encoded| &encoded.published) {
        let mut directory = split(path).0;
        // Parent directories may be new as well.
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
    /// True if drafts are to be made durable and published.
    pub fn is_draft(&self) -> bool {
        !self.drafts.is_empty()
    }

    /// Makes each draft durable. For many drafts, sync the file system instead.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn sync(&self) -> io::Result<()> {
        self.drafts.iter().try_for_each(Draft::sync)
    }

    /// Makes the drafts durable whose file system has no reliable whole-system sync.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn sync_untrusted(&self) -> io::Result<()> {
        for draft in &self.drafts {
            if !draft.place().tree.syncs_as_a_whole()? {
                draft.sync()?;
            }
        }
        Ok(())
    }

    /// The files that [`publish`](Encoded::publish) replaced. Their space is freed when they are closed.
    pub(crate) fn take_replaced(&mut self) -> Vec<Lockable> {
        std::mem::take(&mut self.replaced)
    }

    /// Renames the durable drafts into place and removes obsolete redundancy. Can be repeated after a failure.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn publish(&mut self) -> io::Result<()> {
        for draft in &mut self.drafts {
            draft.put_in_place()?;
            self.replaced.extend(draft.take_replaced());
            self.published.push(draft.place().clone());
        }
        self.drafts.clear();
        // A file that stays on a read-only disk has a lower revision and is ignored.
        let remove = |place: PartPath| place.tree.remove_if_writable(&place.path).map(|_| ());
        self.obsolete.drain(..).try_for_each(remove)
    }
}
