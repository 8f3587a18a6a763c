//! Effect of the loss of targets, computed from the headers of redundancy files.

use crate::catalogue::CatalogueError;
use crate::catalogue_rebuild::{RebuildError, walk_files};
use crate::missing::{RemainingColumns, remaining_columns};
use crate::placed_loss::{self, Effect, Placement};
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::tree::is_below;
use crate::vault::Vault;

/// Effect of the loss of targets.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// Files that lose nothing, and their bytes.
    pub unaffected: (u64, u64),
    /// Files that lose blocks and remain recoverable.
    pub degraded: (u64, u64),
    /// Files that lose redundancy only.
    pub exposed: (u64, u64),
    /// Files that would be lost.
    pub lost: (u64, u64),
    /// Names of lost files, up to the requested number.
    pub names: Vec<Vec<u8>>,
    /// Files whose headers could not be read.
    pub unknown: u64,
    /// No target with a current copy of the pool's namespace would be left. Without it no file can be found.
    pub namespace_lost: bool,
}

/// Computes the effect of the loss of `targets` on files at and below `path`, in addition to present losses. For a
/// pool, the files of its namespace are used, with their present versions; for a directory, the protected files.
///
/// # Errors
/// The catalogue fails, or the namespace of a pool cannot be read.
pub fn what_if(
    vault: &Vault,
    path: &[u8],
    targets: &[Vec<u8>],
    names: usize,
    context: RunContext<'_>,
) -> Result<WhatIf, RebuildError> {
    (context.progress)(Progress::Step("reading headers", None));
    let mut gone = targets.to_vec();
    let offline = vault.storage.targets().into_iter().filter(|it| it.state == TargetState::Offline);
    gone.extend(offline.map(|target| target.name));
    let namespace_lost = vault.pool.as_ref().is_some_and(|pool| pool.mirrors_without(&gone) == 0);
    let mut answer = WhatIf { namespace_lost, ..WhatIf::default() };
    let mut ask = |path: &[u8], code: &str, size: Option<u64>| {
        (context.progress)(Progress::Done(1, 0));
        match (remaining_columns(vault, path, code, &gone), size) {
            (Some(remaining_columns), Some(size)) => answer.count(path, &remaining_columns, size, names),
            _ => answer.unknown += 1,
        }
    };
    if let Some(pool) = &vault.pool {
        // Without redundancy only the pool's own data columns matter.
        let code = format!("{}+{}", pool.config().stripe, vault.default_code.m());
        let unreadable = walk_files(&*vault.storage, &mut |found| {
            if is_below(found, path) {
                ask(found, &code, vault.storage.find(found).ok().flatten().map(|stat| stat.size));
            }
            Ok(())
        })?;
        answer.unknown += unreadable.len() as u64;
        return Ok(answer);
    }
    vault.catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        page.iter().for_each(|(path, entry)| ask(path, &entry.code, Some(entry.generation.size)));
        Ok(())
    })?;
    Ok(answer)
}

/// Computes the effect of a loss on protected files at and below `path` of a directory on a parallel file system. The
/// loss is given by `placement`: redundancy files are files of such a file system, too.
///
/// # Errors
/// The catalogue fails.
pub fn what_if_placed(
    vault: &Vault,
    path: &[u8],
    placement: &dyn Placement,
    names: usize,
    context: RunContext<'_>,
) -> Result<WhatIf, RebuildError> {
    (context.progress)(Progress::Step("locating files", None));
    let mut answer = WhatIf::default();
    vault.catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        for (path, entry) in page {
            (context.progress)(Progress::Done(1, 0));
            match placed_loss::effect(vault, &path, placement) {
                Some(effect) => answer.add(&path, effect, entry.generation.size, names),
                None => answer.unknown += 1,
            }
        }
        Ok(())
    })?;
    Ok(answer)
}

impl WhatIf {
    fn count(&mut self, path: &[u8], remaining_columns: &RemainingColumns, size: u64, names: usize) {
        let effect = match remaining_columns.data_gone {
            gone if self.namespace_lost || gone > remaining_columns.redundancy => Effect::Lost,
            0 if remaining_columns.redundancy == remaining_columns.redundancy_now => Effect::Unaffected,
            0 => Effect::Exposed,
            _ => Effect::Degraded,
        };
        self.add(path, effect, size, names);
    }

    fn add(&mut self, path: &[u8], effect: Effect, size: u64, names: usize) {
        if effect == Effect::Lost && self.names.len() < names {
            self.names.push(path.to_vec());
        }
        let amount = match effect {
            Effect::Unaffected => &mut self.unaffected,
            Effect::Exposed => &mut self.exposed,
            Effect::Degraded => &mut self.degraded,
            Effect::Lost => &mut self.lost,
        };
        *amount = (amount.0 + 1, amount.1 + size);
    }
}
