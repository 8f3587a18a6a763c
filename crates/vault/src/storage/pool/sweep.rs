//! Sweep: removal of unreferenced objects and redundancy, left by crashes or by targets that were offline.

use super::Pool;
use super::config::{MemberState, TargetName};
use super::error::PoolError;
use super::hard_links::shared_files;
use super::namespace::{NamespaceEntry, look_up, look_up_shared, names};
use super::objects::{OBJECTS, PARITY, UNFINISHED, object_path, parity_path, parse_name, parse_parity};
use super::stub::Stub;
use super::view::{MirrorCopy, View};
use crate::format::FileId;
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join};
use gabion_platform::lock::Lockable;
use std::collections::{HashMap, HashSet};
use std::fs::TryLockError;
use std::io;
use std::sync::Arc;

/// An unreferenced object or redundancy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its target.
    pub target: TargetName,
    /// Its path on the target.
    pub path: Vec<u8>,
    /// Bytes it occupies.
    pub bytes: u64,
}

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Unreferenced files; removed, unless only listed.
    pub orphans: Vec<Orphan>,
    /// Number of objects that are being written.
    pub busy: u64,
}

/// Suffixes of Gabion's temporary files in the staging directory. Redundancy drafts are handled elsewhere.
const TEMPORARY: [&[u8]; 4] = [UNFINISHED, b".stub", b".note", b".config"];

/// Object directories: one per first byte of the file id.
const PREFIX_DIRECTORIES: usize = 256;

/// Objects handled per pass. Each pass over a large pool reads the whole namespace once.
const OBJECTS_PER_PASS: usize = 1 << 21;

/// Number of passes over the namespace without its lock.
const UNLOCKED_PASSES: usize = 2;

impl Pool {
    /// Finds unreferenced files on the reachable targets, and optionally removes them.
    ///
    /// The namespace is first read while others may change it, which identifies most files that are in use. If it
    /// changed meanwhile, it is read again for the rest, the last time under its lock.
    ///
    /// # Errors
    /// See [`PoolError`]. An unreadable stub ends the sweep: its objects would look unreferenced.
    pub fn sweep(&self, remove: bool) -> Result<Sweep, PoolError> {
        self.sweep_in_passes(remove, OBJECTS_PER_PASS)
    }

    fn sweep_in_passes(&self, remove: bool, at_once: usize) -> Result<Sweep, PoolError> {
        let mut sweep = Sweep::default();
        let mut prefix = 0;
        while prefix < PREFIX_DIRECTORIES {
            // The order matters: objects created later are not in the list, and published ones are in the namespace.
            let mut found = self.list_candidates(remove, prefix, at_once)?;
            let mut count = (prefix == 0).then(HashMap::new);
            let mut last = self.shared.change()?.last;
            for left in (0..=UNLOCKED_PASSES).rev() {
                let view = self.shared.view();
                let looked = match left {
                    0 => Ok(()),
                    _ => found.drop_referenced(&view, &view.copies()?, count.as_mut()),
                };
                if looked.is_ok() && found.is_empty() && !view.has_wrong_link_count(count.as_ref())? {
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
                    // An unreachable mirror may have recorded a change that no other mirror has; its objects would be
                    // lost.
                    change.mark_unreachable_stale()?;
                }
                if left == 0 {
                    let view = Arc::clone(&change.view);
                    found.drop_referenced(&view, &change.copies, count.as_mut())?;
                }
                if let Some(count) = count.as_ref().filter(|_| remove) {
                    for id in shared_files(&change.copies)? {
                        change.correct_link_count(id, count.get(&id).copied().unwrap_or(0))?;
                    }
                }
                found.collect(remove, &mut sweep)?;
                break;
            }
            prefix = found.end;
        }
        Ok(sweep)
    }

    /// Lists objects and redundancy files of the reachable targets, starting at a directory.
    fn list_candidates(&self, remove: bool, first: usize, at_once: usize) -> Result<Unreferenced, PoolError> {
        let view = self.shared.view();
        let mut found =
            Unreferenced { targets: Vec::new(), files: HashMap::new(), staging: Vec::new(), end: first };
        for (index, online) in view.online_targets() {
            // Files on a read-only disk stay.
            if !remove || view.disks[index].online_writable().is_ok() {
                found.targets.push((view.config.target[index].name.clone(), online.tree.clone()));
            }
        }
        let mut pieces = 0;
        while found.end < PREFIX_DIRECTORIES && (pieces < at_once || found.end == first) {
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
    /// True if the link count of a file differs from the number of names found.
    fn has_wrong_link_count(&self, count: Option<&HashMap<FileId, u32>>) -> Result<bool, PoolError> {
        let (Some(count), copies) = (count, self.copies()?) else { return Ok(false) };
        for id in shared_files(&copies)? {
            let names = look_up_shared(&copies, id)?.map_or(0, |stub| stub.names);
            if names != count.get(&id).copied().unwrap_or(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A column or redundancy file on a target.
struct Piece {
    target: usize,
    column: Option<usize>,
}

/// Files found on targets. Those that are referenced are taken out.
struct Unreferenced {
    targets: Vec<(TargetName, Tree)>,
    files: HashMap<FileId, Vec<Piece>>,
    /// Temporary files.
    staging: Vec<(usize, Vec<u8>)>,
    /// The directory after the last one that was listed.
    end: usize,
}

impl Unreferenced {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.staging.is_empty()
    }

    /// Drops referenced files, and counts the names of files with several.
    fn drop_referenced(
        &mut self,
        view: &View,
        copies: &[MirrorCopy],
        mut count: Option<&mut HashMap<FileId, u32>>,
    ) -> Result<(), PoolError> {
        // Content that was reconstructed while a target was offline is removed from it after verification, not here.
        let away = view.config.target.iter().filter(|member| member.state == MemberState::Away);
        let away: HashSet<&TargetName> = away.map(|member| &member.name).collect();
        let mut ahead = vec![Vec::new()];
        while let Some(directory) = ahead.pop() {
            for (name, _) in names(copies, &directory)?.iter() {
                let path = join(&directory, name);
                match look_up(copies, &path)? {
                    Some(NamespaceEntry::Directory(_)) => ahead.push(path),
                    Some(NamespaceEntry::File(stub)) => {
                        if let Some(count) = count.as_mut().filter(|_| stub.names > 0) {
                            *count.entry(stub.id).or_default() += 1;
                        }
                        self.drop_file(&stub, &away);
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn drop_file(&mut self, stub: &Stub, away: &HashSet<&TargetName>) {
        let Some(pieces) = self.files.get_mut(&stub.id) else { return };
        pieces.retain(|piece| {
            let target = &self.targets[piece.target].0;
            // Redundancy of earlier versions is replaced by `protect`, not here.
            let Some(column) = piece.column else { return false };
            stub.targets.get(column).is_none_or(|used| used != target) && !away.contains(target)
        });
        if pieces.is_empty() {
            self.files.remove(&stub.id);
        }
    }

    /// Reports what is left, and removes it if requested.
    fn collect(&mut self, remove: bool, sweep: &mut Sweep) -> Result<(), PoolError> {
        let path = |id: FileId, piece: &Piece| {
            piece.column.map_or_else(|| parity_path(id), |column| object_path(id, column))
        };
        let pieces = self.files.iter().flat_map(|(id, pieces)| pieces.iter().map(|piece| (*id, piece)));
        let pieces = pieces.map(|(id, piece)| (piece.target, path(id, piece)));
        let mut left: Vec<(usize, Vec<u8>)> = pieces.chain(self.staging.drain(..)).collect();
        left.sort();
        for (target, path) in left {
            let (target, tree) = &self.targets[target];
            match measure_and_remove(tree, &path, remove)
                .map_err(PoolError::target(target, "removing an unreferenced file"))?
            {
                Some(bytes) => sweep.orphans.push(Orphan { target: target.clone(), path, bytes }),
                None => sweep.busy += 1,
            }
        }
        Ok(())
    }
}

/// Objects and redundancy files of a target in one directory. Other files are ignored.
fn list(tree: &Tree, prefix: usize) -> io::Result<Vec<(FileId, Option<usize>)>> {
    let mut found = Vec::new();
    let prefix = format!("{prefix:02x}");
    for top in [OBJECTS, PARITY] {
        let place = join(top, prefix.as_bytes());
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

/// Gabion's temporary files on a target.
fn list_staging(tree: &Tree) -> io::Result<Vec<Vec<u8>>> {
    let is_ours = |name: &[u8]| TEMPORARY.iter().any(|ending| name.ends_with(ending));
    let names = tree.directory(STAGING)?.names()?;
    Ok(names.iter().filter(|(name, _)| is_ours(name)).map(|(name, _)| join(STAGING, name)).collect())
}

/// Size of an unreferenced file; none if a process has it locked.
fn measure_and_remove(tree: &Tree, path: &[u8], remove: bool) -> io::Result<Option<u64>> {
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
    use crate::world::Timestamp;
    use std::time::Duration;

    /// A large pool is swept in several passes, each over some of the objects. No pass may remove referenced files or
    /// miss unreferenced ones.
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
            pool.put(
                name.as_bytes(),
                &mut &[7; 10_000][..],
                &Metadata::default(),
                Timestamp::from_nanoseconds(5),
            )
            .unwrap();
        }
        // Unreferenced: copies of objects under other ids.
        let mut left = Vec::new();
        for prefix in std::fs::read_dir(path(1).join("objects")).unwrap().take(9) {
            let prefix = prefix.unwrap().path();
            let object = std::fs::read_dir(&prefix).unwrap().next().unwrap().unwrap();
            let name = object.file_name().into_string().unwrap();
            let column = name.split_once('.').unwrap().1;
            let other = format!("{}{:030}.{column}", &name[..2], left.len());
            std::fs::copy(object.path(), prefix.join(&other)).unwrap();
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
