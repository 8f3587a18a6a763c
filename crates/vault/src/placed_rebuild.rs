//! Rebuild of files after a loss of targets of a parallel file system.
//!
//! A lost range of a file cannot be written in place: the file system would wait for the targets that held it. So the
//! content is read from what is left, reconstructed, written to a new file beside the old one, verified there, and
//! swapped in by rename. Until then the old file is untouched. Ranges that are lost are never read.
//!
//! Redundancy that is lost is set aside, and the file is protected anew by the caller. Everything can be interrupted:
//! the next run finds what is still on lost targets, and removes drafts of an earlier one.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::catalogue_rebuild::RebuildError;
use crate::degraded::{DegradedReader, ReadError};
use crate::metadata;
use crate::placed_loss::{self, Effect, Placement};
use crate::redundancy::STAGING;
use crate::run::{Progress, RunContext};
use crate::storage::plain::Plain;
use crate::tree::{Stat, Tree, absent_is_none, join, split};
use crate::vault::Vault;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Files that a loss affects.
#[derive(Debug, Default)]
pub struct Plan {
    /// Files to rebuild, most exposed first.
    pub files: Vec<PlannedFile>,
    /// Files that cannot be rebuilt: more is lost than their redundancy restores.
    pub lost: Vec<Vec<u8>>,
    /// Files whose placement is unknown.
    pub unknown: Vec<Vec<u8>>,
    /// Number of files that lose nothing.
    pub unaffected: u64,
}

/// A file that a loss affects and that can be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// True if data is lost, false if only redundancy is.
    pub loses_data: bool,
    /// Blocks that the worst stripe could lose in addition.
    pub margin: usize,
}

/// Lists what a loss affects at and below `path`.
///
/// # Errors
/// The catalogue fails.
pub fn plan(
    vault: &Vault,
    path: &[u8],
    placement: &dyn Placement,
    context: RunContext<'_>,
) -> Result<Plan, RebuildError> {
    (context.progress)(Progress::Step("locating files", None));
    let mut plan = Plan::default();
    vault.catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        for (path, entry) in page {
            (context.progress)(Progress::Done(1, 0));
            let Some(loss) = placed_loss::loss(vault, &path, placement) else {
                plan.unknown.push(path);
                continue;
            };
            let loses_data = match loss.effect {
                Effect::Unaffected => {
                    plan.unaffected += 1;
                    continue;
                }
                Effect::Lost => {
                    plan.lost.push(path);
                    continue;
                }
                Effect::Exposed => false,
                Effect::Degraded => true,
            };
            plan.files.push(PlannedFile {
                path,
                size: entry.generation.size,
                loses_data,
                margin: loss.margin,
            });
        }
        Ok(())
    })?;
    plan.files.sort_by(|a, b| (a.margin, !a.loses_data, &a.path).cmp(&(b.margin, !b.loses_data, &b.path)));
    Ok(plan)
}

/// Why a file was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum LeftError {
    /// It was removed, or its target is gone with its name.
    #[error("it is gone: `gabion repair --missing` restores it if its redundancy can")]
    Gone,
    /// Its hard links would go on showing the old content.
    #[error("it has {0} names, and a new file would have one: copy it by hand")]
    Names(u32),
    /// Its placement is not known.
    #[error("{0}")]
    Placement(String),
    /// It has no redundancy for its present content.
    #[error("it has no redundancy for its present content")]
    Unprotected,
    /// It could not be read or reconstructed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The new file could not be written.
    #[error("the new file: {0}")]
    Write(#[from] io::Error),
    /// Owner, permissions, attributes or times could not be kept.
    #[error("cannot give the new file its {0}")]
    Metadata(String),
    /// The new file does not have the content that was written.
    #[error("the new file reads differently than it was written")]
    Differs,
    /// The new file is on a lost target again.
    #[error("the file system placed the new file on a lost target")]
    Misplaced,
    /// Somebody changed the file meanwhile.
    #[error("it was changed while it was rebuilt")]
    Changed,
}

/// Restores the lost ranges of a file in a new file on other targets, and swaps that in. The caller holds the vault's
/// lock, and protects the file again afterwards.
///
/// # Errors
/// See [`LeftError`]. The file is as it was.
pub fn rebuild_data(vault: &Vault, path: &[u8], placement: &dyn Placement) -> Result<(), LeftError> {
    let tree = Tree::open(&vault.root)?;
    let before = tree.find(path)?.ok_or(LeftError::Gone)?;
    if before.links > 1 {
        return Err(LeftError::Names(before.links));
    }
    let lost = placement.lost(&vault.storage.shown(path), before.size).map_err(LeftError::Placement)?;
    let storage = Plain::new(tree.clone(), vault.repository.clone()).without(lost);
    let reader =
        DegradedReader::open_guarded(&storage, &vault.coders, path)?.ok_or(LeftError::Unprotected)?;
    let draft = Draft::create(&tree, path, &before)?;
    let written = draft.copy(&reader)?;
    draft.keep_metadata(&tree.read(path)?, &before)?;
    draft.file.sync_all()?;
    if draft.read_back(before.size)? != written {
        return Err(LeftError::Differs);
    }
    let misplaced = placement.lost(&tree.shown(&draft.path), before.size).map_err(LeftError::Placement)?;
    if !misplaced.is_empty() {
        return Err(LeftError::Misplaced);
    }
    draft.publish(path, &before)
}

/// A new file beside the one that it will replace. It is removed unless it is published.
struct Draft<'a> {
    tree: &'a Tree,
    path: Vec<u8>,
    file: File,
    is_published: bool,
}

impl<'a> Draft<'a> {
    fn create(tree: &'a Tree, path: &[u8], stat: &Stat) -> io::Result<Draft<'a>> {
        let name = format!(".gabion-rebuild-{:x}", stat.inode);
        let path = join(split(path).0, name.as_bytes());
        // That of an interrupted run: the lock of the vault keeps other runs out.
        absent_is_none(tree.remove(&path))?;
        let file = tree.create(&path, 0o600)?;
        Ok(Draft { tree, path, file, is_published: false })
    }

    /// Copies the content; pieces of zeros become holes. Returns its hash.
    fn copy(&self, reader: &DegradedReader) -> Result<blake3::Hash, LeftError> {
        let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; PIECE], 0);
        while at < reader.size() {
            let got = reader.read(at, &mut buffer)?;
            if got == 0 {
                return Err(LeftError::Changed);
            }
            let piece = &buffer[..got];
            hasher.update(piece);
            if piece.iter().any(|&byte| byte != 0) {
                self.file.write_all_at(piece, at)?;
            }
            at += got as u64;
        }
        self.file.set_len(at)?;
        Ok(hasher.finalize())
    }

    fn keep_metadata(&self, from: &File, before: &Stat) -> Result<(), LeftError> {
        let mut failed = metadata::restore(&self.file, &metadata::read(from, before)?);
        failed.extend(metadata::restore_mtime(&self.file, before.mtime));
        if failed.is_empty() { Ok(()) } else { Err(LeftError::Metadata(failed.join(", "))) }
    }

    /// Hash of what a reader of the new file gets.
    fn read_back(&self, size: u64) -> io::Result<blake3::Hash> {
        let mut file = self.tree.read(&self.path)?;
        // What is in the cache need not be on the targets.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        let (mut hasher, mut buffer, mut left) = (blake3::Hasher::new(), vec![0; PIECE], size);
        while left > 0 {
            let most = left.min(PIECE as u64) as usize;
            let got = file.read(&mut buffer[..most])?;
            if got == 0 {
                break;
            }
            hasher.update(&buffer[..got]);
            left -= got as u64;
        }
        Ok(hasher.finalize())
    }

    /// Takes the place of the file, unless that was changed. A write by another host between the look and the rename
    /// goes unnoticed.
    fn publish(mut self, path: &[u8], before: &Stat) -> Result<(), LeftError> {
        let now = self.tree.find(path)?.ok_or(LeftError::Gone)?;
        if now.generation() != before.generation() || now.links != before.links {
            return Err(LeftError::Changed);
        }
        self.tree.rename(&self.path, path)?;
        self.is_published = true;
        Ok(self.tree.sync_directory(split(path).0)?)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            // The next run removes it, too.
            let _ = self.tree.remove(&self.path);
        }
    }
}

/// Why redundancy could not be set aside.
#[derive(Debug, thiserror::Error)]
pub enum SetAsideError {
    /// The operating system failed.
    #[error("its redundancy: {0}")]
    Io(#[from] io::Error),
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Its content cannot be taken as it is.
    #[error(
        "its redundancy is lost, and it is {0} since it was protected: look at it, then `gabion protect`"
    )]
    Doubtful(&'static str),
}

/// Sets the redundancy of a file aside that is on lost targets. The file counts as unprotected from now on, and is
/// protected anew by the caller.
///
/// # Errors
/// See [`SetAsideError`].
pub fn set_redundancy_aside(vault: &Vault, path: &[u8]) -> Result<(), SetAsideError> {
    // What is there becomes the protected content, so it must not be known to be wrong.
    let (entry, now) = (vault.catalogue.find(path)?, vault.storage.find(path)?);
    let is_same = |entry: &Entry| now.is_some_and(|now| now.generation().is_same_content(&entry.generation));
    match entry {
        Some(entry) if matches!(entry.state, State::Damaged | State::Lost) => {
            return Err(SetAsideError::Doubtful("damaged"));
        }
        Some(entry) if is_same(&entry) => {}
        _ => return Err(SetAsideError::Doubtful("changed")),
    }
    // First: a file that counts as protected must not lack redundancy after a crash.
    vault.catalogue.forget(path)?;
    for location in vault.storage.redundancy_locations(path)? {
        let place = &location.place;
        let Some(stat) = place.tree.find(&place.path)? else { continue };
        let aside = join(STAGING, format!("lost-{:x}", stat.inode).as_bytes());
        place.tree.rename(&place.path, &aside)?;
        place.tree.sync_directory(split(&place.path).0)?;
    }
    Ok(())
}

/// Removes redundancy that was set aside, after its files were protected anew.
///
/// # Errors
/// The operating system fails.
pub fn remove_set_aside(vault: &Vault) -> io::Result<()> {
    for repository in vault.storage.repositories() {
        let names = repository.tree.directory(STAGING)?.names()?;
        for (name, _) in names.iter().filter(|(name, _)| name.starts_with(b"lost-")) {
            absent_is_none(repository.tree.remove(&join(STAGING, name)))?;
        }
    }
    Ok(())
}
