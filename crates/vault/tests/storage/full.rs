//! A full disk.

use super::fixture::{BLOCK, bytes, metadata, options};
use gabion_vault::storage::pool::{NewTarget, Pool, PoolError};
use gabion_vault::world::Timestamp;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A small file system; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(path: &Path) -> Option<Small<'_>> {
        fs::create_dir(path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,mode=755", "none"])
            .arg(path)
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Small(path))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_target_is_named_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small");
    let Some(_small) = Small::mount(&path) else {
        gabion_testkit::skip!("a_full_target_is_named_and_nothing_is_lost: no right to mount a tmpfs");
        return;
    };
    // The small disk is one of two that every file needs; a third also has the namespace.
    let targets = [path.clone(), dir.path().join("large")].map(|path| NewTarget { path, domain: None });
    let pool = Pool::create("tank", &targets, 2, BLOCK, 0, options()).unwrap();
    let put = |size: usize| {
        pool.put(b"file", &mut &bytes(size, 1)[..], &metadata(), Timestamp::from_nanoseconds(5))
    };
    put(100_000).unwrap();
    let error = put(1_000_000).unwrap_err();
    assert!(matches!(&error, PoolError::Target { target, .. } if target == "small"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let mut content = Vec::new();
    pool.get(b"file", &mut content).unwrap();
    assert!(content == bytes(100_000, 1), "what was there is there");
    assert!(pool.sweep(false).unwrap().orphans.is_empty(), "what did not fit is gone");
    // Placement leaves out a disk without space for a block.
    fs::write(path.join("filler"), vec![1; 1 << 20]).unwrap_err();
    let error = put(100).unwrap_err();
    assert!(matches!(error, PoolError::Domains { need: 2, have: 1, .. }), "{error}");
    fs::remove_file(path.join("filler")).unwrap();
    put(100).unwrap();
}
