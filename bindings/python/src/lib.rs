//! Python package `gabion`: the engine, shard files and forecasts as classes and functions of Python.
//!
//! From the bottom up: `error` (exceptions), `buffers` (memory of Python objects as slices), `code` (identities of
//! codes), `codec` (encoder and decoder), `signature`, `run` (long work: progress, interruption), `shards`, `forecast`.
//! The documentation of users is `docs/reference/python.md`, the docstrings here, and the stubs in `python/gabion`.

mod buffers;
mod code;
mod codec;
mod error;
mod forecast;
mod run;
mod shards;
mod signature;

use pyo3::pymodule;

/// The compiled part of the package `gabion`.
#[pymodule(name = "_native", gil_used = false)]
mod native {
    #[pymodule_export]
    use crate::code::PyCode;
    #[pymodule_export]
    use crate::codec::ReedSolomon;
    #[pymodule_export]
    use crate::error::{DataLoss, Error};
    #[pymodule_export]
    use crate::forecast::{Forecast, forecast};
    #[pymodule_export]
    use crate::shards::{
        Joined, RebuiltShard, SetState, ShardNote, ShardState, Split, join, repair, split, verify,
    };
    #[pymodule_export]
    use crate::signature::Signer;
    use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
