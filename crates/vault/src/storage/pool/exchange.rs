//! Exchange of two names, on all mirrors or on none.

use super::change::Change;
use super::error::PoolError;
use super::namespace::{TREE, mirror_path};
use super::sequence::Step;
use std::io;

fn refuse<T>(path: &[u8], kind: io::ErrorKind) -> Result<T, PoolError> {
    Err(PoolError::path(path, kind))
}

impl Change<'_> {
    /// Exchanges two names: of files, links or directories.
    pub(crate) fn exchange(&mut self, one: &[u8], other: &[u8]) -> Result<(), PoolError> {
        let within = |outer: &[u8], inner: &[u8]| inner.starts_with(&[outer, b"/"].concat());
        if one.is_empty() || other.is_empty() || within(one, other) || within(other, one) {
            return refuse(other, io::ErrorKind::InvalidInput);
        }
        if self.reconcile(one)?.is_none() {
            return refuse(one, io::ErrorKind::NotFound);
        }
        if self.reconcile(other)?.is_none() {
            return refuse(other, io::ErrorKind::NotFound);
        }
        if one == other {
            return Ok(());
        }
        let (first, second) = (mirror_path(TREE, one)?, mirror_path(TREE, other)?);
        self.commit(one, vec![Step::Exchange { one: first, other: second }])
    }
}
