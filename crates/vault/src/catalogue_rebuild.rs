//! Rebuild of the catalogue from the headers of redundancy files.

use crate::catalogue::{Catalogue, CatalogueError, Entry, State};
use crate::coder::Coders;
use crate::examine::{belonging, open_in_order};
use crate::format::Header;
use crate::redundancy::{Part, REDUNDANCY};
use crate::run::{Progress, RunContext};
use crate::storage::Storage;
use crate::tree::{Generation, Kind, Tree, absent_is_none, join};
use std::cell::RefCell;
use std::convert::Infallible;
use std::io;

/// Results of a rebuild.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Files with redundancy.
    pub files: u64,
    /// Unusable redundancy files, with reasons.
    pub unusable: Vec<(std::path::PathBuf, String)>,
}

/// Error of a rebuild.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A repository cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the repository.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Replaces the content of a catalogue by what the headers of redundancy files give. The caller holds the vault's lock.
/// For a catalogue that may be damaged, [`Vault::renew`](crate::vault::Vault::renew) does this in a new file.
///
/// # Errors
/// See [`RebuildError`]; the catalogue is unchanged then. One that hosts share has to be rebuilt again.
pub fn rebuild(
    catalogue: &Catalogue,
    storage: &dyn Storage,
    coders: &Coders,
    context: RunContext<'_>,
) -> Result<Rebuilt, RebuildError> {
    let put = |path: &[u8], entry: &Entry| Ok(catalogue.put(path, entry)?);
    if !catalogue.is_copy() {
        return catalogue.together(|| {
            let first = catalogue.begin_making()?;
            let rebuilt = each_entry(storage, coders, context, put)?;
            catalogue.made(first.as_ref())?;
            Ok(rebuilt)
        });
    }
    // In parts: the facts of a transaction are one record of the journal.
    let first = catalogue.begin_making()?;
    let part = RefCell::new(Vec::new());
    let put_part = |part: &mut Vec<(Vec<u8>, Entry)>| {
        catalogue.together(|| part.drain(..).try_for_each(|(path, entry)| put(&path, &entry)))
    };
    let rebuilt = each_entry(storage, coders, context, |path, entry| {
        let mut part = part.borrow_mut();
        part.push((path.to_vec(), entry.clone()));
        if part.len() >= PART { put_part(&mut part) } else { Ok(()) }
    })?;
    put_part(&mut part.borrow_mut())?;
    catalogue.made(first.as_ref())?;
    Ok(rebuilt)
}

/// Files whose facts are one record of the journal.
const PART: usize = 1024;

/// Results that a rebuild would have. Changes nothing.
///
/// # Errors
/// See [`RebuildError`].
pub fn survey(
    storage: &dyn Storage,
    coders: &Coders,
    context: RunContext<'_>,
) -> Result<Rebuilt, RebuildError> {
    each_entry(storage, coders, context, |_, _| Ok(()))
}

/// Visits every file that has redundancy.
fn each_entry(
    storage: &dyn Storage,
    coders: &Coders,
    context: RunContext<'_>,
    visit: impl Fn(&[u8], &Entry) -> Result<(), RebuildError>,
) -> Result<Rebuilt, RebuildError> {
    (context.progress)(Progress::Step("reading headers", None));
    let mut rebuilt = Rebuilt::default();
    let mut file = |path: &[u8]| -> Result<(), RebuildError> {
        (context.progress)(Progress::Done(1, 0));
        if let Some(entry) = entry_of(storage, coders, path, &mut rebuilt) {
            visit(path, &entry)?;
            rebuilt.files += 1;
        }
        Ok(())
    };
    if storage.keeps_by_identity() {
        let left_out = walk_files(storage, &mut file)?;
        rebuilt.unusable.extend(left_out);
        return Ok(rebuilt);
    }
    for (index, repository) in storage.repositories().iter().enumerate() {
        walk(&repository.tree, &mut |path| {
            let found = storage.repositories();
            // The first repository with the file provides its entry.
            let earlier = found[..index]
                .iter()
                .any(|other| other.tree.find(&join(REDUNDANCY, path)).is_ok_and(|stat| stat.is_some()));
            if earlier { Ok(()) } else { file(path) }
        })?;
    }
    Ok(rebuilt)
}

/// Visits all files of the namespace, in order of directories. Returns unreadable paths with reasons; files there are
/// unknown.
pub(crate) fn walk_files(
    storage: &dyn Storage,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), RebuildError>,
) -> Result<Vec<(std::path::PathBuf, String)>, RebuildError> {
    let (mut ahead, mut left_out) = (vec![Vec::new()], Vec::new());
    while let Some(path) = ahead.pop() {
        let folder = match storage.folder(&path) {
            Ok(folder) => folder,
            Err(source) if path.is_empty() => {
                return Err(RebuildError::Io { path: storage.shown(&path), source });
            }
            Err(error) => {
                left_out.push((storage.shown(&path), error.to_string()));
                continue;
            }
        };
        for (name, _) in folder.names().iter() {
            let below = join(&path, name);
            match folder.stat(name).map(|stat| stat.kind) {
                Ok(Kind::Directory) => ahead.push(below),
                Ok(Kind::File) => visit(&below)?,
                Ok(_) => {}
                // Deleted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => left_out.push((storage.shown(&below), error.to_string())),
            }
        }
    }
    Ok(left_out)
}

/// Visits all redundancy files of a repository, in order of directories.
fn walk(tree: &Tree, visit: &mut dyn FnMut(&[u8]) -> Result<(), RebuildError>) -> Result<(), RebuildError> {
    let mut ahead = vec![Vec::new()];
    while let Some(path) = ahead.pop() {
        let place = if path.is_empty() { REDUNDANCY.to_vec() } else { join(REDUNDANCY, &path) };
        let failed = |source| RebuildError::Io { path: tree.shown(&place), source };
        let Some(directory) = absent_is_none(tree.directory(&place)).map_err(failed)? else { continue };
        for (name, kind) in directory.names().map_err(failed)?.iter() {
            let kind = match kind {
                Some(kind) => kind,
                None => directory.stat(name).map_err(failed)?.kind,
            };
            match kind {
                Kind::Directory => ahead.push(join(&path, name)),
                Kind::File => visit(&join(&path, name))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Catalogue entry of a file according to its headers; none if there are none.
pub(crate) fn entry_by_headers(storage: &dyn Storage, coders: &Coders, path: &[u8]) -> Option<Entry> {
    entry_of(storage, coders, path, &mut Rebuilt::default())
}

/// As [`entry_by_headers`], with a list of what cannot be used.
fn entry_of(storage: &dyn Storage, coders: &Coders, path: &[u8], rebuilt: &mut Rebuilt) -> Option<Entry> {
    let mut parts: Vec<Part> = Vec::new();
    let holders = storage.redundancy_locations(path).unwrap_or_else(|error| {
        rebuilt.unusable.push((storage.shown(path), error.to_string()));
        Vec::new()
    });
    let Ok(opened) = open_in_order(&holders, |holder| Ok::<_, Infallible>(holder.place.open(coders)));
    for (holder, opened) in holders.iter().zip(opened) {
        let place = &holder.place;
        match opened {
            Ok(part) => parts.extend(part.filter(|part| holder.owns(&part.header))),
            Err(error) => rebuilt.unusable.push((place.tree.shown(&place.path), error.to_string())),
        }
    }
    let (mut parts, _) = belonging(parts, generation(storage, path));
    let header = parts.first().map(|part| part.header.clone())?;
    // Of an update that was interrupted, some files are of the revision before.
    let is_current = |was: &Header| (was.generation, was.revision) == (header.generation, header.revision);
    parts.retain(|part| is_current(&part.header));
    let columns: usize = parts.iter().map(|part| part.header.columns).sum();
    Some(Entry {
        id: header.id,
        generation: header.generation,
        code: header.coding(),
        wanted: header.code.m() as u32,
        columns: columns as u32,
        redundancy: parts.iter().map(Part::bytes).sum(),
        protected_at: header.protected_at,
        scrubbed_at: None,
        state: if columns < header.code.m() { State::Degraded } else { State::Protected },
    })
}

fn generation(storage: &dyn Storage, path: &[u8]) -> Option<Generation> {
    storage.find(path).ok().flatten().map(|stat| stat.generation())
}
