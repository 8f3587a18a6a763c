//! Compiled code that can be called: pages that were written first and are executable now, never both.

use super::emit::{Emitted, Shape};
use super::machine::MAX_SLOT_BYTES;
use memmap2::{Mmap, MmapMut};
use std::mem::MaybeUninit;

/// The calling convention of `emit`: blocks, start, end, constants, slots.
type Entry = unsafe extern "sysv64" fn(*const *const u8, usize, usize, *const u8, *mut u8);

/// A loop over blocks, ready to run.
#[derive(Debug)]
pub(super) struct Routine {
    pages: Mmap,
    constants: Vec<u8>,
    shape: Shape,
    needs_slots: bool,
    blocks: usize,
}

#[repr(C, align(64))]
struct Slots([MaybeUninit<u8>; MAX_SLOT_BYTES]);

impl Routine {
    /// Brings code into executable pages.
    ///
    /// # Errors
    /// Systems that give no such pages.
    pub(super) fn new(
        emitted: Emitted,
        shape: Shape,
        slot_bytes: usize,
        blocks: usize,
    ) -> std::io::Result<Routine> {
        assert!(slot_bytes <= MAX_SLOT_BYTES, "the slots of a routine are bounded");
        assert!(shape.step().is_power_of_two(), "registers and columns are powers of two");
        let mut pages = MmapMut::map_anon(emitted.code.len())?;
        pages[..emitted.code.len()].copy_from_slice(&emitted.code);
        let pages = pages.make_exec()?;
        Ok(Routine { pages, constants: emitted.constants, shape, needs_slots: slot_bytes > 0, blocks })
    }

    /// Bytes of every block that one turn covers.
    pub(super) fn step(&self) -> usize {
        self.shape.step()
    }

    /// Bytes of a register.
    pub(super) fn width(&self) -> usize {
        self.shape.target.width
    }

    /// Runs over the bytes `start..end` of the blocks, inputs first.
    ///
    /// # Safety
    /// The CPU has the instruction set the code was made for. `blocks` are as many as the plan has; each can be read,
    /// and outputs be written, from `start` to `end` (with all packets of the group), and no output overlaps another
    /// block. The range is a multiple of the step. A streaming routine gets aligned outputs.
    pub(super) unsafe fn run(&self, blocks: &[*const u8], start: usize, end: usize) {
        // SAFETY: passed on unchanged; there is room for all slots that a routine may have, or it has none.
        unsafe {
            if self.needs_slots {
                let mut slots = Slots([MaybeUninit::uninit(); MAX_SLOT_BYTES]);
                self.run_with(blocks, [start, end], slots.0.as_mut_ptr().cast());
            } else {
                self.run_with(blocks, [start, end], std::ptr::null_mut());
            }
        }
    }

    /// As [`run`](Routine::run) over `start..end`, with slots of the caller.
    ///
    /// # Safety
    /// As there; and there is room for the slots of the routine, and after them for what it remembers of its inputs.
    pub(super) unsafe fn run_with(&self, blocks: &[*const u8], [start, end]: [usize; 2], slots: *mut u8) {
        assert!(blocks.len() == self.blocks && (end - start) & (self.step() - 1) == 0);
        if start == end {
            return;
        }
        // SAFETY: the pages hold a whole function of this type from their first byte on, written by `emit`.
        let entry: Entry = unsafe { std::mem::transmute::<*const u8, Entry>(self.pages.as_ptr()) };
        // SAFETY: the code reads its blocks and constants, writes outputs and slots, all within what the caller
        // promises and what `emit` was told; it keeps the registers of the convention.
        unsafe { entry(blocks.as_ptr(), start, end, self.constants.as_ptr(), slots) }
    }
}
