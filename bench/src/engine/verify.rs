//! Check of outputs before they are timed.
//!
//! Plans are checked against the reference on windows at the start, in the middle and at the end of a block (the
//! reference goes bit by bit and would take minutes for the whole) and, of codes with thousands of blocks, in some
//! outputs; repairs also against the whole of the lost data, signatures against their definition over the whole block.

use super::BenchError;
use gabion_engine::field::Field;
use gabion_engine::kernel::{Backend, Reference};
use gabion_engine::matrix::Matrix;
use gabion_engine::tower::Tower;
use gabion_engine::{Error, Plan};
use std::ops::Range;

/// Granules of a window, unless that takes the reference too long.
const WINDOW_GRANULES: usize = 512;
const WINDOW_BYTES: usize = 8 << 10;

/// Coefficients up to which all outputs are compared; of larger plans, some outputs from the first to the last.
const MOST_COEFFICIENTS: usize = 1 << 20;

/// Products of a window, about: less than a second.
const MOST_PRODUCTS: usize = 1 << 23;

/// Windows of a block in which a plan with so many coefficients is compared.
fn windows(len: usize, granule: usize, coefficients: usize) -> Vec<Range<usize>> {
    let granules = WINDOW_GRANULES.min(WINDOW_BYTES / granule).min(MOST_PRODUCTS / coefficients.max(1));
    let size = (granules.max(1) * granule).min(len);
    let middle = len / granule / 2 * granule;
    let starts = [0, middle.min(len - size), len - size];
    starts.into_iter().map(|start| start..start + size).collect()
}

/// Expected outputs of a plan in the windows; computed once, as the reference is slow.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The outputs that are compared.
    outputs: Vec<usize>,
    /// Windows, and the content of these outputs in them.
    windows: Vec<(Range<usize>, Vec<Vec<u8>>)>,
}

impl Expected {
    /// Runs the reference on `inputs`, which all have one length.
    ///
    /// # Errors
    /// Inputs that do not fit the plan.
    pub fn of(plan: &Plan, inputs: &[&[u8]]) -> Result<Expected, BenchError> {
        let count = plan.outputs().len();
        let compared = count.min(MOST_COEFFICIENTS / inputs.len().max(1)).max(count.min(2));
        let chosen: Vec<usize> = match compared {
            all if all == count => (0..count).collect(),
            some => (0..some).map(|i| i * (count - 1) / (some - 1)).collect(),
        };
        let rows = Matrix::from_fn(plan.field(), chosen.len(), inputs.len(), |row, column| {
            plan.coefficient(chosen[row], column)
        })?;
        let reference = Reference.compile(&Plan::new(rows, plan.layout(), plan.mode())?)?;
        let len = inputs.first().map_or(0, |input| input.len());
        let window = |window: Range<usize>| {
            let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[window.clone()]).collect();
            let mut outputs = vec![vec![0; window.len()]; chosen.len()];
            let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
            reference.run(&inputs, &mut views)?;
            Ok((window, outputs))
        };
        let windows = windows(len, plan.granule(), chosen.len() * inputs.len());
        let windows: Result<_, Error> = windows.into_iter().map(window).collect();
        Ok(Expected { windows: windows?, outputs: chosen })
    }

    /// Compares `outputs` with it.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] with the place of the first difference.
    pub fn check(&self, case: &str, outputs: &[&[u8]]) -> Result<(), BenchError> {
        for (window, expected) in &self.windows {
            for (&output, expected) in self.outputs.iter().zip(expected) {
                compare(case, output, window.start, expected, &outputs[output][window.clone()])?;
            }
        }
        Ok(())
    }
}

/// Compares whole blocks.
///
/// # Errors
/// [`BenchError::Wrong`] with the place of the first difference.
pub fn check_blocks(case: &str, expected: &[&[u8]], found: &[&[u8]]) -> Result<(), BenchError> {
    let pairs = expected.iter().zip(found).enumerate();
    pairs.into_iter().try_for_each(|(output, (expected, found))| compare(case, output, 0, expected, found))
}

/// Compares a signature of 64 bits, as bytes, with the definition: the block, read as a polynomial, at α.
///
/// # Errors
/// [`BenchError::WrongSignature`].
pub fn check_signature(case: &str, field: Field, block: &[u8], found: &[u8]) -> Result<(), BenchError> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let times_alpha: Box<dyn Fn(u64) -> u64> = match Tower::over(field) {
        Ok(tower) => Box::new(move |a| tower.times_y(a)),
        Err(_) => Box::new(move |a| field.mul(a, 2)),
    };
    let symbols = block.chunks(8).rev().map(word);
    let expected = symbols.fold(0, |sum, symbol| times_alpha(sum) ^ symbol);
    let found = word(found);
    if found != expected {
        return Err(BenchError::WrongSignature { case: case.to_owned(), expected, found });
    }
    Ok(())
}

fn compare(case: &str, output: usize, start: usize, expected: &[u8], found: &[u8]) -> Result<(), BenchError> {
    if expected.len() != found.len() {
        return Err(Error::SizeMismatch { left: expected.len(), right: found.len() }.into());
    }
    // Comparing whole slices is fast; the position is searched only if they differ.
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
    Err(BenchError::Wrong {
        case: case.to_owned(),
        output,
        offset: start + at,
        expected: expected[at],
        found: found[at],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::{Code, Signer};

    fn encoded(code: &str, len: usize) -> (Plan, Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let code: Code = code.parse().unwrap();
        let plan = code.encode_plan().unwrap();
        let mut data = vec![vec![0; len]; code.k()];
        data.iter_mut()
            .enumerate()
            .for_each(|(seed, block)| crate::engine::memory::fill_random(seed as u64, block));
        let mut redundancy = vec![vec![0; len]; code.m()];
        let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
        let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
        gabion::machine::fastest().compile(&plan).unwrap().run(&inputs, &mut outputs).unwrap();
        (plan, data, redundancy)
    }

    fn views(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
        blocks.iter().map(|block| &block[..]).collect()
    }

    /// One wrong bit in any window is found and located.
    #[test]
    fn a_wrong_bit_is_found() {
        for (code, len, granule) in [("4+2", 65536, 1), ("cauchy:4+2:w4:packets=64", 65536, 256)] {
            let (plan, data, mut redundancy) = encoded(code, len);
            let expected = Expected::of(&plan, &views(&data)).unwrap();
            expected.check("x", &views(&redundancy)).unwrap();
            for at in [0, 511 * granule.min(16), len / 2 + 3, len - 1] {
                redundancy[1][at] ^= 0x10;
                let error = expected.check("x", &views(&redundancy)).unwrap_err();
                let BenchError::Wrong { output, offset, expected, found, .. } = error else {
                    panic!("{error}");
                };
                assert_eq!((output, offset, expected ^ found), (1, at, 0x10), "{code}");
                redundancy[1][at] ^= 0x10;
            }
        }
    }

    /// Of thousands of outputs some are compared, the first and the last among them.
    #[test]
    fn a_wrong_bit_of_a_large_code_is_found() {
        let (plan, data, mut redundancy) = encoded("3000+400:w16", 8);
        let expected = Expected::of(&plan, &views(&data)).unwrap();
        assert!(expected.outputs.len() < 400 && expected.outputs.is_sorted_by(|a, b| a < b));
        expected.check("x", &views(&redundancy)).unwrap();
        for output in [0, 399] {
            redundancy[output][7] ^= 1;
            let error = expected.check("x", &views(&redundancy)).unwrap_err();
            assert!(matches!(error, BenchError::Wrong { output: found, offset: 7, .. } if found == output));
            redundancy[output][7] ^= 1;
        }
    }

    #[test]
    fn blocks_are_compared_whole() {
        let (_, data, _) = encoded("4+2", 10000);
        let mut other = data.clone();
        check_blocks("x", &views(&data), &views(&other)).unwrap();
        other[2][5000] ^= 1;
        let error = check_blocks("x", &views(&data), &views(&other)).unwrap_err();
        assert!(matches!(error, BenchError::Wrong { output: 2, offset: 5000, .. }));
    }

    #[test]
    fn a_wrong_signature_is_found() {
        let (_, data, _) = encoded("2+1", 1003);
        let bytes = |signer: Signer| signer.sign(&data[0]).unwrap().components()[0].to_le_bytes();
        for w in [4, 8, 16, 32] {
            let field = Field::new(w).unwrap();
            let signature = bytes(Signer::tower(field, 1).unwrap());
            check_signature("x", field, &data[0], &signature).unwrap();
            assert!(check_signature("x", field, &data[1], &signature).is_err(), "{w}");
        }
        let signature = bytes(Signer::new(Field::GF64, 1).unwrap());
        check_signature("x", Field::GF64, &data[0], &signature).unwrap();
    }

    #[test]
    fn windows_lie_within_the_block() {
        for (len, granule) in [(1, 1), (512, 1), (10 << 20, 1), (8192, 8192), (24576, 8192), (4096, 8)] {
            for window in
                [1, MOST_PRODUCTS].into_iter().flat_map(|coefficients| windows(len, granule, coefficients))
            {
                assert!(window.end <= len && !window.is_empty());
                assert!(window.start.is_multiple_of(granule) && window.len().is_multiple_of(granule));
            }
        }
    }
}
