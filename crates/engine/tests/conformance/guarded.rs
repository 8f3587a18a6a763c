//! Buffers that end, or begin, at a page nobody may touch: a kernel that reads or writes one byte
//! too far dies.

use gabion_engine::conformance::Buffers;

/// Which side of the buffer is guarded to the byte; the other side is, to the page.
#[derive(Clone, Copy)]
pub(crate) enum Edge {
    /// The byte after the buffer is not accessible.
    End,
    /// The byte before the buffer is not accessible.
    Start,
}

/// Hands out guarded blocks.
pub(crate) struct Guarded(pub(crate) Edge);

impl Buffers for Guarded {
    type Block = GuardedBlock;

    fn block(&mut self, len: usize) -> GuardedBlock {
        GuardedBlock::new(len, self.0)
    }
}

/// Memory of its own between two pages without access.
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
        // SAFETY: a fresh anonymous mapping; its inner pages are opened for access, the outer ones
        // stay closed.
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
        // SAFETY: the mapping is ours and nothing borrows it any more.
        let unmapped = unsafe { libc::munmap(self.mapping, self.mapped) };
        assert_eq!(unmapped, 0, "munmap");
    }
}
