//! Slices of a caller's buffers, collected without an allocation for common numbers of shards.

/// Numbers of inputs and outputs that are collected on the stack. Clearing a larger list takes as long as coding a
/// small block.
const FEW: (usize, usize) = (16, 8);
const MORE: (usize, usize) = (64, 32);

/// Calls `work` with the bytes of inputs and outputs.
#[inline]
pub(super) fn with_slices<I, O, R>(
    inputs: &[I],
    outputs: &mut [O],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
) -> R
where
    I: AsRef<[u8]>,
    O: AsMut<[u8]>,
{
    if inputs.len() <= FEW.0 && outputs.len() <= FEW.1 {
        return on_stack::<I, O, R, { FEW.0 }, { FEW.1 }>(inputs, outputs, work);
    }
    if inputs.len() <= MORE.0 && outputs.len() <= MORE.1 {
        return on_stack::<I, O, R, { MORE.0 }, { MORE.1 }>(inputs, outputs, work);
    }
    let inputs: Vec<&[u8]> = inputs.iter().map(AsRef::as_ref).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(AsMut::as_mut).collect();
    work(&inputs, &mut outputs)
}

/// The same for at most N inputs and M outputs.
#[inline]
fn on_stack<I, O, R, const N: usize, const M: usize>(
    inputs: &[I],
    outputs: &mut [O],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
) -> R
where
    I: AsRef<[u8]>,
    O: AsMut<[u8]>,
{
    let count = outputs.len();
    let mut of_inputs: [&[u8]; N] = [&[]; N];
    let mut of_outputs: [&mut [u8]; M] = std::array::from_fn(|_| &mut [][..]);
    of_inputs.iter_mut().zip(inputs).for_each(|(slice, input)| *slice = input.as_ref());
    of_outputs.iter_mut().zip(outputs.iter_mut()).for_each(|(slice, output)| *slice = output.as_mut());
    work(&of_inputs[..inputs.len()], &mut of_outputs[..count])
}
