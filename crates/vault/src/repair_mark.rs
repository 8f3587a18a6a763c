//! Mark of a repair that writes data in place: which file it writes, and what the bad blocks held.
//!
//! A repair that is killed leaves a file that was written and is no version of anybody's. The mark, `repairing/HASH` in the repository, is durable
//! before the first block is written and is removed after the last. It records the inode and size of the file and the hash of every page
//! of each bad block. The repair that resumes writes a block only if every page of it is either what that page held or what was protected:
//! everything else was written by someone else since, and stays.
//!
//! A file that was gone and is made anew is known by its inode as soon as it is there. Until its repair is finished it holds zeros and what was protected,
//! and its owner, mode and attributes are nobody's: they come from the redundancy.

use crate::examine::{Findings, Subject};
use crate::geometry::Run;
use crate::redundancy::{Draft, PartPath};
use crate::storage::{Repository, Storage};
use crate::tree::{Stat, Tree, absent_is_none, join};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

/// Directory of marks, beneath the repository.
pub const REPAIRING: &[u8] = b"repairing";

const MAGIC: &[u8; 8] = b"gabrep2\n";

/// Unit in which a write may have reached the file in part.
const PAGE: usize = 4096;

/// First bytes of BLAKE3 of a page.
type PageHash = [u8; 8];

/// Stands for the size of a file that was gone.
const GONE: u64 = u64::MAX;

/// What a repair that was begun knows.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// Inode and size of the file; nothing in a mark of an earlier version, which has only the path of its file in it. A file that was gone has [`GONE`] for
    /// its size, and inode 0 until it is made.
    begun_on: Option<(u64, u64)>,
    /// What the bad blocks held, by stripe and column. No pages: the block could not be read.
    blocks: BTreeMap<(u64, u32), Vec<PageHash>>,
}

/// The place of the mark of a file.
fn place(path: &[u8]) -> Vec<u8> {
    join(REPAIRING, blake3::hash(path).to_hex().as_bytes())
}

fn pages(bytes: &[u8]) -> Vec<PageHash> {
    let hash = |page: &[u8]| blake3::hash(page).as_bytes().first_chunk().copied().unwrap_or_default();
    bytes.chunks(PAGE).map(hash).collect()
}

impl Mark {
    /// What the bad blocks of a file hold that is about to be repaired.
    pub(crate) fn of(subject: &Subject, findings: &Findings) -> Mark {
        let begun_on = subject.stat.map_or((0, GONE), |stat| (stat.inode, stat.size));
        let mut mark = Mark { begun_on: Some(begun_on), ..Mark::default() };
        for fault in &findings.faults {
            let run = subject.cut().run(fault.stripe, 1);
            for &column in &fault.data {
                let held = read_cell(subject, &run, column);
                let held = held.map_or(Vec::new(), |bytes| pages(&bytes));
                mark.blocks.insert((fault.stripe, column as u32), held);
            }
        }
        mark
    }

    /// Whether the file at the path is still the one that was being repaired. Repair writes in place: another inode is another file.
    pub(crate) fn is_of(&self, stat: Option<&Stat>) -> bool {
        match (self.begun_on, stat) {
            // Killed after it was made, and before its inode was recorded.
            (Some((0, GONE)), Some(stat)) => stat.size == 0,
            (Some((inode, _)), Some(stat)) => stat.inode == inode,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Whether the size is one that the repair found or made.
    pub(crate) fn knows_size(&self, size: u64, protected: u64) -> bool {
        let begun = |begun: u64| if begun == GONE { size == 0 } else { size == begun };
        self.begun_on.is_none_or(|(_, size)| begun(size)) || size == protected
    }

    /// Whether a bad block holds nothing but what it held when the repair began, and what the repair wrote (`right`, where that is known).
    pub(crate) fn is_unfinished(
        &self,
        subject: &Subject,
        run: &Run,
        column: usize,
        right: Option<&[u8]>,
    ) -> bool {
        if self.begun_on.is_none() {
            return true;
        }
        let Some(held) = self.blocks.get(&(run.first, column as u32)) else { return false };
        let Some(now) = read_cell(subject, run, column) else { return true };
        if self.was_gone() {
            let right = |at: usize| right.and_then(|right| right.get(at));
            return now.iter().enumerate().all(|(at, byte)| *byte == 0 || right(at) == Some(byte));
        }
        let right = right.map_or(Vec::new(), pages);
        pages(&now)
            .iter()
            .enumerate()
            .all(|(at, page)| held.get(at) == Some(page) || right.get(at) == Some(page))
    }

    /// Whether the file was gone when its repair began.
    pub(crate) fn was_gone(&self) -> bool {
        self.begun_on.is_some_and(|(_, size)| size == GONE)
    }

    /// Makes the mark durable. It appears whole or not at all: a process that is killed before leaves no mark, since no block was written.
    pub(crate) fn write(&self, repository: &Tree, path: &[u8]) -> io::Result<()> {
        repository.make_directories(REPAIRING, 0o700)?;
        // A torn mark of an earlier version, or one of a file that was at this path before.
        repository.remove(&place(path))?;
        self.publish(repository, path)
    }

    fn publish(&self, repository: &Tree, path: &[u8]) -> io::Result<()> {
        let draft = Draft::new(PartPath { tree: repository.clone(), path: place(path) })?;
        draft.write_whole(&self.encode())?;
        draft.sync()?;
        draft.publish_durably()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let (inode, size) = self.begun_on.unwrap_or_default();
        for number in [inode, size, self.blocks.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        for ((stripe, column), pages) in &self.blocks {
            bytes.extend(stripe.to_le_bytes());
            bytes.extend(column.to_le_bytes());
            bytes.extend((pages.len() as u32).to_le_bytes());
            pages.iter().for_each(|page| bytes.extend(page));
        }
        let check = blake3::hash(&bytes);
        bytes.extend(check.as_bytes());
        bytes
    }

    /// Nothing for a mark that is not whole: it became durable before the file was written, so nothing was written then.
    fn decode(bytes: &[u8]) -> Option<Mark> {
        if !bytes.starts_with(MAGIC) {
            // Without content, or torn within the first bytes.
            return (!MAGIC.starts_with(bytes)).then(Mark::default);
        }
        let (bytes, check) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(bytes).as_bytes() != check {
            return None;
        }
        let mut rest = bytes.get(MAGIC.len()..)?;
        let (inode, size, count) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let mut mark =
            Mark { begun_on: Some((u64::from_le_bytes(inode), u64::from_le_bytes(size))), ..Mark::default() };
        for _ in 0..u64::from_le_bytes(count) {
            let (stripe, column) =
                (u64::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
            let count = u32::from_le_bytes(take(&mut rest)?);
            let pages = (0..count).map(|_| take(&mut rest)).collect::<Option<Vec<PageHash>>>()?;
            mark.blocks.insert((stripe, column), pages);
        }
        Some(mark)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

/// What a column of a stripe holds of the file; nothing if it cannot be read. Where the file ends early there are zeros, as there are when repair
/// has given it its size back.
fn read_cell(subject: &Subject, run: &Run, column: usize) -> Option<Vec<u8>> {
    let (cell, mut bytes) = (run.cell(0, column), vec![0; run.block as usize]);
    subject.content.as_ref()?.read(run, 0, column, &mut bytes).ok()?;
    bytes.truncate((cell.end - cell.start) as usize);
    Some(bytes)
}

/// Files whose repair was begun and not brought to its end. The file system says that they were written, and what is in them is nobody's
/// version: they are not to be protected before the repair is finished.
#[derive(Debug, Default)]
pub struct Interrupted {
    marks: BTreeSet<Vec<u8>>,
    trees: Vec<Tree>,
}

impl Interrupted {
    /// Looks for marks.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn of(storage: &dyn Storage) -> io::Result<Interrupted> {
        let mut found = Interrupted::default();
        for Repository { tree, .. } in storage.repositories() {
            let Some(directory) = absent_is_none(tree.directory(REPAIRING))? else { continue };
            let before = found.marks.len();
            found.marks.extend(directory.names()?.iter().map(|(name, _)| join(REPAIRING, name)));
            if found.marks.len() > before {
                found.trees.push(tree);
            }
        }
        Ok(found)
    }

    /// Whether a repair of the file at `path`, which is `stat`, has to be finished.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn has(&self, path: &[u8], stat: Option<&Stat>) -> io::Result<bool> {
        if !self.marks.contains(&place(path)) {
            return Ok(false);
        }
        for tree in &self.trees {
            if read(tree, path)?.is_some_and(|mark| mark.is_of(stat)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The mark of a file, if a repair of it was begun.
pub(crate) fn read(repository: &Tree, path: &[u8]) -> io::Result<Option<Mark>> {
    let Some(mut file) = absent_is_none(repository.read(&place(path)))? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Mark::decode(&bytes))
}

/// Records which file was made in the place of one that was gone, before anything is written to it. Storage of several targets puts a file in place as a whole.
pub(crate) fn note_made(
    storage: &dyn Storage,
    repository: &Tree,
    subject: &Subject,
    findings: &Findings,
    path: &[u8],
) -> io::Result<()> {
    if subject.content.is_some() || !subject.header.targets.is_empty() {
        return Ok(());
    }
    let Some(made) = storage.find(path)? else { return Ok(()) };
    let mark = Mark { begun_on: Some((made.inode, GONE)), ..Mark::of(subject, findings) };
    mark.publish(repository, path)
}

/// The repair of a file has come to its end, or the file is gone.
///
/// # Errors
/// What the operating system says.
pub(crate) fn forget_repair(storage: &dyn Storage, path: &[u8]) -> io::Result<()> {
    storage.writable_repositories().iter().try_for_each(|repository| repository.tree.remove(&place(path)))
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, Mark};

    #[test]
    fn a_mark_is_read_as_it_was_written_or_not_at_all() {
        let blocks = [((3, 1), vec![[1; 8], [2; 8]]), ((9, 0), Vec::new())];
        let mark = Mark { begun_on: Some((7, 8)), blocks: blocks.into_iter().collect() };
        let bytes = mark.encode();
        let read = Mark::decode(&bytes).unwrap();
        assert_eq!((read.begun_on, read.blocks), (mark.begun_on, mark.blocks));
        for end in 0..bytes.len() {
            assert!(Mark::decode(&bytes[..end]).is_none(), "{end}");
        }
        for at in MAGIC.len()..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Mark::decode(&other).is_none(), "{at}");
        }
        assert!(Mark::decode(b"path of a file").unwrap().begun_on.is_none());
    }
}
