//! Buffers that end, or start, at an inaccessible page: an access one byte out of bounds ends the test.

use gabion_engine::conformance::Buffers;

/// The side of the buffer that is guarded to the byte; the other side is guarded to the page.
#[derive(Clone, Copy)]
pub(crate) enum Edge {
    /// The byte after the buffer is not accessible.
    End,
    /// The byte before the buffer is not accessible.
    Start,
}

/// Allocates guarded blocks.
pub(crate) struct Guarded(pub(crate) Edge);

impl Buffers for Guarded {
    type Block = GuardedBlock;

    fn block(&mut self, len: usize) -> GuardedBlock {
        GuardedBlock::new(len, self.0)
    }
}

/// A mapping between two inaccessible pages.
#[derive(Debug)]
pub(crate) struct GuardedBlock {
    mapping: *mut libc::c_void,
    mapped: usize,
    start: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl GuardedBlock {
    fn new(len: usize, edge: Edge) -> GuardedBlock {
        let usable = len.next_multiple_of(PAGE).max(PAGE);
        let mapped = usable + 2 * PAGE;
        // SAFETY: a fresh anonymous mapping; its inner pages are made accessible, the outer ones are not.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping = libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED, "mmap of {mapped} bytes");
            let inner = mapping.cast::<u8>().add(PAGE);
            let opened = libc::mprotect(inner.cast(), usable, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(opened, 0, "mprotect of {usable} bytes");
            let start = match edge {
                Edge::End => inner.add(usable - len),
                Edge::Start => inner,
            };
            GuardedBlock { mapping, mapped, start, len }
        }
    }
}

impl AsRef<[u8]> for GuardedBlock {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` initialised (zero or written) bytes of this mapping, which lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl AsMut<[u8]> for GuardedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for GuardedBlock {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value and is no longer borrowed.
        let unmapped = unsafe { libc::munmap(self.mapping, self.mapped) };
        assert_eq!(unmapped, 0, "munmap");
    }
}
