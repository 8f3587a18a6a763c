//! Products of blocks in the planar layout, where each byte of the symbols has a separate plane.
//!
//! A block of GF(2^w) with symbols of B bytes has B planes of equal length, one after the other: byte b of symbol i is
//! byte i of plane b. A product is then B x B byte maps between planes, without the gathering and scattering of the
//! words layout, where the bytes of a symbol are adjacent. [`Planar`] multiplies, multiplies and adds, and computes dot
//! products, by any matrix. Stored blocks use the words layout; the planar layout is for data that is kept in memory
//! for many products.

use crate::error::Error;
use crate::kernel::{Kernel, KernelSet, Threads};
use crate::matrix::Matrix;
use crate::plan::Mode;
use std::array;
use std::sync::Arc;

/// Largest matrix, in byte maps.
const MAX_BYTE_MAPS: usize = 4096;

/// Planes whose list fits on the stack: those of a symbol of the largest field.
const FEW_PLANES: usize = 8;

/// A matrix compiled for blocks in the planar layout.
pub struct Planar {
    kernel: Box<dyn Kernel>,
    threads: Arc<Threads>,
    inputs: usize,
    outputs: usize,
    symbol_bytes: usize,
}

impl Planar {
    pub(crate) fn new(
        kernels: &KernelSet,
        threads: Arc<Threads>,
        matrix: &Matrix,
        mode: Mode,
    ) -> Result<Planar, Error> {
        let symbol_bytes = matrix.field().word_bytes()?;
        let (inputs, outputs) = (matrix.columns(), matrix.rows());
        let too_large = || Error::MatrixTooLarge {
            rows: outputs,
            columns: inputs,
            limit: MAX_BYTE_MAPS / (symbol_bytes * symbol_bytes),
        };
        if inputs == 0 || outputs == 0 {
            return Err(Error::EmptyMatrix { rows: outputs, columns: inputs });
        }
        if inputs * outputs * symbol_bytes * symbol_bytes > MAX_BYTE_MAPS {
            return Err(too_large());
        }
        let kernel = kernels.compile_planar(matrix, mode)?.ok_or_else(too_large)?;
        Ok(Planar { kernel, threads, inputs, outputs, symbol_bytes })
    }

    /// The matrix times `inputs`, written to `outputs` or added to them; blocks in the order of columns and rows.
    ///
    /// # Errors
    /// A wrong number or length of buffers; nothing is written then.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let len = inputs.first().map_or(0, |input| input.len());
        let fit = inputs.len() == self.inputs
            && outputs.len() == self.outputs
            && inputs.iter().all(|input| input.len() == len)
            && outputs.iter().all(|output| output.len() == len)
            // Symbols have 1, 2, 4 or 8 bytes: a mask avoids a division, which costs as much as coding some cache
            // lines.
            && len & (self.symbol_bytes - 1) == 0;
        if !fit {
            return Err(self.misfit(inputs, outputs));
        }
        let plane = len >> self.symbol_bytes.trailing_zeros();
        if plane == 0 {
            return Ok(());
        }
        match (inputs, outputs, self.symbol_bytes) {
            ([input], [output], 1) => self.run_single::<1>(input, output, plane),
            ([input], [output], 2) => self.run_single::<2>(input, output, plane),
            ([input], [output], 4) => self.run_single::<4>(input, output, plane),
            ([input], [output], 8) => self.run_single::<8>(input, output, plane),
            (inputs, outputs, _) => self.run_all(inputs, outputs, plane),
        }
    }

    /// One block times a constant, symbols of `B` bytes: constant list lengths matter for small calls.
    fn run_single<const B: usize>(&self, input: &[u8], output: &mut [u8], plane: usize) -> Result<(), Error> {
        let inputs: [&[u8]; B] = array::from_fn(|byte| &input[byte * plane..][..plane]);
        let mut rest = output;
        let mut outputs: [&mut [u8]; B] =
            array::from_fn(|_| rest.split_off_mut(..plane).expect("a block has a plane for every byte"));
        self.threads.run(&*self.kernel, 1, &inputs, &mut outputs)
    }

    /// Any number of blocks, by their planes.
    #[inline(never)]
    fn run_all(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], plane: usize) -> Result<(), Error> {
        let (mut blocks, mut rest) = (inputs.iter(), &[][..]);
        let planes = std::iter::from_fn(|| {
            if rest.is_empty() {
                rest = *blocks.next()?;
            }
            rest.split_off(..plane)
        });
        with_list(self.inputs * self.symbol_bytes, planes, |inputs| {
            let (mut blocks, mut rest) = (outputs.iter_mut(), &mut [][..]);
            let planes = std::iter::from_fn(|| {
                if rest.is_empty() {
                    rest = &mut **blocks.next()?;
                }
                rest.split_off_mut(..plane)
            });
            with_list(self.outputs * self.symbol_bytes, planes, |outputs| {
                self.threads.run(&*self.kernel, 1, inputs, outputs)
            })
        })
    }

    /// The error for blocks that do not fit.
    #[cold]
    fn misfit(&self, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Error {
        if inputs.len() != self.inputs || outputs.len() != self.outputs {
            return Error::BufferCount {
                want_inputs: self.inputs,
                want_outputs: self.outputs,
                inputs: inputs.len(),
                outputs: outputs.len(),
            };
        }
        let lengths = inputs.iter().map(|input| input.len()).chain(outputs.iter().map(|output| output.len()));
        let want = inputs.first().map_or(0, |input| input.len());
        match lengths.enumerate().find(|&(_, len)| len != want) {
            Some((index, len)) => Error::BufferLength { index, len, want },
            None => Error::BufferGranule { len: want, granule: self.symbol_bytes },
        }
    }
}

/// Calls `work` with a list of `count` items; a short list is on the stack, which matters for small calls.
fn with_list<T: Default, R>(
    count: usize,
    items: impl Iterator<Item = T>,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut few: [T; FEW_PLANES] = std::array::from_fn(|_| T::default());
    match few.get_mut(..count) {
        Some(few) => {
            few.iter_mut().zip(items).for_each(|(place, item)| *place = item);
            work(few)
        }
        None => work(&mut items.collect::<Vec<T>>()),
    }
}

impl std::fmt::Debug for Planar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Planar({} to {}, symbols of {} bytes)", self.inputs, self.outputs, self.symbol_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::TestRng;
    use crate::engine::Engine;
    use crate::field::Field;
    use crate::kernel::kernel_sets;

    /// Computes the product by definition, symbol by symbol.
    fn expected(matrix: &Matrix, mode: Mode, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
        let (field, bytes) = (matrix.field(), matrix.field().word_bytes().unwrap());
        let plane = inputs[0].len() / bytes;
        let product = |constant: u64, symbol: u64| match field.w() {
            4 => field.mul(constant, symbol & 15) | field.mul(constant, symbol >> 4) << 4,
            _ => field.mul(constant, symbol),
        };
        for (row, output) in outputs.iter_mut().enumerate() {
            for i in 0..plane {
                let sum = inputs.iter().enumerate().fold(0, |sum, (column, input)| {
                    let symbol = (0..bytes).fold(0, |s, b| s | u64::from(input[b * plane + i]) << (8 * b));
                    sum ^ product(matrix.at(row, column), symbol)
                });
                for b in 0..bytes {
                    let before = if mode == Mode::Add { output[b * plane + i] } else { 0 };
                    output[b * plane + i] = before ^ (sum >> (8 * b)) as u8;
                }
            }
        }
    }

    #[test]
    fn products_sums_and_dot_products_on_every_kernel_set() {
        let mut random = TestRng(0x706c_616e);
        for row in kernel_sets().iter().filter(|row| row.supported()) {
            for threads in [1, 2] {
                let engine = Engine::with_kernel_set(row, threads).unwrap();
                for field in [Field::GF4, Field::GF8, Field::GF16, Field::GF32, Field::GF64] {
                    let bytes = field.word_bytes().unwrap();
                    for (rows, columns, symbols) in [
                        (1, 1, 1),
                        (1, 1, 64),
                        (1, 1, 1000),
                        (1, 8, 333),
                        (3, 2, 4097),
                        (1, 3, 0),
                        (2, 2, 20_000),
                    ] {
                        let mode = if random.below(2) == 0 { Mode::Add } else { Mode::Write };
                        let matrix =
                            Matrix::from_fn(field, rows, columns, |_, _| random.next_u64() & field.mask())
                                .unwrap();
                        let mut blocks = |count: usize| -> Vec<Vec<u8>> {
                            let mut blocks = vec![vec![0; symbols * bytes]; count];
                            blocks.iter_mut().for_each(|block| random.fill(block));
                            blocks
                        };
                        let (inputs, mut outputs) = (blocks(columns), blocks(rows));
                        let mut wanted = outputs.clone();
                        if symbols > 0 {
                            expected(&matrix, mode, &inputs, &mut wanted);
                        }
                        let planar = engine.planar(&matrix, mode).unwrap();
                        let inputs: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
                        let mut slices: Vec<&mut [u8]> =
                            outputs.iter_mut().map(|block| &mut block[..]).collect();
                        planar.run(&inputs, &mut slices).unwrap();
                        assert!(outputs == wanted, "{row:?}, {planar:?}, {symbols} symbols, {mode:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn unsupported_matrices_and_buffers_are_refused() {
        let engine = Engine::new(1).unwrap();
        let matrix = |field, rows, columns| Matrix::from_fn(field, rows, columns, |_, _| 3).unwrap();
        let large = engine.planar(&matrix(Field::GF64, 9, 8), Mode::Write);
        assert!(matches!(large, Err(Error::MatrixTooLarge { rows: 9, columns: 8, limit: 64 })));
        let empty = engine.planar(&matrix(Field::GF16, 0, 3), Mode::Write);
        assert!(matches!(empty, Err(Error::EmptyMatrix { rows: 0, columns: 3 })));
        assert!(engine.planar(&matrix(Field::new(5).unwrap(), 1, 1), Mode::Write).is_err());
        let planar = engine.planar(&matrix(Field::GF16, 1, 1), Mode::Write).unwrap();
        let mut out = [7; 5];
        let odd = planar.run(&[&[1; 5]], &mut [&mut out]);
        assert_eq!(odd, Err(Error::BufferGranule { len: 5, granule: 2 }));
        assert!(planar.run(&[&[1; 4]], &mut [&mut out]).is_err());
        assert!(planar.run(&[], &mut [&mut out]).is_err());
        assert_eq!(out, [7; 5]);
    }
}
