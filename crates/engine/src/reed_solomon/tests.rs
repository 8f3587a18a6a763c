//! The simple interface against the plans, for every loss and with invalid arguments.

use super::*;
use std::io;

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn stripe(rs: &ReedSolomon, len: usize) -> Vec<Vec<u8>> {
    let mut shards: Vec<Vec<u8>> = (0..rs.code().blocks()).map(|shard| bytes(len, shard as u64)).collect();
    rs.encode(&mut shards).unwrap();
    shards
}

fn codes() -> Vec<ReedSolomon> {
    let engine = Engine::new(1).unwrap();
    let of = |code: &str| ReedSolomon::with_code(&code.parse().unwrap(), &engine).unwrap();
    vec![
        ReedSolomon::new(4, 2).unwrap(),
        of("3+2:w16"),
        of("cauchy-good:3+2:w4:packets=8"),
        of("20+9"),
        of("70+2"),
    ]
}

#[test]
fn shards_are_those_of_the_plans() {
    for rs in codes() {
        let shards = stripe(&rs, 640);
        let code = rs.code();
        let data: Vec<&[u8]> = shards[..code.k()].iter().map(|shard| &shard[..]).collect();
        let mut expected = vec![vec![0; 640]; code.m()];
        let mut outputs: Vec<&mut [u8]> = expected.iter_mut().map(|block| &mut block[..]).collect();
        rs.engine.compile(&code.encode_plan().unwrap()).unwrap().run(&data, &mut outputs).unwrap();
        assert_eq!(shards[code.k()..], expected);
        assert!(rs.verify(&shards).unwrap());
    }
}

#[test]
fn every_loss_of_4_2_is_restored() {
    let rs = ReedSolomon::new(4, 2).unwrap();
    let whole: Vec<Option<Vec<u8>>> = stripe(&rs, 1000).into_iter().map(Some).collect();
    for lost in 0..1_u32 << 6 {
        let mut shards = whole.clone();
        (0..6).filter(|shard| lost >> shard & 1 == 1).for_each(|shard| shards[shard] = None);
        let before = shards.clone();
        if lost.count_ones() <= 2 {
            rs.reconstruct_data(&mut shards).unwrap();
            assert_eq!((&shards[..4], &shards[4..]), (&whole[..4], &before[4..]));
            rs.reconstruct(&mut shards).unwrap();
            assert_eq!(shards, whole);
        } else if lost & 15 != 0 {
            let have = 6 - lost.count_ones() as usize;
            assert_eq!(rs.reconstruct_data(&mut shards), Err(Error::NotEnoughBlocks { need: 4, have }));
            assert_eq!(shards, before);
        }
    }
}

#[test]
fn any_changed_byte_is_seen() {
    for rs in codes() {
        let len = (CHUNK + 640).next_multiple_of(rs.code().granule());
        let shards = stripe(&rs, len);
        assert!(rs.verify(&shards).unwrap());
        for (shard, at) in [(0, 0), (rs.code().k(), len - 1), (rs.code().blocks() - 1, CHUNK)] {
            let mut shards = shards.clone();
            shards[shard][at] ^= 0x10;
            assert!(!rs.verify(&shards).unwrap(), "{} shard {shard}", rs.code());
        }
    }
}

#[test]
fn an_update_gives_the_redundancy_of_the_new_data() {
    for rs in codes() {
        let k = rs.code().k();
        let len = (CHUNK + 640).next_multiple_of(rs.code().granule());
        let mut shards = stripe(&rs, len);
        for column in [0, k - 1, 0] {
            let new = bytes(len, 77 + column as u64);
            let (data, redundancy) = shards.split_at_mut(k);
            rs.update(column, &data[column], &new, redundancy).unwrap();
            data[column] = new;
            assert!(rs.verify(&shards).unwrap());
        }
    }
}

#[test]
fn streams_come_back_from_any_k_shards() {
    for rs in codes() {
        let (k, blocks) = (rs.code().k(), rs.code().blocks());
        let block = rs.code().granule() * 32;
        for len in [0, 1, block - 1, k * block, k * block + 1, 3 * k * block - 5] {
            let data = bytes(len, 5);
            let mut shards = vec![Vec::new(); blocks];
            assert_eq!(rs.encode_stream(block, &data[..], &mut shards).unwrap(), len as u64);
            assert!(shards.iter().all(|shard| shard.len() == shards[0].len()));
            assert!(shards[0].len() * k < len + k * rs.code().granule());
            for first in 0..=rs.code().m() {
                let mut readers: Vec<Option<&[u8]>> = shards.iter().map(|shard| Some(&shard[..])).collect();
                readers[first..first + rs.code().m()].fill(None);
                let mut decoded = Vec::new();
                rs.decode_stream(block, len as u64, &mut readers, &mut decoded).unwrap();
                assert!(decoded == data, "{} {len} bytes without {first}", rs.code());
            }
        }
    }
}

#[test]
fn errors_name_the_shard() {
    let rs = ReedSolomon::new(2, 1).unwrap();
    let text = |error: Error| error.to_string();
    assert_eq!(text(rs.encode(&mut [[0; 4]; 2]).unwrap_err()), "3 shards are expected for 2+1, not 2");
    let mut uneven = vec![vec![0; 4], vec![0; 5], vec![7; 4]];
    assert_eq!(text(rs.encode(&mut uneven).unwrap_err()), "shard 1 has 5 bytes, the first has 4");
    assert_eq!(text(rs.verify(&uneven).unwrap_err()), "shard 1 has 5 bytes, the first has 4");
    assert_eq!(uneven[2], [7; 4]);
    assert_eq!(
        text(rs.encode_to(&[[0; 4]; 2], &mut [[0; 4]; 2]).unwrap_err()),
        "1 shards are expected for 2+1, not 2"
    );
    let mut stripe = vec![Some(vec![0; 4]), None, Some(vec![0; 3])];
    assert_eq!(rs.reconstruct(&mut stripe), Err(Error::ShardLength { index: 2, len: 3, want: 4 }));
    let mut p = [[9; 4]];
    assert_eq!(
        rs.update(2, &[0; 4], &[0; 4], &mut p).unwrap_err().to_string(),
        "column 2 is a redundancy column, a data column is expected"
    );
    assert!(matches!(
        rs.update(9, &[0; 4], &[0; 4], &mut p),
        Err(Error::NoSuchColumn { column: 9, last: 2 })
    ));
    assert!(matches!(rs.update(0, &[0; 4], &[0; 5], &mut p), Err(Error::ShardLength { index: 1, .. })));
    assert_eq!(p, [[9; 4]]);
    assert!(matches!(ReedSolomon::new(0, 1), Err(Error::ShapeOutOfRange { .. })));
    assert!(matches!(ReedSolomon::new(250, 7), Err(Error::ShapeOutOfRange { .. })));

    let short = |_| -> Option<&[u8]> { Some(&[1; 3]) };
    let mut readers: Vec<Option<&[u8]>> = (0..3).map(short).collect();
    let mut none = Vec::new();
    match rs.decode_stream(4, 8, &mut readers, &mut none) {
        Err(StreamError::Shard { index: 0, source }) => {
            assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof)
        }
        other => panic!("{other:?}"),
    }
    assert!(none.is_empty());
    let blocks = rs.encode_stream(0, &[][..], &mut [vec![], vec![], vec![]]);
    assert!(matches!(blocks, Err(StreamError::BlockLength { block: 0, granule: 1 })));
    let huge = rs.encode_stream(usize::MAX / 2, &[][..], &mut [vec![], vec![], vec![]]);
    assert!(matches!(huge, Err(StreamError::BlockLength { .. })));
}

#[test]
fn threads_share_one_value() {
    let rs = ReedSolomon::new(10, 4).unwrap();
    let expected = stripe(&rs, 4096);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (rs, expected) = (&rs, &expected);
            scope.spawn(move || {
                for round in 0..50 {
                    let mut shards: Vec<Option<Vec<u8>>> = expected.iter().cloned().map(Some).collect();
                    (0..4).for_each(|i| shards[(thread + round + 3 * i) % 14] = None);
                    rs.reconstruct(&mut shards).unwrap();
                    assert!(shards.iter().flatten().eq(expected));
                }
            });
        }
    });
}

/// The example of the Java library that the crate reed-solomon-erasure is a port of, in both of their tests.
#[test]
fn vandermonde_shards_are_those_of_reed_solomon_erasure() {
    let rs =
        ReedSolomon::with_code(&"rs-vandermonde:5+5".parse().unwrap(), &Engine::new(1).unwrap()).unwrap();
    let data = [[0, 1], [4, 5], [2, 3], [6, 7], [8, 9]];
    let mut parity = [[0; 2]; 5];
    rs.encode_to(&data, &mut parity).unwrap();
    assert_eq!(parity, [[12, 13], [10, 11], [14, 15], [90, 91], [94, 95]]);
}
