//! Reads of damaged files return valid bytes, or fail.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../vault/faulty/adapter.rs"]
mod adapter;

use super::fixture::{Fixture, QUIET, Seed, rot};
use adapter::{Faulty, InjectedFault, Plan, Point};
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{self, DegradedReader};
use gabion_vault::examine::BlockFault;
use gabion_vault::protect;
use gabion_vault::storage::Storage;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use gabion_vault::world::Timestamp;
use std::fs;
use std::sync::{Arc, Mutex};

fn open(storage: &dyn Storage, name: &str) -> DegradedReader {
    DegradedReader::open(storage, &Coders::new().unwrap(), name.as_bytes()).unwrap()
}

/// Reads random ranges of all lengths, and compares.
fn compare(reader: &DegradedReader, content: &[u8], chance: &mut Seed, told: &str) {
    for _ in 0..60 {
        let start = chance.below(content.len() as u64 + 10) as usize;
        let mut buffer = vec![0xaa; 1 << chance.below(17)];
        let got = reader.read(start as u64, &mut buffer).unwrap_or_else(|error| panic!("{told}: {error}"));
        let wanted = &content[start.min(content.len())..(start + buffer.len()).min(content.len())];
        assert!(buffer[..got] == *wanted, "{told}: {got} bytes at {start}");
    }
}

#[test]
fn any_range_of_a_degraded_file_is_right() {
    let mut fixture = Fixture::filled(50);
    let mut chance = Seed(1);
    let name = "dir1/file 9";
    let content = fixture.files[name].clone();
    let holders = fixture.data(name);
    let number = |at: usize| holders[at][1..].parse::<usize>().unwrap();
    let reader = open(&fixture.pool, name);
    compare(&reader, &content, &mut chance, "healthy");
    assert!(reader.is_guarded() && !reader.report().is_degraded(), "{:?}", reader.report());
    for lost in [vec![0], vec![0, 2]] {
        lost.iter().for_each(|&at| fixture.lose(number(at)));
        let reader = open(&fixture.pool, name);
        compare(&reader, &content, &mut chance, &format!("without {lost:?}"));
        let report = reader.report();
        assert!(report.is_degraded() && report.faults.contains_key(&holders[0]), "{report:?}");
        assert!(report.causes().contains("missing"), "{}", report.causes());
        // From several threads.
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (reader, content) = (&reader, &content);
                scope.spawn(move || compare(reader, content, &mut Seed(seed), "side by side"));
            }
        });
        lost.iter().for_each(|&at| fixture.restore_disk(number(at)));
    }
}

#[test]
fn corrupt_bytes_are_never_returned() {
    let fixture = Fixture::filled(51);
    let mut chance = Seed(2);
    for (name, content) in fixture.files.iter().filter(|(_, content)| !content.is_empty()) {
        let path = fixture.object(name, 0);
        let size = fs::metadata(&path).unwrap().len();
        (0..3).for_each(|_| rot(&path, chance.below(size)));
        let reader = open(&fixture.pool, name);
        compare(&reader, content, &mut chance, name);
        let (read, report) = fixture.read(name);
        assert!(read.as_ref() == Some(content), "{name}");
        assert!(report.is_degraded() && !report.wrong.is_empty(), "{name}: {report:?}");
    }
}

#[test]
fn unrecoverable_ranges_are_errors_with_names() {
    let mut fixture = Fixture::filled(52);
    // Not a target that is the only mirror: without the namespace nothing is known.
    let mirrors = ["d1", "d2", "d3"];
    let redundancy_locations_of = |name: &str| fixture.data(name);
    let apart =
        |name: &&&str| redundancy_locations_of(name).iter().any(|holder| !mirrors.contains(&holder.as_str()));
    let name =
        ["dir1/file 9", "dir0/file 8", "dir1/file 7", "dir0/file 6"].iter().find(apart).copied().unwrap();
    let holders = fixture.data(name);
    holders.iter().for_each(|holder| fixture.lose(holder[1..].parse().unwrap()));
    let error = open(&fixture.pool, name).read(0, &mut [0; 100]).unwrap_err().to_string();
    assert!(holders.iter().all(|holder| error.contains(holder.as_str())), "{error}");
}

/// Redundancy of a previous version must not be used for the present one.
#[test]
fn a_file_that_was_changed_is_read_as_it_is() {
    let mut fixture = Fixture::filled(53);
    let name = "dir1/file 7";
    let new = Seed(5).bytes(fixture.files[name].len());
    fixture.put(name, &new);
    let reader = open(&fixture.pool, name);
    assert!(!reader.is_guarded());
    compare(&reader, &new, &mut Seed(6), "changed");
    assert!(reader.report().unverified_bytes > 0);
    // A lost file stays lost: older bytes are no substitute.
    let holder = fixture.data(name)[0].clone();
    fixture.lose(holder[1..].parse().unwrap());
    let error = open(&fixture.pool, name).read(0, &mut [0; 100]).unwrap_err().to_string();
    assert!(error.contains("no redundancy"), "{error}");
}

fn plain(block: &str) -> (tempfile::TempDir, Vault) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let location = Location::of(&dir.path().join("tree"), None);
    let mut vault = Vault::create(&location, None, Clock::System).unwrap();
    vault.set_policy(&format!("[default]\ncode = \"4+2\"\nblock = \"{block}\"\n")).unwrap();
    (dir, vault)
}

/// A caller with the bytes from another source, such as a mount with its page cache, learns whether they are valid.
#[test]
fn cached_bytes_are_verified() {
    let (dir, vault) = plain("4KiB");
    let path = dir.path().join("tree/file");
    let content = Seed(17).bytes(1 << 18);
    fs::write(&path, &content).unwrap();
    assert!(!open(&*vault.storage, "file").vouches_for(0, &content), "not protected yet");
    protect::protect(&vault, QUIET).unwrap();
    let reader = open(&*vault.storage, "file");
    assert!(reader.is_guarded());
    let vouches = |range: std::ops::Range<usize>| reader.vouches_for(range.start as u64, &content[range]);
    for at in [0, 5000, 65_535] {
        let mut wrong = content[..65_536].to_vec();
        wrong[at] ^= 1;
        assert!(!reader.vouches_for(0, &wrong), "byte {at}");
    }
    assert!(vouches(0..65_536) && vouches(65_536..131_072));
    assert!(reader.report().verified >= 32 && !reader.report().is_degraded(), "{:?}", reader.report());
    // A part of a block that was not verified yet proves nothing.
    assert!(!vouches(200_001..200_100));
    assert_eq!(reader.read(200_001, &mut [0; 99]).unwrap(), 99);
    assert!(vouches(200_001..200_100));
    assert!(!reader.vouches_for(0, &[&content[..], &[0]].concat()), "behind the end");
    fs::write(&path, Seed(18).bytes(1 << 18)).unwrap();
    assert!(!vouches(0..65_536), "another version is there");
}

#[test]
fn plain_files_are_read_like_those_of_pools() {
    let (dir, vault) = plain("4KiB");
    let path = dir.path().join("tree/file");
    let content = Seed(7).bytes(300_000);
    fs::write(&path, &content).unwrap();
    let reader = open(&*vault.storage, "file");
    assert!(!reader.is_guarded(), "not protected yet");
    compare(&reader, &content, &mut Seed(8), "unprotected");
    protect::protect(&vault, QUIET).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    for at in [10, 100_000, 299_999] {
        rot(&path, at);
    }
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    // Size, mtime and inode show that the file was not written, whatever its ctime.
    let reader = open(&*vault.storage, "file");
    compare(&reader, &content, &mut Seed(10), "rot");
    let report = reader.report();
    assert!(report.is_degraded() && report.faults["data"].contains_key(&BlockFault::Wrong), "{report:?}");
    // Written while open: earlier verification results are dropped.
    fs::write(&path, b"new").unwrap();
    assert!(reader.read(0, &mut [0; 3]).is_err());
    let mut buffer = [0; 3];
    open(&*vault.storage, "file").read(0, &mut buffer).unwrap();
    assert_eq!(&buffer, b"new");
}

/// Regression: a mounted directory returned corrupt bytes of a file after its permissions had changed, before or after
/// it was opened: the ctime was taken for a write.
#[test]
fn other_permissions_do_not_end_the_checks() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, vault) = plain("4KiB");
    let path = dir.path().join("tree/file");
    let content = Seed(17).bytes(300_000);
    fs::write(&path, &content).unwrap();
    protect::protect(&vault, QUIET).unwrap();
    let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    rot(&path, 100_000);
    set_mode(0o600);
    let reader = open(&*vault.storage, "file");
    assert!(reader.is_guarded());
    compare(&reader, &content, &mut Seed(18), "other permissions before it was opened");
    set_mode(0o644);
    compare(&reader, &content, &mut Seed(19), "other permissions while it is open");
    let reader = open(&*vault.storage, "file");
    set_mode(0o600);
    compare(&reader, &content, &mut Seed(20), "other permissions before the first read");
    // `protect` records the damage; the file stays damaged.
    assert_eq!(protect::protect(&vault, QUIET).unwrap().done.damaged.len(), 1);
    compare(&open(&*vault.storage, "file"), &content, &mut Seed(21), "known to be damaged");
}

/// Encoding a large changed file takes long, and its old redundancy is locked all that time.
#[test]
fn readers_do_not_wait_for_redundancy_of_another_version() {
    let (dir, vault) = plain("4KiB");
    let (path, coders) = (dir.path().join("tree/file"), Coders::new().unwrap());
    fs::write(&path, b"first").unwrap();
    protect::protect(&vault, QUIET).unwrap();
    let repositories = vault.storage.repositories();
    let [repository] = &repositories[..] else { panic!("a directory has one") };
    let place = repository.place(b"file");
    let hold = || place.open_to_update(&coders).unwrap().expect("it is protected");
    let (send, opened) = std::sync::mpsc::channel();
    let deadline = std::time::Duration::from_millis;
    std::thread::scope(|scope| {
        let open_beside = || {
            let (send, storage) = (send.clone(), &*vault.storage);
            scope.spawn(move || send.send(open(storage, "file")).unwrap());
        };
        let held = hold();
        open_beside();
        assert!(
            opened.recv_timeout(deadline(200)).is_err(),
            "what protects the file as it is, is waited for"
        );
        drop(held);
        assert!(opened.recv_timeout(gabion_testkit::PATIENCE).unwrap().is_guarded());
        fs::write(&path, b"second").unwrap();
        let held = hold();
        open_beside();
        let reader = opened.recv_timeout(gabion_testkit::PATIENCE);
        drop(held);
        let (reader, mut buffer) = (reader.expect("it waits for the redundancy of what was there"), [0; 6]);
        assert_eq!(reader.read(0, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer, b"second");
        assert!(!reader.is_guarded());
    });
}

#[test]
fn reads_that_fail_or_take_too_long_are_reconstructed() {
    let fixture = Fixture::filled(54);
    let name = "dir0/file 8";
    for (injected, fault) in [
        (InjectedFault::Timeout, BlockFault::Timeout),
        (InjectedFault::Eio, BlockFault::Unreadable),
        (InjectedFault::Rot, BlockFault::Wrong),
        (InjectedFault::Short, BlockFault::Lost),
    ] {
        let plan = Plan(Arc::new(Mutex::new(Box::new(|_, _| None))));
        let faulty = Faulty { inner: fixture.pool.clone(), plan: plan.clone() };
        let reader = open(&faulty, name);
        let mut reads = 0;
        // Every fifth read fails: at most one of five blocks.
        plan.set(move |point, _| {
            reads += u32::from(point == Point::Read);
            (point == Point::Read && reads % 5 == 0).then_some(injected)
        });
        match injected {
            // Verified blocks are not verified again.
            InjectedFault::Rot => {
                let mut read = Vec::new();
                degraded::copy_out(&reader, &mut read).unwrap();
                assert!(read == fixture.files[name]);
            }
            _ => compare(&reader, &fixture.files[name], &mut Seed(11), &format!("{injected:?}")),
        }
        let report = reader.report();
        let seen = report.faults.values().any(|why| why.contains_key(&fault));
        // A block that is valid on the second read is not reconstructed.
        assert!((report.is_degraded() || injected == InjectedFault::Rot) && seen, "{injected:?}: {report:?}");
    }
}

#[test]
fn degraded_reads_are_noted_for_status() {
    let mut fixture = Fixture::filled(55);
    assert_eq!(fixture.status().degraded_reads, None);
    let name = "dir0/file 8";
    let holder = fixture.data(name)[0].clone();
    fixture.lose(holder[1..].parse().unwrap());
    for _ in 0..2 {
        let (_, report) = fixture.read(name);
        degraded::note(&fixture.vault.catalogue, &report, Timestamp::from_nanoseconds(77)).unwrap();
    }
    let record = fixture.status().degraded_reads.unwrap();
    assert_eq!((record.reads, record.last), (2, Timestamp::from_nanoseconds(77)));
    assert!(record.blocks > 0 && record.targets.contains_key(&holder), "{record:?}");
}
