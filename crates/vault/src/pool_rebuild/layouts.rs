//! Layouts of all files of a pool, for reliability models.

use super::file::FileError;
use super::survey::{TargetStates, each_file, parts};
use crate::coder::Coders;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::{Pool, PoolError};

/// Targets of the columns of one file. Only columns with bytes on valid targets are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Size of the file.
    pub size: u64,
    /// Code of its current redundancy; none without.
    pub code: Option<String>,
    /// Targets of its data columns.
    pub data: Vec<TargetName>,
    /// Number of data columns that are lost or unverified.
    pub data_gone: usize,
    /// Targets of its redundancy columns.
    pub redundancy: Vec<TargetName>,
    /// Number of missing redundancy columns.
    pub redundancy_gone: usize,
    /// Length of its longest column.
    pub column_bytes: u64,
}

impl FileLayout {
    /// Number of columns that may still be lost; none if too many are lost.
    pub fn tolerated(&self) -> Option<usize> {
        self.redundancy.len().checked_sub(self.data_gone)
    }
}

/// Visits every file of a pool with its layout, from stubs and headers without reading content.
///
/// # Errors
/// The namespace cannot be read. Errors of single files are passed to `visit`.
pub fn each_layout(
    pool: &Pool,
    coders: &Coders,
    visit: &mut dyn FnMut(Vec<u8>, Result<FileLayout, FileError>),
) -> Result<(), PoolError> {
    let target_states = TargetStates::of(pool);
    each_file(pool, &mut |path, stub| {
        let stub = match stub {
            Ok(stub) => stub,
            Err(error) => return visit(path, Err(error.into())),
        };
        let filled: Vec<(&TargetName, u64)> = stub
            .targets
            .iter()
            .enumerate()
            .map(|(column, target)| (target, stub.object_bytes(column, stub.size)))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        let there = |target: &TargetName| target_states.state(target).has_valid_content();
        let data: Vec<TargetName> =
            filled.iter().filter(|(target, _)| there(target)).map(|(target, _)| (*target).clone()).collect();
        let protecting = match parts(pool, coders, &target_states, &path, &stub) {
            Ok(found) => found.current,
            Err(error) => return visit(path, Err(error.into())),
        };
        let code = protecting.first().map(|(_, part)| part.header.code.clone());
        let mut columns: Vec<(usize, TargetName)> = protecting
            .iter()
            .filter(|(target, _)| there(target))
            .flat_map(|(target, part)| part.columns().map(|column| (column, target.clone())))
            .collect();
        columns.sort();
        columns.dedup_by_key(|(column, _)| *column);
        let layout = FileLayout {
            size: stub.size,
            data_gone: filled.len() - data.len(),
            data,
            redundancy_gone: code.as_ref().map_or(0, |code| code.m().saturating_sub(columns.len())),
            redundancy: columns.into_iter().map(|(_, target)| target).collect(),
            code: code.map(|code| code.in_words()),
            column_bytes: filled.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
        };
        visit(path, Ok(layout));
    })
}
