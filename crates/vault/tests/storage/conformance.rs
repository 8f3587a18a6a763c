//! Conformance suite, run on every adapter.

use super::fixture::{BLOCK, PoolFixture, metadata};
use gabion_vault::storage::conformance::{Fixture, check};
use gabion_vault::storage::plain::Plain;
use gabion_vault::tree::Tree;
use gabion_vault::world::Timestamp;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn below(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

/// Replaces the file by a pipe: opening it without a timeout would block forever.
fn make_pipe(path: &Path) {
    fs::remove_file(path).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn plain() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    for part in ["root", "root/.gabion", "repository/staging", "repository/redundancy"] {
        fs::create_dir_all(dir.path().join(part)).unwrap();
    }
    let root = dir.path().join("root");
    let repository = Tree::open(&dir.path().join("repository")).unwrap();
    let storage = Plain::new(Tree::open(&root).unwrap(), repository);
    let at = move || root.clone();
    let (put, link, remove, cut, spoil, allocated) =
        (at.clone(), at.clone(), at.clone(), at.clone(), at.clone(), at);
    Fixture {
        storage: Box::new(storage),
        k: 2,
        // Large enough that most of a block is whole pages, wherever the last segment is cut.
        block: 1 << 16,
        put: Box::new(move |path, content| {
            let path = below(&put(), path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }),
        link: Box::new(move |path, to| symlink(OsStr::from_bytes(to), below(&link(), path)).unwrap()),
        remove: Box::new(move |path| fs::remove_file(below(&remove(), path)).unwrap()),
        cut: Box::new(move |path, size| {
            fs::File::options().write(true).open(below(&cut(), path)).unwrap().set_len(size).unwrap();
        }),
        spoil: Box::new(move |path| make_pipe(&below(&spoil(), path))),
        allocated: Box::new(move |path| fs::metadata(below(&allocated(), path)).unwrap().blocks() * 512),
        keep: Box::new(dir),
    }
}

fn pool_of(place: PoolFixture, k: usize) -> Fixture {
    let [put, link, remove, cut, spoil, allocated] = std::array::from_fn(|_| place.clone());
    let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    Fixture {
        storage: Box::new(place.pool.clone()),
        k,
        block: BLOCK,
        put: Box::new(move |path, mut content| {
            put.pool.put(path, &mut content, &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
        }),
        link: Box::new(move |path, to| {
            link.pool.put_link(path, to, &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
        }),
        remove: Box::new(move |path| {
            remove.pool.remove(path).unwrap();
        }),
        cut: Box::new(move |path, size| {
            let stub = cut.pool.stub(path).unwrap();
            for column in (0..k).filter(|&column| stub.object_bytes(column, stub.size) > 0) {
                let object = cut.object(&text(path), column);
                let object = fs::File::options().write(true).open(object).unwrap();
                object.set_len(stub.object_bytes(column, size)).unwrap();
            }
        }),
        spoil: Box::new(move |path| {
            for stub in spoil.stubs(&text(path)) {
                fs::write(stub, b"no stub").unwrap();
            }
        }),
        allocated: Box::new(move |path| {
            let stub = allocated.pool.stub(path).unwrap();
            let there = (0..k).filter(|&column| stub.object_bytes(column, stub.size) > 0);
            let blocks =
                there.map(|column| fs::metadata(allocated.object(&text(path), column)).unwrap().blocks());
            blocks.sum::<u64>() * 512
        }),
        keep: Box::new(place),
    }
}

#[test]
fn plain_directories() {
    check(&plain);
}

#[test]
fn pools() {
    check(&|| pool_of(PoolFixture::new(6, 3, 2), 3));
}

#[test]
fn pools_of_one_column() {
    check(&|| pool_of(PoolFixture::new(3, 1, 2), 1));
}

#[test]
fn pools_whose_targets_share_domains() {
    let domains = [Some("a"), Some("a"), Some("b"), Some("b"), Some("c"), Some("d"), Some("d")];
    check(&|| pool_of(PoolFixture::with_domains(&domains, 2, 2), 2));
}
