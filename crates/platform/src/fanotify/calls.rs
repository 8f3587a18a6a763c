//! System calls of fanotify: queues, marks, and file handles.

use super::wire::{self, Handle};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Creates an event queue.
pub(super) fn make_queue(flags: libc::c_uint, file: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and no pointer.
    let made = unsafe { libc::fanotify_init(flags, file) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Changes the mark of a directory, or of the file system that it is on.
pub(super) fn mark(
    queue: &OwnedFd,
    flags: libc::c_uint,
    mask: u64,
    directory: &OwnedFd,
) -> Result<(), Errno> {
    // SAFETY: both descriptors are open for as long as they are borrowed, and a null path means the descriptor itself.
    let marked = unsafe {
        libc::fanotify_mark(queue.as_raw_fd(), flags, mask, directory.as_raw_fd(), std::ptr::null())
    };
    match marked {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
struct FileHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; wire::MAX_HANDLE],
}

/// Opens the directory of a handle on the file system of `root`.
pub(super) fn open_by_handle(root: &OwnedFd, handle: Handle<'_>) -> io::Result<OwnedFd> {
    if handle.bytes.len() > wire::MAX_HANDLE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut given = FileHandle {
        bytes: handle.bytes.len() as libc::c_uint,
        kind: handle.kind,
        handle: [0; wire::MAX_HANDLE],
    };
    given.handle[..handle.bytes.len()].copy_from_slice(handle.bytes);
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the struct begins as the kernel's does, holds as many bytes as it says, and outlives the call; the
    // descriptor is open for as long as it is borrowed.
    let opened =
        unsafe { libc::open_by_handle_at(root.as_raw_fd(), std::ptr::from_mut(&mut given).cast(), flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The handle of an open file or directory: its kind and bytes.
pub(super) fn handle_of(file: &OwnedFd) -> io::Result<(i32, Vec<u8>)> {
    let mut given =
        FileHandle { bytes: wire::MAX_HANDLE as libc::c_uint, kind: 0, handle: [0; wire::MAX_HANDLE] };
    let mut mount = 0;
    // SAFETY: the struct has room for as many bytes as it says, the path is an empty C string, and all of them outlive
    // the call.
    let done = unsafe {
        libc::name_to_handle_at(
            file.as_raw_fd(),
            c"".as_ptr(),
            std::ptr::from_mut(&mut given).cast(),
            &mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = (given.bytes as usize).min(wire::MAX_HANDLE);
    Ok((given.kind, given.handle[..length].to_vec()))
}
