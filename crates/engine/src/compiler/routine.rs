//! Callable machine code in executable pages, which are never writable and executable at the same time.

use super::emit::{Emitted, Locality, Shape};
use super::machine::MAX_SLOT_BYTES;
use memmap2::{Mmap, MmapMut};
use std::arch::x86_64::_mm_sfence;
use std::mem::MaybeUninit;

/// The calling convention of `emit`: blocks, start, end, constants, slots.
type Entry = unsafe extern "sysv64" fn(*const *const u8, usize, usize, *const u8, *mut u8);

/// Alignment of loops: instructions are fetched and cached by lines.
const LOOP_ALIGNMENT: usize = 64;

/// A loop over blocks, ready to run.
#[derive(Debug)]
pub(super) struct Routine {
    /// Entry point; `_pages` keeps it valid.
    entry: Entry,
    _pages: Mmap,
    constants: Vec<u8>,
    /// Bytes of every block per iteration.
    step: usize,
    /// Bytes of a register.
    width: usize,
    needs_slots: bool,
    /// True if it uses non-temporal stores.
    streams: bool,
    blocks: usize,
}

#[repr(C, align(64))]
struct Slots([MaybeUninit<u8>; MAX_SLOT_BYTES]);

impl Routine {
    /// Copies code into executable pages.
    ///
    /// # Errors
    /// The system provides no executable pages.
    pub(super) fn new(
        emitted: Emitted,
        shape: Shape,
        slot_bytes: usize,
        blocks: usize,
    ) -> std::io::Result<Routine> {
        assert!(slot_bytes <= MAX_SLOT_BYTES, "the slots of a routine are bounded");
        assert!(shape.step().is_power_of_two(), "registers and columns are powers of two");
        let start = emitted.head.wrapping_neg() % LOOP_ALIGNMENT;
        let mut pages = MmapMut::map_anon(start + emitted.code.len())?;
        pages[start..][..emitted.code.len()].copy_from_slice(&emitted.code);
        let pages = pages.make_exec()?;
        // SAFETY: at this offset the pages hold a complete function of this type, written by `emit`.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(pages.as_ptr().add(start)) };
        Ok(Routine {
            entry,
            _pages: pages,
            constants: emitted.constants,
            step: shape.step(),
            width: shape.target.width,
            needs_slots: slot_bytes > 0,
            streams: shape.walk.locality == Locality::Memory,
            blocks,
        })
    }

    /// Bytes of every block per iteration.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Bytes of a register.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Offset of an address from a multiple of the register width. A mask, since the compiler does not know that the
    /// width is a power of two and would divide.
    pub(super) fn misalignment(&self, address: *const u8) -> usize {
        address.addr() & (self.width() - 1)
    }

    /// Runs over the bytes `start..end` of the blocks, inputs first. The caller ends with [`fence`](Routine::fence).
    ///
    /// # Safety
    /// The CPU has the instruction set the code was made for. `blocks` are as many as the plan has; each can be read,
    /// and outputs be written, from `start` to `end` (with all packets of the group), and no output overlaps another
    /// block. The range is a multiple of the step. Outputs are aligned if the routine uses non-temporal stores.
    #[inline]
    pub(super) unsafe fn run(&self, blocks: &[*const u8], start: usize, end: usize) {
        // SAFETY: passed on unchanged; a routine without slots gets a null pointer.
        unsafe {
            if self.needs_slots {
                self.run_with_own_slots(blocks, [start, end]);
            } else {
                self.run_with(blocks, [start, end], std::ptr::null_mut());
            }
        }
    }

    /// Orders non-temporal stores before all later stores. It waits for memory, so it is executed once per call of a
    /// kernel, not for each group of packets.
    #[inline]
    pub(super) fn fence(&self) {
        if self.streams {
            // SAFETY: every x86-64 CPU has SSE.
            unsafe { _mm_sfence() };
        }
    }

    /// As [`run`](Routine::run), with slots on the stack of this function: most routines have none.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn run_with_own_slots(&self, blocks: &[*const u8], range: [usize; 2]) {
        let mut slots = Slots([MaybeUninit::uninit(); MAX_SLOT_BYTES]);
        // SAFETY: passed on unchanged; the buffer holds the maximum number of slots.
        unsafe { self.run_with(blocks, range, slots.0.as_mut_ptr().cast()) };
    }

    /// As [`run`](Routine::run) over `start..end`, with slots provided by the caller.
    ///
    /// # Safety
    /// As there; `slots` holds the slots of the routine and, after them, its division state.
    #[inline]
    pub(super) unsafe fn run_with(&self, blocks: &[*const u8], [start, end]: [usize; 2], slots: *mut u8) {
        assert!(blocks.len() == self.blocks && (end - start) & (self.step() - 1) == 0);
        if start == end {
            return;
        }
        // SAFETY: the pages of the function are mapped. The code reads its blocks and constants and writes outputs and
        // slots within the bounds that the caller guarantees; it preserves the callee-saved registers.
        unsafe { (self.entry)(blocks.as_ptr(), start, end, self.constants.as_ptr(), slots) }
    }
}
