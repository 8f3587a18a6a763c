//! Files that are on the disk alone are read from there, and are what programs wrote last.

use crate::ground::{Ground, can_mount};
use crate::seed::Seed;
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
    let mut ground = Ground::new();
    let bytes = Seed(21).bytes((8 << 20) + 777);
    std::fs::write(ground.source("file"), &bytes).unwrap();
    let source = File::open(ground.source("file")).unwrap();
    let Some(direct) = Direct::open(source.as_fd()) else {
        return gabion_testkit::skip!(
            "cold files: temporary files are on a file system that is read through memory"
        );
    };
    for more in [&["--no-verify"][..], &[]] {
        ground.mount(more);
        ground.wait_until_protected();
        ground.unmount();
        forget(&source);
        ground.mount(more);
        assert!(std::fs::read(ground.at("file")).unwrap() == bytes);
        assert!(direct.is_mostly_uncached(0..8 << 20), "{more:?}: the source is in memory as well");
        ground.unmount();
    }
}

/// Writes, cuts and large reads by chance, with a memory that forgets.
#[test]
fn mounted_cold_reads_see_every_write() {
    if !can_mount("cold reads") {
        return;
    }
    for number in 1..=2 {
        let mut seed = Seed(number * 31);
        let mut ground = Ground::new();
        let mut expected = seed.bytes(6 << 20);
        std::fs::write(ground.source("file"), &expected).unwrap();
        ground.mount(&[]);
        let source = File::open(ground.source("file")).unwrap();
        let writer = File::options().read(true).write(true).open(ground.at("file")).unwrap();
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
            let reader = File::open(ground.at("file")).unwrap();
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
        ground.wait_until_protected();
        ground.unmount();
        assert!(std::fs::read(ground.source("file")).unwrap() == expected);
        ground.assert_protected();
    }
}
