//! Long work: outside the lock of the interpreter, with progress, ended by exceptions and by Ctrl-C.

use crate::error::of_shards;
use gabion_engine::backends::{Backends, CpuOnly};
use gabion_shard::{Progress, Run};
use pyo3::prelude::{Py, PyAny, PyErr, PyResult};
use pyo3::{Python, types::PyAnyMethods};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// State of the pass that progress is told of.
#[derive(Default)]
struct Pass {
    name: &'static str,
    done: u64,
    total: Option<u64>,
    /// The exception that ends the work.
    raised: Option<PyErr>,
}

/// Carries out `work`. `progress` is called with the name of the pass, the bytes done and the bytes in all.
pub(crate) fn carried_out<T: Send>(
    py: Python<'_>,
    threads: usize,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Run<'_>) -> Result<T, gabion_shard::Error> + Send,
) -> PyResult<T> {
    let (stop, pass) = (AtomicBool::new(false), Mutex::new(Pass::default()));
    let told = |step: Progress| {
        let (name, done, total) = {
            let mut pass = pass.lock().unwrap_or_else(PoisonError::into_inner);
            match step {
                Progress::Pass(name, total) => {
                    *pass = Pass { name, total, done: 0, raised: pass.raised.take() };
                }
                Progress::Bytes(bytes) => pass.done += bytes,
            }
            (pass.name, pass.done, pass.total)
        };
        Python::attach(|py| {
            let called = py.check_signals().and_then(|()| match progress {
                Some(progress) => progress.bind(py).call1((name, done, total)).map(drop),
                None => Ok(()),
            });
            if let Err(error) = called {
                pass.lock().unwrap_or_else(PoisonError::into_inner).raised.get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
            }
        });
    };
    let backends: Arc<dyn Backends> = Arc::new(CpuOnly);
    let result = py.detach(|| work(&Run { threads, stop: &stop, progress: &told, backends: &backends }));
    let raised = pass.into_inner().unwrap_or_else(PoisonError::into_inner).raised;
    match (raised, result) {
        (Some(raised), Err(gabion_shard::Error::Interrupted)) => Err(raised),
        (_, Err(error)) => Err(of_shards(&error)),
        // The work was complete before it could stop.
        (_, Ok(result)) => Ok(result),
    }
}
