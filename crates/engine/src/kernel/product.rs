//! A matrix over GF(2^8) times blocks, once: a plan without its price.

use super::generic::{Buffers, Isa};
use super::transform::Transform;
use super::{Kernel, KernelSet, compiled, transformed};
use crate::error::Error;
use crate::matrix::cauchy::CauchyForm;

/// A matrix as it is multiplied by.
pub(crate) enum Product<'a> {
    /// KernelSet by set.
    Coefficients(&'a [u8]),
    /// By transforms, of so many inputs and outputs.
    Transform(Box<Transform>, [usize; 2]),
}

impl Product<'_> {
    /// A matrix that is known by its points; none where transforms would take longer than its coefficients.
    pub(crate) fn of_points(form: &CauchyForm) -> Option<Product<'static>> {
        let blocks = [form.columns.len(), form.rows.len()];
        transformed::worthwhile(form).map(|transform| Product::Transform(Box::new(transform), blocks))
    }

    /// Over a part of blocks that have `total_len` bytes, or over all of them.
    ///
    /// # Panics
    /// Where there are other numbers of buffers than the matrix has, or their lengths differ.
    pub(super) fn run<I: Isa>(&self, isa: I, inputs: &[&[u8]], outputs: &mut [&mut [u8]], total_len: usize) {
        let len = outputs.first().map_or(0, |output| output.len());
        let lengths_fit =
            inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
        assert!(lengths_fit, "the caller checked lengths");
        let buffers = Buffers { inputs, outputs, len, total_len: total_len.max(len), add: false };
        match self {
            Product::Coefficients(coefficients) => compiled::multiply(isa, coefficients, buffers),
            Product::Transform(transform, blocks) => {
                assert!(
                    *blocks == [buffers.inputs.len(), buffers.outputs.len()],
                    "the caller checked numbers"
                );
                transformed::multiply(isa, transform, buffers);
            }
        }
    }
}

/// A product on the kernels of a set, for threads to share.
pub(crate) struct ProductKernel<'a> {
    pub(crate) set: &'static KernelSet,
    pub(crate) product: Product<'a>,
}

impl Kernel for ProductKernel<'_> {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.run_part(0, inputs, outputs)
    }

    fn run_part(&self, total_len: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.set.multiply(&self.product, inputs, outputs, total_len)
    }
}
