//! Mark of a repair in progress: identifies the file and the former content of its bad blocks.
//!
//! A killed repair leaves a file that was written but is no valid version, under whatever names it gets. The mark,
//! `repairing/INODE` in the repository, is durable before the first block is written and is removed after the last. It
//! records the inode, time of creation, size and name of the file, and the hash of every sector of each bad block. A
//! resumed repair writes a block only if each of its sectors has either the recorded or the protected content; other
//! content was written by users since and is kept.
//!
//! The mark of a deleted file that is restored is `repairing/HASH`, by its path, until the file exists. Until its
//! repair is finished it holds zeros and protected content, and owner, mode and attributes are not valid; they come
//! from the redundancy. Earlier programs named all marks so.

use crate::examine::{Findings, ProtectedFile};
use crate::geometry::Run;
use crate::redundancy::{Draft, PartPath};
use crate::storage::{Repository, Storage};
use crate::tree::{Stat, Tree, absent_is_none, join};
use crate::world::Timestamp;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// Directory of marks, below the repository.
pub const REPAIRING: &[u8] = b"repairing";

const MAGIC: &[u8; 8] = b"gabrep3\n";

/// Marks of the earlier format, without the time of creation.
const MAGIC_2: &[u8; 8] = b"gabrep2\n";

/// Unit in which a write may have reached the file partly, counted from the start of the file.
const SECTOR: u64 = 512;

/// The same in the second format, counted from the start of the block.
const PAGE_2: usize = 4096;

/// First bytes of BLAKE3 of a sector.
type SectorHash = [u8; 8];

/// Size in the mark of a file that did not exist.
const GONE: u64 = u64::MAX;

/// Time of creation where the file system does not record it.
const UNKNOWN: Timestamp = Timestamp::MIN;

/// The file whose repair was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    /// 0 for a deleted file, until it is created.
    inode: u64,
    /// [`GONE`] for a deleted file.
    size: u64,
    birth: Option<Timestamp>,
}

/// Content of a mark.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// None in a mark of the first format, which holds only the path.
    begun_on: Option<Begun>,
    /// Name that the file had; empty in marks of earlier formats.
    path: Vec<u8>,
    /// The mark is of the second format.
    is_second: bool,
    /// Hashes of the sectors of bad blocks, by stripe and column. Empty if the block could not be read.
    blocks: BTreeMap<(u64, u32), Vec<SectorHash>>,
}

/// Place of the mark of a deleted file, and of any mark of earlier formats.
fn place_of_path(path: &[u8]) -> Vec<u8> {
    join(REPAIRING, blake3::hash(path).to_hex().as_bytes())
}

/// Place of the mark of a file that exists.
fn place_of_inode(inode: u64) -> Vec<u8> {
    join(REPAIRING, format!("{inode:016x}").as_bytes())
}

/// Hashes of the sectors of which `bytes`, at an offset in the file, consist.
fn sectors(bytes: &[u8], offset: u64) -> Vec<SectorHash> {
    let first = (offset.next_multiple_of(SECTOR) - offset).min(bytes.len() as u64);
    let (first, rest) = bytes.split_at(first as usize);
    let first = (!first.is_empty()).then_some(first);
    first.into_iter().chain(rest.chunks(SECTOR as usize)).map(hash).collect()
}

fn hash(bytes: &[u8]) -> SectorHash {
    blake3::hash(bytes).as_bytes().first_chunk().copied().unwrap_or_default()
}

impl Mark {
    /// Creates the mark of a file that is about to be repaired.
    pub(crate) fn of(protected: &ProtectedFile, findings: &Findings, path: &[u8]) -> Mark {
        let begun_on = match protected.stat {
            Some(Stat { inode, size, birth, .. }) => Begun { inode, size, birth },
            None => Begun { inode: 0, size: GONE, birth: None },
        };
        let mut mark = Mark { begun_on: Some(begun_on), path: path.to_vec(), ..Mark::default() };
        for fault in &findings.faults {
            let run = protected.cut().run(fault.stripe, 1);
            for &column in &fault.data {
                let held = read_cell(protected, &run, column);
                let held = held.map_or(Vec::new(), |bytes| sectors(&bytes, run.cell(0, column).start));
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
            (Some(Begun { inode: 0, size: GONE, .. }), Some(stat)) => stat.size == 0,
            // The number of a deleted file may be that of a later one.
            (Some(begun), Some(stat)) => {
                let is_later = |(begun, now): (Timestamp, Timestamp)| begun != now;
                stat.inode == begun.inode && !begun.birth.zip(stat.birth).is_some_and(is_later)
            }
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// True if the repair found or set this size.
    pub(crate) fn knows_size(&self, size: u64, protected: u64) -> bool {
        let begun = |begun: u64| if begun == GONE { size == 0 } else { size == begun };
        self.begun_on.is_none_or(|it| begun(it.size)) || size == protected
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
        let units = |bytes: &[u8]| match self.is_second {
            true => bytes.chunks(PAGE_2).map(hash).collect(),
            false => sectors(bytes, run.cell(0, column).start),
        };
        let right = right.map_or(Vec::new(), units);
        units(&now)
            .iter()
            .enumerate()
            .all(|(at, unit)| held.get(at) == Some(unit) || right.get(at) == Some(unit))
    }

    /// True if the file did not exist when its repair began.
    pub(crate) fn was_gone(&self) -> bool {
        self.begun_on.is_some_and(|it| it.size == GONE)
    }

    /// Writes the mark durably and atomically. A process killed before leaves no mark and has written no block.
    pub(crate) fn write(&self, repository: &Tree) -> io::Result<()> {
        repository.make_directories(REPAIRING, 0o700)?;
        let by_path = place_of_path(&self.path);
        let place = self.begun_on.filter(|it| it.inode != 0).map(|it| place_of_inode(it.inode));
        let draft = Draft::new(PartPath {
            tree: repository.clone(),
            path: place.clone().unwrap_or(by_path.clone()),
        })?;
        draft.write_whole(&self.encode())?;
        draft.sync()?;
        draft.publish_durably()?;
        match place {
            // One of the file before it was created, one of an earlier format, or one of a former file.
            Some(_) => repository.remove(&by_path),
            None => Ok(()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let Begun { inode, size, birth } = self.begun_on.unwrap_or(Begun { inode: 0, size: 0, birth: None });
        bytes.extend(inode.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(birth.unwrap_or(UNKNOWN).nanoseconds().to_le_bytes());
        bytes.extend((self.path.len() as u32).to_le_bytes());
        bytes.extend(&self.path);
        bytes.extend((self.blocks.len() as u64).to_le_bytes());
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
        let is_known = bytes.starts_with(MAGIC) || bytes.starts_with(MAGIC_2);
        if !is_known {
            // Empty, or torn within the first bytes.
            let is_torn = MAGIC.starts_with(bytes) || MAGIC_2.starts_with(bytes);
            return (!is_torn).then(Mark::default);
        }
        let is_second = bytes.starts_with(MAGIC_2);
        let (bytes, check) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(bytes).as_bytes() != check {
            return None;
        }
        let mut rest = bytes.get(MAGIC.len()..)?;
        let (inode, size) = (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
        let (mut birth, mut path) = (UNKNOWN, Vec::new());
        if !is_second {
            birth = Timestamp::from_nanoseconds(i64::from_le_bytes(take(&mut rest)?));
            let length = u32::from_le_bytes(take(&mut rest)?);
            let (name, after) = rest.split_at_checked(length as usize)?;
            (path, rest) = (name.to_vec(), after);
        }
        let begun_on = Some(Begun { inode, size, birth: (birth != UNKNOWN).then_some(birth) });
        let mut mark = Mark { begun_on, path, is_second, ..Mark::default() };
        let count = take(&mut rest)?;
        for _ in 0..u64::from_le_bytes(count) {
            let (stripe, column) =
                (u64::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
            let count = u32::from_le_bytes(take(&mut rest)?);
            let pages = (0..count).map(|_| take(&mut rest)).collect::<Option<Vec<SectorHash>>>()?;
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
    /// Marks by their places.
    marks: BTreeMap<Vec<u8>, Vec<Mark>>,
}

impl Interrupted {
    /// Reads the marks.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn of(storage: &dyn Storage) -> io::Result<Interrupted> {
        let mut marks: BTreeMap<Vec<u8>, Vec<Mark>> = BTreeMap::new();
        for Repository { tree, .. } in storage.repositories() {
            let Some(directory) = absent_is_none(tree.directory(REPAIRING))? else { continue };
            for (name, _) in directory.names()?.iter() {
                let place = join(REPAIRING, name);
                if let Some(mark) = read_at(&tree, &place)? {
                    marks.entry(place).or_default().push(mark);
                }
            }
        }
        Ok(Interrupted { marks })
    }

    /// True if a repair of a file with this inode has to be finished.
    pub(crate) fn has_inode(&self, inode: u64) -> bool {
        self.marks.values().flatten().any(|mark| mark.begun_on.is_some_and(|it| it.inode == inode))
    }

    /// Names under which repairs of files were begun that do not have these names any more: files that exist, and
    /// were renamed or removed since.
    pub(crate) fn elsewhere(&self, storage: &dyn Storage) -> Vec<(&[u8], &Mark)> {
        let marks = self.marks.values().flatten();
        let of_files =
            marks.filter(|mark| mark.begun_on.is_some_and(|it| it.inode != 0) && !mark.path.is_empty());
        let has_left = |mark: &&Mark| storage.find(&mark.path).is_ok_and(|found| !mark.is_of(found.as_ref()));
        of_files.filter(has_left).map(|mark| (&mark.path[..], mark)).collect()
    }

    /// True if a repair of the file at `path` with properties `stat` has to be finished, under this name or another.
    pub fn has(&self, path: &[u8], stat: Option<&Stat>) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let by_path = self.marks.get(&place_of_path(path)).into_iter().flatten();
        // Marks of the second format know the inode, too.
        let by_inode =
            self.marks.values().flatten().filter(|mark| mark.begun_on.is_some_and(|it| it.inode != 0));
        by_path.chain(by_inode).any(|mark| mark.is_of(stat))
    }
}

/// Reads the mark of the file at `path` with properties `stat`, if there is one.
pub(crate) fn read(repository: &Tree, path: &[u8], stat: Option<&Stat>) -> io::Result<Option<Mark>> {
    let by_inode = stat.map(|stat| place_of_inode(stat.inode));
    for place in by_inode.into_iter().chain([place_of_path(path)]) {
        if let Some(mark) = read_at(repository, &place)?.filter(|mark| mark.is_of(stat)) {
            return Ok(Some(mark));
        }
    }
    Ok(None)
}

fn read_at(repository: &Tree, place: &[u8]) -> io::Result<Option<Mark>> {
    let Some(mut file) = absent_is_none(repository.read(place))? else { return Ok(None) };
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
    let begun_on = Some(Begun { inode: made.inode, size: GONE, birth: made.birth });
    Mark { begun_on, ..Mark::of(protected, findings, path) }.write(repository)
}

/// Removes the mark of a deleted file that is not restored.
///
/// # Errors
/// The operating system fails.
pub(crate) fn forget_deleted(storage: &dyn Storage, path: &[u8]) -> io::Result<()> {
    let place = place_of_path(path);
    storage.writable_repositories().iter().try_for_each(|repository| repository.tree.remove(&place))
}

/// Removes the marks of a file whose repair has ended, under whatever name it was begun.
///
/// # Errors
/// The operating system fails.
pub(crate) fn forget(storage: &dyn Storage, path: &[u8], stat: Option<&Stat>) -> io::Result<()> {
    forget_deleted(storage, path)?;
    for Repository { tree, .. } in storage.writable_repositories() {
        let Some(directory) = absent_is_none(tree.directory(REPAIRING))? else { continue };
        for (name, _) in directory.names()?.iter() {
            let place = join(REPAIRING, name);
            let is_its = |mark: &Mark| mark.begun_on.is_some_and(|it| it.inode != 0) && mark.is_of(stat);
            if read_at(&tree, &place)?.is_some_and(|mark| is_its(&mark)) {
                tree.remove(&place)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Begun, Interrupted, MAGIC, MAGIC_2, Mark, place_of_inode, place_of_path};
    use crate::tree::Stat;
    use crate::world::Timestamp;
    use std::collections::BTreeMap;

    fn mark(inode: u64, size: u64, birth: Option<Timestamp>) -> Mark {
        let blocks = [((3, 1), vec![[1; 8], [2; 8]]), ((9, 0), Vec::new())];
        let path = b"a name".to_vec();
        Mark {
            begun_on: Some(Begun { inode, size, birth }),
            path,
            is_second: false,
            blocks: blocks.into_iter().collect(),
        }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_or_not_at_all() {
        for mark in [mark(7, 8, Some(Timestamp::from_nanoseconds(-5))), mark(7, 8, None)] {
            let bytes = mark.encode();
            let read = Mark::decode(&bytes).unwrap();
            assert_eq!((read.begun_on, &read.path, &read.blocks), (mark.begun_on, &mark.path, &mark.blocks));
            for end in 0..bytes.len() {
                assert!(Mark::decode(&bytes[..end]).is_none(), "{end}");
            }
            for at in MAGIC.len()..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(Mark::decode(&other).is_none(), "{at}");
            }
        }
        assert!(Mark::decode(b"path of a file").unwrap().begun_on.is_none());
    }

    #[test]
    fn marks_of_the_second_format_are_read() {
        let mut bytes = MAGIC_2.to_vec();
        for number in [7_u64, 8, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(blake3::hash(&bytes).as_bytes());
        let read = Mark::decode(&bytes).unwrap();
        assert_eq!(read.begun_on, Some(Begun { inode: 7, size: 8, birth: None }));
    }

    #[test]
    fn a_mark_is_about_an_inode_and_not_about_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let made = std::fs::File::create(dir.path().join("file")).unwrap();
        let stat = crate::tree::stat_of(&made).unwrap();
        let with = |place: Vec<u8>, mark: Mark| Interrupted { marks: BTreeMap::from([(place, vec![mark])]) };
        let by_inode = |inode: u64, birth| with(place_of_inode(inode), mark(inode, 8, birth));
        assert!(by_inode(stat.inode, stat.birth).has(b"any name", Some(&stat)));
        assert!(by_inode(stat.inode, None).has(b"any name", Some(&stat)));
        assert!(!by_inode(stat.inode + 1, None).has(b"any name", Some(&stat)));
        let later = Stat { birth: Some(Timestamp::from_nanoseconds(5)), ..stat };
        assert!(
            !by_inode(stat.inode, Some(Timestamp::from_nanoseconds(4))).has(b"any name", Some(&later)),
            "a later file of this number"
        );
        let former = with(place_of_path(b"name"), mark(stat.inode, 8, None));
        assert!(former.has(b"another", Some(&stat)), "of the second format, and renamed");
        let gone = with(place_of_path(b"name"), mark(0, super::GONE, None));
        assert!(gone.has(b"name", Some(&stat)), "it was just created");
        assert!(!gone.has(b"another", Some(&stat)));
        assert!(!gone.has(b"name", None));
    }
}
