//! Placement of the files of a vault on parallel file systems, with an assumed loss of targets.

use crate::commands::doctor::options;
use gabion_cluster::layout::State;
use gabion_cluster::survey::{FileSystem, FileSystemError};
use gabion_vault::placed_loss::Placement;
use gabion_vault::vault::Vault;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for each tool.
const DEADLINE: Duration = Duration::from_secs(30);

/// The file systems of a vault.
#[derive(Debug)]
pub(super) struct Placed {
    /// That of the tree.
    tree: FileSystem,
    /// Directory of the repository, and its file system; none if that is no parallel one.
    repository: (PathBuf, Option<FileSystem>),
    gone: BTreeSet<String>,
}

impl Placed {
    /// The file systems of a vault with the loss of these targets, and of those that are offline now. None if the tree
    /// is not on a file system that tells where files lie.
    ///
    /// # Errors
    /// There is no such target, or the file system does not answer.
    pub(super) fn of(vault: &Vault, lose: &[String], tools: &[PathBuf]) -> anyhow::Result<Option<Placed>> {
        let options = options(DEADLINE, tools.to_vec())?;
        let tree = match FileSystem::of(&std::path::absolute(&vault.root)?, &options) {
            Err(FileSystemError::System(_)) => return Ok(None),
            tree => tree?,
        };
        let directory = std::path::absolute(vault.repository.path())?;
        // On a file system that does not tell, redundancy is not among the named targets.
        let repository = FileSystem::of(&directory, &options).ok();
        let file_systems =
            || std::iter::once(&tree).chain(repository.as_ref().filter(|it| !it.is_same(&tree)));
        let targets = || file_systems().flat_map(FileSystem::targets);
        for name in lose {
            let known: Vec<&str> = targets().map(|target| target.name.as_str()).collect();
            let listed = known.join(", ");
            anyhow::ensure!(known.contains(&name.as_str()), "there is no target {name}; there are {listed}");
        }
        let offline = targets().filter(|target| target.state == State::Offline).map(|target| &target.name);
        let gone = lose.iter().chain(offline).cloned().collect();
        Ok(Some(Placed { tree, repository: (directory, repository), gone }))
    }
}

impl Placed {
    /// Failed targets that hold a part of a file of the tree; none if the placement is unknown.
    pub(super) fn failed_targets_of(&self, path: &Path) -> Vec<String> {
        let layout = std::path::absolute(path).ok().and_then(|path| self.tree.layout(&path).ok());
        let layout = layout.unwrap_or_default();
        layout.targets().into_iter().filter(|name| self.gone.contains(*name)).map(str::to_owned).collect()
    }
}

impl Placement for Placed {
    fn lost(&self, path: &Path, size: u64) -> Result<Vec<Range<u64>>, String> {
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let file_system = match path.starts_with(&self.repository.0) {
            true => self.repository.1.as_ref(),
            false => Some(&self.tree),
        };
        let Some(file_system) = file_system else { return Ok(Vec::new()) };
        file_system.layout(&path)?.lost(size, &|target| self.gone.contains(target))
    }
}
