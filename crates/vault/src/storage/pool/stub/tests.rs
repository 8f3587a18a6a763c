//! Decoding of stubs: round trips, damage, invalid fields.

use super::{LinkStub, Piece, Special, Stub, StubError};
use crate::format::{FileId, Metadata};
use crate::geometry::{Geometry, Tail};
use crate::world::Timestamp;

fn stub() -> Stub {
    let attributes =
        vec![(b"user.empty".to_vec(), Vec::new()), (b"user.odd\n".to_vec(), b"\xff\0 =\n".to_vec())];
    Stub {
        id: FileId([0xab; 16]),
        revision: 7,
        size: 1_000_000,
        block: 4096,
        mtime: Timestamp::from_nanoseconds(-5),
        changed: Timestamp::MAX,
        metadata: Metadata { mode: 0o4755, uid: 1, gid: 2, attributes, attributes_left_out: true },
        targets: ["d1", "d2", "d3"].map(|name| name.parse().unwrap()).to_vec(),
        link: None,
        special: None,
        accessed: None,
        names: 0,
        writing: false,
    }
}

#[test]
fn encoding_round_trips() {
    let file = stub();
    assert_eq!(Stub::decode(file.encode().as_bytes()), Ok(file.clone()));
    let link = Stub { targets: Vec::new(), block: 0, size: 4, link: Some(b"../\xff".to_vec()), ..file };
    assert_eq!(Stub::decode(link.encode().as_bytes()), Ok(link));
    assert!(stub().encode().starts_with("gabion pool stub 1: "), "a person who opens it learns what it is");
    let busy = Stub { writing: true, ..stub() };
    assert!(busy.encode().starts_with("gabion pool stub 2: "), "programs that do not know of it refuse it");
    assert_eq!(Stub::decode(busy.encode().as_bytes()), Ok(busy));
}

#[test]
fn optional_fields_raise_the_version() {
    let special = |what| Stub {
        targets: Vec::new(),
        block: 0,
        size: 0,
        special: Some(what),
        accessed: Some(Timestamp::from_nanoseconds(-7)),
        ..stub()
    };
    let all = [Special::Pipe, Special::Socket, Special::Character(1, 3), Special::Block(u32::MAX, 0)];
    let specials = all.map(special);
    let linked = [Stub { names: 3, ..stub() }, Stub { accessed: Some(Timestamp::MIN), ..stub() }];
    for stub in specials.into_iter().chain(linked) {
        assert!(stub.encode().starts_with("gabion pool stub 3: "));
        assert_eq!(Stub::decode(stub.encode().as_bytes()).as_ref(), Ok(&stub));
        let busy = Stub { writing: true, ..stub };
        assert!(busy.encode().starts_with("gabion pool stub 4: "));
        assert_eq!(Stub::decode(busy.encode().as_bytes()), Ok(busy));
    }
    let name = LinkStub { id: FileId([9; 16]), revision: 12 };
    assert!(name.encode().starts_with("gabion pool stub 5: "));
    assert_eq!(LinkStub::decode(name.encode().as_bytes()), Ok(Some(name)));
    assert_eq!(LinkStub::decode(stub().encode().as_bytes()), Ok(None));
}

#[test]
fn every_changed_byte_is_detected() {
    let text = stub().encode().into_bytes();
    for at in 0..text.len() {
        for flip in [1, 0x20, 0x80] {
            let mut damaged = text.clone();
            damaged[at] ^= flip;
            assert!(Stub::decode(&damaged).is_err(), "byte {at} ^ {flip:#x}");
        }
        assert!(Stub::decode(&text[..at]).is_err(), "cut to {at}");
    }
}

/// Text with a right checksum, as an attacker or another version would write it.
fn sealed(body: &str) -> Vec<u8> {
    format!("{body}check = {}\n", blake3::hash(body.as_bytes()).to_hex()).into_bytes()
}

#[test]
fn invalid_fields_are_refused() {
    let body = stub().encode();
    let body = &body[..body.rfind("check").unwrap()];
    assert_eq!(Stub::decode(&sealed(body)), Ok(stub()));
    let refused = |from: &str, to: &str| {
        assert!(body.contains(from), "{from}");
        Stub::decode(&sealed(&body.replace(from, to))).unwrap_err()
    };
    assert_eq!(refused("stub 1", "stub 6"), StubError::Version(6));
    assert_eq!(refused("stub 1", "stub 5"), StubError::Version(5), "a name is not the file");
    assert_eq!(refused("stub 1", "stub 3"), StubError::Field("accessed"));
    assert_eq!(refused("stub 1", "stub"), StubError::Head);
    assert_eq!(refused("block = 4096", "block = 0"), StubError::Field("block"));
    assert_eq!(refused("block = 4096", "block = 100"), StubError::Field("block"));
    assert_eq!(refused("target = d2", "target = ../d2"), StubError::Field("target"));
    assert_eq!(refused("stripe = 3", "stripe = 9999999999"), StubError::Field("target"));
    assert_eq!(refused("size = 1000000", "size = -1"), StubError::Field("size"));
    assert_eq!(refused("size = 1000000", "size = 9223372036854775808"), StubError::Field("size"));
    assert_eq!(refused("mode = 4755", "mode = 100000"), StubError::Field("mode"));
    assert_eq!(refused("target = d3\n", "target = d3\nmore = 1\n"), StubError::Field("check"));
}

/// The layout: block b is on column b mod k at (b / k) × block, and what geometry calls a cell is one piece.
#[test]
fn pieces_follow_the_layout_and_the_geometry() {
    let stub = Stub { block: 64, ..stub() };
    for size in [0, 1, 63, 64, 65, 191, 192, 193, 1000] {
        let mut lengths = [0u64; 3];
        for at in 0..size {
            let piece = stub.pieces(at..at + 1).next().unwrap();
            let block = at / 64;
            assert_eq!(
                piece,
                Piece { column: (block % 3) as usize, offset: block / 3 * 64 + at % 64, bytes: 1 }
            );
            lengths[piece.column] = lengths[piece.column].max(piece.offset + 1);
        }
        assert_eq!([0, 1, 2].map(|column| stub.object_bytes(column, size)), lengths, "size {size}");
        let geometry = Geometry::new(3, 64, 1, Tail::Striped, 1).unwrap();
        for run in geometry.cut(size).runs(1) {
            for column in 0..3 {
                let cell = run.cell(0, column);
                let pieces: Vec<Piece> = stub.pieces(cell.clone()).collect();
                assert!(pieces.len() <= 1 && pieces.iter().all(|piece| piece.column == column), "{cell:?}");
            }
        }
    }
}

/// The end of a file follows from the lengths of its objects while it is written.
#[test]
fn lengths_of_objects_determine_the_file_size() {
    let stub = stub();
    for size in (0..50_000).step_by(37).chain([4095, 4096, 4097, 12_287, 12_288, 12_289, 1 << 40]) {
        let lengths = (0..3).map(|column| stub.object_bytes(column, size));
        let ends = lengths.enumerate().map(|(column, bytes)| stub.first_byte_after(column, bytes));
        assert_eq!(ends.min(), Some(size));
    }
    // A byte behind a hole that the other objects do not have is not the end.
    assert_eq!(stub.first_byte_after(0, 4096), 12_288);
    assert_eq!(stub.first_byte_after(1, 0), 4096);
}
