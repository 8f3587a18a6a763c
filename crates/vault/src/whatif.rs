//! Effect of the loss of targets, computed from the headers of redundancy files.

use crate::catalogue::CatalogueError;
use crate::catalogue_rebuild::{RebuildError, walk_files};
use crate::missing::{RemainingColumns, remaining_columns};
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::tree::is_below;
use crate::vault::Vault;

/// What the loss of targets would mean.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// Files, and their bytes, that lose nothing.
    pub unaffected: (u64, u64),
    /// Files that lose blocks and can be brought back.
    pub degraded: (u64, u64),
    /// Files that keep their data and lose redundancy only.
    pub exposed: (u64, u64),
    /// Files that could not be brought back.
    pub lost: (u64, u64),
    /// Their names, as many as were asked for.
    pub names: Vec<Vec<u8>>,
    /// Files whose headers could not be read.
    pub unknown: u64,
    /// No target with the current namespace of a pool would be left: without it no file can be found, whatever is left of it.
    pub namespace_lost: bool,
}

/// Computes from the headers what the loss of `targets` would mean for files at and below `path`, together with what is gone already. The files
/// of a pool are those of its namespace: one that was put, moved or replaced since the last protect counts as it is now. Those of a directory are
/// the ones that are protected.
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
        // Of a file without redundancy only the data columns matter, and these are the pool's.
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

impl WhatIf {
    fn count(&mut self, path: &[u8], remaining_columns: &RemainingColumns, size: u64, names: usize) {
        let amount = match remaining_columns.data_gone {
            gone if self.namespace_lost || gone > remaining_columns.redundancy => {
                if self.names.len() < names {
                    self.names.push(path.to_vec());
                }
                &mut self.lost
            }
            0 if remaining_columns.redundancy == remaining_columns.redundancy_now => &mut self.unaffected,
            0 => &mut self.exposed,
            _ => &mut self.degraded,
        };
        *amount = (amount.0 + 1, amount.1 + size);
    }
}
