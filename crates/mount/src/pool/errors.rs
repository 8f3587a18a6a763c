//! Maps errors of the pool to error numbers.

use crate::replies::Answer;
use gabion_vault::storage::pool::PoolError;
use rustix::io::Errno;
use std::io;

/// Conversion of a pool's result to one for the kernel.
pub(super) trait ForKernel<T> {
    /// Replaces the error by its error number.
    fn for_kernel(self) -> Answer<T>;
}

impl<T> ForKernel<T> for Result<T, PoolError> {
    fn for_kernel(self) -> Answer<T> {
        self.map_err(|error| number(&error).into())
    }
}

fn number(error: &PoolError) -> Errno {
    match error {
        // `EROFS` would say that the mount is read-only; here one disk of the pool is.
        PoolError::Target { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => Errno::IO,
        PoolError::Path { source, .. }
        | PoolError::Target { source, .. }
        | PoolError::Caller { source, .. } => number_of(source),
        // Full targets do not count as available, so too few domains are left.
        PoolError::Domains { .. } => Errno::NOSPC,
        PoolError::Quorum { .. } => Errno::ROFS,
        PoolError::Mounted { .. } => Errno::BUSY,
        _ => Errno::IO,
    }
}

fn number_of(error: &io::Error) -> Errno {
    if let Some(number) = Errno::from_io_error(error) {
        return number;
    }
    match error.kind() {
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::AlreadyExists => Errno::EXIST,
        io::ErrorKind::IsADirectory => Errno::ISDIR,
        io::ErrorKind::NotADirectory => Errno::NOTDIR,
        io::ErrorKind::DirectoryNotEmpty => Errno::NOTEMPTY,
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::FileTooLarge => Errno::FBIG,
        io::ErrorKind::StorageFull => Errno::NOSPC,
        io::ErrorKind::ResourceBusy => Errno::BUSY,
        _ => Errno::IO,
    }
}
