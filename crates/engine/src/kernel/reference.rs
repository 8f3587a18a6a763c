//! Reference back end: symbol by symbol, bit by bit, never optimised. Every other back end is compared with it.

use super::{Backend, Kernel};
use crate::error::Error;
use crate::field::reference::mul;
use crate::layout::Layout;
use crate::plan::{Mode, Plan};

/// Applies a plan by its definition.
#[derive(Debug, Clone, Copy)]
pub struct Reference;

struct ReferenceKernel(Plan);

impl Backend for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        Ok(Box::new(ReferenceKernel(plan.clone())))
    }
}

impl Kernel for ReferenceKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let plan = &self.0;
        let len = plan.check_buffers(inputs, outputs)?;
        let symbols = len * 8 / plan.field().w() as usize;
        for (row, output) in outputs.iter_mut().enumerate() {
            if plan.mode() == Mode::Write {
                output.fill(0);
            }
            let coefficients: Vec<u64> =
                (0..inputs.len()).map(|column| plan.coefficient(row, column)).collect();
            for index in 0..symbols {
                let products = inputs
                    .iter()
                    .zip(&coefficients)
                    .map(|(input, &coefficient)| mul(plan.field(), coefficient, symbol(plan, input, index)));
                let sum = products.fold(0, |sum, product| sum ^ product);
                add_to_symbol(plan, output, index, sum);
            }
        }
        Ok(())
    }
}

/// Position of bit `bit` of symbol `index`: (byte, bit in byte).
fn place(plan: &Plan, index: usize, bit: usize) -> (usize, usize) {
    let w = plan.field().w() as usize;
    match plan.layout() {
        Layout::Words => ((index * w + bit) / 8, (index * w + bit) % 8),
        Layout::Packets { bytes } => {
            let (group, within) = (index / (8 * bytes), index % (8 * bytes));
            ((group * w + bit) * bytes + within / 8, within % 8)
        }
    }
}

fn symbol(plan: &Plan, block: &[u8], index: usize) -> u64 {
    (0..plan.field().w() as usize).fold(0, |symbol, bit| {
        let (byte, at) = place(plan, index, bit);
        symbol | u64::from(block[byte] >> at & 1) << bit
    })
}

fn add_to_symbol(plan: &Plan, block: &mut [u8], index: usize, value: u64) {
    for bit in 0..plan.field().w() as usize {
        let (byte, at) = place(plan, index, bit);
        block[byte] ^= (value >> bit & 1) as u8 * (1 << at);
    }
}
