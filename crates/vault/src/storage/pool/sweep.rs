//! Objects and redundancy that nothing refers to: what a crash left, or a target that was away.

use super::Pool;
use super::config::Standing;
use super::error::PoolError;
use super::namespace::{Entry, look_up, look_up_shared, names};
use super::objects::{OBJECTS, PARITY, UNFINISHED, object_path, parity_path, parse_name, parse_parity};
use super::several::all_shared;
use super::stub::Stub;
use super::view::{Copy, View};
use crate::format::FileId;
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join};
use gabion_platform::lock::Lockable;
use std::collections::{HashMap, HashSet};
use std::fs::TryLockError;
use std::io;
use std::sync::Arc;

/// An object that nothing refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The target it is on.
    pub target: String,
    /// Its path there.
    pub path: Vec<u8>,
    /// Bytes it takes.
    pub bytes: u64,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Sweep {
    /// What nothing refers to; removed, if that was asked for.
    pub orphans: Vec<Orphan>,
    /// Objects of content that is being written now.
    pub busy: u64,
}

/// Endings of our own files in the staging directory. Drafts of redundancy belong to others.
const TEMPORARY: [&[u8]; 4] = [UNFINISHED, b".stub", b".note", b".config"];

/// Directories that objects are spread over, by the first byte of their files' ids.
const SHELVES: usize = 256;

/// Objects that are looked at together. A large pool is swept in several passes: each goes through the namespace once.
const AT_ONCE: usize = 1 << 21;

/// How often the namespace is gone through without keeping others from changing it.
const TRIES: usize = 2;

impl Pool {
    /// Finds what nothing refers to on the targets that answer, and removes it if asked to.
    ///
    /// The namespace is first gone through while others change it, which tells what surely is in use. For the rest it has to stay as it is: where it
    /// changed meanwhile, it is gone through again, in the end with the right to change it.
    ///
    /// # Errors
    /// See [`PoolError`]. A stub that cannot be read ends it: its objects would look forgotten.
    pub fn sweep(&self, remove: bool) -> Result<Sweep, PoolError> {
        self.sweep_in_passes(remove, AT_ONCE)
    }

    fn sweep_in_passes(&self, remove: bool, at_once: usize) -> Result<Sweep, PoolError> {
        let mut sweep = Sweep::default();
        let mut shelf = 0;
        while shelf < SHELVES {
            // In this order: what is put while we look is not in the list, and what is published is in the namespace.
            let mut found = self.gather(remove, shelf, at_once)?;
            let mut count = (shelf == 0).then(HashMap::new);
            let mut last = self.shared.change()?.last;
            for left in (0..=TRIES).rev() {
                let view = self.shared.view();
                let looked = match left {
                    0 => Ok(()),
                    _ => found.look_through(&view, &view.copies()?, count.as_mut()),
                };
                if looked.is_ok() && found.is_in_use() && !view.miscounts(count.as_ref())? {
                    break;
                }
                let mut change = self.shared.change()?;
                let is_same = change.last == last && change.view.config.epoch == view.config.epoch;
                if left > 0 && (looked.is_err() || !is_same) {
                    last = change.last;
                    count.as_mut().map(HashMap::clear);
                    continue;
                }
                if remove {
                    // A mirror that does not answer may have a change on record that nobody else knows; its objects would be missed.
                    change.leave_behind_the_silent()?;
                }
                if left == 0 {
                    let view = Arc::clone(&change.view);
                    found.look_through(&view, &change.copies, count.as_mut())?;
                }
                if let Some(count) = count.as_ref().filter(|_| remove) {
                    for id in all_shared(&change.copies)? {
                        change.mend_count(id, count.get(&id).copied().unwrap_or(0))?;
                    }
                }
                found.take(remove, &mut sweep)?;
                break;
            }
            shelf = found.end;
        }
        Ok(sweep)
    }

    /// Lists objects and redundancy files of the targets that answer, from a shelf on.
    fn gather(&self, remove: bool, first: usize, at_once: usize) -> Result<Found, PoolError> {
        let view = self.shared.view();
        let mut found = Found { targets: Vec::new(), files: HashMap::new(), staging: Vec::new(), end: first };
        for (index, answer) in view.answers() {
            // What is left over on a disk that takes no writes stays there.
            if !remove || view.disks[index].ask_to_write().is_ok() {
                found.targets.push((view.config.target[index].name.clone(), answer.tree.clone()));
            }
        }
        let mut pieces = 0;
        while found.end < SHELVES && (pieces < at_once || found.end == first) {
            for (target, (name, tree)) in found.targets.iter().enumerate() {
                let listed = list(tree, found.end).map_err(PoolError::target(name, "listing its objects"))?;
                pieces += listed.len();
                for (id, column) in listed {
                    found.files.entry(id).or_default().push(Piece { target, column });
                }
            }
            found.end += 1;
        }
        if first == 0 {
            for (target, (name, tree)) in found.targets.iter().enumerate() {
                let listed = list_staging(tree).map_err(PoolError::target(name, "listing its objects"))?;
                found.staging.extend(listed.into_iter().map(|path| (target, path)));
            }
        }
        Ok(found)
    }
}

impl View {
    /// Whether a file with several names does not have as many as its stub says.
    fn miscounts(&self, count: Option<&HashMap<FileId, u32>>) -> Result<bool, PoolError> {
        let (Some(count), copies) = (count, self.copies()?) else { return Ok(false) };
        for id in all_shared(&copies)? {
            let names = look_up_shared(&copies, id)?.map_or(0, |stub| stub.names);
            if names != count.get(&id).copied().unwrap_or(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a target has of a file: a column, or redundancy.
struct Piece {
    target: usize,
    column: Option<usize>,
}

/// What was found on targets. What is in use is taken out of it.
struct Found {
    targets: Vec<(String, Tree)>,
    files: HashMap<FileId, Vec<Piece>>,
    /// Temporary files.
    staging: Vec<(usize, Vec<u8>)>,
    /// The shelf after those that were looked at.
    end: usize,
}

impl Found {
    fn is_in_use(&self) -> bool {
        self.files.is_empty() && self.staging.is_empty()
    }

    /// Takes out what files have. Counts the names of those with several.
    fn look_through(
        &mut self,
        view: &View,
        copies: &[Copy],
        mut count: Option<&mut HashMap<FileId, u32>>,
    ) -> Result<(), PoolError> {
        // What was made anew while a target was away is removed from it when that is known to be whole, not here.
        let away = view.config.target.iter().filter(|member| member.state == Standing::Away);
        let away: HashSet<&str> = away.map(|member| member.name.as_str()).collect();
        let mut ahead = vec![Vec::new()];
        while let Some(directory) = ahead.pop() {
            for (name, _) in names(copies, &directory)?.iter() {
                let path = join(&directory, name);
                match look_up(copies, &path)? {
                    Some(Entry::Directory(_)) => ahead.push(path),
                    Some(Entry::File(stub)) => {
                        if let Some(count) = count.as_mut().filter(|_| stub.names > 0) {
                            *count.entry(stub.id).or_default() += 1;
                        }
                        self.keep(&stub, &away);
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, stub: &Stub, away: &HashSet<&str>) {
        let Some(pieces) = self.files.get_mut(&stub.id) else { return };
        pieces.retain(|piece| {
            let target = self.targets[piece.target].0.as_str();
            // Redundancy of earlier versions of a file is replaced by whoever protects it, not here.
            let Some(column) = piece.column else { return false };
            stub.targets.get(column).is_none_or(|used| used != target) && !away.contains(target)
        });
        if pieces.is_empty() {
            self.files.remove(&stub.id);
        }
    }

    /// Reports what is left, and removes it if asked to.
    fn take(&mut self, remove: bool, sweep: &mut Sweep) -> Result<(), PoolError> {
        let path = |id: FileId, piece: &Piece| {
            piece.column.map_or_else(|| parity_path(id), |column| object_path(id, column))
        };
        let pieces = self.files.iter().flat_map(|(id, pieces)| pieces.iter().map(|piece| (*id, piece)));
        let pieces = pieces.map(|(id, piece)| (piece.target, path(id, piece)));
        let mut left: Vec<(usize, Vec<u8>)> = pieces.chain(self.staging.drain(..)).collect();
        left.sort();
        for (target, path) in left {
            let (target, tree) = &self.targets[target];
            match take(tree, &path, remove)
                .map_err(PoolError::target(target, "removing what is left over"))?
            {
                Some(bytes) => sweep.orphans.push(Orphan { target: target.clone(), path, bytes }),
                None => sweep.busy += 1,
            }
        }
        Ok(())
    }
}

/// Objects and redundancy files of a target that are on one shelf. What is not ours stays.
fn list(tree: &Tree, shelf: usize) -> io::Result<Vec<(FileId, Option<usize>)>> {
    let mut found = Vec::new();
    let shelf = format!("{shelf:02x}");
    for top in [OBJECTS, PARITY] {
        let place = join(top, shelf.as_bytes());
        let Some(directory) = absent_is_none(tree.directory(&place))? else { continue };
        for (name, _) in directory.names()?.iter() {
            let piece = match top {
                OBJECTS => parse_name(name).map(|(id, column)| (id, Some(column))),
                _ => parse_parity(name).map(|id| (id, None)),
            };
            let is_ours = |(id, column): &(FileId, Option<usize>)| {
                let path = column.map_or_else(|| parity_path(*id), |column| object_path(*id, column));
                path == join(&place, name)
            };
            found.extend(piece.filter(is_ours));
        }
    }
    Ok(found)
}

/// Our own temporary files of a target.
fn list_staging(tree: &Tree) -> io::Result<Vec<Vec<u8>>> {
    let is_ours = |name: &[u8]| TEMPORARY.iter().any(|ending| name.ends_with(ending));
    let names = tree.directory(STAGING)?.names()?;
    Ok(names.iter().filter(|(name, _)| is_ours(name)).map(|(name, _)| join(STAGING, name)).collect())
}

/// Bytes of a file that is left over; nothing if someone is at it.
fn take(tree: &Tree, path: &[u8], remove: bool) -> io::Result<Option<u64>> {
    let Some(file) = absent_is_none(tree.read(path))? else { return Ok(None) };
    let file = Lockable::from(file);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let bytes = crate::tree::stat_of(&file)?.allocated;
    if remove {
        tree.remove(path)?;
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use crate::format::Metadata;
    use crate::storage::pool::{NewTarget, Options, Pool};
    use crate::world::Clock;
    use std::time::Duration;

    /// A large pool is swept in passes, each over some of the objects. None of them may take what files have for left over, or forget what is.
    #[test]
    fn passes_find_what_one_pass_finds() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: usize| dir.path().join(format!("d{number}"));
        let targets: Vec<NewTarget> =
            (1..=4).map(|number| NewTarget { path: path(number), domain: None }).collect();
        let options = Options { clock: Clock::System, deadline: Duration::from_secs(30) };
        let pool = Pool::create("tank", &targets, 2, 4096, 1, options).unwrap();
        for number in 0..40 {
            let name = format!("dir {}/file {number}", number % 3);
            pool.put(name.as_bytes(), &mut &[7; 10_000][..], &Metadata::default(), 5).unwrap();
        }
        // Left over: copies of objects under other ids.
        let mut left = Vec::new();
        for shelf in std::fs::read_dir(path(1).join("objects")).unwrap().take(9) {
            let shelf = shelf.unwrap().path();
            let object = std::fs::read_dir(&shelf).unwrap().next().unwrap().unwrap();
            let name = object.file_name().into_string().unwrap();
            let column = name.split_once('.').unwrap().1;
            let other = format!("{}{:030}.{column}", &name[..2], left.len());
            std::fs::copy(object.path(), shelf.join(&other)).unwrap();
            left.push(format!("objects/{}/{other}", &name[..2]).into_bytes());
        }
        left.sort();
        assert!(!left.is_empty());
        for (at_once, remove) in [(usize::MAX, false), (1, false), (7, false), (7, true)] {
            let swept = pool.sweep_in_passes(remove, at_once).unwrap();
            let mut found: Vec<_> = swept.orphans.into_iter().map(|orphan| orphan.path).collect();
            found.sort();
            assert_eq!((found, swept.busy), (left.clone(), 0), "{at_once} at once");
        }
        assert!(pool.sweep_in_passes(true, 5).unwrap().orphans.is_empty());
        for number in 0..40 {
            let mut content = Vec::new();
            pool.get(format!("dir {}/file {number}", number % 3).as_bytes(), &mut content).unwrap();
            assert_eq!(content, [7; 10_000]);
        }
    }
}
