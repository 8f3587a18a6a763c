//! Corruption of blocks in files that programs write: programs read what they wrote, and corruption is never encoded.

use super::disks::repair_all;
use super::fixture::{Fixture, Mount, TestRng, can_mount, drop_caches};
use gabion_vault::catalogue::State;
use rustix::fs::FallocateFlags;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 4096;

/// Every data block of a stripe of 3+3 may be lost at once.
fn fixture() -> Fixture {
    Fixture::new(7, 3, 3, BLOCK)
}

/// Spoils bytes of a file where they lie, unless they are behind its end.
fn rot(fixture: &Fixture, name: &str, range: Range<u64>) {
    let stub = fixture.pool().stub(name.as_bytes()).unwrap();
    for piece in stub.pieces(range.start..range.end.min(stub.size)) {
        let number: usize = stub.targets[piece.column][1..].parse().unwrap();
        let object = format!("{}.{}", stub.id, piece.column);
        let object = fixture.target(number).join("objects").join(&object[..2]).join(object);
        let object = File::options().read(true).write(true).open(object).unwrap();
        let mut bytes = vec![0; piece.bytes as usize];
        object.read_exact_at(&mut bytes, piece.offset).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        object.write_all_at(&bytes, piece.offset).unwrap();
    }
}

/// Protects what rests, as who mounts does: he knows what was written.
fn protect(mount: &Mount, fixture: &Fixture) {
    mount.until_closed();
    let report = mount.protect(fixture);
    assert_eq!((report.done.failures, report.pending), (0, 0), "{report:?}");
    assert_eq!(report.done.unrecoverable, []);
}

/// The file as it lies on the targets.
fn stored(fixture: &Fixture) -> Vec<u8> {
    let mut content = Vec::new();
    fixture.pool().get(b"file", &mut content).unwrap();
    content
}

/// What a program does to a file after a part of it rotted.
type Work = fn(&File, &mut Vec<u8>);

fn write(file: &File, content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    file.write_all_at(bytes, at as u64).unwrap();
    content.resize(content.len().max(at + bytes.len()), 0);
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn corruption_beside_written_bytes_is_repaired() {
    if !can_mount("corruption_beside_written_bytes_is_repaired") {
        return;
    }
    let cases: [(&str, Range<u64>, Work); 9] = [
        ("in another stripe", 20_000..20_500, |file, content| write(file, content, 100, &[1; 300])),
        ("in the stripe", 5_000..5_100, |file, content| write(file, content, 100, &[1; 300])),
        ("in the block, before", 10..60, |file, content| write(file, content, 100, &[1; 300])),
        ("in the block, behind", 4_000..4_010, |file, content| write(file, content, 100, &[1; 300])),
        ("in both blocks of an edge", 4_000..9_000, |file, content| write(file, content, 4_090, &[1; 20])),
        ("in the last block", 49_200..49_300, |file, content| write(file, content, 50_000, &[1; 30_000])),
        ("beside a hole", 4_200..4_300, |file, content| {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, how, 5_000, 10_000).unwrap();
            content[5_000..15_000].fill(0);
        }),
        ("before the new end", 8_200..8_210, |file, content| {
            file.set_len(9_000).unwrap();
            content.truncate(9_000);
        }),
        ("at the end, which moves", 49_200..49_300, |file, content| {
            file.set_len(100_000).unwrap();
            content.resize(100_000, 0);
        }),
    ];
    for (case, (what, range, work)) in cases.into_iter().enumerate() {
        let fixture = fixture();
        let mount = fixture.mount();
        let mut content = TestRng(case as u64 + 1).bytes(50_000);
        fs::write(mount.path("file"), &content).unwrap();
        protect(&mount, &fixture);
        rot(&fixture, "file", range.clone());
        let file = File::options().read(true).write(true).open(mount.path("file")).unwrap();
        work(&file, &mut content);
        drop(file);
        protect(&mount, &fixture);
        gabion_testkit::until(&format!("{what}: the log tells of it"), || mount.degraded() > 0);
        drop_caches();
        assert!(fs::read(mount.path("file")).unwrap() == content, "{what}: through the mount");
        mount.unmount();
        assert!(stored(&fixture) == content, "{what}: in the objects");
        fixture.assert_converges();
    }
}

/// Who has a file open to write to it reads what was protected, too.
#[test]
fn writers_are_given_no_rot() {
    if !can_mount("writers_are_given_no_rot") {
        return;
    }
    let fixture = fixture();
    let mount = fixture.mount();
    let mut content = TestRng(9).bytes(50_000);
    fs::write(mount.path("file"), &content).unwrap();
    protect(&mount, &fixture);
    let file = File::options().read(true).write(true).open(mount.path("file")).unwrap();
    write(&file, &mut content, 30_000, &[7; 100]);
    rot(&fixture, "file", 4_200..13_000);
    drop_caches();
    let mut found = vec![0; content.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == content, "while it is written");
    drop(file);
    protect(&mount, &fixture);
    mount.unmount();
    assert!(stored(&fixture) == content);
    fixture.assert_converges();
}

/// One redundancy block cannot bring back a block that rotted and the one that was written beside it: that is said.
#[test]
fn unrecoverable_damage_is_reported() {
    if !can_mount("unrecoverable_damage_is_reported") {
        return;
    }
    let fixture = Fixture::new(5, 3, 1, BLOCK);
    let mount = fixture.mount();
    let content = TestRng(11).bytes(50_000);
    fs::write(mount.path("file"), &content).unwrap();
    protect(&mount, &fixture);
    rot(&fixture, "file", 4_200..4_300);
    let file = File::options().write(true).open(mount.path("file")).unwrap();
    file.write_all_at(&[1; BLOCK as usize], 0).unwrap();
    drop(file);
    mount.until_closed();
    let report = mount.protect(&fixture);
    let second = BLOCK..2 * BLOCK;
    assert_eq!(report.done.unrecoverable, [(b"file".to_vec(), vec![second])], "{report:?}");
    assert_eq!(report.affected, [(State::Damaged, 1)]);
    // Who writes it anew has it whole.
    let file = File::options().write(true).open(mount.path("file")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    drop(file);
    protect(&mount, &fixture);
    mount.unmount();
    assert!(stored(&fixture) == content);
    fixture.assert_converges();
}

/// A program writes, cuts and reads by chance, and blocks rot by chance.
#[test]
fn programs_that_write_during_corruption_keep_their_data() {
    if !can_mount("programs_that_write_during_corruption_keep_their_data") {
        return;
    }
    for seed in 1..=4 {
        let mut chance = TestRng(seed);
        let fixture = fixture();
        let mount = fixture.mount();
        let mut content = chance.bytes(90_000);
        fs::write(mount.path("file"), &content).unwrap();
        protect(&mount, &fixture);
        // What was written and is not protected yet rots for good.
        let mut written: BTreeSet<u64> = BTreeSet::new();
        for round in 0..12 {
            let file = File::options().read(true).write(true).open(mount.path("file")).unwrap();
            let block = chance.below(content.len() as u64 / BLOCK);
            let start = block * BLOCK + chance.below(BLOCK - 200);
            if !written.contains(&block) {
                rot(&fixture, "file", start..start + 1 + chance.below(199));
            }
            for _ in 0..1 + chance.below(6) {
                let at = chance.below(content.len() as u64) as usize;
                match chance.below(8) {
                    0 => {
                        let size = content.len() - (content.len() / 4).min(at);
                        file.set_len(size as u64).unwrap();
                        written.extend(size as u64 / BLOCK..=content.len() as u64 / BLOCK);
                        content.truncate(size);
                    }
                    1 => {
                        drop_caches();
                        let mut found = vec![0; content.len() - at];
                        file.read_exact_at(&mut found, at as u64).unwrap();
                        assert!(found == content[at..], "seed {seed}, round {round}: read at {at}");
                    }
                    _ => {
                        let count = 1 + chance.below(9_000) as usize;
                        let bytes = chance.bytes(count);
                        written.extend(at as u64 / BLOCK..=(at + count) as u64 / BLOCK);
                        write(&file, &mut content, at, &bytes);
                    }
                }
            }
            drop(file);
            if chance.below(2) == 0 {
                protect(&mount, &fixture);
                written.clear();
            }
        }
        protect(&mount, &fixture);
        drop_caches();
        assert!(fs::read(mount.path("file")).unwrap() == content, "seed {seed}");
        mount.unmount();
        // What rotted last, in a file that nobody wrote to since.
        repair_all(&fixture);
        assert!(stored(&fixture) == content, "seed {seed}: in the objects");
        fixture.assert_converges();
    }
}
