//! Redo log for in-place updates of a redundancy file.
//!
//! The writes are first collected in `staging/ID.COLUMN.redo`: magic, file id, resulting revision, path length, path,
//! number of writes, then offset, length and bytes of each, and BLAKE3 of everything before. The file is synced and
//! renamed to its name, which commits the update. Then the writes are made and synced, and the file is removed.
//! Repeating the writes is harmless; a redundancy file that was replaced by a newer one is left alone. If both headers
//! are among the writes, the file is cut off behind the second one.
//!
//! Columns are appended under the protection of an update that restores the present state: `begin_append` commits it
//! without making its writes, and the update with the new headers takes its name once the columns are durable. A crash
//! in between leaves the file as it was, and only the new columns are written.
//!
//! A damaged redo file cannot be completed. It is renamed to `….redo-damaged` for inspection, and the redundancy file
//! is verified like any other.

use super::draft::create_locked;
use super::{PATIENCE, PartPath, STAGING, read_up_to};
use crate::format::header::MAX_HEADER;
use crate::format::{FileId, Header, Records};
use crate::tree::{Tree, absent_is_none, join};
use gabion_platform::lock::Lockable;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"\x89GABRO\r\n";

/// Suffix of committed updates.
pub const SUFFIX: &[u8] = b".redo";

/// Suffix of updates that are being collected.
pub const UNFINISHED: &[u8] = b".redo-draft";

/// Suffix of damaged updates.
pub const DAMAGED: &[u8] = b".redo-damaged";

/// Maximum size of one update, which is held in memory. Larger changes take several updates.
pub const MAX_BYTES: usize = 64 << 20;

fn name(id: FileId, first: usize, suffix: &[u8]) -> Vec<u8> {
    join(STAGING, &[format!("{id}.{first}").as_bytes(), suffix].concat())
}

/// True if an update of this redundancy was committed and not completed.
pub(super) fn is_pending(place: &PartPath, header: &Header) -> io::Result<bool> {
    Ok(place.tree.find(&name(header.id, header.first, SUFFIX))?.is_some())
}

/// Applies writes to `file`, which the caller has locked, so that a crash leaves all or none of them. `header` is the
/// resulting header.
///
/// # Errors
/// I/O errors.
pub fn update(place: &PartPath, file: &File, header: &Header, writes: &[(u64, Vec<u8>)]) -> io::Result<()> {
    commit(place, header, writes)?;
    apply(file, writes.iter().map(|(offset, bytes)| (*offset, &bytes[..])))?;
    place.tree.remove(&name(header.id, header.first, SUFFIX))
}

/// Announces that columns are appended to a file with this `header`, which the caller has locked. Until
/// [`update`] commits the result or [`take_back`] ends the attempt, a process that opens the file after a crash
/// restores its end.
///
/// # Errors
/// I/O errors.
pub(crate) fn begin_append(place: &PartPath, header: &Header, header_bytes: usize) -> io::Result<()> {
    let bytes = header.encode(header_bytes).map_err(io::Error::other)?;
    let trailer = Records::new(header, bytes.len()).trailer();
    commit(place, header, &[(trailer, bytes.clone()), (0, bytes)])
}

/// Restores the end of a file after [`begin_append`].
///
/// # Errors
/// I/O errors; then the next process that opens the file does it.
pub(crate) fn take_back(place: &PartPath, file: &File, header: &Header) -> io::Result<()> {
    finish(place, file, header)
}

/// Makes an update durable under its name.
fn commit(place: &PartPath, header: &Header, writes: &[(u64, Vec<u8>)]) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(header.id.0);
    bytes.extend(header.revision.to_le_bytes());
    bytes.extend((place.path.len() as u32).to_le_bytes());
    bytes.extend(&place.path);
    bytes.extend((writes.len() as u64).to_le_bytes());
    for (offset, content) in writes {
        bytes.extend(offset.to_le_bytes());
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(content);
    }
    let checksum = blake3::hash(&bytes);
    bytes.extend(checksum.as_bytes());
    let (draft, whole) = (name(header.id, header.first, UNFINISHED), name(header.id, header.first, SUFFIX));
    place.tree.remove(&draft)?;
    let redo = create_locked(&place.tree, &draft)?;
    redo.write_all_at(&bytes, 0)?;
    redo.sync_all()?;
    place.tree.rename(&draft, &whole)?;
    place.tree.sync_directory(STAGING)
}

fn apply<'a>(file: &File, writes: impl Iterator<Item = (u64, &'a [u8])>) -> io::Result<()> {
    let (mut head, mut last): (&[u8], (u64, &[u8])) = (&[], (0, &[]));
    for (offset, bytes) in writes {
        file.write_all_at(bytes, offset)?;
        match offset {
            0 => head = bytes,
            _ => last = last.max((offset, bytes)),
        }
    }
    // The file ends with its second header.
    let (trailer, bytes) = last;
    if !head.is_empty() && head == bytes {
        file.set_len(trailer + bytes.len() as u64)?;
    }
    file.sync_all()
}

/// Completes an update of `file` that another process committed; the caller has the file locked. A damaged update is
/// set aside. Updates refer to redundancy by id, since the file may have been renamed meanwhile.
pub(super) fn finish(place: &PartPath, file: &File, header: &Header) -> io::Result<()> {
    let name = name(header.id, header.first, SUFFIX);
    match read(&place.tree, &name)? {
        RedoState::None => Ok(()),
        RedoState::Damaged => set_aside(&place.tree, &name),
        RedoState::Update(update) => {
            if update.is_for(file)? {
                apply(file, update.writes())?;
            }
            place.tree.remove(&name)
        }
    }
}

/// Renames a damaged update so that it is not found again.
fn set_aside(tree: &Tree, name: &[u8]) -> io::Result<()> {
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    tree.rename(name, &[stem, DAMAGED].concat())
}

/// An update that was read.
struct Update {
    name: Vec<u8>,
    id: [u8; 16],
    revision: u64,
    path: Vec<u8>,
    bytes: Vec<u8>,
    writes: Vec<(u64, std::ops::Range<usize>)>,
}

impl Update {
    fn writes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.writes.iter().map(|(offset, range)| (*offset, &self.bytes[range.clone()]))
    }

    /// True if `file` is still the one that the update was made for. A torn header was torn by this update.
    fn is_for(&self, file: &File) -> io::Result<bool> {
        let mut head = vec![0; MAX_HEADER];
        let got = read_up_to(file, &mut head, 0)?;
        Ok(match Header::identity(&head[..got]) {
            Some((id, revision)) => id.0 == self.id && revision <= self.revision,
            None => true,
        })
    }

    /// None for an invalid update.
    fn parse(name: Vec<u8>, bytes: Vec<u8>) -> Option<Update> {
        let end = bytes.len().checked_sub(32)?;
        if blake3::hash(&bytes[..end]).as_bytes() != &bytes[end..] || !bytes.starts_with(MAGIC) {
            return None;
        }
        let mut at = MAGIC.len();
        let mut take = |count: usize| {
            let range = at..at.checked_add(count).filter(|&stop| stop <= end)?;
            at = range.end;
            Some(range)
        };
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
        };
        let id = bytes[take(16)?].try_into().ok()?;
        let revision = number(take(8)?);
        let length = number(take(4)?);
        let path = bytes[take(length as usize)?].to_vec();
        let count = number(take(8)?);
        let mut writes = Vec::new();
        for _ in 0..count {
            let (offset, length) = (number(take(8)?), number(take(8)?));
            writes.push((offset, take(usize::try_from(length).ok()?)?));
        }
        Some(Update { name, id, revision, path, bytes, writes })
    }
}

/// State of an update.
enum RedoState {
    None,
    /// Invalid: it was complete when it got its name.
    Damaged,
    Update(Box<Update>),
}

fn read(tree: &Tree, name: &[u8]) -> io::Result<RedoState> {
    let Some(file) = absent_is_none(tree.read(name))? else { return Ok(RedoState::None) };
    let mut bytes = Vec::new();
    file.take(2 * MAX_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(Update::parse(name.to_vec(), bytes)
        .map_or(RedoState::Damaged, |update| RedoState::Update(Box::new(update))))
}

/// All committed updates, and the names of the damaged ones.
fn pending(tree: &Tree) -> io::Result<(Vec<Update>, Vec<Vec<u8>>)> {
    let (mut updates, mut damaged) = (Vec::new(), Vec::new());
    let Some(directory) = absent_is_none(tree.directory(STAGING))? else { return Ok((updates, damaged)) };
    for (file, _) in directory.names()?.iter().filter(|(file, _)| file.ends_with(SUFFIX)) {
        let name = join(STAGING, file);
        match read(tree, &name)? {
            RedoState::None => {}
            RedoState::Damaged => damaged.push(name),
            RedoState::Update(update) => updates.push(*update),
        }
    }
    Ok((updates, damaged))
}

/// Completes committed updates of a repository and removes abandoned drafts, while other processes may be working.
/// Returns the number of updates completed and drafts removed.
///
/// # Errors
/// I/O errors.
pub fn recover(tree: &Tree) -> io::Result<(usize, usize)> {
    let (updates, damaged) = pending(tree)?;
    damaged.iter().try_for_each(|name| set_aside(tree, name))?;
    for update in &updates {
        if let Some(file) = absent_is_none(tree.write(&update.path))? {
            let file = match Lockable::exclusive_within(file, PATIENCE) {
                // Its writer lives, and may finish it.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                file => file?,
            };
            // Its writer may have finished it meanwhile, or died with another one in its place. The file may be another
            // one by now: removed, moved or recreated after the update.
            match read(tree, &update.name)? {
                RedoState::Update(update) if update.is_for(&file)? => apply(&file, update.writes())?,
                RedoState::Damaged => {
                    set_aside(tree, &update.name)?;
                    continue;
                }
                _ => {}
            }
        }
        tree.remove(&update.name)?;
    }
    let mut drafts = 0;
    if let Some(directory) = absent_is_none(tree.directory(STAGING))? {
        for (name, _) in directory.names()?.iter() {
            let ours = name.ends_with(super::draft::SUFFIX) || name.ends_with(UNFINISHED);
            let path = join(STAGING, name);
            drafts += usize::from(ours && remove_abandoned(tree, &path)?);
        }
    }
    Ok((updates.len(), drafts))
}

/// Removes a draft if its writer is dead: a live writer holds a lock.
fn remove_abandoned(tree: &Tree, path: &[u8]) -> io::Result<bool> {
    let Some(file) = absent_is_none(tree.read(path))?.map(Lockable::from) else { return Ok(false) };
    // Locked until it is removed: its writer looks for it with the lock.
    let is_abandoned = file.try_lock().is_ok();
    if is_abandoned {
        tree.remove(path)?;
    }
    Ok(is_abandoned)
}
