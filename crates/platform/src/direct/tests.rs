use super::Direct;
use crate::memory::Pages;
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

const BYTES: usize = (3 << 20) + 777;

/// A file on the disk that holds the build: other temporary directories may be in memory.
fn file_on_disk() -> (File, Vec<u8>) {
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let content: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    file.write_all(&content).unwrap();
    (file, content)
}

/// `None` only if the file system does not report direct I/O.
fn open_direct(file: &File) -> Option<Direct> {
    let direct = Direct::open(file.as_fd());
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).unwrap();
    assert_eq!(direct.is_some(), stat.stx_dio_offset_align > 0);
    direct
}

#[test]
fn direct_reads_return_the_file_content() {
    let (file, content) = file_on_disk();
    let Some(direct) = open_direct(&file) else { return };
    let mut pages = Pages::new(4 << 20).unwrap();
    for (offset, length) in
        [(0usize, 1 << 20), (1 << 20, 64 << 10), (3 << 20, 1 << 20), (2 << 20, 2 << 20), (4 << 20, 1 << 20)]
    {
        let got = direct.read(&mut pages[..length], offset as u64).unwrap();
        let expected = &content[offset.min(BYTES)..(offset + length).min(BYTES)];
        assert!(pages[..got] == *expected, "{offset} {length}: {got}");
    }
    assert!(direct.read(&mut pages[..1 << 20], 1).is_err());
    assert!(direct.read(&mut pages[1..(1 << 20) + 1], 0).is_err());
}

#[test]
fn only_uncached_clean_ranges_are_read_directly() {
    let (file, _) = file_on_disk();
    let Some(direct) = open_direct(&file) else { return };
    assert!(!direct.is_mostly_uncached(0..1 << 20), "not on the disk yet");
    file.sync_all().unwrap();
    assert!(!direct.is_mostly_uncached(0..1 << 20), "in memory");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(direct.is_mostly_uncached(0..1 << 20));
    assert!(!direct.is_mostly_uncached(1..1 << 20), "no whole units");
    let mut pages = Pages::new(1 << 20).unwrap();
    direct.read(&mut pages[..1 << 20], 0).unwrap();
    assert!(direct.is_mostly_uncached(0..1 << 20), "reading it so leaves nothing in memory");
}
