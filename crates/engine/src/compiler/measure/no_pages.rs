//! Replacement for builds without machine code: every loop is refused.

use super::{Access, LINE, MeasureError, Operation, REPEATS, Stores, Width};

/// Uninhabited.
#[derive(Debug)]
pub(super) enum Pages {}

/// Uninhabited.
#[derive(Debug)]
pub(super) struct Ring;

pub(super) fn missing(_: Operation, _: Width) -> Option<&'static str> {
    Some("machine code, which this build does not make")
}

impl Pages {
    pub(super) fn repeated(_: Operation, _: Width) -> Result<Pages, MeasureError> {
        Err(MeasureError::NoMachineCode)
    }

    pub(super) fn loads(_: Width, _: Access) -> Result<Pages, MeasureError> {
        Err(MeasureError::NoMachineCode)
    }

    pub(super) fn streams(_: Width, _: (usize, usize), _: (Stores, usize)) -> Result<Pages, MeasureError> {
        Err(MeasureError::NoMachineCode)
    }

    pub(super) fn chase() -> Result<Pages, MeasureError> {
        Err(MeasureError::NoMachineCode)
    }

    pub(super) fn over_lines(&self, _: &mut [u8; REPEATS * LINE], _: usize) {
        match *self {}
    }

    pub(super) fn over_buffer(&self, _: &[u8], _: usize, _: usize) {
        match *self {}
    }

    pub(super) fn over_blocks(&self, _: &[&[u8]], _: &mut [&mut [u8]], _: usize) {
        match *self {}
    }

    pub(super) fn ring(&self, _: usize, _: &[usize], _: usize) -> Ring {
        match *self {}
    }

    pub(super) fn stops(&self, _: &Ring) -> usize {
        match *self {}
    }

    pub(super) fn around(&self, _: &mut Ring, _: usize) {
        match *self {}
    }
}
