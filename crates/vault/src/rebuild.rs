//! Makes the catalogue anew from the headers of redundancy files, and asks those headers what a loss would mean.

use crate::catalogue::{Catalogue, CatalogueError, Entry, State};
use crate::coder::Coders;
use crate::examine::belonging;
use crate::missing::{Remains, remains};
use crate::protect::{Manner, Progress};
use crate::redundancy::{Part, REDUNDANCY};
use crate::status::is_below;
use crate::storage::{Storage, TargetState};
use crate::tree::{Generation, Kind, Tree, absent_is_none, join};
use crate::vault::Vault;
use std::io;

/// What a rebuild found.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Files whose redundancy was found.
    pub files: u64,
    /// Redundancy files that cannot be used, and why.
    pub unusable: Vec<(std::path::PathBuf, String)>,
}

/// Why there is no new catalogue.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A repository cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: std::path::PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// Fills the catalogue of an open vault from the headers of redundancy files, in place of what it has. The caller has the vault for
/// himself. [`Vault::renew`] does this for a catalogue that may be damaged, in a new file.
///
/// # Errors
/// See [`RebuildError`]; the catalogue is as it was then.
pub fn rebuild(vault: &Vault, manner: Manner<'_>) -> Result<Rebuilt, RebuildError> {
    fill(&vault.catalogue, &*vault.storage, &vault.coders, manner)
}

/// Fills a catalogue from the headers of redundancy files.
///
/// # Errors
/// See [`RebuildError`]; the catalogue is as it was then.
pub(crate) fn fill(
    catalogue: &Catalogue,
    storage: &dyn Storage,
    coders: &Coders,
    manner: Manner<'_>,
) -> Result<Rebuilt, RebuildError> {
    catalogue.together(|| {
        catalogue.clear()?;
        let put = |path: &[u8], entry: &Entry| Ok(catalogue.put(path, entry)?);
        let rebuilt = each_entry(storage, coders, manner, put)?;
        catalogue.set_made()?;
        Ok(rebuilt)
    })
}

/// What a catalogue would have if it were made anew. Nothing is changed.
///
/// # Errors
/// See [`RebuildError`].
pub fn survey(storage: &dyn Storage, coders: &Coders, manner: Manner<'_>) -> Result<Rebuilt, RebuildError> {
    each_entry(storage, coders, manner, |_, _| Ok(()))
}

/// Calls `visit` for every file that has redundancy.
fn each_entry(
    storage: &dyn Storage,
    coders: &Coders,
    manner: Manner<'_>,
    visit: impl Fn(&[u8], &Entry) -> Result<(), RebuildError>,
) -> Result<Rebuilt, RebuildError> {
    (manner.progress)(Progress::Step("reading headers", None));
    let mut rebuilt = Rebuilt::default();
    let mut file = |path: &[u8]| -> Result<(), RebuildError> {
        (manner.progress)(Progress::Done(1, 0));
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
            // The first repository that has the file speaks for all.
            let earlier = found[..index]
                .iter()
                .any(|other| other.tree.find(&join(REDUNDANCY, path)).is_ok_and(|stat| stat.is_some()));
            if earlier { Ok(()) } else { file(path) }
        })?;
    }
    Ok(rebuilt)
}

/// All files of the namespace, in the order of directories. Gives what cannot be read, and why: nothing is known of the files there.
fn walk_files(
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
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => left_out.push((storage.shown(&below), error.to_string())),
            }
        }
    }
    Ok(left_out)
}

/// All redundancy files of a repository, in the order of directories.
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

/// What the headers of a file's redundancy say of it.
fn entry_of(storage: &dyn Storage, coders: &Coders, path: &[u8], rebuilt: &mut Rebuilt) -> Option<Entry> {
    let mut parts: Vec<Part> = Vec::new();
    let holders = storage.holders(path).unwrap_or_else(|error| {
        rebuilt.unusable.push((storage.shown(path), error.to_string()));
        Vec::new()
    });
    for holder in holders {
        let place = &holder.place;
        match place.open(coders) {
            Ok(part) => parts.extend(part.filter(|part| holder.owns(&part.header))),
            Err(error) => rebuilt.unusable.push((place.tree.shown(&place.path), error.to_string())),
        }
    }
    let (mut parts, _) = belonging(parts, generation(storage, path));
    let header = parts.first().map(|part| part.header.clone())?;
    parts.retain(|part| part.header.generation == header.generation);
    let columns: usize = parts.iter().map(|part| part.header.columns).sum();
    Some(Entry {
        id: header.id,
        generation: header.generation,
        code: header.coding(),
        wanted: header.code.m() as u32,
        columns: columns as u32,
        redundancy: parts.iter().map(|part| part.records.file()).sum(),
        protected_at: header.protected_at,
        scrubbed_at: None,
        state: if columns < header.code.m() { State::Degraded } else { State::Protected },
    })
}

/// What the loss of targets would mean.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// Files, and their bytes, that lose nothing.
    pub unaffected: (u64, u64),
    /// Files that lose blocks and can be brought back.
    pub degraded: (u64, u64),
    /// Files that keep their data and lose redundancy only.
    pub exposed: (u64, u64),
    /// Files that could not be brought back.
    pub lost: (u64, u64),
    /// Their names, as many as were asked for.
    pub names: Vec<Vec<u8>>,
    /// Files whose headers could not be read.
    pub unknown: u64,
    /// No target with the current namespace of a pool would be left: without it no file can be found, whatever is left of it.
    pub namespace_lost: bool,
}

/// Computes from the headers what the loss of `targets` would mean for files at and below `path`, together with what is gone already. The files
/// of a pool are those of its namespace: one that was put, moved or replaced since the last protect counts as it is now. Those of a directory are
/// the ones that are protected.
///
/// # Errors
/// The catalogue fails, or the namespace of a pool cannot be read.
pub fn what_if(
    vault: &Vault,
    path: &[u8],
    targets: &[Vec<u8>],
    names: usize,
    manner: Manner<'_>,
) -> Result<WhatIf, RebuildError> {
    (manner.progress)(Progress::Step("reading headers", None));
    let mut gone = targets.to_vec();
    let offline = vault.storage.targets().into_iter().filter(|it| it.state == TargetState::Offline);
    gone.extend(offline.map(|target| target.name));
    let namespace_lost = vault.pool.as_ref().is_some_and(|pool| pool.mirrors_without(&gone) == 0);
    let mut answer = WhatIf { namespace_lost, ..WhatIf::default() };
    let mut ask = |path: &[u8], code: &str, size: Option<u64>| {
        (manner.progress)(Progress::Done(1, 0));
        match (remains(vault, path, code, &gone), size) {
            (Some(remains), Some(size)) => answer.count(path, &remains, size, names),
            _ => answer.unknown += 1,
        }
    };
    if let Some(pool) = &vault.pool {
        // Of a file without redundancy only the data columns matter, and these are the pool's.
        let code = format!("{}+{}", pool.config().stripe, vault.default_code.m());
        let unreadable = walk_files(&*vault.storage, &mut |found| {
            if is_below(found, path) {
                ask(found, &code, vault.storage.find(found).ok().flatten().map(|stat| stat.size));
            }
            Ok(())
        })?;
        answer.unknown += unreadable.len() as u64;
        return Ok(answer);
    }
    vault.catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        page.iter().for_each(|(path, entry)| ask(path, &entry.code, Some(entry.generation.size)));
        Ok(())
    })?;
    Ok(answer)
}

impl WhatIf {
    fn count(&mut self, path: &[u8], remains: &Remains, size: u64, names: usize) {
        let amount = match remains.data_gone {
            gone if self.namespace_lost || gone > remains.redundancy => {
                if self.names.len() < names {
                    self.names.push(path.to_vec());
                }
                &mut self.lost
            }
            0 if remains.redundancy == remains.redundancy_now => &mut self.unaffected,
            0 => &mut self.exposed,
            _ => &mut self.degraded,
        };
        *amount = (amount.0 + 1, amount.1 + size);
    }
}

fn generation(storage: &dyn Storage, path: &[u8]) -> Option<Generation> {
    storage.find(path).ok().flatten().map(|stat| stat.generation())
}
