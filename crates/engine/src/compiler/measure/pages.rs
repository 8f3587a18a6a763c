//! Emitted loops in executable pages, and their calls. Pages are never writable and executable at the same time.

use super::{Access, LINE, MeasureError, Operation, REPEATS, Stores, Width};
use crate::compiler::emit::loops;
use iced_x86::Code;
use memmap2::{Mmap, MmapMut};

/// Calling convention of `emit/loops.rs`: address, bytes, iterations; returns the last address of a chase.
type Entry = unsafe extern "sysv64" fn(*const u8, usize, usize) -> *const u8;

#[derive(Debug)]
pub(super) struct Pages(Mmap);

/// The instruction set that this CPU lacks.
pub(super) fn missing(operation: Operation, width: Width) -> Option<&'static str> {
    let (avx, avx2) = (is_x86_feature_detected!("avx"), is_x86_feature_detected!("avx2"));
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let registers = match width {
        Width::Scalar => (true, ""),
        Width::Bits128 => (avx, "AVX"),
        Width::Bits256 => (avx2, "AVX2"),
        Width::Bits512 => (avx512, "AVX-512 F and BW"),
    };
    let narrow = !matches!(width, Width::Bits512);
    let instruction = match operation {
        _ if loops::instruction(operation, width).is_none() => {
            (false, "an instruction that general registers do not have")
        }
        Operation::Ternary if narrow => (avx512 && is_x86_feature_detected!("avx512vl"), "AVX-512 VL"),
        Operation::Affine => (is_x86_feature_detected!("gfni"), "GFNI"),
        Operation::Multiply if width == Width::Bits128 => {
            (is_x86_feature_detected!("pclmulqdq"), "PCLMULQDQ")
        }
        Operation::Multiply => (is_x86_feature_detected!("vpclmulqdq"), "VPCLMULQDQ"),
        _ => (true, ""),
    };
    [registers, instruction].into_iter().find(|(there, _)| !there).map(|(_, needs)| needs)
}

/// The instruction; the caller has checked that it is supported.
fn code(operation: Operation, width: Width) -> Result<Code, MeasureError> {
    loops::instruction(operation, width).ok_or(MeasureError::NoMachineCode)
}

impl Pages {
    fn new(code: &[u8]) -> Result<Pages, MeasureError> {
        let mut pages = MmapMut::map_anon(code.len())?;
        pages[..code.len()].copy_from_slice(code);
        Ok(Pages(pages.make_exec()?))
    }

    pub(super) fn repeated(operation: Operation, width: Width) -> Result<Pages, MeasureError> {
        Pages::new(&loops::repeated(code(operation, width)?, operation, width))
    }

    pub(super) fn loads(width: Width, access: Access) -> Result<Pages, MeasureError> {
        Pages::new(&loops::loads(code(Operation::Load, width)?, width, access))
    }

    pub(super) fn streams(
        width: Width,
        blocks: (usize, usize),
        (stores, ahead): (Stores, usize),
    ) -> Result<Pages, MeasureError> {
        let store = match stores {
            Stores::Ordinary => code(Operation::Store, width)?,
            Stores::NonTemporal => loops::streaming_store(width),
        };
        Pages::new(&loops::streams((code(Operation::Load, width)?, store), width, blocks, (stores, ahead)))
    }

    pub(super) fn chase() -> Result<Pages, MeasureError> {
        Pages::new(&loops::chase())
    }

    /// The loop.
    fn entry(&self) -> Entry {
        // SAFETY: the pages hold a whole function of this type from their first byte on, written by `emit/loops.rs`.
        unsafe { std::mem::transmute::<*const u8, Entry>(self.0.as_ptr()) }
    }

    /// Of [`Pages::repeated`].
    pub(super) fn over_lines(&self, place: &mut [u8; REPEATS * LINE], turns: usize) {
        assert!(turns > 0, "the loop counts down to 0");
        // SAFETY: the constructor checked that the CPU has the instructions. Loads and stores go to the first
        // register's width of each of the REPEATS lines of `place`, which is borrowed exclusively and aligned; no
        // callee-saved register is written.
        unsafe { self.entry()(place.as_mut_ptr(), 0, turns) };
    }

    /// Of [`Pages::loads`].
    pub(super) fn over_buffer(&self, buffer: &[u8], unit: usize, passes: usize) {
        assert!(passes > 0, "the loop counts down to 0");
        assert!(!buffer.is_empty() && buffer.len().is_multiple_of(unit), "the loop runs whole iterations");
        // SAFETY: the CPU has the instructions. Loads stay within `buffer`, whose length is a multiple of the bytes per
        // iteration, as asserted; prefetches beyond it have no effect.
        unsafe { self.entry()(buffer.as_ptr(), buffer.len(), passes) };
    }

    /// Of [`Pages::streams`]; the caller has compared the number of blocks.
    pub(super) fn over_blocks(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], bytes: usize) {
        assert!(bytes > 0 && bytes.is_multiple_of(LINE), "the loop takes whole lines");
        let outputs = outputs.iter_mut().map(|block| {
            assert!(block.len() == bytes && block.as_ptr().addr().is_multiple_of(LINE), "outputs are lines");
            block.as_mut_ptr().cast_const()
        });
        let inputs = inputs.iter().map(|block| {
            assert_eq!(block.len(), bytes, "inputs are as long as outputs");
            block.as_ptr()
        });
        let blocks: Vec<*const u8> = inputs.chain(outputs).collect();
        // SAFETY: the CPU has the instructions. `blocks` are as many as the loop expects, inputs first; each is `bytes`
        // long, a multiple of a line, and outputs are borrowed exclusively and aligned.
        unsafe { self.entry()(blocks.as_ptr().cast(), bytes, 0) };
    }

    /// Of [`Pages::chase`].
    pub(super) fn around(&self, ring: &mut Ring, turns: usize) {
        assert!(turns > 0, "the loop counts down to 0");
        // SAFETY: every element of the ring holds the address of another one, within memory that the ring owns.
        ring.at = unsafe { self.entry()(ring.at.cast(), 0, turns) }.cast();
    }
}

impl Pages {
    /// A ring through elements at multiples of `stride` words, in this order; there is at least one.
    pub(super) fn ring(&self, bytes: usize, order: &[usize], stride: usize) -> Ring {
        let mut words = vec![std::ptr::null::<u8>(); bytes / size_of::<usize>()];
        let base: *const *const u8 = words.as_ptr();
        for (index, stop) in order.iter().enumerate() {
            let next = order[(index + 1) % order.len()] * stride;
            assert!(next < words.len(), "stops are within the words");
            words[stop * stride] = base.wrapping_add(next).cast();
        }
        let at = base.wrapping_add(order[0] * stride);
        Ring { _words: words, at, stops: order.len() }
    }

    pub(super) fn stops(&self, ring: &Ring) -> usize {
        ring.stops
    }
}

/// Memory of a ring: each element holds the address of the next one.
#[derive(Debug)]
pub(super) struct Ring {
    /// Never moved or written after creation, so the addresses stay valid.
    _words: Vec<*const u8>,
    at: *const *const u8,
    stops: usize,
}

// SAFETY: only the ring refers to its memory, and following it requires exclusive access.
unsafe impl Send for Ring {}

impl Ring {
    /// Index of the word that the next load reads.
    #[cfg(test)]
    pub(super) fn place(&self) -> usize {
        (self.at.addr() - self._words.as_ptr().addr()) / size_of::<usize>()
    }
}
