//! Every byte of a redundancy file counts: whichever one changes, and wherever the file is cut or goes on, scrub says so and the
//! file is whole again afterwards.

use super::playground::{Playground, Seed};
use gabion_testkit::rounds;
use gabion_vault::catalogue::State;

/// Puts `bytes` in place of the redundancy of `name`; expects that scrub finds it, and that repair and protect mend it.
fn is_found_and_mended(ground: &Playground, name: &str, bytes: &[u8], what: &str) {
    let content = ground.read(name);
    std::fs::write(ground.redundancy(name), bytes).unwrap();
    assert_ne!(ground.state(name), State::Protected, "{name}: {what}");
    ground.repair(name);
    // What has no header left is made anew.
    ground.protect_all();
    assert_eq!(ground.state(name), State::Protected, "{name}: {what}");
    assert!(ground.read(name) == content, "{name}: {what}");
}

/// Positions throughout a small file, all of them with `GABION_ROUNDS=all`; of a large one both ends and some in between.
fn positions(length: usize, chance: &mut Seed) -> Vec<usize> {
    match length {
        ..=1000 => {
            let step = length.div_ceil(rounds(length).max(1)).max(1);
            (chance.below(step as u64) as usize..length).step_by(step).collect()
        }
        _ => {
            let some = (0..30).map(|_| chance.below(length as u64) as usize);
            [0, 1, 255, 256, length - 257, length - 256, length - 1].into_iter().chain(some).collect()
        }
    }
}

/// The first half of an empty file's redundancy is a whole header, and its end as well: half of it passed for all of it.
#[test]
fn no_byte_of_redundancy_changes_unseen() {
    let mut chance = Seed(1);
    for size in [0, 1, 2048, 300_000, 20 << 20] {
        let ground = Playground::new("4+2");
        ground.write("file", &chance.bytes(size));
        ground.protect_all();
        let mut pristine = std::fs::read(ground.redundancy("file")).unwrap();
        for at in positions(pristine.len(), &mut chance) {
            let mut bytes = pristine.clone();
            bytes[at] ^= 1 << chance.below(8);
            is_found_and_mended(&ground, "file", &bytes, &format!("byte {at} of {size} flipped"));
            assert!(std::fs::read(ground.redundancy("file")).unwrap() == pristine, "byte {at}");
        }
        for length in positions(pristine.len(), &mut chance) {
            is_found_and_mended(&ground, "file", &pristine[..length], &format!("cut to {length} bytes"));
            pristine = std::fs::read(ground.redundancy("file")).unwrap();
        }
        let (header, whole) = (pristine[..256].to_vec(), pristine.clone());
        for more in [&[0][..], &[7; 100], &header, &whole] {
            let longer = [&pristine[..], more].concat();
            is_found_and_mended(&ground, "file", &longer, &format!("{} bytes more", more.len()));
            pristine = std::fs::read(ground.redundancy("file")).unwrap();
        }
    }
}
