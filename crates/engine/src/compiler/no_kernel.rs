//! What stands for compiled kernels where machine code is switched off or has no emission.

use super::choose::Choice;
use super::machine::{Allocated, Form};
use super::target::Target;
use crate::division::{SignaturePoints, TrailingQuotients};
use crate::plan::Plan;
use std::convert::Infallible;

/// There is none.
#[derive(Debug)]
pub(crate) struct CodeKernel(Infallible);

impl CodeKernel {
    pub(super) unsafe fn new(_: Form, _: Target, Choice { passes, .. }: &Choice) -> Option<CodeKernel> {
        let _ = passes;
        None
    }

    pub(crate) fn run(&self, _: &[&[u8]], _: &mut [&mut [u8]], _: usize, _: usize) {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) struct SigningKernel(Infallible);

impl SigningKernel {
    pub(crate) unsafe fn new(
        _: &Plan,
        _: Target,
        _: &Allocated,
        _: SignaturePoints,
    ) -> Option<SigningKernel> {
        None
    }

    pub(crate) fn run(
        &self,
        _: &[&[u8]],
        _: &mut [&mut [u8]],
        _: usize,
        _: usize,
    ) -> Option<TrailingQuotients> {
        match self.0 {}
    }
}

pub(super) fn assembly(_: &Plan, _: Target, _: &Allocated, _: usize) -> Option<(usize, String)> {
    None
}
