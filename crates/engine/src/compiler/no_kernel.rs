//! Replacement for compiled kernels in builds without machine code.

use super::choose::Choice;
use super::machine::{Allocated, Form};
use super::target::Target;
use crate::division::{SignaturePoints, TrailingQuotients};
use crate::plan::Plan;
use std::convert::Infallible;

/// Uninhabited.
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

/// Uninhabited.
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

pub(super) fn assembly(_: &Plan, _: Target, _: &Allocated, _: usize) -> Option<(usize, Option<String>)> {
    None
}
