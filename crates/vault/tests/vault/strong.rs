//! Blocks with a cryptographic hash in addition to their signature.

use super::fixture::{Fixture, TestRng, flip, rot};
use gabion_engine::Signer;
use gabion_vault::catalogue::{Class, State};

const WEAK: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n";
const STRONG: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nstrong = true\n";

/// Bits of a block that can be inverted together without changing its signature: signatures are linear, so 129 bits
/// have a dependent subset.
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

/// Changes a block of the file such that its signature stays the same.
fn forge(fixture: &Fixture, name: &str) {
    let mut block = fixture.read(name)[4096..8192].to_vec();
    for bit in bits_that_cancel_out(4096) {
        block[bit / 8] ^= 1 << (bit % 8);
    }
    rot(&fixture.path(name), 4096, &block);
}

#[test]
fn a_change_that_is_made_for_the_signature_is_found_by_the_hash() {
    let content = TestRng(5).bytes(40_000);
    let fixture = Fixture::with_policy(WEAK);
    fixture.write("file", &content);
    fixture.protect_all();
    forge(&fixture, "file");
    assert_ne!(fixture.read("file"), content);
    assert_eq!(fixture.state("file"), State::Protected, "if this is noticed, the forgery is none");

    let fixture = Fixture::with_policy(STRONG);
    fixture.write("file", &content);
    fixture.protect_all();
    fixture.assert_clean();
    forge(&fixture, "file");
    assert_eq!(fixture.state("file"), State::Damaged);
    let done = fixture.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Protected, 1));
    assert_eq!(fixture.read("file"), content);
    fixture.assert_clean();
}

#[test]
fn damage_of_all_kinds_is_found_and_repaired() {
    for code in ["4+2", "cauchy-good:4+2:w8:packets=64"] {
        let policy = STRONG.replace("4+2", code);
        let fixture = Fixture::with_policy(&policy);
        for size in [0usize, 1, 700, 4096, 100_000, 600_000] {
            let (name, content) = (format!("file {size}"), TestRng(size as u64 + 1).bytes(size));
            fixture.write(&name, &content);
            fixture.protect_all();
            fixture.assert_clean();
            let length = std::fs::metadata(fixture.redundancy(&name)).unwrap().len();
            let mut rng = TestRng(size as u64 + 2);
            for _ in 0..if size == 0 { 0 } else { 6 } {
                flip(&fixture.path(&name), rng.below(size as u64));
                flip(&fixture.redundancy(&name), rng.below(length));
                fixture.repair(&name);
                assert_eq!(fixture.read(&name), content, "{code}, {size} bytes");
                fixture.assert_clean();
            }
        }
    }
}

/// Redundancy above 1 MiB is updated in place.
#[test]
fn changed_blocks_get_new_hashes() {
    let fixture = Fixture::with_policy(STRONG);
    let mut content = TestRng(9).bytes(5_000_000);
    fixture.write("file", &content);
    fixture.protect_all();
    content[2_500_000] ^= 1;
    fixture.write("file", &content);
    let done = fixture.protect_all().done;
    assert_eq!(done.stripes.0, 1, "only the stripe that changed");
    fixture.assert_clean();
    flip(&fixture.path("file"), 2_500_000);
    fixture.repair("file");
    assert_eq!(fixture.read("file"), content);
}

#[test]
fn another_policy_gives_hashes_or_takes_them_away() {
    let mut fixture = Fixture::with_policy(WEAK);
    fixture.write("file", &TestRng(3).bytes(50_000));
    fixture.protect_all();
    let code = |fixture: &Fixture| fixture.vault.catalogue.find(b"file").unwrap().unwrap().code;
    let length = |fixture: &Fixture| std::fs::metadata(fixture.redundancy("file")).unwrap().len();
    let (weak, weak_length) = (code(&fixture), length(&fixture));
    for (policy, strong) in [(STRONG, true), (WEAK, false)] {
        fixture.vault.set_policy(policy).unwrap();
        let report = fixture.protect_all();
        assert_eq!(report.seen.changes.of(Class::Recoded).0, 1);
        assert_eq!(code(&fixture) == format!("{weak} blake3"), strong);
        // Four stripes, two frames each, and five hashes of 32 bytes in every frame.
        let more = if strong { 4 * 2 * 5 * 32 } else { 0 };
        assert_eq!(length(&fixture), weak_length + more);
        fixture.assert_clean();
        fixture.vault.catalogue.clear().unwrap();
        super::fixture::rebuild_catalogue(&fixture.vault);
        assert_eq!(fixture.protect_all().seen.changes.files(), 0, "the catalogue knows it from headers");
    }
}
