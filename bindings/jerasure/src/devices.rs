//! Data and coding blocks of a call: device i < k is data block i, device k + i is coding block i.

use crate::memory::array;
use gabion_engine::Compiled;
use std::ffi::c_char;

/// The blocks of a call.
pub(crate) struct Devices<'a> {
    data: &'a [*mut c_char],
    coding: &'a [*mut c_char],
    size: usize,
}

impl<'a> Devices<'a> {
    /// # Safety
    /// There are `k` data blocks and `m` coding blocks of `size` bytes; those that are used exist.
    pub(crate) unsafe fn new(
        (k, m): (usize, usize),
        data: *const *mut c_char,
        coding: *const *mut c_char,
        size: usize,
    ) -> Devices<'a> {
        // SAFETY: by contract.
        unsafe { Devices { data: array(data, k), coding: array(coding, m), size } }
    }

    fn address(&self, device: usize) -> Option<*mut u8> {
        let place = match device.checked_sub(self.data.len()) {
            None => self.data[device],
            Some(coding) => *self.coding.get(coding)?,
        };
        (!place.is_null()).then_some(place.cast())
    }

    /// Computes the blocks `to` from the blocks `from`. Each block is a sequence of groups of `parts` pieces, and a
    /// plan has the pieces of a group as inputs and outputs. False if a block does not exist or the plan does not fit.
    ///
    /// # Safety
    /// As for [`Devices::new`].
    pub(crate) unsafe fn run(
        &self,
        plan: &Compiled,
        parts: usize,
        piece: usize,
        from: &[usize],
        to: &[usize],
    ) -> bool {
        let addresses = |devices: &[usize]| devices.iter().map(|&device| self.address(device)).collect();
        let (Some(inputs), Some(outputs)) = (addresses(from), addresses(to)) else { return false };
        let (inputs, outputs): (Vec<*mut u8>, Vec<*mut u8>) = (inputs, outputs);
        let meets = |one: *mut u8, other: *mut u8| one.addr().abs_diff(other.addr()) < self.size;
        let overlap = outputs.iter().enumerate().any(|(index, &output)| {
            inputs.iter().chain(&outputs[..index]).any(|&other| meets(output, other))
        });
        // Results of overlapping blocks are complete before the first is written.
        let mut aside = vec![vec![0_u8; if overlap { self.size } else { 0 }]; outputs.len()];
        let group = parts * piece;
        for start in (0..self.size).step_by(group.max(1)) {
            let pieces = |blocks: &[*mut u8]| -> Vec<*mut u8> {
                let of_block = |block: &*mut u8| {
                    let block = *block;
                    (0..parts).map(move |part| block.wrapping_add(start + part * piece))
                };
                blocks.iter().flat_map(of_block).collect()
            };
            let read = pieces(&inputs);
            // SAFETY: by contract; nothing of them is written while these slices live.
            let read: Vec<&[u8]> = read
                .iter()
                .map(|place| unsafe { std::slice::from_raw_parts(place.cast_const(), piece) })
                .collect();
            let written = if overlap {
                let mut blocks: Vec<*mut u8> = aside.iter_mut().map(|block| block.as_mut_ptr()).collect();
                pieces(&std::mem::take(&mut blocks))
            } else {
                pieces(&outputs)
            };
            // SAFETY: by contract, and they overlap nothing.
            let mut written: Vec<&mut [u8]> = written
                .iter()
                .map(|place| unsafe { std::slice::from_raw_parts_mut(*place, piece) })
                .collect();
            if plan.run(&read, &mut written).is_err() {
                return false;
            }
        }
        for (block, &output) in aside.iter().zip(&outputs) {
            // SAFETY: by contract; `aside` is memory of this function.
            unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), output, block.len()) };
        }
        true
    }
}
