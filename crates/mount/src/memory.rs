//! Memory that answers are made in: each thread that serves has its own, and uses it again and again.

use gabion_platform::window::Window;
use std::cell::RefCell;

/// What is read in pieces of at least this size is shown to the kernel where it is. For less, a copy costs no more than mapping.
const SHOWN: usize = 256 << 10;

/// Lends a buffer of `size` bytes.
pub(crate) fn with_buffer<T>(size: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        work(&mut buffer[..size])
    })
}

/// Lends a window for an answer of `size` bytes, if that is worth it and one is to be had. It holds no file afterwards.
pub(crate) fn with_window<T>(size: usize, work: impl FnOnce(&mut Window) -> Option<T>) -> Option<T> {
    thread_local!(static WINDOW: RefCell<Option<Window>> = const { RefCell::new(None) });
    if size < SHOWN {
        return None;
    }
    WINDOW.with_borrow_mut(|place| {
        if place.is_none() {
            *place = Window::new().ok();
        }
        let window = place.as_mut()?;
        let done = work(window);
        if window.clear().is_err() {
            *place = None;
        }
        done
    })
}
