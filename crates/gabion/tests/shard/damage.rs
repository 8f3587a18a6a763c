//! Bits flip, files are cut and lost: what can be saved is, what cannot is named.

use super::playground::Playground;
use std::fs::{self, OpenOptions};

/// Header of `file` with code subspace:4+2:w8: 68 + 15 + 4 + 32 bytes, rounded up.
const HEADER: usize = 128;

/// A 4+2 set of 10 stripes with blocks of 100 bytes, frames of 116.
fn ten_stripes() -> Playground {
    Playground::split(4000, "4+2", "100")
}

fn at(stripe: usize, byte: usize) -> usize {
    HEADER + stripe * 116 + byte
}

#[test]
fn two_bad_blocks_in_every_stripe_are_routed_around_and_repaired() {
    let place = ten_stripes();
    let good = place.contents();
    for stripe in 0..10 {
        // Another pair of shards in each stripe; every third time the seal is hit, not the block.
        let byte = if stripe % 3 == 0 { 105 } else { stripe * 7 };
        place.flip(stripe % 6, at(stripe, byte));
        place.flip((stripe + 1 + stripe / 6) % 6, at(stripe, 99));
    }
    let ran = place.joins();
    // Shard 0 is hit as first of the pair in stripes 0 and 6, as second in stripe 5 ((5+1+0) % 6).
    assert!(ran.err.contains("file.000.gabion: 3 bad blocks (stripes 0, 5-6), routed around"), "{}", ran.err);
    place.run(&["verify", "shards"]).expect(1).says("3 bad blocks (stripes 0, 5-6)");
    place.run(&["repair", "shards"]).expect(0);
    assert!(place.contents() == good);
}

#[test]
fn three_bad_blocks_in_one_stripe_are_too_much() {
    let place = ten_stripes();
    [1, 2, 4].iter().for_each(|&index| place.flip(index, at(7, 3)));
    let before = place.contents();
    let ran = place.is_lost().says("stripe 7: need 4 blocks, have 3");
    [1, 2, 4]
        .iter()
        .for_each(|index| assert!(ran.err.contains(&format!("file.00{index}.gabion (bad block)"))));
    place.run(&["verify", "shards"]).expect(3).says("stripe 7");
    place.run(&["repair", "shards"]).expect(3).says("stripe 7").says("nothing was changed");
    assert!(place.contents() == before);
}

#[test]
fn every_byte_of_a_header_is_guarded() {
    let place = ten_stripes();
    let good = place.contents();
    for offset in 0..HEADER {
        place.flip(2, offset);
        let ran = place.joins();
        assert!(ran.err.contains("file.002.gabion"), "byte {offset}: {}", ran.err);
        fs::write(place.shard(2), &good[2].1).unwrap();
    }
    for offset in [0, 8, 12, 16, 32, 56, 60, 70, 100] {
        place.flip(2, offset);
        place.run(&["verify", "shards"]).expect(1).says("header damaged");
        place.run(&["repair", "shards"]).expect(0);
        assert!(place.contents() == good, "byte {offset}");
    }
}

#[test]
fn all_headers_damaged_is_loss() {
    let place = ten_stripes();
    (0..6).for_each(|index| place.flip(index, 33));
    place.is_lost().says("damaged headers");
    place.run(&["verify", "shards"]).expect(3);
}

#[test]
fn a_truncated_shard_is_good_up_to_the_cut() {
    let place = ten_stripes();
    let good = place.contents();
    let cut = |index: usize, len: usize| {
        OpenOptions::new().write(true).open(place.shard(index)).unwrap().set_len(len as u64).unwrap();
    };
    cut(0, at(6, 50));
    cut(1, at(0, 0));
    // Stripes 0 to 5 need shard 0 once shard 3 has lost them: seals are hit in the first stripes only.
    place.flip(3, at(2, 0));
    place.joins().says("4 truncated blocks (stripes 6-9)");
    place.run(&["verify", "shards"]).expect(1).says("4 truncated blocks (stripes 6-9)");
    place.run(&["repair", "shards"]).expect(0);
    assert!(place.contents() == good);
    cut(5, 60);
    place.joins();
    cut(5, 0);
    place.joins();
    place.run(&["repair", "shards"]).expect(0);
    assert!(place.contents() == good);
}

#[test]
fn bytes_after_the_end_are_found_and_removed() {
    let place = ten_stripes();
    let good = place.contents();
    fs::write(place.shard(1), [&good[1].1[..], b"more"].concat()).unwrap();
    place.joins();
    place.run(&["verify", "shards"]).expect(1).says("4 bytes too long");
    place.run(&["repair", "shards"]).expect(0);
    assert!(place.contents() == good);
}

/// Lost writes read as zeros, whose signature is zero: only the mask of the place tells.
#[test]
fn zeroed_and_misplaced_frames_are_bad() {
    let place = ten_stripes();
    let good = place.contents();
    let mut shard = good[0].1.clone();
    shard[at(2, 0)..at(4, 0)].fill(0);
    let moved = shard[at(7, 0)..at(8, 0)].to_vec();
    shard[at(5, 0)..at(6, 0)].copy_from_slice(&moved);
    fs::write(place.shard(0), &shard).unwrap();
    // The frame of another shard, in the same stripe.
    let mut other = good[1].1.clone();
    other[at(9, 0)..at(10, 0)].copy_from_slice(&good[2].1[at(9, 0)..at(10, 0)]);
    fs::write(place.shard(1), other).unwrap();
    place.joins().says("3 bad blocks (stripes 2-3, 5)").says("1 bad block (stripe 9)");
    place.run(&["repair", "shards"]).expect(0);
    assert!(place.contents() == good);
}

/// Redundancy with a fitting seal that does not belong to this data, as a broken encoder would write it:
/// here the blocks of another file, moved under the header of the first.
#[test]
fn redundancy_that_contradicts_the_data_is_found_by_the_law() {
    for code in ["4+2", "cauchy:4+2:w8:packets=4", "4+2:w16"] {
        let place = Playground::split(4000, code, "128");
        let good = place.contents();
        fs::write(place.path("other"), super::playground::bytes(4000, 99)).unwrap();
        let split = ["split", "other", "--name", "file", "--code", code, "--block", "128", "--out", "others"];
        place.run(&split).expect(0);
        let others = super::playground::contents(&place.path("others"));
        let mut wrong = good[5].1.clone();
        let from = wrong.len() - 7 * 144;
        wrong[from..].copy_from_slice(&others[5].1[from..]);
        fs::write(place.shard(5), &wrong).unwrap();
        place.run(&["verify", "shards"]).expect(1).says("contradicting");
        place.run(&["repair", "shards"]).expect(0);
        assert!(place.contents() == good, "{code}");
        // The same in a data shard cannot be told apart from the truth, but never passes for it.
        let mut wrong = good[0].1.clone();
        wrong[from..].copy_from_slice(&others[0].1[from..]);
        fs::write(place.shard(0), &wrong).unwrap();
        place.is_lost().says("do not make up set");
        place.run(&["verify", "shards"]).expect(3);
        let before = place.contents();
        place.run(&["repair", "shards"]).expect(3);
        assert!(place.contents() == before);
    }
}

/// A header is believed only as far as the file goes: these promise stripes of gigabytes.
#[test]
fn headers_that_promise_gigabytes_take_no_memory() {
    use gabion_shard::format::{Content, Header, SetId};
    let place = Playground::new();
    fs::create_dir(place.path("shards")).unwrap();
    let content = Content {
        code: "12+3".parse().unwrap(),
        name: b"file".to_vec(),
        size: 1 << 60,
        block: 1 << 30,
        sparse: false,
    };
    for index in 0..15 {
        let header = Header { set: SetId([1; 16]), content: content.clone(), index };
        fs::write(place.shard(index as usize), header.encode().unwrap()).unwrap();
    }
    place.is_lost().says("stripe 0: need 12 blocks, have 0");
}
