//! Two outputs whose sum is the sum of all inputs: the first needs products, the second only additions.
//!
//! Repairs of `subspace` codes with two redundancy blocks have this form. The rows have x + 1 and x in the column of
//! the point x, so the sum of all k + 2 blocks is zero, and the sum of any two lost blocks is the sum of the others.
//! Byte maps use one execution port, sums two, and half of the maps are saved.

use super::Buffers;
use super::planes::{load_partial, prefetch_output, store_partial};
use crate::bytemap::MapForm as _;
use crate::kernel::Tuning;
use crate::kernel::vector::Vector;

/// The first of two rows of a matrix over GF(2^8) that differ by 1 in every column.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct SumConstrained<'a>(&'a [u8]);

impl<'a> SumConstrained<'a> {
    /// `None` if the matrix, given row by row, does not have this form.
    pub(in crate::kernel) fn new(coefficients: &'a [u8], columns: usize) -> Option<SumConstrained<'a>> {
        let (first, second) = coefficients.split_at_checked(columns)?;
        let differ_by_one = first.iter().zip(second).all(|(a, b)| a ^ b == 1);
        (columns > 0 && second.len() == columns && differ_by_one).then_some(SumConstrained(first))
    }
}

#[inline(always)]
pub(super) unsafe fn run<V: Vector>(
    SumConstrained(coefficients): SumConstrained<'_>,
    buffers: Buffers<'_, '_>,
) {
    let Buffers { inputs, outputs, len, total_len, add } = buffers;
    let [first, second] = outputs else { panic!("two outputs, not {}", outputs.len()) };
    assert!(!add && coefficients.len() == inputs.len());
    let outputs = [first.as_mut_ptr(), second.as_mut_ptr()];
    let prefetch_outputs = Tuning::of_machine().prefetches_outputs(inputs.len(), outputs.len(), total_len);
    let pass = Pass { products: V::Map::gf8_products(), coefficients, inputs, outputs, prefetch_outputs };
    // SAFETY: every buffer has `len` bytes by the contract of `Work`.
    unsafe {
        match V::UNROLL {
            4 => all_steps::<V, 4>(&pass, len),
            2 => all_steps::<V, 2>(&pass, len),
            _ => all_steps::<V, 1>(&pass, len),
        }
    }
}

/// As many coefficients as inputs.
struct Pass<'a, M> {
    products: &'a [M; 256],
    coefficients: &'a [u8],
    inputs: &'a [&'a [u8]],
    outputs: [*mut u8; 2],
    /// True if outputs are prefetched.
    prefetch_outputs: bool,
}

/// U registers of every block at a time, then single registers, then the partial one.
#[inline(always)]
unsafe fn all_steps<V: Vector, const U: usize>(pass: &Pass<'_, V::Map>, len: usize) {
    let mut at = 0;
    // SAFETY: each step reads and writes [at, at + what it is given), and that is <= len.
    unsafe {
        while len - at >= U * V::BYTES {
            if pass.prefetch_outputs {
                for output in pass.outputs {
                    prefetch_output::<V, U>(output.wrapping_add(at));
                }
            }
            step::<V, U>(pass, at, U * V::BYTES);
            at += U * V::BYTES;
        }
        while len - at >= V::BYTES {
            step::<V, 1>(pass, at, V::BYTES);
            at += V::BYTES;
        }
        if at < len {
            step::<V, 1>(pass, at, len - at);
        }
    }
}

/// `len` bytes of every block from `at` on: U registers, or less than one. Inputs are processed in pairs: an
/// instruction that adds three registers adds both products.
#[inline(always)]
unsafe fn step<V: Vector, const U: usize>(pass: &Pass<'_, V::Map>, at: usize, len: usize) {
    // SAFETY: at + len is within every buffer by contract.
    unsafe {
        let (mut first, mut sum) = ([V::zero(); U], [V::zero(); U]);
        let (pairs, last) = pass.inputs.as_chunks::<2>();
        let (pairs_of_coefficients, last_coefficient) = pass.coefficients.as_chunks::<2>();
        for (inputs, coefficients) in pairs.iter().zip(pairs_of_coefficients) {
            let x = read::<V, U>(inputs[0].as_ptr().add(at), len);
            let y = read::<V, U>(inputs[1].as_ptr().add(at), len);
            let [of_x, of_y] = coefficients;
            let (of_x, of_y) = (&pass.products[*of_x as usize], &pass.products[*of_y as usize]);
            for u in 0..U {
                first[u] = first[u].add_mapped(x[u].operand(), of_x).add_mapped(y[u].operand(), of_y);
                sum[u] = sum[u].xor(x[u]).xor(y[u]);
            }
        }
        for (input, coefficient) in last.iter().zip(last_coefficient) {
            let x = read::<V, U>(input.as_ptr().add(at), len);
            for u in 0..U {
                first[u] = first[u].add_mapped(x[u].operand(), &pass.products[*coefficient as usize]);
                sum[u] = sum[u].xor(x[u]);
            }
        }
        let to = [pass.outputs[0].add(at), pass.outputs[1].add(at)];
        for u in 0..U {
            let second = sum[u].xor(first[u]);
            if len < V::BYTES {
                store_partial::<V, 1>([first[u]], to[0], len, false);
                store_partial::<V, 1>([second], to[1], len, false);
            } else {
                first[u].store(to[0].add(u * V::BYTES));
                second.store(to[1].add(u * V::BYTES));
            }
        }
    }
}

#[inline(always)]
unsafe fn read<V: Vector, const U: usize>(from: *const u8, len: usize) -> [V; U] {
    // SAFETY: the caller gives `len` readable bytes, U registers or less than one.
    unsafe {
        let mut registers = [V::zero(); U];
        for u in 0..U {
            registers[u] = if len < V::BYTES {
                load_partial::<V, 1>(from, len)[0]
            } else {
                V::load(from.add(u * V::BYTES))
            };
        }
        registers
    }
}

#[cfg(test)]
mod tests {
    use super::SumConstrained;
    use crate::conformance::TestRng;
    use crate::field::Field;
    use crate::kernel::{Product, kernel_sets};

    #[test]
    fn two_rows_that_differ_by_one_are_recognised() {
        assert!(SumConstrained::new(&[3, 2, 5, 2, 3, 4], 3).is_some());
        assert!(SumConstrained::new(&[3, 2, 5, 2, 3, 5], 3).is_none(), "5 and 5");
        assert!(SumConstrained::new(&[3, 2, 5, 2], 1).is_none(), "four rows");
        assert!(SumConstrained::new(&[3, 2, 5], 2).is_none(), "a row and a half");
        assert!(SumConstrained::new(&[3], 2).is_none() && SumConstrained::new(&[], 0).is_none());
    }

    /// Symbol by symbol, on every kernel set, with whole and partial registers.
    #[test]
    fn both_outputs_match_the_matrix() {
        let mut random = TestRng(0x6261_6c61);
        for row in kernel_sets().iter().filter(|row| row.supported()) {
            for (inputs, len) in [(1, 1), (2, 64), (3, 63), (4, 4096), (5, 700), (8, 256), (9, 1025), (2, 0)]
            {
                let mut blocks = vec![vec![0; len]; inputs];
                blocks.iter_mut().for_each(|block| random.fill(block));
                let mut matrix = vec![0; inputs];
                random.fill(&mut matrix);
                matrix.extend_from_within(..);
                matrix[inputs..].iter_mut().for_each(|coefficient| *coefficient ^= 1);
                assert!(SumConstrained::new(&matrix, inputs).is_some());
                let wanted = |row: usize, at: usize| {
                    let terms = matrix[row * inputs..][..inputs].iter().zip(&blocks);
                    let product = |(&c, block): (&u8, &Vec<u8>)| Field::GF8.mul(c.into(), block[at].into());
                    terms.map(product).fold(0, |sum, product| sum ^ product) as u8
                };
                let sources: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
                let (mut first, mut second) = (vec![0xaa; len + 1], vec![0xaa; len + 1]);
                let mut outputs = [&mut first[..len], &mut second[..len]];
                let product = Product::Coefficients(&matrix);
                row.multiply(&product, &sources, &mut outputs, len).unwrap();
                for (index, output) in [first, second].iter().enumerate() {
                    assert!((0..len).all(|at| output[at] == wanted(index, at)), "{row:?}, {inputs} x {len}");
                    assert_eq!(output[len], 0xaa, "nothing is written beyond the end");
                }
            }
        }
    }
}
