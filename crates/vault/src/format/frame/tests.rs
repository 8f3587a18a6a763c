//! Frames are bound to their position, and records lie without gaps.

use super::{Frame, FrameKey, Records, SIGNATURE_BYTES, Seal, seal, signature, table_bytes, toggle};
use crate::format::{FileId, Header, Metadata, Version};
use crate::geometry::{Geometry, Tail};
use crate::tree::Generation;
use crate::world::Timestamp;
use std::sync::Arc;

const ID: FileId = FileId([1; 16]);

const KEY: FrameKey = FrameKey { version: Version::Two, id: ID };

fn seal_of(value: u8, strong: bool) -> Seal {
    Seal { signature: [value; 16], hash: strong.then_some([value + 100; 32]) }
}

fn frame(strong: bool) -> Vec<u8> {
    let mut bytes = vec![5; 64 + table_bytes(3, strong)];
    let data: Vec<Seal> = (0..3).map(|column| seal_of(column, strong)).collect();
    Frame::seal(&mut bytes, KEY, 1, 7, &data, &seal_of(9, strong));
    bytes
}

#[test]
fn a_frame_reads_back() {
    for strong in [false, true] {
        let bytes = frame(strong);
        let opened = Frame::open(&bytes, (3, strong), KEY, 1, 7).unwrap();
        assert_eq!(opened.block, [5; 64]);
        assert!(opened.data().eq((0..3).map(|column| seal_of(column, strong))));
        let check = bytes.last_chunk::<16>().unwrap();
        assert_eq!((opened.own(), opened.check()), (seal_of(9, strong), check));
    }
}

#[test]
fn a_frame_in_the_wrong_place_is_none() {
    for strong in [false, true] {
        let bytes = frame(strong);
        let (other, earlier) =
            (FrameKey { id: FileId([2; 16]), ..KEY }, FrameKey { version: Version::One, ..KEY });
        for (k, key, column, stripe) in [
            (3, other, 1, 7),
            (3, earlier, 1, 7),
            (3, KEY, 0, 7),
            (3, KEY, 1, 8),
            (2, KEY, 1, 7),
            (4, KEY, 1, 7),
        ] {
            assert!(Frame::open(&bytes, (k, strong), key, column, stripe).is_none());
        }
        assert!(Frame::open(&bytes, (3, !strong), KEY, 1, 7).is_none());
        // Lost writes leave zeros, and short files less than a frame.
        assert!(Frame::open(&vec![0; bytes.len()], (3, strong), KEY, 1, 7).is_none());
        assert!(Frame::open(&bytes[..40], (3, strong), KEY, 1, 7).is_none());
    }
}

#[test]
fn every_flipped_bit_of_a_table_is_noticed() {
    for strong in [false, true] {
        let bytes = frame(strong);
        for bit in 64 * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::open(&damaged, (3, strong), KEY, 1, 7).is_none(), "bit {bit}");
        }
    }
}

#[test]
fn seals_are_signatures() {
    let stored = Seal { signature: std::array::from_fn(|at| at as u8), hash: None };
    assert_eq!(seal(&signature(&stored)), stored);
    let mut root = [0; SIGNATURE_BYTES];
    toggle(&mut root, &stored.signature);
    toggle(&mut root, &stored.signature);
    assert_eq!(root, [0; SIGNATURE_BYTES]);
}

#[test]
fn a_hash_counts_where_both_sides_know_one() {
    let (plain, strong) = (seal_of(1, false), seal_of(1, true));
    let forged = Seal { hash: Some([0; 32]), ..strong };
    assert!(plain.fits(&strong) && strong.fits(&plain) && strong.fits(&strong));
    assert!(!strong.fits(&forged) && !plain.fits(&seal_of(2, true)));
}

fn header(version: Version, size: u64, strong: bool, columns: usize) -> Header {
    Header {
        version,
        id: ID,
        revision: 1,
        generation: Generation { size, mtime: Timestamp::EPOCH, ctime: Timestamp::EPOCH, inode: 0 },
        protected_at: Timestamp::EPOCH,
        code: Arc::new("8+2".parse().unwrap()),
        strong,
        geometry: Geometry::new(8, 64, 3, Tail::Balanced, 1).unwrap(),
        first: 0,
        columns,
        root: [0; 16],
        metadata: Metadata::default(),
        targets: Vec::new(),
        binding: None,
        extensions: Vec::new(),
    }
}

/// Frames fill the file without gaps: in version 1 stripe after stripe, in version 2 column after column.
#[test]
fn frames_lie_one_after_the_other() {
    let sizes = [0u64, 1, 1000, 64 * 8 * 3, 64 * 8 * 3 * 4 + 100];
    for (size, strong) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        for version in [Version::One, Version::Two] {
            let records = Records::new(&header(version, size, strong, 2), 192);
            let stripes = records.cut().stripes();
            let order: Vec<(usize, u64)> = match version {
                Version::One => (0..stripes).flat_map(|stripe| [(0, stripe), (1, stripe)]).collect(),
                Version::Two => (0..2).flat_map(|c| (0..stripes).map(move |stripe| (c, stripe))).collect(),
            };
            let mut at = 192;
            for (column, stripe) in order {
                assert_eq!(records.frame_offset(column, stripe), at);
                at += records.frame_bytes(stripe);
            }
            assert_eq!((records.trailer(), records.file()), (at, at + 192));
        }
    }
}

/// In version 2, adding or removing a column moves no other, and the check of a frame does not depend on their number.
#[test]
fn a_column_can_be_added_and_removed_without_touching_the_others() {
    let size = 64 * 8 * 3 * 4 + 100;
    let [one, two] = [1, 2].map(|columns| Records::new(&header(Version::Two, size, false, columns), 192));
    for stripe in 0..one.cut().stripes() {
        assert_eq!(one.frame_offset(0, stripe), two.frame_offset(0, stripe));
    }
    assert_eq!(two.frame_offset(1, 0), one.trailer());
}
