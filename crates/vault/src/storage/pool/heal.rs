//! Healing: makes the mirrors of the namespace equal.

use super::Pool;
use super::change::Change;
use super::config::{MemberState, Mirror, TargetName};
use super::disk::Disk;
use super::error::PoolError;
use super::folder::{self, DirectoryExtra};
use super::membership::choose_mirrors;
use super::namespace::{
    MirrorEntry, SHARED, TREE, make_directories, mirror_path, names_below, read_entry, read_newest,
    set_owner_and_mode, write_stub,
};
use super::sequence;
use super::view::MirrorCopy;
use crate::tree::{Kind, Tree, join, split};
use std::io;
use std::sync::Arc;

/// Result of healing.
#[derive(Debug, Default)]
pub struct HealReport {
    /// Stubs and directories that were written on a mirror.
    pub written: u64,
    /// Names removed from mirrors that had missed their removal.
    pub removed: u64,
    /// Targets that became current mirrors.
    pub mirrors: Vec<TargetName>,
    /// Errors, by path.
    pub failed: Vec<PoolError>,
}

impl Pool {
    /// Makes all reachable mirrors of the namespace current, and adds mirrors if there are too few.
    ///
    /// # Errors
    /// See [`PoolError`]; errors of single paths are in the result.
    pub fn heal(&self) -> Result<HealReport, PoolError> {
        let mut change = self.shared.change()?;
        // Other targets replace unreachable mirrors.
        change.mark_unreachable_stale()?;
        let mut healed = HealReport::default();
        // A read-only mirror stays stale, and another target replaces it.
        let takes_writes =
            |(index, disk): (usize, &Arc<Disk>)| disk.online_writable().is_ok().then_some(index);
        let answering: Vec<usize> = change.view.disks.iter().enumerate().filter_map(takes_writes).collect();
        let mut config = change.view.config.clone();
        let stale: Vec<usize> = config
            .target
            .iter()
            .enumerate()
            .filter(|(index, member)| member.mirror == Mirror::Stale && answering.contains(index))
            .map(|(index, _)| index)
            .collect();
        stale.iter().for_each(|&index| config.target[index].mirror = Mirror::Current);
        let required = config.required_mirrors();
        let added = choose_mirrors(&mut config, required, |index| answering.contains(&index));
        let sources = change.copies.clone();
        let mut receivers = sources.clone();
        for index in stale.into_iter().chain(added) {
            let name = config.target[index].name.clone();
            let Ok(online) = change.view.disks[index].online() else { continue };
            healed.mirrors.push(name.clone());
            receivers.push(MirrorCopy { index, name, tree: online.tree, epoch: config.epoch });
        }
        copy_namespace(&sources, &receivers, &mut healed)?;
        if healed.failed.is_empty() {
            copy_last_record(&sources, &receivers[sources.len()..])?;
            mark_current(&mut change, &receivers, &sources)?;
        } else {
            healed.mirrors.clear();
        }
        Ok(healed)
    }
}

impl Change<'_> {
    /// Heals mirrors that are behind the others: each becomes current again, or stays stale.
    pub(crate) fn heal_mirrors(&mut self, behind: Vec<MirrorCopy>) -> Result<(), PoolError> {
        for copy in behind {
            let (mut healed, receivers) = (HealReport::default(), std::slice::from_ref(&copy));
            let done = copy_namespace(&self.copies, receivers, &mut healed)
                .and_then(|()| copy_last_record(&self.copies, receivers));
            if done.is_ok() && healed.failed.is_empty() {
                self.mark(&[copy.index], Mirror::Current)?;
                self.copies.push(copy);
            }
        }
        Ok(())
    }
}

/// Makes the namespace of every receiver equal to that of the sources.
fn copy_namespace(
    sources: &[MirrorCopy],
    receivers: &[MirrorCopy],
    healed: &mut HealReport,
) -> Result<(), PoolError> {
    let has_shared = sources.iter().any(|copy| matches!(copy.tree.find(SHARED), Ok(Some(_))));
    // Files before their names, so that no name refers to a missing file.
    for top in [SHARED, TREE].into_iter().filter(|top| *top == TREE || has_shared) {
        for copy in receivers {
            make_directories(&copy.tree, top, 0o755)
                .map_err(PoolError::target(&copy.name, "making a directory"))?;
        }
        copy_directory(sources, receivers, top, b"", healed)?;
    }
    Ok(())
}

/// Copies the last record to mirrors that now have the namespace of the sources.
fn copy_last_record(sources: &[MirrorCopy], receivers: &[MirrorCopy]) -> Result<(), PoolError> {
    let Some(source) = sources.first() else { return Ok(()) };
    let last = sequence::read(&source.tree);
    let last = last.map_err(PoolError::target(&source.name, "reading its last change record"))?;
    for receiver in receivers {
        if let Some(last) = &last {
            last.copy_to(&receiver.tree)
                .map_err(PoolError::target(&receiver.name, "recording the last change"))?;
        }
    }
    Ok(())
}

/// Marks the new receivers as current, and drops unreachable mirrors if enough are left.
fn mark_current(
    change: &mut Change<'_>,
    receivers: &[MirrorCopy],
    sources: &[MirrorCopy],
) -> Result<(), PoolError> {
    let fresh: Vec<usize> = receivers[sources.len()..].iter().map(|copy| copy.index).collect();
    change.mark(&fresh, Mirror::Current)?;
    let config = &change.view.config;
    let current = |member: &&super::config::Member| {
        member.mirror == Mirror::Current && member.state == MemberState::Online
    };
    if config.target.iter().filter(current).count() < config.required_mirrors() {
        return Ok(());
    }
    let gone = config.target.iter().enumerate().filter(|(_, member)| member.mirror == Mirror::Stale);
    let gone: Vec<usize> = gone.map(|(index, _)| index).collect();
    change.mark(&gone, Mirror::None)
}

/// Makes every receiver equal to the sources below `path` of `top`.
fn copy_directory(
    sources: &[MirrorCopy],
    receivers: &[MirrorCopy],
    top: &[u8],
    path: &[u8],
    healed: &mut HealReport,
) -> Result<(), PoolError> {
    let required = names_below(sources, top, path)?;
    for receiver in receivers {
        let full = mirror_path(top, path)?;
        let has = receiver.tree.directory(&full).and_then(|directory| directory.names());
        let has = has.map_err(PoolError::target(&receiver.name, "reading its namespace"))?;
        let mut required = required.iter().map(|(name, _)| name).peekable();
        for (name, _) in has.iter() {
            // Both lists are sorted.
            while required.next_if(|next| *next < name).is_some() {}
            if required.peek() != Some(&name) {
                match remove_all_below(&receiver.tree, &join(&full, name)) {
                    Ok(()) => healed.removed += 1,
                    Err(error) => {
                        healed.failed.push(PoolError::target(&receiver.name, "removing a name")(error))
                    }
                }
            }
        }
    }
    for (name, _) in required.iter() {
        let path = join(path, name);
        let entry = match read_newest(sources, top, &path) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err(error) => {
                healed.failed.push(error);
                continue;
            }
        };
        let full = mirror_path(top, &path)?;
        let extra = match entry {
            MirrorEntry::Directory(_) => sources.iter().find_map(|copy| folder::read(&copy.tree, &full).ok()),
            _ => None,
        };
        for receiver in receivers {
            match write_entry(&receiver.tree, &full, &entry, extra.as_ref()) {
                Ok(written) => healed.written += u64::from(written),
                Err(error) => healed.failed.push(PoolError::target(&receiver.name, "writing a stub")(error)),
            }
        }
        if let MirrorEntry::Directory(_) = entry
            && let Err(error) = copy_directory(sources, receivers, top, &path, healed)
        {
            healed.failed.push(error);
        }
    }
    Ok(())
}

/// Copies one entry to one mirror. Returns true if it had to be written.
fn write_entry(
    tree: &Tree,
    full: &[u8],
    entry: &MirrorEntry,
    extra: Option<&DirectoryExtra>,
) -> io::Result<bool> {
    match (entry, read_entry(tree, full)) {
        (MirrorEntry::Directory(stat), Ok(Some(MirrorEntry::Directory(there))))
            if (stat.mode, stat.uid, stat.gid) == (there.mode, there.uid, there.gid)
                && extra.is_none_or(|extra| folder::read(tree, full).is_ok_and(|there| there == *extra)) =>
        {
            Ok(false)
        }
        (MirrorEntry::Directory(stat), there) => {
            if !matches!(there, Ok(Some(MirrorEntry::Directory(_)))) {
                tree.remove(full)?;
            }
            make_directories(tree, full, 0o755)?;
            set_owner_and_mode(tree, full, stat.mode, stat.uid, stat.gid)?;
            if let Some(extra) = extra.filter(|extra| **extra != DirectoryExtra::default()) {
                folder::write(tree, full, extra)?;
            }
            Ok(true)
        }
        (entry, Ok(Some(there))) if *entry == there => Ok(false),
        (entry, there) => {
            if let Ok(Some(MirrorEntry::Directory(_))) = there {
                remove_all_below(tree, full)?;
            }
            write_stub(tree, full, &entry.text().unwrap_or_default())?;
            Ok(true)
        }
    }
}

/// Removes stubs and directories of one mirror. The content is in objects, which stay.
fn remove_all_below(tree: &Tree, full: &[u8]) -> io::Result<()> {
    if tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory) {
        for (name, _) in tree.directory(full)?.names()?.iter() {
            remove_all_below(tree, &join(full, name))?;
        }
        return tree.remove_empty(full, split(full).0);
    }
    tree.remove(full)
}
