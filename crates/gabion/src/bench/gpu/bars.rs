//! What we want of a GPU, as fractions of the device's own limits; measured on an H200.

use gabion_engine::Code;

/// The bar of a case: of the specialised kernels over data on the device, and of runs from host memory.
pub fn bar(case: &str, code: &Code) -> Option<f64> {
    if case.ends_with(" from pinned memory") {
        return Some(0.90);
    }
    if !case.ends_with(" raw") {
        return None;
    }
    match (code.k(), code.m()) {
        (_, 0..=4) => Some(0.95),
        (_, 5..=8) => Some(0.90),
        (0..=16, 9..=16) => Some(0.70),
        _ => Some(0.40),
    }
}

/// Mean error of the model of times that we want at most.
pub(super) const MODEL_ERROR: f64 = 0.05;
