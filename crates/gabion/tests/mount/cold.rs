//! Files that are not in the page cache are read from the disk and return the last written content.

use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use gabion_platform::direct::Direct;
use rustix::fs::Advice;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Has the system forget what it keeps of a file in memory, once it is on the disk.
fn forget(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn mounted_cold_files_are_kept_in_memory_once() {
    if !can_mount("cold files") {
        return;
    }
    let mut fixture = Fixture::new();
    let bytes = TestRng(21).bytes((8 << 20) + 777);
    std::fs::write(fixture.source("file"), &bytes).unwrap();
    let source = File::open(fixture.source("file")).unwrap();
    let Some(direct) = Direct::open(source.as_fd()) else {
        return gabion_testkit::skip!(
            "cold files: temporary files are on a file system that is read through memory"
        );
    };
    for more in [&["--no-verify"][..], &[]] {
        fixture.mount(more);
        fixture.wait_until_protected();
        fixture.unmount();
        forget(&source);
        fixture.mount(more);
        assert!(std::fs::read(fixture.at("file")).unwrap() == bytes);
        assert!(direct.is_mostly_uncached(0..8 << 20), "{more:?}: the source is in memory as well");
        fixture.unmount();
    }
}

/// Writes, cuts and large reads by chance, with a memory that forgets.
#[test]
fn mounted_cold_reads_see_every_write() {
    if !can_mount("cold reads") {
        return;
    }
    for number in 1..=2 {
        let mut seed = TestRng(number * 31);
        let mut fixture = Fixture::new();
        let mut expected = seed.bytes(6 << 20);
        std::fs::write(fixture.source("file"), &expected).unwrap();
        fixture.mount(&[]);
        let source = File::open(fixture.source("file")).unwrap();
        let writer = File::options().read(true).write(true).open(fixture.at("file")).unwrap();
        for step in 0..150 {
            let at = seed.below(7 << 20);
            match seed.below(8) {
                0..=2 => {
                    let count = seed.below(300_000) as usize + 1;
                    let bytes = seed.bytes(count);
                    writer.write_all_at(&bytes, at).unwrap();
                    let end = at as usize + bytes.len();
                    expected.resize(expected.len().max(end), 0);
                    expected[at as usize..end].copy_from_slice(&bytes);
                }
                3 => {
                    writer.set_len(at).unwrap();
                    expected.resize(at as usize, 0);
                }
                4 | 5 => forget(&source),
                6 => forget(&writer),
                _ => {}
            }
            let mut found = vec![0; 2 << 20];
            let start = seed.below(7 << 20) & !4095;
            let reader = File::open(fixture.at("file")).unwrap();
            let mut got = 0;
            while let more @ 1.. = reader.read_at(&mut found[got..], start + got as u64).unwrap() {
                got += more;
            }
            let (start, end) = (start as usize, start as usize + found.len());
            let wanted = &expected[start.min(expected.len())..end.min(expected.len())];
            assert!(
                found[..got] == *wanted,
                "seed {number}, step {step}: {start}, {got} of {}",
                wanted.len()
            );
        }
        drop(writer);
        fixture.wait_until_protected();
        fixture.unmount();
        assert!(std::fs::read(fixture.source("file")).unwrap() == expected);
        fixture.assert_protected();
    }
}
