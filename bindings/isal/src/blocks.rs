//! Blocks of the caller as slices.

use std::mem::MaybeUninit;

/// Blocks whose slices are kept on the stack.
const FEW: usize = 32;

/// True if an output overlaps an input or another output. Rust's slices must not.
///
/// # Safety
/// The addresses can be read.
pub(crate) unsafe fn overlap(len: usize, inputs: &[*const u8], outputs: &[*mut u8]) -> bool {
    // Two ranges of `len` bytes overlap if the distance of their starts, in either direction, is less than `len`.
    let meet = |one: usize, other: usize| one.wrapping_sub(other).wrapping_add(len - 1) < 2 * len - 1;
    outputs.iter().enumerate().any(|(index, output)| {
        let output = output.addr();
        inputs.iter().fold(false, |any, input| any | meet(input.addr(), output))
            || outputs[..index].iter().any(|other| meet(other.addr(), output))
    })
}

/// Calls `work` with the slices `start..start + len` of all blocks.
///
/// # Safety
/// The bytes can be read in all inputs, and read and written in all outputs, which overlap nothing.
#[inline]
pub(crate) unsafe fn with_slices<R>(
    start: usize,
    len: usize,
    inputs: &[*const u8],
    outputs: &[*mut u8],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
) -> R {
    // SAFETY: by contract.
    let input = |block: &*const u8| unsafe { std::slice::from_raw_parts(block.add(start), len) };
    // SAFETY: by contract.
    let output = |block: &*mut u8| unsafe { std::slice::from_raw_parts_mut(block.add(start), len) };
    if inputs.len() > FEW || outputs.len() > FEW {
        let inputs: Vec<&[u8]> = inputs.iter().map(input).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter().map(output).collect();
        return work(&inputs, &mut outputs);
    }
    let mut of_inputs = [const { MaybeUninit::<&[u8]>::uninit() }; FEW];
    let mut of_outputs = [const { MaybeUninit::<&mut [u8]>::uninit() }; FEW];
    for (slice, block) in of_inputs.iter_mut().zip(inputs) {
        slice.write(input(block));
    }
    for (slice, block) in of_outputs.iter_mut().zip(outputs) {
        slice.write(output(block));
    }
    let (of_inputs, of_outputs) = (&of_inputs[..inputs.len()], &mut of_outputs[..outputs.len()]);
    // SAFETY: the first `inputs.len()` and `outputs.len()` were written above.
    unsafe { work(of_inputs.assume_init_ref(), of_outputs.assume_init_mut()) }
}
