//! Mark of a repair in progress: identifies the file and the former content of its bad blocks.
//!
//! A killed repair leaves a file that was written but is no valid version. The mark, `repairing/HASH` in the
//! repository, is durable before the first block is written and is removed after the last. It records the inode and
//! size of the file and the hash of every page of each bad block. A resumed repair writes a block only if each of its
//! pages has either the recorded or the protected content; other content was written by users since and is kept.
//!
//! A deleted file that is restored is identified by its inode once it exists. Until its repair is finished it holds
//! zeros and protected content, and owner, mode and attributes are not valid; they come from the redundancy.

use crate::examine::{Findings, ProtectedFile};
use crate::geometry::Run;
use crate::redundancy::{Draft, PartPath};
use crate::storage::{Repository, Storage};
use crate::tree::{Stat, Tree, absent_is_none, join};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

/// Directory of marks, below the repository.
pub const REPAIRING: &[u8] = b"repairing";

const MAGIC: &[u8; 8] = b"gabrep2\n";

/// Unit in which a write may have reached the file partly.
const PAGE: usize = 4096;

/// First bytes of BLAKE3 of a page.
type PageHash = [u8; 8];

/// Size in the mark of a file that did not exist.
const GONE: u64 = u64::MAX;

/// Content of a mark.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// Inode and size of the file; none in a mark of an earlier format, which holds only the path. For a deleted file
    /// the size is [`GONE`], and the inode is 0 until the file is created.
    begun_on: Option<(u64, u64)>,
    /// Page hashes of the bad blocks, by stripe and column. Empty if the block could not be read.
    blocks: BTreeMap<(u64, u32), Vec<PageHash>>,
}

/// Path of the mark of a file.
fn place(path: &[u8]) -> Vec<u8> {
    join(REPAIRING, blake3::hash(path).to_hex().as_bytes())
}

fn pages(bytes: &[u8]) -> Vec<PageHash> {
    let hash = |page: &[u8]| blake3::hash(page).as_bytes().first_chunk().copied().unwrap_or_default();
    bytes.chunks(PAGE).map(hash).collect()
}

impl Mark {
    /// Creates the mark of a file that is about to be repaired.
    pub(crate) fn of(protected: &ProtectedFile, findings: &Findings) -> Mark {
        let begun_on = protected.stat.map_or((0, GONE), |stat| (stat.inode, stat.size));
        let mut mark = Mark { begun_on: Some(begun_on), ..Mark::default() };
        for fault in &findings.faults {
            let run = protected.cut().run(fault.stripe, 1);
            for &column in &fault.data {
                let held = read_cell(protected, &run, column);
                let held = held.map_or(Vec::new(), |bytes| pages(&bytes));
                mark.blocks.insert((fault.stripe, column as u32), held);
            }
        }
        mark
    }

    /// True if the file at the path is the one that was being repaired. Repair writes in place, so another inode is
    /// another file.
    pub(crate) fn is_of(&self, stat: Option<&Stat>) -> bool {
        match (self.begun_on, stat) {
            // Killed between the creation of the file and the record of its inode.
            (Some((0, GONE)), Some(stat)) => stat.size == 0,
            (Some((inode, _)), Some(stat)) => stat.inode == inode,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// True if the repair found or set this size.
    pub(crate) fn knows_size(&self, size: u64, protected: u64) -> bool {
        let begun = |begun: u64| if begun == GONE { size == 0 } else { size == begun };
        self.begun_on.is_none_or(|(_, size)| begun(size)) || size == protected
    }

    /// True if a bad block holds only its recorded content and content that the repair wrote (`right`, if known).
    pub(crate) fn is_unfinished(
        &self,
        protected: &ProtectedFile,
        run: &Run,
        column: usize,
        right: Option<&[u8]>,
    ) -> bool {
        if self.begun_on.is_none() {
            return true;
        }
        let Some(held) = self.blocks.get(&(run.first, column as u32)) else { return false };
        let Some(now) = read_cell(protected, run, column) else { return true };
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

    /// True if the file did not exist when its repair began.
    pub(crate) fn was_gone(&self) -> bool {
        self.begun_on.is_some_and(|(_, size)| size == GONE)
    }

    /// Writes the mark durably and atomically. A process killed before leaves no mark and has written no block.
    pub(crate) fn write(&self, repository: &Tree, path: &[u8]) -> io::Result<()> {
        repository.make_directories(REPAIRING, 0o700)?;
        // A torn mark of an earlier format, or one of a former file at this path.
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

    /// None for an incomplete mark: the mark becomes durable before the file is written, so nothing was written then.
    fn decode(bytes: &[u8]) -> Option<Mark> {
        if !bytes.starts_with(MAGIC) {
            // Empty, or torn within the first bytes.
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

/// Content of a column of a stripe; none if it cannot be read. Zeros behind the end of the file, as after the repair
/// restores its size.
fn read_cell(protected: &ProtectedFile, run: &Run, column: usize) -> Option<Vec<u8>> {
    let (cell, mut bytes) = (run.cell(0, column), vec![0; run.block as usize]);
    protected.content.as_ref()?.read(run, 0, column, &mut bytes).ok()?;
    bytes.truncate((cell.end - cell.start) as usize);
    Some(bytes)
}

/// Files with an interrupted repair. They look modified but hold no valid version, so they must not be protected before
/// the repair is finished.
#[derive(Debug, Default)]
pub struct Interrupted {
    marks: BTreeSet<Vec<u8>>,
    trees: Vec<Tree>,
}

impl Interrupted {
    /// Reads the marks.
    ///
    /// # Errors
    /// The operating system fails.
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

    /// True if a repair of the file at `path` with properties `stat` has to be finished.
    ///
    /// # Errors
    /// The operating system fails.
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

/// Reads the mark of a file, if there is one.
pub(crate) fn read(repository: &Tree, path: &[u8]) -> io::Result<Option<Mark>> {
    let Some(mut file) = absent_is_none(repository.read(&place(path)))? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Mark::decode(&bytes))
}

/// Records the inode of a restored file before anything is written to it. Storage with several targets publishes the
/// file as a whole and needs no record.
pub(crate) fn note_made(
    storage: &dyn Storage,
    repository: &Tree,
    protected: &ProtectedFile,
    findings: &Findings,
    path: &[u8],
) -> io::Result<()> {
    if protected.content.is_some() || !protected.header.targets.is_empty() {
        return Ok(());
    }
    let Some(made) = storage.find(path)? else { return Ok(()) };
    let mark = Mark { begun_on: Some((made.inode, GONE)), ..Mark::of(protected, findings) };
    mark.publish(repository, path)
}

/// Removes the mark after the repair has ended or the file was deleted.
///
/// # Errors
/// The operating system fails.
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
