//! Other processes use the pool while it is mounted.

use super::fixture::{Fixture, QUIET, TestRng, can_mount, open_pool};
use gabion_vault::coder::Coders;
use gabion_vault::format::Metadata;
use gabion_vault::live::Live;
use gabion_vault::repair::repair;
use gabion_vault::storage::pool::PoolError;
use gabion_vault::world::Timestamp;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[test]
fn others_see_what_the_mount_does_and_the_other_way_round() {
    if !can_mount("others_see_what_the_mount_does_and_the_other_way_round") {
        return;
    }
    let fixture = Fixture::new(5, 2, 1, 4096);
    let mount = fixture.mount();
    let pool = fixture.pool();
    let again = Live::start(open_pool(fixture.root(), 5), Coders::new().unwrap());
    assert!(matches!(again, Err(PoolError::Mounted { .. })), "one mount at a time");
    // A file that is being written is as long as it is, for everyone.
    let content = TestRng(1).bytes(40_000);
    let mut file = File::create(mount.path("open")).unwrap();
    file.write_all(&content).unwrap();
    let get = |name: &str| {
        let mut content = Vec::new();
        pool.get(name.as_bytes(), &mut content).map(|_| content)
    };
    assert!(get("open").unwrap() == content);
    assert_eq!(pool.stub(b"open").unwrap().size, 40_000);
    // Both change names at the same time.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                fs::write(mount.path(&format!("mine{number}")), format!("{number}")).unwrap();
            }
        });
        for number in 0..20 {
            let name = format!("theirs{number}");
            let metadata = Metadata { mode: 0o644, ..Metadata::default() };
            pool.put(name.as_bytes(), &mut &content[..], &metadata, Timestamp::from_nanoseconds(5)).unwrap();
        }
    });
    assert!(fs::read(mount.path("theirs7")).unwrap() == content);
    assert_eq!(get("mine199").unwrap(), b"199");
    pool.remove(b"mine3").unwrap();
    pool.rename(b"mine4", b"moved").unwrap();
    // The kernel believes what it knew of names for a second.
    gabion_testkit::until("names are gone", || {
        !mount.path("mine3").exists() && !mount.path("mine4").exists()
    });
    assert_eq!(fs::read(mount.path("moved")).unwrap(), b"4");
    // Moved under a program that has it open: its content stays, wherever it is.
    pool.rename(b"open", b"open elsewhere").unwrap();
    file.write_all(b"more").unwrap();
    drop(file);
    mount.unmount();
    let longer = [&content[..], b"more"].concat();
    assert!(get("open elsewhere").unwrap() == longer);
    fixture.assert_converges();
}

/// The object of a column of a file.
fn object(fixture: &Fixture, name: &str, column: usize) -> PathBuf {
    let stub = fixture.pool().stub(name.as_bytes()).unwrap();
    let object = format!("{}.{column}", stub.id);
    fixture.root().join(stub.targets[column].as_str()).join("objects").join(&object[..2]).join(object)
}

#[test]
fn files_being_written_are_neither_protected_nor_repaired() {
    if !can_mount("files_being_written_are_neither_protected_nor_repaired") {
        return;
    }
    let fixture = Fixture::new(5, 2, 1, 4096);
    let mount = fixture.mount();
    let old = TestRng(1).bytes(30_000);
    fs::write(mount.path("file"), &old).unwrap();
    mount.until_closed();
    fixture.assert_converges();
    // Rot, and then a program writes elsewhere in the same file.
    let rotten = File::options().write(true).open(object(&fixture, "file", 1)).unwrap();
    rotten.write_all_at(b"rot", 5000).unwrap();
    let before = fixture.pool().stub(b"file").unwrap();
    let file = File::options().write(true).open(mount.path("file")).unwrap();
    file.write_all_at(b"new work", 0).unwrap();
    let marked = fixture.pool().stub(b"file").unwrap();
    assert!(marked.writing && marked.mtime != before.mtime && marked.revision > before.revision);
    let vault = fixture.vault();
    let report = fixture.scrub();
    assert!(
        report.damage.iter().all(|trouble| trouble.changed),
        "someone's work is told from rot: {report:?}"
    );
    let refused = repair(&vault, b"file", QUIET).unwrap_err().to_string();
    assert!(refused.contains("mounted pool"), "{refused}");
    let report = gabion_vault::protect::protect(&vault, QUIET).unwrap();
    assert_eq!(report.done.encoded, 0, "not while it is written: {report:?}");
    drop(file);
    mount.unmount();
    let mut content = Vec::new();
    fixture.pool().get(b"file", &mut content).unwrap();
    assert_eq!(&content[..8], b"new work");
    fixture.assert_converges();
}
