//! Where every column of every file is, for those who compute what a pool is worth.

use super::file::FileError;
use super::survey::{Places, each_file, parts};
use crate::coder::Coders;
use crate::storage::pool::{Pool, PoolError};

/// Where the columns of one file are. Only columns with bytes count, and only targets in service or retired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Bytes of the file.
    pub size: u64,
    /// Identity of the code that protects it as it is now; nothing if nothing does.
    pub code: Option<String>,
    /// Targets of its data columns.
    pub data: Vec<String>,
    /// Data columns that are gone or unverified.
    pub data_gone: usize,
    /// Targets of its redundancy columns.
    pub redundancy: Vec<String>,
    /// Redundancy columns that the code has and that are nowhere.
    pub redundancy_gone: usize,
    /// Bytes of its longest column.
    pub column_bytes: u64,
}

impl FileLayout {
    /// Columns that can still be lost; nothing if too many are gone.
    pub fn tolerated(&self) -> Option<usize> {
        self.redundancy.len().checked_sub(self.data_gone)
    }
}

/// Visits every file of a pool with where its columns are, told from stubs and headers; content is not read.
///
/// # Errors
/// The namespace cannot be read. A file whose stub or redundancy cannot be read is given to `visit`.
pub fn each_layout(
    pool: &Pool,
    coders: &Coders,
    visit: &mut dyn FnMut(Vec<u8>, Result<FileLayout, FileError>),
) -> Result<(), PoolError> {
    let places = Places::of(pool);
    each_file(pool, &mut |path, stub| {
        let stub = match stub {
            Ok(stub) => stub,
            Err(error) => return visit(path, Err(error.into())),
        };
        let filled: Vec<(&String, u64)> = stub
            .targets
            .iter()
            .enumerate()
            .map(|(column, target)| (target, stub.object_bytes(column, stub.size)))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        let there = |target: &str| places.state(target).counts();
        let data: Vec<String> =
            filled.iter().filter(|(target, _)| there(target)).map(|(target, _)| (*target).clone()).collect();
        let protecting = match parts(pool, coders, &places, &path, &stub) {
            Ok(found) => found.current,
            Err(error) => return visit(path, Err(error.into())),
        };
        let code = protecting.first().map(|(_, part)| part.header.code.clone());
        let mut columns: Vec<(usize, String)> = protecting
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
            code: code.map(|code| code.to_string()),
            column_bytes: filled.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
        };
        visit(path, Ok(layout));
    })
}
