use super::{Durability, Position, Prepared, Record, RecordFiles, SLOTS, Step, prepare, read};
use crate::format::{FileId, Metadata};
use crate::storage::pool::put::new_stub;
use crate::tree::Tree;
use crate::world::Timestamp;
use std::fs;

fn steps() -> Vec<Step> {
    vec![
        Step::Write { full: b"tree/a\n b".to_vec(), text: "some\ninode = 7\ntext\n".to_owned() },
        Step::Remove { full: b"tree/\xff".to_vec() },
        Step::Directory { full: b"tree/d".to_vec(), mode: 0o2750, uid: 7, gid: 8 },
        Step::RemoveDirectory { full: b"tree/e".to_vec() },
        Step::Rename { from: b"tree/f".to_vec(), to: b"tree/g".to_vec(), id: Some(FileId([9; 16])) },
        Step::Rename { from: b"tree/h".to_vec(), to: b"tree/i".to_vec(), id: None },
        Step::Exchange { one: b"tree/j".to_vec(), other: b"tree/k".to_vec() },
    ]
}

#[test]
fn records_are_read_as_they_were_written_and_torn_ones_are_none() {
    let record = Record { inode: 5, ..Position::start().next(steps()) };
    let bytes = record.encode();
    assert_eq!(Record::decode(&bytes), Some(record.clone()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(Record::decode(&damaged), None, "byte {at}");
        assert_eq!(Record::decode(&bytes[..at]), None, "cut at {at}");
    }
    assert_eq!(
        Record { inode: 6, ..record.clone() }.position(),
        record.position(),
        "inodes differ by mirror"
    );
}

#[test]
fn a_torn_record_leaves_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    assert_eq!(read(&tree).unwrap(), None);
    let long = "x".repeat(20_000);
    let first = Position::start().next(vec![Step::Write { full: b"t".to_vec(), text: long }]);
    let record_files = RecordFiles::default();
    first.record(&tree, &record_files, &first.encode(), true).unwrap();
    let second = first.position().next(vec![]);
    second.record(&tree, &record_files, &second.encode(), false).unwrap();
    let third = second.position().next(steps());
    third.apply(&tree, &Prepared(Vec::new()), Durability::Volatile).unwrap_err();
    assert_eq!(read(&tree).unwrap().unwrap().position(), third.position(), "shorter than what it replaced");
    assert!(third.follows(Some(second.position())) && !third.follows(Some(first.position())));
    assert!(first.follows(None) && !second.follows(None));
    let slot = dir.path().join(std::str::from_utf8(SLOTS[1]).unwrap());
    let mut bytes = fs::read(&slot).unwrap();
    bytes[100] ^= 1;
    fs::write(&slot, bytes).unwrap();
    assert_eq!(read(&tree).unwrap().unwrap().position(), second.position());
}

/// A power cut leaves names whose stubs have no bytes.
#[test]
fn a_stub_of_a_new_name_replaces_nothing_but_a_name_without_a_stub() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    for directory in [&b"staging"[..], b"tree"] {
        tree.make_directories(directory, 0o700).unwrap();
    }
    let (record_files, path) = (RecordFiles::default(), dir.path().join("tree/a"));
    let mut last = Position::start();
    let mut make = |there: &[u8]| {
        fs::write(&path, there).unwrap();
        let mut stub = new_stub(&Metadata::default(), Timestamp::from_nanoseconds(1), Vec::new(), 0).unwrap();
        (stub.link, stub.size) = (Some(b"b".to_vec()), 1);
        let record = last.next(vec![Step::Write { full: b"tree/a".to_vec(), text: stub.encode() }]);
        last = record.position();
        let prepared = prepare(&tree, record.steps(), Durability::Volatile, true).unwrap();
        record.apply_with(&tree, &record_files, &record.encode(), &prepared, Durability::Volatile)
    };
    make(&[0; 300]).unwrap();
    make(b"").unwrap();
    let stub = fs::read(&path).unwrap();
    assert!(!stub.is_empty());
    assert_eq!(make(&stub).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), stub);
    make(b"not a stub").unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"not a stub");
    assert_eq!(fs::read_dir(dir.path().join("staging")).unwrap().count(), 0);
}
