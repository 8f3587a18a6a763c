//! Content that a repair replaced, and foreign objects from the place of redundancy: kept under `replaced/TIME/PATH` in
//! the repository.
//!
//! A run is removed when it is older than the policy allows. The oldest runs are removed when all together exceed the
//! policy's share of the disk. Content of the last day is never removed.

use crate::policy::Replaced as Limits;
use crate::tree::{Kind, Tree, absent_is_none, join, split};
use crate::world::{Timestamp, moment, moment_from};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Directory of replaced content, below the repository.
pub const REPLACED: &[u8] = b"replaced";

/// Minimum age of removed content.
const NEVER_BEFORE: Duration = Duration::from_secs(86400);

/// Files that were replaced in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Name of the run's directory.
    pub name: Vec<u8>,
    /// Time of the run.
    pub at: Timestamp,
    /// Number of files.
    pub files: u64,
    /// Allocated bytes.
    pub bytes: u64,
}

/// Creates an empty file for content of `path` that will be replaced. Also returns its path.
///
/// # Errors
/// The operating system fails.
pub(crate) fn keep_as(repository: &Tree, now: Timestamp, path: &[u8]) -> io::Result<(Vec<u8>, File)> {
    let when = moment(now).replace([' ', ':'], "-");
    let mut number = 1;
    loop {
        let run = if number == 1 { when.clone() } else { format!("{when}-{number}") };
        let path = join(&join(REPLACED, run.as_bytes()), path);
        repository.make_directories(split(&path).0, 0o700)?;
        match repository.create(&path, 0o600) {
            // Another repair within the same second; its content is kept.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return Ok((path, made?)),
        }
    }
}

/// Lists all runs of a repository, oldest first. Directories without a time as their name are foreign and ignored.
///
/// # Errors
/// The operating system fails.
pub fn runs(repository: &Tree) -> io::Result<Vec<Run>> {
    let Some(directory) = absent_is_none(repository.directory(REPLACED))? else { return Ok(Vec::new()) };
    let mut runs = Vec::new();
    for (name, _) in directory.names()?.iter() {
        let Some(at) = moment_from(name) else { continue };
        let mut run = Run { name: name.to_vec(), at, files: 0, bytes: 0 };
        each_file(repository, &join(REPLACED, name), &mut |path| {
            run.files += 1;
            run.bytes += repository.read(path)?.metadata()?.blocks() * 512;
            Ok(())
        })?;
        runs.push(run);
    }
    runs.sort_by_key(|run| run.at);
    Ok(runs)
}

/// Calls `act` for each file of a run with its path in the tree, its size and its allocated bytes.
///
/// # Errors
/// The operating system fails.
pub fn files(repository: &Tree, run: &Run, act: &mut dyn FnMut(&[u8], u64, u64)) -> io::Result<()> {
    let place = join(REPLACED, &run.name);
    each_file(repository, &place, &mut |path| {
        let found = repository.read(path)?.metadata()?;
        act(path.get(place.len() + 1..).unwrap_or_default(), found.len(), found.blocks() * 512);
        Ok(())
    })
}

/// Removes a run. A crash may leave a part of it, which is a run as well.
///
/// # Errors
/// The operating system fails.
pub fn remove(repository: &Tree, run: &Run) -> io::Result<()> {
    let place = join(REPLACED, &run.name);
    each_file(repository, &place, &mut |path| repository.remove(path))?;
    remove_directories(repository, &place)
}

/// Removes runs that are too old or use too much space. Returns the remaining ones.
///
/// # Errors
/// The operating system fails.
pub fn purge(repository: &Tree, limits: &Limits, now: Timestamp) -> io::Result<Vec<Run>> {
    let mut runs = runs(repository)?;
    if runs.is_empty() {
        return Ok(runs);
    }
    let (_, total) = repository.space()?;
    for _ in 0..superfluous(&runs, limits, total, now) {
        remove(repository, &runs.remove(0))?;
    }
    Ok(runs)
}

/// Number of runs to remove, oldest first.
fn superfluous(runs: &[Run], limits: &Limits, disk: u64, now: Timestamp) -> usize {
    let room = (u128::from(disk) * u128::from(limits.room.0) / 100) as u64;
    let mut bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    let goes = |run: &&Run| {
        let age = now.since(run.at);
        let goes = age > NEVER_BEFORE && (age > limits.keep || bytes > room);
        bytes -= run.bytes;
        goes
    };
    runs.iter().take_while(goes).count()
}

fn each_file(tree: &Tree, path: &[u8], act: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    match tree.find(path)?.map(|stat| stat.kind) {
        Some(Kind::Directory) => {
            let names = tree.directory(path)?.names()?;
            names.iter().try_for_each(|(name, _)| each_file(tree, &join(path, name), act))
        }
        Some(Kind::File) => act(path),
        _ => Ok(()),
    }
}

fn remove_directories(tree: &Tree, path: &[u8]) -> io::Result<()> {
    for (name, _) in tree.directory(path)?.names()?.iter() {
        let below = join(path, name);
        if tree.stat(&below)?.kind == Kind::Directory {
            remove_directories(tree, &below)?;
        }
    }
    tree.remove_empty(path, REPLACED)
}

#[cfg(test)]
mod tests {
    use super::{Run, superfluous};
    use crate::policy::{Percent, Replaced};
    use crate::world::SECOND;
    use crate::world::Timestamp;

    #[test]
    fn old_and_large_runs_go_and_those_of_the_last_day_never() {
        let day = 86_400 * SECOND;
        let now = Timestamp::EPOCH + 100 * day;
        let run = |days: u32, bytes| Run { name: Vec::new(), at: now - days * day, files: 1, bytes };
        let limits = Replaced { keep: 30 * day, room: Percent(10) };
        let runs = [run(50, 1), run(31, 1), run(20, 60), run(2, 50), run(1, 500), run(0, 1)];
        assert_eq!(superfluous(&runs, &limits, 10_000, now), 2, "only the old ones");
        assert_eq!(superfluous(&runs, &limits, 6000, now), 3, "one more for the room");
        assert_eq!(superfluous(&runs, &limits, 100, now), 4, "not those of the last day");
        assert_eq!(superfluous(&runs[4..], &limits, 100, now), 0);
    }
}
