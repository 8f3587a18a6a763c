//! Compiled code that can be called: pages that were written first and are executable now, never both.

use super::emit::{Emitted, Locality, Shape};
use super::machine::MAX_SLOT_BYTES;
use memmap2::{Mmap, MmapMut};
use std::arch::x86_64::_mm_sfence;
use std::mem::MaybeUninit;

/// The calling convention of `emit`: blocks, start, end, constants, slots.
type Entry = unsafe extern "sysv64" fn(*const *const u8, usize, usize, *const u8, *mut u8);

/// Loops begin at multiples of this: instructions are fetched and kept by lines.
const LOOP_ALIGNMENT: usize = 64;

/// A loop over blocks, ready to run.
#[derive(Debug)]
pub(super) struct Routine {
    /// Where in the pages the function begins; they live as long as it may be called.
    entry: Entry,
    _pages: Mmap,
    constants: Vec<u8>,
    /// Bytes of every block that one turn covers.
    step: usize,
    /// Bytes of a register.
    width: usize,
    needs_slots: bool,
    /// Whether it stores past the caches.
    streams: bool,
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
        let start = emitted.head.wrapping_neg() % LOOP_ALIGNMENT;
        let mut pages = MmapMut::map_anon(start + emitted.code.len())?;
        pages[start..][..emitted.code.len()].copy_from_slice(&emitted.code);
        let pages = pages.make_exec()?;
        // SAFETY: from there on the pages hold a whole function of this type, written by `emit`.
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

    /// Bytes of every block that one turn covers.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Bytes of a register.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// How far an address lies behind a multiple of the register. Registers are powers of two, which the compiler
    /// cannot know and would divide.
    pub(super) fn misalignment(&self, address: *const u8) -> usize {
        address.addr() & (self.width() - 1)
    }

    /// Runs over the bytes `start..end` of the blocks, inputs first. After the last of these,
    /// [`settle`](Routine::settle).
    ///
    /// # Safety
    /// The CPU has the instruction set the code was made for. `blocks` are as many as the plan has; each can be read,
    /// and outputs be written, from `start` to `end` (with all packets of the group), and no output overlaps another
    /// block. The range is a multiple of the step. A streaming routine gets aligned outputs.
    #[inline]
    pub(super) unsafe fn run(&self, blocks: &[*const u8], start: usize, end: usize) {
        // SAFETY: passed on unchanged; where there is no room for slots the routine has none.
        unsafe {
            if self.needs_slots {
                self.run_with_room(blocks, [start, end]);
            } else {
                self.run_with(blocks, [start, end], std::ptr::null_mut());
            }
        }
    }

    /// What was stored past the caches is seen by others before whatever is stored after this. It waits for memory:
    /// once per call of a kernel, not for each group of packets.
    #[inline]
    pub(super) fn settle(&self) {
        if self.streams {
            // SAFETY: every x86-64 CPU has SSE.
            unsafe { _mm_sfence() };
        }
    }

    /// As [`run`](Routine::run), with room for slots on a stack that is not the caller's: most routines have none.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn run_with_room(&self, blocks: &[*const u8], range: [usize; 2]) {
        let mut slots = Slots([MaybeUninit::uninit(); MAX_SLOT_BYTES]);
        // SAFETY: passed on unchanged; there is room for all slots that a routine may have.
        unsafe { self.run_with(blocks, range, slots.0.as_mut_ptr().cast()) };
    }

    /// As [`run`](Routine::run) over `start..end`, with slots of the caller.
    ///
    /// # Safety
    /// As there; and there is room for the slots of the routine, and after them for what it remembers of its inputs.
    #[inline]
    pub(super) unsafe fn run_with(&self, blocks: &[*const u8], [start, end]: [usize; 2], slots: *mut u8) {
        assert!(blocks.len() == self.blocks && (end - start) & (self.step() - 1) == 0);
        if start == end {
            return;
        }
        // SAFETY: the pages of the function are still there. The code reads its blocks and constants, writes outputs
        // and slots, all within what the caller promises and what `emit` was told; it keeps the registers of the
        // convention.
        unsafe { (self.entry)(blocks.as_ptr(), start, end, self.constants.as_ptr(), slots) }
    }
}
