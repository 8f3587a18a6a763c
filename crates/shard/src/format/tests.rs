//! The header against hostile bytes, and against the document that defines it.

use super::{
    CHECKSUM_BYTES, Codes, Content, FIXED_BYTES, HEADER_UNIT, Header, HeaderError, MAGIC, MAX_HEADER,
    NameError, PLACES, SetId, VERSION, check_name, parse_shard_file_name, shard_file_name,
};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

fn header() -> Header {
    let content = Content {
        // In full: the offsets below depend on its length, and it was the default once.
        code: "rs-vandermonde:10+4:w8".parse().unwrap(),
        name: b"photos.tar".to_vec(),
        size: 12_345_678,
        block: 65536,
        sparse: false,
    };
    Header { set: SetId([7; 16]), content, index: 13 }
}

fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
    Header::decode(bytes, &mut Codes::default())
}

/// A header with bytes changed at will and a checksum that fits: what an attacker can make.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = header().encode().unwrap();
    change(&mut bytes);
    let end = bytes.len() - CHECKSUM_BYTES;
    let checksum = blake3::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(checksum.as_bytes());
    bytes
}

#[test]
fn the_document_has_the_same_offsets() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/shards.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [offset, bytes, name, ..] = cells[..] else { return None };
        Some((offset.parse::<usize>().ok()?, bytes.parse::<usize>().ok()?, name.to_owned()))
    });
    let rows: Vec<_> = rows.collect();
    let code: Vec<_> =
        PLACES.iter().map(|place| (place.offset, place.bytes, place.name.to_owned())).collect();
    assert_eq!(rows, code);
    // No gap, no overlap.
    let mut end = 0;
    for (offset, bytes, name) in &rows {
        assert_eq!(*offset, end, "{name}");
        end += bytes;
    }
    assert_eq!(end, FIXED_BYTES);
    let says = |text: String| assert!(document.contains(&text), "the document lacks: {text}");
    says(format!("version **{VERSION}**"));
    says(format!("code identity begins at offset {FIXED_BYTES}"));
    says(format!("multiple of {HEADER_UNIT}"));
    says(format!("{MAX_HEADER} bytes"));
    says(MAGIC.map(|byte| format!("{byte:02x}")).join(" "));
}

#[test]
fn a_header_lies_as_the_document_says() {
    let bytes = header().encode().unwrap();
    assert_eq!(bytes.len() % 64, 0);
    assert_eq!(bytes[..8], [0x89, 0x47, 0x41, 0x42, 0x53, 0x48, 0x0d, 0x0a]);
    assert_eq!(bytes[8..12], [1, 0, 0, 0]);
    assert_eq!(bytes[16..32], [7; 16]);
    assert_eq!(bytes[32..40], 12_345_678u64.to_le_bytes());
    // ceil(12345678 / 655360) = 19
    assert_eq!(bytes[48..56], 19u64.to_le_bytes());
    assert_eq!(bytes[56..60], [13, 0, 0, 0]);
    assert_eq!(&bytes[68..90], b"rs-vandermonde:10+4:w8");
    assert_eq!(&bytes[90..100], b"photos.tar");
    assert_eq!(decode(&bytes), Ok(header()));
}

#[test]
fn what_is_wrong_is_said_with_numbers() {
    let put = |at: usize, value: &[u8]| {
        let value = value.to_vec();
        decode(&resealed(|bytes| bytes[at..at + value.len()].copy_from_slice(&value)))
    };
    assert_eq!(put(8, &[2]), Err(HeaderError::Version(2)));
    assert_eq!(put(60, &[0x82]), Err(HeaderError::Flags(0x82)));
    assert!(matches!(put(56, &[14]), Err(HeaderError::Inconsistent(_))), "there is no shard 14 of 10+4");
    assert!(matches!(put(48, &[20]), Err(HeaderError::Inconsistent(_))), "19 stripes");
    assert!(matches!(put(32, &[0xff; 8]), Err(HeaderError::Geometry(_))), "file size");
    assert!(matches!(put(40, &[0; 8]), Err(HeaderError::Geometry(_))), "block size");
    assert!(matches!(put(40, &[0xff; 8]), Err(HeaderError::Geometry(_))), "block size");
    assert!(matches!(put(64, &[0xff, 0xff]), Err(HeaderError::Inconsistent(_))), "code length");
    assert!(matches!(put(66, &[0xff, 0xff]), Err(HeaderError::Inconsistent(_))), "name length");
    assert!(matches!(put(101, &[1]), Err(HeaderError::Inconsistent(_))), "padding");
    assert!(matches!(put(92, b"/"), Err(HeaderError::Name(_))));
    assert!(matches!(put(68, b"x"), Err(HeaderError::Code(_))));
    // As long as the identity it replaces: a shape that would take minutes to build a matrix for.
    assert_eq!(put(68, b"cauchy-good:9999+99:w8"), Err(HeaderError::TooManyShards(10098)));
    let short = header().encode().unwrap();
    assert_eq!(decode(&short[..100]), Err(HeaderError::Short));
    assert_eq!(decode(&[]), Err(HeaderError::Short));
}

#[test]
fn names_stay_in_their_directory() {
    for name in [&b""[..], b".", b"..", b"a/b", b"/etc/passwd", b"a\0b"] {
        assert!(matches!(check_name(name), Err(NameError::NoFileName(_))), "{name:?}");
    }
    assert_eq!(check_name(&[b'a'; 256]), Err(NameError::TooLong { bytes: 256, limit: 255 }));
    for name in [&b"a"[..], b"...", b"a b\n", b"\xff\xfe", &[b'a'; 255]] {
        assert_eq!(check_name(name), Ok(()));
    }
}

#[test]
fn names_of_shards_read_back() {
    for (name, index) in [(&b"a"[..], 0), (b"a.tar", 7), (b"x.000.gabion", 999), (b"\xff", 1000)] {
        let file = shard_file_name(name, index);
        assert_eq!(parse_shard_file_name(&file), Some((name, index)));
    }
    assert_eq!(shard_file_name(b"a", 3), b"a.003.gabion");
    for name in [&b"a.3.gabion"[..], b".003.gabion", b"003.gabion", b"a.003.gabio", b"a.+03.gabion"] {
        assert_eq!(parse_shard_file_name(name), None);
    }
}

proptest! {
    #[test]
    fn any_header_reads_back(
        name in proptest::collection::vec(1u8.., 1..60).prop_filter("a name", |name| check_name(name).is_ok()),
        size in 0u64..1 << 50, block in 1u64..1 << 20, index in 0u32..14, set in any::<[u8; 16]>(), sparse: bool,
    ) {
        let content = Content { code: "10+4".parse().unwrap(), name, size, block, sparse };
        let header = Header { set: SetId(set), content, index };
        prop_assert_eq!(decode(&header.encode().unwrap()), Ok(header));
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
        let magic: Vec<u8> = MAGIC.iter().copied().chain(bytes).collect();
        prop_assert!(decode(&magic).is_err());
    }

    #[test]
    fn every_flipped_bit_is_noticed(at in 0usize..128 * 8, cut in 0usize..128) {
        let whole = header().encode().unwrap();
        let mut flipped = whole.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        prop_assert!(decode(&flipped).is_err());
        prop_assert!(decode(&whole[..cut]).is_err());
    }

    /// Whatever an attacker writes, what is accepted is canonical: it encodes to the same bytes.
    #[test]
    fn resealed_lies_are_refused_or_consistent(
        changes in proptest::collection::vec((8usize..104, any::<u8>()), 1..6),
    ) {
        let bytes = resealed(|bytes| changes.iter().for_each(|&(at, value)| bytes[at] = value));
        if let Ok(header) = decode(&bytes) {
            prop_assert_eq!(header.encode().unwrap(), bytes);
        }
    }
}
