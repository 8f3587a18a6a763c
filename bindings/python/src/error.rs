//! Exceptions.

use pyo3::exceptions::{PyException, PyOSError};
use pyo3::{PyErr, create_exception};

create_exception!(
    gabion,
    Error,
    PyException,
    "A request that cannot be carried out; the message has the reason."
);
create_exception!(gabion, DataLoss, Error, "Fewer good blocks are left than data needs.");

/// An error of the engine as an exception.
pub(crate) fn of_engine(error: gabion_engine::Error) -> PyErr {
    match error {
        gabion_engine::Error::NotEnoughBlocks { .. } => DataLoss::new_err(error.to_string()),
        error => Error::new_err(error.to_string()),
    }
}

/// An error of shard files as an exception.
pub(crate) fn of_shards(error: &gabion_shard::Error) -> PyErr {
    match error {
        error if error.is_data_loss() => DataLoss::new_err(error.to_string()),
        gabion_shard::Error::Io { .. } => PyOSError::new_err(error.to_string()),
        error => Error::new_err(error.to_string()),
    }
}
