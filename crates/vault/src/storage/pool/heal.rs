//! Mirrors of the namespace are brought to agree.

use super::Pool;
use super::change::Change;
use super::config::{Mirror, Standing};
use super::disk::Disk;
use super::error::PoolError;
use super::folder::{self, Extra};
use super::membership::choose_mirrors;
use super::namespace::{
    SHARED, TREE, Written, beneath, dress, look_at, make_directories, names_below, read_entry, write_stub,
};
use super::sequence;
use super::view::Copy;
use crate::tree::{Kind, Tree, join, split};
use std::io;
use std::sync::Arc;

/// What healing did.
#[derive(Debug, Default)]
pub struct Healed {
    /// Stubs and directories that were written on some mirror.
    pub written: u64,
    /// Names that were removed from mirrors that had missed their removal.
    pub removed: u64,
    /// Targets that have the current namespace now and had not before.
    pub mirrors: Vec<String>,
    /// What could not be done, by path.
    pub failed: Vec<PoolError>,
}

impl Pool {
    /// Makes all mirrors of the namespace that answer current and equal, and other targets mirrors where there are too few.
    ///
    /// # Errors
    /// See [`PoolError`]; what concerns single paths is in the result.
    pub fn heal(&self) -> Result<Healed, PoolError> {
        let mut change = self.shared.change()?;
        // Others take the place of those that do not answer.
        change.leave_behind_the_silent()?;
        let mut healed = Healed::default();
        // A mirror that takes no writes stays stale, and another target takes its place.
        let takes_writes = |(index, disk): (usize, &Arc<Disk>)| disk.ask_to_write().is_ok().then_some(index);
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
        let wanted = config.wanted_mirrors();
        let added = choose_mirrors(&mut config, wanted, |index| answering.contains(&index));
        let sources = change.copies.clone();
        let mut receivers = sources.clone();
        for index in stale.into_iter().chain(added) {
            let name = config.target[index].name.clone();
            let Ok(answer) = change.view.disks[index].ask() else { continue };
            healed.mirrors.push(name.clone());
            receivers.push(Copy { index, name, tree: answer.tree, epoch: config.epoch });
        }
        level_all(&sources, &receivers, &mut healed)?;
        if healed.failed.is_empty() {
            tell_position(&sources, &receivers[sources.len()..])?;
            believe(&mut change, &receivers, &sources)?;
        } else {
            healed.mirrors.clear();
        }
        Ok(healed)
    }
}

impl Change<'_> {
    /// Heals mirrors that were found behind the others: each becomes current again, or stays stale.
    pub(crate) fn bring_up(&mut self, behind: Vec<Copy>) -> Result<(), PoolError> {
        for copy in behind {
            let (mut healed, receivers) = (Healed::default(), std::slice::from_ref(&copy));
            let done = level_all(&self.copies, receivers, &mut healed)
                .and_then(|()| tell_position(&self.copies, receivers));
            if done.is_ok() && healed.failed.is_empty() {
                self.mark(&[copy.index], Mirror::Current)?;
                self.copies.push(copy);
            }
        }
        Ok(())
    }
}

/// Gives every receiver the namespace of the sources, and nothing else.
fn level_all(sources: &[Copy], receivers: &[Copy], healed: &mut Healed) -> Result<(), PoolError> {
    let has_shared = sources.iter().any(|copy| matches!(copy.tree.find(SHARED), Ok(Some(_))));
    // Files before their names: no name leads to nothing.
    for top in [SHARED, TREE].into_iter().filter(|top| *top == TREE || has_shared) {
        for copy in receivers {
            make_directories(&copy.tree, top, 0o755)
                .map_err(PoolError::target(&copy.name, "making a directory"))?;
        }
        level(sources, receivers, top, b"", healed)?;
    }
    Ok(())
}

/// Mirrors that have the namespace of the sources have made their last change.
fn tell_position(sources: &[Copy], receivers: &[Copy]) -> Result<(), PoolError> {
    let Some(source) = sources.first() else { return Ok(()) };
    let last = sequence::read(&source.tree);
    let last = last.map_err(PoolError::target(&source.name, "reading its last change"))?;
    for receiver in receivers {
        if let Some(last) = &last {
            last.copy_to(&receiver.tree)
                .map_err(PoolError::target(&receiver.name, "recording the last change"))?;
        }
    }
    Ok(())
}

/// Receivers that were not among the sources are current now; mirrors that do not answer are relieved if there are enough.
fn believe(change: &mut Change<'_>, receivers: &[Copy], sources: &[Copy]) -> Result<(), PoolError> {
    let fresh: Vec<usize> = receivers[sources.len()..].iter().map(|copy| copy.index).collect();
    change.mark(&fresh, Mirror::Current)?;
    let config = &change.view.config;
    let current = |member: &&super::config::Member| {
        member.mirror == Mirror::Current && member.state == Standing::Online
    };
    if config.target.iter().filter(current).count() < config.wanted_mirrors() {
        return Ok(());
    }
    let gone = config.target.iter().enumerate().filter(|(_, member)| member.mirror == Mirror::Stale);
    let gone: Vec<usize> = gone.map(|(index, _)| index).collect();
    change.mark(&gone, Mirror::None)
}

/// Gives every receiver what the sources have together below `path` of `top`, and nothing else.
fn level(
    sources: &[Copy],
    receivers: &[Copy],
    top: &[u8],
    path: &[u8],
    healed: &mut Healed,
) -> Result<(), PoolError> {
    let wanted = names_below(sources, top, path)?;
    for receiver in receivers {
        let full = beneath(top, path)?;
        let has = receiver.tree.directory(&full).and_then(|directory| directory.names());
        let has = has.map_err(PoolError::target(&receiver.name, "reading its namespace"))?;
        let mut wanted = wanted.iter().map(|(name, _)| name).peekable();
        for (name, _) in has.iter() {
            // Both are sorted.
            while wanted.next_if(|next| *next < name).is_some() {}
            if wanted.peek() != Some(&name) {
                match remove_all_below(&receiver.tree, &join(&full, name)) {
                    Ok(()) => healed.removed += 1,
                    Err(error) => {
                        healed.failed.push(PoolError::target(&receiver.name, "removing a name")(error))
                    }
                }
            }
        }
    }
    for (name, _) in wanted.iter() {
        let path = join(path, name);
        let entry = match look_at(sources, top, &path) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err(error) => {
                healed.failed.push(error);
                continue;
            }
        };
        let full = beneath(top, &path)?;
        let extra = match entry {
            Written::Directory(_) => sources.iter().find_map(|copy| folder::read(&copy.tree, &full).ok()),
            _ => None,
        };
        for receiver in receivers {
            match give(&receiver.tree, &full, &entry, extra.as_ref()) {
                Ok(written) => healed.written += u64::from(written),
                Err(error) => healed.failed.push(PoolError::target(&receiver.name, "writing a stub")(error)),
            }
        }
        if let Written::Directory(_) = entry
            && let Err(error) = level(sources, receivers, top, &path, healed)
        {
            healed.failed.push(error);
        }
    }
    Ok(())
}

/// Gives one mirror one entry. Says whether it had to be written.
fn give(tree: &Tree, full: &[u8], entry: &Written, extra: Option<&Extra>) -> io::Result<bool> {
    match (entry, read_entry(tree, full)) {
        (Written::Directory(stat), Ok(Some(Written::Directory(there))))
            if (stat.mode, stat.uid, stat.gid) == (there.mode, there.uid, there.gid)
                && extra.is_none_or(|extra| folder::read(tree, full).is_ok_and(|there| there == *extra)) =>
        {
            Ok(false)
        }
        (Written::Directory(stat), there) => {
            if !matches!(there, Ok(Some(Written::Directory(_)))) {
                tree.remove(full)?;
            }
            make_directories(tree, full, 0o755)?;
            dress(tree, full, stat.mode, stat.uid, stat.gid)?;
            if let Some(extra) = extra.filter(|extra| **extra != Extra::default()) {
                folder::write(tree, full, extra)?;
            }
            Ok(true)
        }
        (entry, Ok(Some(there))) if *entry == there => Ok(false),
        (entry, there) => {
            if let Ok(Some(Written::Directory(_))) = there {
                remove_all_below(tree, full)?;
            }
            write_stub(tree, full, &entry.text().unwrap_or_default())?;
            Ok(true)
        }
    }
}

/// Removes stubs and directories of one mirror. Content is in objects and stays.
fn remove_all_below(tree: &Tree, full: &[u8]) -> io::Result<()> {
    if tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory) {
        for (name, _) in tree.directory(full)?.names()?.iter() {
            remove_all_below(tree, &join(full, name))?;
        }
        return tree.remove_empty(full, split(full).0);
    }
    tree.remove(full)
}
