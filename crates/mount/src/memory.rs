//! Reply buffers: each serving thread has its own and reuses them.

use gabion_platform::memory::Pages;
use gabion_platform::window::Window;
use std::cell::RefCell;

/// Smallest reply for which mapping or direct reads pay: below it a copy costs no more, and read-ahead serves a disk
/// better.
const LARGE: usize = 256 << 10;

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

/// Lends memory in large pages for a reply of `size` bytes, if it is large enough and memory is available.
pub(crate) fn with_pages<T>(size: usize, work: impl FnOnce(&mut [u8]) -> Option<T>) -> Option<T> {
    thread_local!(static PAGES: RefCell<Option<Pages>> = const { RefCell::new(None) });
    if size < LARGE {
        return None;
    }
    PAGES.with_borrow_mut(|place| {
        if place.as_ref().is_none_or(|pages| pages.len() < size) {
            *place = Pages::new(size).ok();
        }
        work(&mut place.as_mut()?[..size])
    })
}

/// Lends a mapping window for a reply of `size` bytes, if it is large enough and a window is available. The window is
/// cleared afterwards.
pub(crate) fn with_window<T>(size: usize, work: impl FnOnce(&mut Window) -> Option<T>) -> Option<T> {
    thread_local!(static WINDOW: RefCell<Option<Window>> = const { RefCell::new(None) });
    if size < LARGE {
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
