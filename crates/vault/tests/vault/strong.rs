//! Blocks that have a cryptographic hash beside their signature.

use super::playground::{Playground, Seed, flip, rot};
use gabion_engine::Signer;
use gabion_vault::catalogue::{Class, State};

const WEAK: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n";
const STRONG: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nstrong = true\n";

/// Bits of a block that can be inverted together without changing its signature: signatures are linear, so among 129 bits some
/// cancel out.
fn bits_that_cancel_out(block: usize) -> Vec<usize> {
    let signer = Signer::independent().unwrap();
    let signature_of = |bit: usize| {
        let mut bytes = vec![0u8; block];
        bytes[bit / 8] = 1 << (bit % 8);
        let signature = signer.sign(&bytes).unwrap();
        let [low, high] = signature.components()[..] else { panic!("two components") };
        u128::from(low) | u128::from(high) << 64
    };
    let bits: Vec<usize> = (0..129).map(|number| number * 11).collect();
    // Rows in echelon form, each with the bits whose sum it is.
    let mut rows: Vec<(u128, Vec<bool>)> = Vec::new();
    for (number, &bit) in bits.iter().enumerate() {
        let (mut sum, mut of) = (signature_of(bit), vec![false; bits.len()]);
        of[number] = true;
        for (row, others) in &rows {
            if sum & (1 << row.ilog2()) != 0 {
                sum ^= row;
                of.iter_mut().zip(others).for_each(|(of, other)| *of ^= other);
            }
        }
        if sum == 0 {
            return bits.iter().zip(of).filter(|(_, taken)| *taken).map(|(&bit, _)| bit).collect();
        }
        rows.push((sum, of));
    }
    panic!("129 bits and no sum of 128 bits that cancels out");
}

/// Changes a block of the file so that its signature stays the same.
fn forge(ground: &Playground, name: &str) {
    let mut block = ground.read(name)[4096..8192].to_vec();
    for bit in bits_that_cancel_out(4096) {
        block[bit / 8] ^= 1 << (bit % 8);
    }
    rot(&ground.path(name), 4096, &block);
}

#[test]
fn a_change_that_is_made_for_the_signature_is_found_by_the_hash() {
    let content = Seed(5).bytes(40_000);
    let ground = Playground::with_policy(WEAK);
    ground.write("file", &content);
    ground.protect_all();
    forge(&ground, "file");
    assert_ne!(ground.read("file"), content);
    assert_eq!(ground.state("file"), State::Protected, "if this is noticed, the forgery is none");

    let ground = Playground::with_policy(STRONG);
    ground.write("file", &content);
    ground.protect_all();
    ground.assert_clean();
    forge(&ground, "file");
    assert_eq!(ground.state("file"), State::Damaged);
    let done = ground.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Protected, 1));
    assert_eq!(ground.read("file"), content);
    ground.assert_clean();
}

#[test]
fn damage_of_all_kinds_is_found_and_repaired() {
    for code in ["4+2", "cauchy-good:4+2:w8:packets=64"] {
        let policy = STRONG.replace("4+2", code);
        let ground = Playground::with_policy(&policy);
        for size in [0usize, 1, 700, 4096, 100_000, 600_000] {
            let (name, content) = (format!("file {size}"), Seed(size as u64 + 1).bytes(size));
            ground.write(&name, &content);
            ground.protect_all();
            ground.assert_clean();
            let length = std::fs::metadata(ground.redundancy(&name)).unwrap().len();
            let mut chance = Seed(size as u64 + 2);
            for _ in 0..if size == 0 { 0 } else { 6 } {
                flip(&ground.path(&name), chance.below(size as u64));
                flip(&ground.redundancy(&name), chance.below(length));
                ground.repair(&name);
                assert_eq!(ground.read(&name), content, "{code}, {size} bytes");
                ground.assert_clean();
            }
        }
    }
}

/// Redundancy over 1 MiB is updated in place.
#[test]
fn what_changes_has_new_hashes() {
    let ground = Playground::with_policy(STRONG);
    let mut content = Seed(9).bytes(5_000_000);
    ground.write("file", &content);
    ground.protect_all();
    content[2_500_000] ^= 1;
    ground.write("file", &content);
    let done = ground.protect_all().done;
    assert_eq!(done.stripes.0, 1, "only the stripe that changed");
    ground.assert_clean();
    flip(&ground.path("file"), 2_500_000);
    ground.repair("file");
    assert_eq!(ground.read("file"), content);
}

#[test]
fn another_policy_gives_hashes_or_takes_them_away() {
    let mut ground = Playground::with_policy(WEAK);
    ground.write("file", &Seed(3).bytes(50_000));
    ground.protect_all();
    let code = |ground: &Playground| ground.vault.catalogue.find(b"file").unwrap().unwrap().code;
    let length = |ground: &Playground| std::fs::metadata(ground.redundancy("file")).unwrap().len();
    let (weak, weak_length) = (code(&ground), length(&ground));
    for (policy, strong) in [(STRONG, true), (WEAK, false)] {
        ground.vault.set_policy(policy).unwrap();
        let report = ground.protect_all();
        assert_eq!(report.seen.changes.of(Class::Recoded).0, 1);
        assert_eq!(code(&ground) == format!("{weak} blake3"), strong);
        // Four stripes of full or smaller blocks, two frames each, five blocks in a stripe with a hash in every frame.
        let more = if strong { 4 * 2 * 5 * 32 } else { 0 };
        assert_eq!(length(&ground), weak_length + more);
        ground.assert_clean();
        ground.vault.catalogue.clear().unwrap();
        super::playground::rebuild_catalogue(&ground.vault);
        assert_eq!(ground.protect_all().seen.changes.files(), 0, "the catalogue knows it from headers");
    }
}
