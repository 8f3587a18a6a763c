//! Single-use products of a matrix over GF(2^8) with blocks, without compiling a plan.

use super::generic::{Buffers, Isa};
use super::transform::Transform;
use super::{Kernel, KernelSet, compiled, transformed};
use crate::error::Error;
use crate::matrix::cauchy::CauchyForm;

/// A matrix in the form used for the product.
pub(crate) enum Product<'a> {
    /// KernelSet by set.
    Coefficients(&'a [u8]),
    /// By transforms, with the numbers of inputs and outputs.
    Transform(Box<Transform>, [usize; 2]),
}

impl Product<'_> {
    /// A matrix given by its points; `None` if transforms would take longer than its coefficients.
    pub(crate) fn of_points(form: &CauchyForm) -> Option<Product<'static>> {
        let blocks = [form.columns.len(), form.rows.len()];
        transformed::worthwhile(form).map(|transform| Product::Transform(Box::new(transform), blocks))
    }

    /// Runs over whole blocks or parts of blocks of `total_len` bytes.
    ///
    /// # Panics
    /// For a wrong number of buffers, or different lengths.
    pub(super) fn run<I: Isa>(&self, isa: I, inputs: &[&[u8]], outputs: &mut [&mut [u8]], total_len: usize) {
        let len = outputs.first().map_or(0, |output| output.len());
        let lengths_fit =
            inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
        assert!(lengths_fit, "the caller checks the lengths");
        let buffers = Buffers { inputs, outputs, len, total_len: total_len.max(len), add: false };
        match self {
            Product::Coefficients(coefficients) => compiled::multiply(isa, coefficients, buffers),
            Product::Transform(transform, blocks) => {
                assert!(
                    *blocks == [buffers.inputs.len(), buffers.outputs.len()],
                    "the caller checks the number of buffers"
                );
                transformed::multiply(isa, transform, buffers);
            }
        }
    }
}

/// A product on a kernel set, for splitting among threads.
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
