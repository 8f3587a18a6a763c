//! What is on disk, taken apart by hand.

use super::playground::{Playground, bytes};
use std::fs;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn blocks_are_where_the_document_puts_them() {
    // 1000 bytes, 3 blocks of 100: stripes of 300, 300, 300 and 100, the last in blocks of 34.
    let place = Playground::split(1000, "raidz:3+1", "100");
    let data = bytes(1000, 1);
    let shards: Vec<Vec<u8>> = (0..4).map(|index| fs::read(place.shard(index)).unwrap()).collect();
    for (index, shard) in shards.iter().enumerate() {
        assert_eq!(shard[..8], *b"\x89GABSH\r\n");
        let header = u32::from_le_bytes(shard[12..16].try_into().unwrap()) as usize;
        assert_eq!(header, 128, "68 + 13 (raidz:3+1:w8) + 4 (file) + 32, rounded up to 64");
        assert_eq!([32, 40, 48].map(|at| u64_at(shard, at)), [1000, 100, 4]);
        assert_eq!(usize::from(shard[56]), index);
        assert_eq!(&shard[68..84], b"raidz:3+1:w8file");
        assert_eq!(shard[96..128], *blake3::hash(&shard[..96]).as_bytes());
        assert_eq!(shard[16..32], shards[0][16..32], "one set id");
        assert_eq!(shard.len(), 128 + 3 * 116 + 34 + 16);
    }
    for (column, shard) in shards[..3].iter().enumerate() {
        for stripe in 0..3 {
            let from = stripe * 300 + column * 100;
            assert_eq!(shard[128 + stripe * 116..][..100], data[from..from + 100]);
        }
    }
    let mut rest = data[900..].to_vec();
    rest.resize(102, 0);
    for (column, shard) in shards[..3].iter().enumerate() {
        assert_eq!(shard[128 + 348..][..34], rest[column * 34..][..34]);
    }
    // P of RAID-Z is the sum of the data.
    let block = |index: usize, stripe: usize| {
        &shards[index][128 + stripe * 116..][..if stripe < 3 { 100 } else { 34 }]
    };
    for stripe in 0..4 {
        for i in 0..block(0, stripe).len() {
            assert_eq!(block(3, stripe)[i], block(0, stripe)[i] ^ block(1, stripe)[i] ^ block(2, stripe)[i]);
        }
    }
    // Without its mask the seal is linear too, and that of zeros is zero.
    let unmasked = |index: usize, stripe: u64| -> u128 {
        let place =
            [&b"gabion shard frame 1"[..], &(index as u32).to_le_bytes(), &stripe.to_le_bytes()].concat();
        let mask = u128::from_le_bytes(blake3::hash(&place).as_bytes()[..16].try_into().unwrap());
        let at = 128 + stripe as usize * 116 + if stripe < 3 { 100 } else { 34 };
        u128::from_le_bytes(shards[index][at..at + 16].try_into().unwrap()) ^ mask
    };
    for stripe in 0..4 {
        assert_eq!(unmasked(3, stripe), unmasked(0, stripe) ^ unmasked(1, stripe) ^ unmasked(2, stripe));
        assert_ne!(unmasked(0, stripe), 0);
    }
}

#[test]
fn an_empty_file_is_headers_only() {
    let place = Playground::split(0, "4+2", "100");
    place.contents().iter().for_each(|(_, shard)| assert_eq!(shard.len(), 128));
    place.run(&["verify", "shards"]).expect(0);
    place.joins();
}

#[test]
fn the_granule_rounds_blocks_up_and_says_so() {
    let place = Playground::new();
    fs::write(place.path("file"), bytes(1000, 1)).unwrap();
    let split = ["split", "file", "--code", "4+2:w64", "--block", "100", "--out", "shards"];
    place.run(&split).expect(0).says("rounded up to 104");
    assert_eq!(u64_at(&fs::read(place.shard(0)).unwrap(), 40), 104);
    place.joins();
}
