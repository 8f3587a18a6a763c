//! The header against hostile bytes and the format document.

use super::{
    END_BYTES, FIELDS, FIXED_BYTES, FileId, HEADER_UNIT, Header, HeaderError, MAGIC, MAX_COLUMNS, MAX_HEADER,
    Metadata, VERSION, Version,
};
use crate::format::header::Extension;
use crate::format::{Binding, Records};
use crate::geometry::{Geometry, Tail};
use crate::tree::Generation;
use crate::world::Timestamp;
use gabion_engine::Code;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use std::sync::Arc;

fn header() -> Header {
    Header {
        version: Version::Two,
        id: FileId([7; 16]),
        revision: 3,
        generation: Generation {
            size: 12_345_678,
            mtime: Timestamp::from_nanoseconds(-5),
            ctime: Timestamp::from_nanoseconds(1_700_000_000_000_000_001),
            inode: 99,
        },
        protected_at: Timestamp::from_nanoseconds(1_700_000_000_000_000_002),
        code: Arc::new("8+2".parse().unwrap()),
        strong: false,
        geometry: Geometry::new(8, 65536, 256, Tail::Balanced, 1).unwrap(),
        first: 0,
        columns: 2,
        root: [9; 16],
        metadata: Metadata {
            mode: 0o640,
            uid: 1000,
            gid: 100,
            attributes: vec![(b"user.note".to_vec(), b"\x00\xff".to_vec())],
            attributes_left_out: false,
        },
        targets: Vec::new(),
        binding: Some(Binding::of_name(b"file")),
        extensions: Vec::new(),
    }
}

/// Two columns of a code with four.
fn narrowed() -> Header {
    let wide: Code = "8+4".parse().unwrap();
    Header { code: Arc::new(wide.first_columns(2).unwrap()), ..header() }
}

fn version_1() -> Header {
    Header { version: Version::One, binding: None, ..header() }
}

fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
    Header::decode(bytes, |identity, in_use| {
        let code = identity.parse::<Code>().map_err(|error| error.to_string())?;
        let in_use = in_use.map_or(code.m(), usize::from).min(code.m());
        code.first_columns(in_use).map(Arc::new).map_err(|error| error.to_string())
    })
}

/// A modified header with a valid checksum, as an attacker can create it.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = header().encode(0).unwrap();
    change(&mut bytes);
    let end = bytes.len() - 32;
    let checksum = blake3::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(checksum.as_bytes());
    bytes
}

fn place(name: &str) -> usize {
    FIELDS.iter().find(|place| place.name == name).unwrap().offset
}

#[test]
fn the_document_has_the_same_offsets() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/redundancy.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [offset, bytes, name, ..] = cells[..] else { return None };
        Some((offset.parse::<usize>().ok()?, bytes.parse::<usize>().ok()?, name.to_owned()))
    });
    let rows: Vec<_> = rows.collect();
    let code: Vec<_> =
        FIELDS.iter().map(|place| (place.offset, place.bytes, place.name.to_owned())).collect();
    assert_eq!(rows, code);
    let assert_documented = |text: String| assert!(document.contains(&text), "the document lacks: {text}");
    assert_documented(format!("version **{VERSION}**"));
    assert_documented(format!("code identity begins at offset {FIXED_BYTES}"));
    assert_documented(format!("multiple of {HEADER_UNIT}"));
    assert_documented(format!("{MAX_HEADER} bytes"));
    assert_documented(format!("at most {MAX_COLUMNS}"));
    assert_documented(MAGIC.map(|byte| format!("{byte:02x}")).join(" "));
    assert_eq!(END_BYTES, 36);
}

#[test]
fn headers_read_back() {
    for header in [
        header(),
        Header { strong: true, ..header() },
        Header { targets: vec![b"disk".to_vec(); 10], ..header() },
        Header { extensions: vec![Extension { tag: 7, bytes: vec![1, 2, 3] }], ..header() },
        version_1(),
        narrowed(),
        Header { targets: vec![b"disk".to_vec(); 10], ..narrowed() },
    ] {
        for at_least in [0, 1024] {
            let bytes = header.encode(at_least).unwrap();
            assert!(bytes.len() >= at_least && bytes.len().is_multiple_of(HEADER_UNIT));
            assert_eq!(decode(&bytes).unwrap(), header);
            assert_eq!(Header::length_from_end(&bytes[bytes.len() - END_BYTES..]), Ok(bytes.len()));
            assert_eq!(Header::identity(&bytes), Some((header.id, header.revision)));
        }
    }
    // Small without attributes, since every file has two of them.
    let small = Header { metadata: Metadata::default(), ..header() };
    assert_eq!(small.encode(0).unwrap().len(), 256);
}

/// The wider code is named, and the number of columns that the file should have.
#[test]
fn columns_in_use_are_the_first_of_the_code() {
    let bytes = narrowed().encode(0).unwrap();
    assert_eq!(&bytes[FIXED_BYTES..][..15], b"subspace:8+4:w8");
    assert_eq!(bytes[place("columns in use")..][..2], [2, 0]);
    assert_eq!(narrowed().coding(), "subspace:8+2:w8");
    let with = |in_use: u8, columns: u8| {
        let mut bytes = bytes.clone();
        bytes[place("columns in use")] = in_use;
        bytes[place("columns")] = columns;
        let end = bytes.len() - 32;
        let checksum = blake3::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(checksum.as_bytes());
        decode(&bytes)
    };
    for (in_use, columns) in [(1, 1), (2, 0), (2, 2), (3, 2), (4, 4)] {
        let header = with(in_use, columns).unwrap();
        assert_eq!((header.code.m(), header.code.room()), (in_use.into(), 4));
    }
    // Fewer than there are, none, or more than the code has.
    for (in_use, columns) in [(1, 2), (0, 0), (5, 2), (255, 2)] {
        let refused = with(in_use, columns).unwrap_err();
        assert_eq!(refused, HeaderError::Unsupported { field: "columns in use", value: in_use.into() });
        assert!(refused.is_later());
    }
}

#[test]
fn attributes_that_do_not_fit_are_refused() {
    let mut large = header();
    large.metadata.attributes = vec![(b"user.x".to_vec(), vec![1; MAX_HEADER])];
    assert!(matches!(large.encode(0), Err(HeaderError::Length(_))));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = header().encode(0).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn fields_that_cannot_be_are_refused_by_name() {
    let number = |name: &str, bytes: &[u8]| {
        let at = place(name);
        decode(&resealed(|header| header[at..at + bytes.len()].copy_from_slice(bytes))).unwrap_err()
    };
    assert_eq!(number("version", &[3, 0, 0, 0]), HeaderError::Version(3));
    assert_eq!(number("version", &[0, 0, 0, 0]), HeaderError::Version(0));
    assert_eq!(number("flags", &[8, 0, 0, 0]), HeaderError::Flags(8));
    let unsupported = |field, value| HeaderError::Unsupported { field, value };
    assert_eq!(number("columns in use", &[1, 0]), unsupported("columns in use", 1));
    assert_eq!(number("reserved", &[0, 1, 0, 0]), unsupported("reserved", 256));
    assert_eq!(number("extension count", &[255; 2]), HeaderError::Short);
    assert_eq!(number("file size", &[255; 8]), HeaderError::Field { field: "file size", value: u64::MAX });
    assert_eq!(number("first column", &[2, 0]), HeaderError::Field { field: "first column", value: 2 });
    assert_eq!(number("columns", &[3, 0]), HeaderError::Field { field: "columns", value: 3 });
    assert_eq!(number("target count", &[3, 0]), HeaderError::Field { field: "target count", value: 3 });
    assert_eq!(number("mode", &[0, 0, 1, 0]), HeaderError::Field { field: "mode", value: 65536 });
    assert!(matches!(number("block size", &[1, 0, 0, 0, 0, 0, 0, 0]), HeaderError::Geometry(_)));
    assert!(matches!(number("rows", &[0; 4]), HeaderError::Geometry(_)));
    assert_eq!(number("attribute count", &[255; 4]), HeaderError::Short);
    assert_eq!(number("code identity length", &[255; 2]), HeaderError::Short);
    let code = resealed(|bytes| bytes[FIXED_BYTES] = b'x');
    assert!(matches!(decode(&code), Err(HeaderError::Code { .. })));
    let filling = resealed(|bytes| {
        let last = bytes.len() - END_BYTES - 1;
        bytes[last] = 1;
    });
    assert!(matches!(decode(&filling), Err(HeaderError::Field { field: "filling", .. })));
}

/// Unknown optional extensions are kept; unknown critical ones are refused as later versions.
#[test]
fn extensions_are_kept_or_refused_as_later() {
    let with = |tag| Header { extensions: vec![Extension { tag, bytes: b"new".to_vec() }], ..header() };
    let ignorable = decode(&with(9).encode(0).unwrap()).unwrap();
    assert_eq!(ignorable, with(9));
    let refused = decode(&with(0x8009).encode(0).unwrap()).unwrap_err();
    assert_eq!(refused, HeaderError::Extension(0x8009));
    assert!(refused.is_later() && HeaderError::Version(3).is_later() && HeaderError::Flags(8).is_later());
    assert!(!HeaderError::Checksum.is_later() && !HeaderError::Magic.is_later());
}

/// A reference names a body; what contradicts that is refused as damage.
#[test]
fn references_name_one_body() {
    let body = FileId([0xb0; 16]);
    let other = Extension { tag: 9, bytes: b"new".to_vec() };
    let reference = Header { extensions: vec![other.clone()], ..header() }.sharing(body, [8; 16]);
    let bytes = reference.encode(0).unwrap();
    let found = decode(&bytes).unwrap();
    assert_eq!((&found, found.body(), found.root), (&reference, Some(body), [8; 16]));
    assert_eq!((found.frame_key().id, header().frame_key().id), (body, header().id));
    assert_eq!(
        (header().body(), reference.clone().sharing(header().id, [1; 16]).extensions.len()),
        (None, 2)
    );
    // In the bytes: behind the code identity and the attribute, as the document says.
    let at = FIXED_BYTES + b"subspace:8+2:w8".len() + 6 + b"user.note".len() + 2;
    assert_eq!(bytes[at..at + 22], [&[0x01, 0x80, 16, 0, 0, 0][..], &body.0].concat());
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/redundancy.md");
    assert!(std::fs::read_to_string(document).unwrap().contains("Tag 0x8001 is defined"));
    // Its own records are headers; those of the body have frames from the first byte on.
    let (own, shared) = (Records::new(&reference, bytes.len()), Records::of_body(&reference));
    assert_eq!((own.trailer(), own.file()), (bytes.len() as u64, 2 * bytes.len() as u64));
    let as_usual = Records::new(&header(), 512);
    for (column, stripe) in [(0, 0), (0, 5), (1, 0), (1, 23)] {
        assert_eq!(shared.frame_offset(column, stripe) + 512, as_usual.frame_offset(column, stripe));
    }
    assert_eq!(shared.file() + 1024, as_usual.file());

    let two = Header { extensions: vec![reference.extensions[0].clone(); 2], ..header() };
    let short = Extension { tag: 0x8001, bytes: vec![1; 15] };
    let refused = [
        two,
        Header { extensions: vec![short], ..header() },
        Header { columns: 1, ..reference.clone() },
        Header { first: 1, columns: 1, ..reference.clone() },
        Header { targets: vec![b"disk".to_vec(); 10], ..reference.clone() },
    ];
    for header in refused {
        let error = decode(&header.encode(0).unwrap()).unwrap_err();
        assert!(matches!(error, HeaderError::Field { field: "a shared body", .. }), "{error}");
        assert!(!error.is_later());
    }
    // Version 1 has no extensions, and so no references.
    let bytes = Header { extensions: reference.extensions.clone(), ..version_1() }.encode(0).unwrap();
    assert!(decode(&bytes).is_err());
}

/// Redundancy follows a renamed file by its inode, and a replaced one by its name; swapped or misplaced redundancy is
/// detected.
#[test]
fn redundancy_is_bound_to_its_file() {
    let header = header();
    let (same, other) = (Binding::of_name(b"file"), Binding::of_name(b"other"));
    let now = |inode| Generation { inode, size: 1, ..header.generation };
    assert!(header.belongs_to(&same, Some(&now(1))) && header.belongs_to(&same, None));
    assert!(header.belongs_to(&other, Some(&now(99))), "a renamed file keeps its inode");
    assert!(!header.belongs_to(&other, Some(&now(1))) && !header.belongs_to(&other, None));
    assert!(version_1().belongs_to(&other, None), "version 1 does not tell");
}

/// Bytes written by a program of version 1.
#[test]
fn version_1_is_read_and_written_as_it_was() {
    let bytes = include_bytes!("../../../tests/data/version-1/repository/redundancy/small.txt");
    let length = Header::length(bytes).unwrap();
    let header = decode(&bytes[..length]).unwrap();
    assert_eq!((header.version, header.binding, header.generation.size), (Version::One, None, 30));
    assert_eq!(header.encode(length).unwrap(), bytes[..length]);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(decode(&bytes).is_err());
        let _ = (Header::length(&bytes), Header::length_from_end(&bytes), Header::identity(&bytes));
    }

    #[test]
    fn resealed_changes_are_read_or_refused(at in 0usize..330, value in any::<u8>()) {
        let bytes = resealed(|bytes| {
            let at = at % (bytes.len() - 32);
            bytes[at] = value;
        });
        // What is accepted is written as it was read.
        if let Ok(header) = decode(&bytes) {
            prop_assert_eq!(header.encode(bytes.len()).unwrap(), bytes);
        }
    }
}
