//! Targets for a GPU, as fractions of the device's own limits; chosen on an H200.

use gabion_engine::{Code, Layout};

/// Target of a case: for specialised kernels on data in device memory, and for runs from host memory.
pub fn bar(case: &str, code: &Code) -> Option<f64> {
    if case.ends_with(" from pinned memory") {
        return Some(0.95);
    }
    if !case.ends_with(" raw") {
        return None;
    }
    match (code.k(), code.m(), code.layout()) {
        (4..=64, 0..=4, _) => Some(0.97),
        (4..=64, 5..=8, _) => Some(0.90),
        (16..=64, 9..=16, Layout::Packets { .. }) => Some(0.85),
        (16..=64, 9..=16, Layout::Words) => Some(0.75),
        _ => None,
    }
}

/// Target for the mean error of the model of times.
pub(super) const MODEL_ERROR: f64 = 0.05;
