//! Pieces of a file seen where the system keeps them in memory, without a copy.
//!
//! A [`Window`] is a range of addresses in which pieces of a file are mapped, one behind the other, and later others.
//! A page that cannot be had, since the file was cut short or its medium fails, would end the process by `SIGBUS`. In a
//! window zeros take the place of such a page, and it says so ([`Window::is_whole`]): whoever used the pieces reads
//! the file then to learn why. A `SIGBUS` from anywhere else goes to whoever handled it before.
//!
//! 1. One call lets go of all pieces before others are mapped: each call that takes pages away interrupts the other threads.
//! 2. Pages are mapped as they are touched. That is as fast as asking for them all, and other threads can map meanwhile.
//! 3. Pieces of 2 MiB and more lie as far behind a multiple of 2 MiB as in the file, so that pages of that size, in which today's
//!    file systems keep what is read and written in large pieces, are mapped by one touch each instead of 512.

use crate::mapping::{self, LARGE_PAGE, map, page_bytes};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Windows that can be open at once, some for each thread of a large machine; more are refused.
const MAX_WINDOWS: usize = 1024;

/// Addresses of a window: what it can show at once. All have the same number, so that one word tells the handler of `SIGBUS`, at any
/// moment, which are a window's.
const ROOM: usize = 64 << 20;

/// What the handler of `SIGBUS` knows of a window. It may look at any time, so these stay where they are.
struct Watched {
    taken: AtomicBool,
    /// Where its addresses begin; 0 while it has none.
    start: AtomicUsize,
    lacks_pages: AtomicBool,
}

static WATCHED: [Watched; MAX_WINDOWS] = [const {
    Watched { taken: AtomicBool::new(false), start: AtomicUsize::new(0), lacks_pages: AtomicBool::new(false) }
}; MAX_WINDOWS];

impl Watched {
    /// Where its addresses begin, if it has any.
    fn start(&self) -> Option<usize> {
        Some(self.start.load(Ordering::Acquire)).filter(|&start| start != 0)
    }

    fn has(&self, address: usize) -> bool {
        self.start().is_some_and(|start| (start..start + ROOM).contains(&address))
    }
}

/// Addresses at which pieces of a file can be seen.
#[derive(Debug)]
pub struct Window {
    watched: &'static Watched,
    /// Where each piece is.
    pieces: Vec<Range<usize>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x?}", self.start())
    }
}

impl Window {
    /// A window that shows nothing yet.
    ///
    /// # Errors
    /// There are too many, or the operating system refuses.
    pub fn new() -> io::Result<Window> {
        handle_bus_errors()?;
        let is_free = |watched: &&Watched| {
            watched.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let watched = WATCHED.iter().find(is_free);
        let watched = watched.ok_or_else(|| io::Error::other(format!("more than {MAX_WINDOWS} windows")))?;
        Ok(Window { watched, pieces: Vec::new() })
    }

    /// Shows these pieces of `file`, in bytes of it, instead of what was shown before.
    ///
    /// # Errors
    /// Pieces without bytes, none at all, and more than fit: 32 MiB in up to 16 pieces always do; what the operating system says, above all of files that cannot be mapped. Nothing is
    /// shown then.
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
            // SAFETY: within the window's addresses, since no place ends behind them; no slice of them is left: the window is borrowed
            // exclusively.
            let mapped = unsafe { map(at, bytes, libc::PROT_READ, flags, file.as_raw_fd(), offset) };
            mapped.inspect_err(|_| self.abandon())?;
        }
        self.pieces = places.into_iter().map(|place| start + place.start..start + place.end).collect();
        Ok(())
    }

    /// The bytes of a piece that is shown. Whoever writes to the file changes them, at any moment: two looks at a byte may differ.
    ///
    /// # Panics
    /// There is no such piece.
    pub fn piece(&self, index: usize) -> &[u8] {
        let piece = &self.pieces[index];
        // SAFETY: mapped by `show` and readable until the window is borrowed exclusively or dropped; pages that cannot be had become
        // zeros. What others write to the file meanwhile is bytes as good as those before: any value is valid.
        unsafe { std::slice::from_raw_parts(piece.start as *const u8, piece.len()) }
    }

    /// Brings all that is shown into memory. What cannot be had is an error here, and no signal.
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

    /// Shows nothing any more. A file that is shown takes room and keeps its file system busy, also if it is removed and closed.
    ///
    /// # Errors
    /// What the operating system says; the window has other addresses then.
    pub fn clear(&mut self) -> io::Result<()> {
        self.pieces.clear();
        self.let_go().map(drop)
    }

    /// Whether every page that was touched since [`Window::show`] was the file's. Otherwise zeros were seen instead.
    pub fn is_whole(&self) -> bool {
        !self.watched.lacks_pages.load(Ordering::Acquire)
    }

    /// Takes all pages away. Where its addresses begin.
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

    /// A call that failed may have freed addresses, and another thread may have got them: none of them is touched again.
    fn abandon(&self) {
        self.watched.start.store(0, Ordering::Release);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(start) = self.watched.start() {
            // Before they are free, and somebody else's.
            self.watched.start.store(0, Ordering::Release);
            // SAFETY: the addresses are this window's, and no slice of them is left: it is borrowed exclusively.
            let failed = unsafe { libc::munmap(start as *mut libc::c_void, ROOM) };
            debug_assert_eq!(failed, 0, "addresses of a window were not mapped");
        }
        self.watched.taken.store(false, Ordering::Release);
    }
}

/// Where pieces lie in a window that begins at 0: each as far behind the beginning of a page as in the file, on pages of its own.
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

/// What handled `SIGBUS` before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Handles `SIGBUS` from now on; called again, it does nothing.
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
        // Known before ours is the one that is called.
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

/// Everything that this calls may be called at any moment: loads, stores and system calls.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gives what belongs to the signal, for as long as this runs.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    if is_fault && WATCHED.iter().any(|watched| watched.has(address) && zeros_at(watched, address)) {
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: what was there before is called as the system would call it, by its flags.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // The process ends when the instruction is tried again, or by the signal that someone sent.
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

/// Puts a page of zeros over the one that cannot be had; false where the system has none.
fn zeros_at(watched: &Watched, address: usize) -> bool {
    let page = page_bytes();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    watched.lacks_pages.store(true, Ordering::Release);
    // SAFETY: the page is a window's, and nothing could be seen at its addresses so far.
    unsafe { map(address - address % page, page, libc::PROT_READ, flags, -1, 0) }.is_ok()
}

#[cfg(test)]
mod tests;
