use super::{LARGE_PAGE, ROOM, Window, page_bytes};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// A file in which every 8 bytes hold their own offset.
fn numbered(bytes: u64) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..bytes / 8).flat_map(u64::to_le_bytes).collect();
    file.write_all(&content).unwrap();
    file
}

fn is_numbered(bytes: &[u8], start: u64) -> bool {
    let numbers = bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap()));
    numbers.eq((start / 8..).take(bytes.len() / 8))
}

fn show_one(window: &mut Window, file: &File, piece: Range<u64>) -> io::Result<()> {
    window.show(file, &[piece])
}

#[test]
fn pieces_at_any_offset_are_mapped_and_remapped() {
    let file = numbered(1 << 20);
    let mut window = Window::new().unwrap();
    for pieces in [
        vec![0..4096u64, 8192..20_480],
        vec![64..128, 4032..4160, 500_000..700_000, 1_000_000..1 << 20],
        vec![80_000..80_008, 0..8],
    ] {
        window.show(&file, &pieces).unwrap();
        for (at, piece) in pieces.iter().enumerate() {
            assert_eq!(window.piece(at).len() as u64, piece.end - piece.start);
            assert!(is_numbered(window.piece(at), piece.start), "{piece:?}");
        }
        assert!(window.is_whole());
    }
}

/// Huge pages are mapped as one only if their addresses have the alignment of their file offsets.
#[test]
fn long_pieces_are_aligned_to_huge_pages() {
    let large = LARGE_PAGE as u64;
    let file = numbered(4 * large);
    let mut window = Window::new().unwrap();
    let pieces = [4096..8192, large..2 * large, 8200..large + 8200, 2 * large + 4096..4 * large];
    window.show(&file, &pieces).unwrap();
    for (at, piece) in pieces.iter().enumerate() {
        let shown = window.piece(at);
        assert!(is_numbered(shown, piece.start), "{piece:?}");
        if shown.len() >= LARGE_PAGE {
            assert_eq!(shown.as_ptr().addr() as u64 % large, piece.start % large, "{piece:?}");
        }
    }
    // The maximum of 16 pieces, none of which is aligned to a huge page.
    let most: Vec<_> = (0..16).map(|_| 64..large + 64).collect();
    window.show(&file, &most).unwrap();
    assert!((0..16).all(|at| is_numbered(window.piece(at), 64)));
    assert!(window.is_whole());
}

#[test]
fn invalid_pieces_are_refused_and_nothing_stays_mapped() {
    let file = numbered(8192);
    let mut window = Window::new().unwrap();
    assert!(window.show(&file, &[]).is_err());
    show_one(&mut window, &file, 0..8192).unwrap();
    assert!(window.show(&file, &[]).is_err());
    let (pipe, _other_end) = std::io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
    assert!(show_one(&mut window, &pipe, 0..4096).is_err());
    for pieces in [0..0, 0..ROOM as u64 + 1, 0..u64::MAX, u64::MAX - 4095..u64::MAX] {
        assert!(show_one(&mut window, &file, pieces.clone()).is_err(), "{pieces:?}");
        assert!(std::panic::catch_unwind(|| window.piece(0).len()).is_err());
    }
    show_one(&mut window, &file, 0..8192).unwrap();
    assert!(is_numbered(window.piece(0), 0) && window.is_whole());
}

#[test]
fn populate_loads_pages_or_fails() {
    let page = page_bytes() as u64;
    let file = numbered(16 * page);
    let mut window = Window::new().unwrap();
    window.show(&file, &[8..3 * page, 5 * page + 64..16 * page]).unwrap();
    window.populate().unwrap();
    assert!(is_numbered(window.piece(0), 8) && is_numbered(window.piece(1), 5 * page + 64));
    file.set_len(7 * page).unwrap();
    assert!(window.populate().is_err());
    assert!(window.is_whole(), "nobody has touched what is missing");
}

/// A removed file takes disk space as long as a window maps it.
#[test]
fn a_removed_file_is_released_by_clear() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(file.path().to_str().unwrap())
    };
    let mut window = Window::new().unwrap();
    show_one(&mut window, file.as_file(), 0..1 << 20).unwrap();
    assert!(is_mapped());
    window.clear().unwrap();
    assert!(!is_mapped());
    assert!(std::panic::catch_unwind(|| window.piece(0).len()).is_err());
    show_one(&mut window, file.as_file(), 0..1 << 20).unwrap();
    assert!(window.piece(0).iter().all(|&byte| byte == 0));
}

/// Truncation of a mapped file once ended the process.
#[test]
fn missing_pages_read_as_zeros_and_are_reported() {
    let page = page_bytes() as u64;
    let file = numbered(8 * page);
    let mut window = Window::new().unwrap();
    window.show(&file, &[0..2 * page, 4 * page + 8..8 * page]).unwrap();
    assert!(is_numbered(window.piece(0), 0) && is_numbered(window.piece(1), 4 * page + 8));
    file.set_len(5 * page).unwrap();
    assert!(is_numbered(window.piece(0), 0) && window.is_whole());
    let (there, gone) = window.piece(1).split_at(page as usize - 8);
    assert!(is_numbered(there, 4 * page + 8) && window.is_whole());
    assert!(gone.iter().all(|&byte| byte == 0) && !window.is_whole());
    // The next mapping starts with a clean state, here and elsewhere.
    show_one(&mut window, &file, 0..5 * page).unwrap();
    assert!(is_numbered(window.piece(0), 0) && window.is_whole());
}

#[test]
fn windows_of_many_threads_are_independent() {
    let (whole, short) = (numbered(1 << 16), numbered(1 << 16));
    short.set_len(0).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let file = if number % 2 == 0 { &whole } else { &short };
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut window = Window::new().unwrap();
                    show_one(&mut window, file, 0..1 << 16).unwrap();
                    let seen = is_numbered(window.piece(0), 0);
                    assert_eq!((seen, window.is_whole()), (number % 2 == 0, number % 2 == 0));
                }
            });
        }
    });
}

/// Exit status of a child that runs `does` and then exits with 7. It may only access memory and make system calls.
fn child_that(does: impl FnOnce()) -> i32 {
    // SAFETY: the child does only what is safe after a fork in a threaded process, and ends without running
    // destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        does();
        // SAFETY: the call takes no pointer and does not return.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to an integer that outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Faults outside windows, and a sent `SIGBUS`, end the process as they do without windows.
#[test]
fn other_bus_errors_end_the_process() {
    let page = page_bytes();
    let (file, short) = (numbered(4096), numbered(4096));
    short.set_len(0).unwrap();
    let mut window = Window::new().unwrap();
    show_one(&mut window, &short, 0..4096).unwrap();
    let flags = libc::MAP_SHARED;
    // SAFETY: the kernel chooses unused addresses.
    let elsewhere =
        unsafe { libc::mmap(std::ptr::null_mut(), page, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_ne!(elsewhere, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    let in_window = child_that(|| {
        std::hint::black_box(window.piece(0)[0]);
    });
    assert!(libc::WIFEXITED(in_window) && libc::WEXITSTATUS(in_window) == 7, "{in_window:#x}");
    let outside = child_that(|| {
        // SAFETY: mapped above; the read ends the child.
        let _ = unsafe { elsewhere.cast::<u8>().read_volatile() };
    });
    assert!(libc::WIFSIGNALED(outside) && libc::WTERMSIG(outside) == libc::SIGBUS, "{outside:#x}");
    // The handler of the standard library ignores the first signal.
    let sent = child_that(|| {
        for _ in 0..2 {
            // SAFETY: the call takes no pointer.
            let _ = unsafe { libc::raise(libc::SIGBUS) };
        }
    });
    assert!(libc::WIFSIGNALED(sent) && libc::WTERMSIG(sent) == libc::SIGBUS, "{sent:#x}");
    // SAFETY: mapped above and no longer used.
    assert_eq!(unsafe { libc::munmap(elsewhere, page) }, 0);
}
