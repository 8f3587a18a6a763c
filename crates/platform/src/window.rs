//! Windows: address ranges in which pieces of files are mapped for reading without a copy.
//!
//! A [`Window`] maps pieces of a file one behind the other, and can be mapped again. Access to a page that cannot be
//! loaded, because the file was truncated or the medium fails, would end the process by `SIGBUS`. In a window such a
//! page is replaced by zeros, and [`Window::is_whole`] returns false: the user of the pieces then reads the file to
//! learn the error. A `SIGBUS` from any other address goes to the previous handler.
//!
//! 1. One call unmaps all pieces before others are mapped: each call that removes pages interrupts the other threads.
//! 2. Pages are mapped as they are touched. That is as fast as populating them all, and other threads can map
//!    meanwhile.
//! 3. Pieces of 2 MiB and more have the same offset from a multiple of 2 MiB as in the file, so that huge pages of the
//!    page cache are mapped by one fault each instead of 512.

use crate::mapping::{self, LARGE_PAGE, map, page_bytes};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of open windows, some for each thread of a large machine.
const MAX_WINDOWS: usize = 1024;

/// Bytes of address space of a window. All windows have the same size, so that the handler of `SIGBUS` needs only the
/// start address, one atomic word.
const ROOM: usize = 64 << 20;

/// State of a window for the handler of `SIGBUS`. It may run at any time, so these values are static.
struct Watched {
    taken: AtomicBool,
    /// Start of its addresses; 0 while it has none.
    start: AtomicUsize,
    lacks_pages: AtomicBool,
}

static WATCHED: [Watched; MAX_WINDOWS] = [const {
    Watched { taken: AtomicBool::new(false), start: AtomicUsize::new(0), lacks_pages: AtomicBool::new(false) }
}; MAX_WINDOWS];

impl Watched {
    /// Start of its addresses, if it has any.
    fn start(&self) -> Option<usize> {
        Some(self.start.load(Ordering::Acquire)).filter(|&start| start != 0)
    }

    fn has(&self, address: usize) -> bool {
        self.start().is_some_and(|start| (start..start + ROOM).contains(&address))
    }
}

/// Pieces of a file, mapped for reading.
#[derive(Debug)]
pub struct Window {
    watched: &'static Watched,
    /// Addresses of each piece.
    pieces: Vec<Range<usize>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x?}", self.start())
    }
}

impl Window {
    /// A window without mapped pieces.
    ///
    /// # Errors
    /// There are too many windows, or the error of the operating system.
    pub fn new() -> io::Result<Window> {
        handle_bus_errors()?;
        let is_free = |watched: &&Watched| {
            watched.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let watched = WATCHED.iter().find(is_free);
        let watched = watched.ok_or_else(|| io::Error::other(format!("more than {MAX_WINDOWS} windows")))?;
        Ok(Window { watched, pieces: Vec::new() })
    }

    /// Maps these byte ranges of `file` in place of the previous pieces.
    ///
    /// # Errors
    /// An empty piece, no pieces, or more than fit (32 MiB in up to 16 pieces always fit); errors of the operating
    /// system, such as for files that cannot be mapped. Nothing is mapped then.
    pub fn show(&mut self, file: &File, pieces: &[Range<u64>]) -> io::Result<()> {
        self.pieces.clear();
        let page = page_bytes();
        let places = places(pieces, page).ok_or(io::ErrorKind::InvalidInput)?;
        if places.last().is_none_or(|last| last.end > ROOM) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = self.let_go()?;
        for (piece, place) in pieces.iter().zip(&places) {
            let lead = place.start % page;
            let offset = i64::try_from(piece.start).map_err(|_| io::ErrorKind::InvalidInput)? - lead as i64;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let (at, bytes) = (start + place.start - lead, lead + place.len());
            // SAFETY: within the window's addresses, since no piece ends behind them; no slice of them is left: the
            // window is borrowed exclusively.
            let mapped = unsafe { map(at, bytes, libc::PROT_READ, flags, file.as_raw_fd(), offset) };
            mapped.inspect_err(|_| self.abandon())?;
        }
        self.pieces = places.into_iter().map(|place| start + place.start..start + place.end).collect();
        Ok(())
    }

    /// The bytes of a mapped piece. Writers of the file change them at any moment: two reads of a byte may differ.
    ///
    /// # Panics
    /// There is no such piece.
    pub fn piece(&self, index: usize) -> &[u8] {
        let piece = &self.pieces[index];
        // SAFETY: mapped by `show` and readable until the window is borrowed exclusively or dropped; pages that cannot
        // be loaded became zeros. Concurrent writers of the file change bytes, and every value of a byte is valid.
        unsafe { std::slice::from_raw_parts(piece.start as *const u8, piece.len()) }
    }

    /// Loads all mapped pages into memory. A page that cannot be loaded is an error here, not a signal.
    ///
    /// # Errors
    /// Pages that cannot be read or lie behind the end of the file; systems before Linux 5.14.
    pub fn populate(&self) -> io::Result<()> {
        let page = page_bytes();
        self.pieces.iter().try_for_each(|piece| {
            let (start, bytes) = (piece.start - piece.start % page, piece.start % page + piece.len());
            // SAFETY: the pages are this window's, and only read.
            let failed =
                unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_POPULATE_READ) };
            if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }

    /// Unmaps all pieces. A mapped file takes disk space and keeps its file system busy even after it was removed and
    /// closed.
    ///
    /// # Errors
    /// The error of the operating system; the window gets other addresses then.
    pub fn clear(&mut self) -> io::Result<()> {
        self.pieces.clear();
        self.let_go().map(drop)
    }

    /// True if every page that was accessed since [`Window::show`] came from the file. Otherwise zeros were read
    /// instead.
    pub fn is_whole(&self) -> bool {
        !self.watched.lacks_pages.load(Ordering::Acquire)
    }

    /// Unmaps all pages. Returns the start of the addresses.
    fn let_go(&mut self) -> io::Result<usize> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = match self.watched.start() {
            Some(start) => {
                // SAFETY: the addresses are this window's, and no slice of them is left: it is borrowed exclusively.
                let reserved = unsafe { map(start, ROOM, libc::PROT_NONE, flags | libc::MAP_FIXED, -1, 0) };
                reserved.inspect_err(|_| self.abandon())?
            }
            None => {
                let start = mapping::reserve(ROOM, libc::PROT_NONE, flags)?;
                self.watched.start.store(start, Ordering::Release);
                start
            }
        };
        self.watched.lacks_pages.store(false, Ordering::Release);
        Ok(start)
    }

    /// A failed call may have freed addresses, which another thread may have received: none of them is used again.
    fn abandon(&self) {
        self.watched.start.store(0, Ordering::Release);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(start) = self.watched.start() {
            // Before the addresses are free and may be given to another owner.
            self.watched.start.store(0, Ordering::Release);
            // SAFETY: the addresses are this window's, and no slice of them is left: it is borrowed exclusively.
            let failed = unsafe { libc::munmap(start as *mut libc::c_void, ROOM) };
            debug_assert_eq!(failed, 0, "addresses of a window were not mapped");
        }
        self.watched.taken.store(false, Ordering::Release);
    }
}

/// Addresses of pieces in a window that begins at 0: each has the same offset in its page as in the file, and pages of
/// its own.
fn places(pieces: &[Range<u64>], page: usize) -> Option<Vec<Range<usize>>> {
    let mut end = 0usize;
    let place = |piece: &Range<u64>| {
        let bytes = usize::try_from(piece.end.checked_sub(piece.start)?).ok().filter(|&bytes| bytes > 0)?;
        let unit = if bytes < LARGE_PAGE { page } else { LARGE_PAGE };
        let start = end.checked_next_multiple_of(unit)?.checked_add((piece.start % unit as u64) as usize)?;
        let place = start..start.checked_add(bytes)?;
        end = place.end.checked_next_multiple_of(page)?;
        Some(place)
    };
    pieces.iter().map(place).collect()
}

/// Previous handler of `SIGBUS`.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler of `SIGBUS`, once.
fn handle_bus_errors() -> io::Result<()> {
    static HANDLED: Mutex<bool> = Mutex::new(false);
    let mut handled = HANDLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *handled {
        return Ok(());
    }
    // SAFETY: all zeros is a valid action; the pointers are to it, or null where nothing is to be changed or told.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Stored before the new handler can be called.
        BEFORE.get_or_init(|| before);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *handled = true;
    Ok(())
}

/// Signal handler: uses only loads, stores and async-signal-safe system calls.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` for the duration of the call.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    if is_fault && WATCHED.iter().any(|watched| watched.has(address) && zeros_at(watched, address)) {
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: the previous handler is called as the kernel would call it, by its flags.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // The process ends when the instruction is retried, or by raising a signal that was sent.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(libc::SIGBUS, &raw const default, ptr::null_mut());
                if !is_fault {
                    libc::raise(libc::SIGBUS);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

/// Maps a page of zeros over the page that cannot be loaded; false if that fails.
fn zeros_at(watched: &Watched, address: usize) -> bool {
    let page = page_bytes();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    watched.lacks_pages.store(true, Ordering::Release);
    // SAFETY: the page belongs to a window, and nothing was readable at its addresses so far.
    unsafe { map(address - address % page, page, libc::PROT_READ, flags, -1, 0) }.is_ok()
}

#[cfg(test)]
mod tests;
