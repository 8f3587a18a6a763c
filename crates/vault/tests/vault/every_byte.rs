//! Every byte of a redundancy file matters: any changed byte, truncation or extension is found by a scrub, and the file
//! is complete after repair.

use super::fixture::{Fixture, TestRng};
use gabion_testkit::rounds;
use gabion_vault::catalogue::State;

/// Replaces the redundancy of `name` by `bytes`; expects that a scrub finds it and that repair and protect fix it.
fn is_found_and_repaired(fixture: &Fixture, name: &str, bytes: &[u8], what: &str) {
    let content = fixture.read(name);
    std::fs::write(fixture.redundancy(name), bytes).unwrap();
    assert_ne!(fixture.state(name), State::Protected, "{name}: {what}");
    fixture.repair(name);
    // Redundancy without a valid header is made again.
    fixture.protect_all();
    assert_eq!(fixture.state(name), State::Protected, "{name}: {what}");
    assert!(fixture.read(name) == content, "{name}: {what}");
}

/// All positions of a small file with `GABION_ROUNDS=all`, otherwise a sample; of a large file both ends and a sample.
fn positions(length: usize, rng: &mut TestRng) -> Vec<usize> {
    match length {
        ..=1000 => {
            let step = length.div_ceil(rounds(length).max(1)).max(1);
            (rng.below(step as u64) as usize..length).step_by(step).collect()
        }
        _ => {
            let some = (0..30).map(|_| rng.below(length as u64) as usize);
            [0, 1, 255, 256, length - 257, length - 256, length - 1].into_iter().chain(some).collect()
        }
    }
}

/// Regression: the first half of an empty file's redundancy is a complete header, and was accepted as the whole file.
#[test]
fn no_byte_of_redundancy_changes_unseen() {
    let mut rng = TestRng(1);
    for size in [0, 1, 2048, 300_000, 20 << 20] {
        let fixture = Fixture::new("4+2");
        fixture.write("file", &rng.bytes(size));
        fixture.protect_all();
        let mut pristine = std::fs::read(fixture.redundancy("file")).unwrap();
        for at in positions(pristine.len(), &mut rng) {
            let mut bytes = pristine.clone();
            bytes[at] ^= 1 << rng.below(8);
            is_found_and_repaired(&fixture, "file", &bytes, &format!("byte {at} of {size} flipped"));
            assert!(std::fs::read(fixture.redundancy("file")).unwrap() == pristine, "byte {at}");
        }
        for length in positions(pristine.len(), &mut rng) {
            is_found_and_repaired(&fixture, "file", &pristine[..length], &format!("cut to {length} bytes"));
            pristine = std::fs::read(fixture.redundancy("file")).unwrap();
        }
        let (header, whole) = (pristine[..256].to_vec(), pristine.clone());
        for more in [&[0][..], &[7; 100], &header, &whole] {
            let longer = [&pristine[..], more].concat();
            is_found_and_repaired(&fixture, "file", &longer, &format!("{} bytes more", more.len()));
            pristine = std::fs::read(fixture.redundancy("file")).unwrap();
        }
    }
}
