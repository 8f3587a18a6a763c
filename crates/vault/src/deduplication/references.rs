//! References to bodies: found and counted by their links, and bodies without any removed.
//!
//! A link that is the only name of its file was left behind: the file changed or is gone, or the process died before
//! the reference got its name. But links do not survive some copies of a repository, so before a link is removed the
//! redundancy of its file is looked at, and gets a new link if it refers to the body. For a body without any link all
//! small redundancy files are looked at.
//!
//! A body without references is renamed first, so that another host that is about to refer to it notices; readers find
//! it under both names. It is removed after an hour, if there is still no reference.

use crate::catalogue::CatalogueError;
use crate::coder::Coders;
use crate::deduplication::{LARGEST_HEADER, SharedAmount};
use crate::displaced::{DISPLACED, displaced_of};
use crate::format::{FileId, Header};
use crate::redundancy::body::{UNUSED, directory_of, header_at, path_of, unused_path_of};
use crate::redundancy::{PartPath, REDUNDANCY, SHARED};
use crate::tree::{Kind, Stat, Tree, absent_is_none, join};
use crate::vault::Vault;
use crate::world::{Timestamp, unique_id};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

/// How long a body without references is kept: longer than any host works by what it saw before.
const KEPT: Duration = Duration::from_secs(3600);

/// Name of a new link to a reference to a body.
pub(super) fn new_link(body: FileId) -> io::Result<Vec<u8>> {
    let name = format!("{body}-{}", FileId(unique_id()?));
    Ok(join(&directory_of(body), name.as_bytes()))
}

/// What there is of a body.
#[derive(Debug, Default)]
struct Body {
    file: Option<Stat>,
    unused: Option<Stat>,
    /// Links that are the only name of their file.
    left: Vec<Vec<u8>>,
    /// References in use.
    references: u64,
    /// Inodes of these.
    inodes: Vec<u64>,
}

impl Body {
    fn bytes(&self) -> u64 {
        self.file.or(self.unused).map_or(0, |stat| stat.size)
    }
}

fn id_of(hex: &[u8]) -> Option<FileId> {
    let text = std::str::from_utf8(hex).ok().filter(|text| text.len() == 32)?;
    let number = u128::from_str_radix(text, 16).ok()?;
    let id = FileId(number.to_be_bytes());
    // One name for each id.
    (id.to_string() == text).then_some(id)
}

/// Lists the bodies below `shared`. What else is there is left alone.
fn list(tree: &Tree) -> io::Result<BTreeMap<FileId, Body>> {
    let mut bodies: BTreeMap<FileId, Body> = BTreeMap::new();
    let Some(top) = absent_is_none(tree.directory(SHARED))? else { return Ok(bodies) };
    for (part, _) in top.names()?.iter() {
        let place = join(SHARED, part);
        let directory = match tree.directory(&place) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {
                continue;
            }
            directory => directory?,
        };
        for (name, _) in directory.names()?.iter() {
            let Some((hex, rest)) = name.split_at_checked(32) else { continue };
            let Some(id) = id_of(hex).filter(|id| directory_of(*id) == place) else { continue };
            let Some(stat) = absent_is_none(directory.stat(name))? else { continue };
            if stat.kind != Kind::File {
                continue;
            }
            match rest {
                b"" => bodies.entry(id).or_default().file = Some(stat),
                rest if rest == UNUSED => bodies.entry(id).or_default().unused = Some(stat),
                [b'-', link @ ..] if id_of(link).is_some() => match stat.links {
                    0 | 1 => bodies.entry(id).or_default().left.push(join(&place, name)),
                    _ => {
                        let body = bodies.entry(id).or_default();
                        body.references += 1;
                        body.inodes.push(stat.inode);
                    }
                },
                _ => {}
            }
        }
    }
    Ok(bodies)
}

/// Counts what is shared, by files that are there: the redundancy of removed ones is kept for a while.
pub(super) fn amount(tree: &Tree) -> io::Result<SharedAmount> {
    let mut amount = SharedAmount::default();
    let (bodies, displaced) = (list(tree)?, displaced(tree)?);
    for body in bodies.values() {
        let files = body.inodes.iter().filter(|inode| !displaced.contains(inode)).count() as u64;
        if files > 0 {
            amount.files += files;
            amount.bodies += 1;
            amount.saved += (files - 1) * body.bytes();
        }
    }
    Ok(amount)
}

/// Inodes of the redundancy of files that are not there.
fn displaced(tree: &Tree) -> io::Result<HashSet<u64>> {
    let Some(directory) = absent_is_none(tree.directory(DISPLACED))? else { return Ok(HashSet::new()) };
    let mut inodes = HashSet::new();
    for (name, _) in directory.names()?.iter() {
        inodes.extend(absent_is_none(directory.stat(name))?.map(|stat| stat.inode));
    }
    Ok(inodes)
}

/// Results of [`sweep`].
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Bytes of bodies that were removed.
    pub(super) removed: u64,
    /// Bodies that are missing, as text.
    pub(super) missing: Vec<String>,
}

/// Removes links that were left behind, and bodies without references.
pub(super) fn sweep(vault: &Vault, tree: &Tree) -> Result<io::Result<Swept>, CatalogueError> {
    let mut bodies = match list(tree) {
        Ok(bodies) => bodies,
        Err(error) => return Ok(Err(error)),
    };
    let left = match left_behind(vault, tree, &mut bodies) {
        Ok(left) => left,
        Err(error) => return Ok(Err(error)),
    };
    let ids: HashSet<FileId> = left.iter().map(|(_, _, header)| header.id).collect();
    let mut names: BTreeMap<FileId, Vec<Vec<u8>>> = BTreeMap::new();
    for (id, path) in vault.catalogue.names_of_ids(&ids)? {
        names.entry(id).or_default().push(join(REDUNDANCY, &path));
    }
    Ok(settle_all(vault, tree, bodies, left, &names))
}

/// Links that are the only name of their file, with the body and the header. Those whose header cannot be read count
/// as references: whose they were cannot be told.
type Left = Vec<(FileId, Vec<u8>, Header)>;

fn left_behind(vault: &Vault, tree: &Tree, bodies: &mut BTreeMap<FileId, Body>) -> io::Result<Left> {
    let mut left = Vec::new();
    for (id, body) in bodies {
        for link in std::mem::take(&mut body.left) {
            match header_at(&PartPath { tree: tree.clone(), path: link.clone() }, &vault.coders)? {
                Some(header) => left.push((*id, link, header)),
                None => body.references += 1,
            }
        }
    }
    Ok(left)
}

fn settle_all(
    vault: &Vault,
    tree: &Tree,
    mut bodies: BTreeMap<FileId, Body>,
    left: Left,
    names: &BTreeMap<FileId, Vec<Vec<u8>>>,
) -> io::Result<Swept> {
    for (id, link, header) in left {
        let mut places = names.get(&header.id).cloned().unwrap_or_default();
        places.push(displaced_of(tree, header.generation.inode).path);
        let found = link_again(tree, &vault.coders, id, &places)?;
        let body = bodies.entry(id).or_default();
        body.references += found;
        body.left.push(link);
    }
    // Links of a body stay until it is removed. Where there are none, a process died before it made any, or they were
    // removed by hand.
    let is_orphan = |(_, body): &(&FileId, &Body)| body.references == 0 && body.left.is_empty();
    let orphans: HashSet<FileId> = bodies.iter().filter(is_orphan).map(|(id, _)| *id).collect();
    if !orphans.is_empty() {
        for (id, place) in references_to(&orphans, tree, &vault.coders)? {
            bodies.entry(id).or_default().references += link_again(tree, &vault.coders, id, &[place])?;
        }
    }
    let now = vault.clock.now();
    let mut swept = Swept::default();
    for (id, body) in bodies {
        let is_missing = body.file.or(body.unused).is_none();
        let removed = settle(tree, id, &body, now)?;
        if body.references > 0 || removed.is_some() || is_missing {
            body.left.iter().try_for_each(|link| tree.remove(link))?;
        }
        swept.removed += removed.unwrap_or(0);
        if is_missing && body.references > 0 {
            let why = "is missing: the files that share it have no redundancy, `gabion scrub` names them";
            swept.missing.push(format!("{} {why}", tree.shown(&path_of(id)).display()));
        }
    }
    Ok(swept)
}

/// References to these bodies, with their paths. Reads the headers of all small redundancy files.
fn references_to(ids: &HashSet<FileId>, tree: &Tree, coders: &Coders) -> io::Result<Vec<(FileId, Vec<u8>)>> {
    let (mut found, mut ahead) = (Vec::new(), vec![REDUNDANCY.to_vec(), DISPLACED.to_vec()]);
    while let Some(path) = ahead.pop() {
        let Some(directory) = absent_is_none(tree.directory(&path))? else { continue };
        for (name, _) in directory.names()?.iter() {
            let below = join(&path, name);
            let Some(stat) = absent_is_none(directory.stat(name))? else { continue };
            match stat.kind {
                Kind::Directory => ahead.push(below),
                Kind::File if stat.size <= 2 * LARGEST_HEADER as u64 => {
                    let header = header_at(&PartPath { tree: tree.clone(), path: below.clone() }, coders)?;
                    let body = header.and_then(|header| header.body()).filter(|id| ids.contains(id));
                    found.extend(body.map(|id| (id, below)));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// References at these places that have no link get one. Returns their number.
fn link_again(tree: &Tree, coders: &Coders, body: FileId, places: &[Vec<u8>]) -> io::Result<u64> {
    let refers = |path: &[u8]| -> io::Result<bool> {
        let header = header_at(&PartPath { tree: tree.clone(), path: path.to_vec() }, coders)?;
        Ok(header.is_some_and(|header| header.body() == Some(body)))
    };
    let mut found = 0;
    for place in places {
        let is_alone = tree.find(place)?.is_some_and(|stat| stat.kind == Kind::File && stat.links == 1);
        if !is_alone || !refers(place)? {
            continue;
        }
        let new = new_link(body)?;
        match absent_is_none(tree.link(place, &new))? {
            // It may have been replaced meanwhile.
            Some(()) if refers(&new)? => found += 1,
            Some(()) => tree.remove(&new)?,
            None => {}
        }
    }
    if found > 0 {
        tree.sync_directory(&directory_of(body))?;
    }
    Ok(found)
}

/// Gives a body the name that its references ask for, or removes it. Returns the bytes that were removed.
fn settle(tree: &Tree, id: FileId, body: &Body, now: Timestamp) -> io::Result<Option<u64>> {
    let (path, unused) = (path_of(id), unused_path_of(id));
    match (body.file, body.unused, body.references) {
        // This one is in use.
        (Some(_), Some(_), _) => tree.remove(&unused).map(|()| None),
        (Some(_), None, 0) => tree.rename_new(&path, &unused).map(|()| None),
        (None, Some(_), 1..) => tree.rename_new(&unused, &path).map(|()| None),
        (None, Some(stat), 0) if now.since(stat.ctime) > KEPT => {
            tree.remove(&unused)?;
            Ok(Some(stat.size))
        }
        _ => Ok(None),
    }
}
