//! Content that differs although size and mtime are unchanged is damage: no redundancy is made of it, whatever else
//! happens to the file.

use super::fixture::{Fixture, TestRng, flip, live_worker, rot};
use gabion_vault::catalogue::{Piece, State};
use gabion_vault::worker::Scanned;
use gabion_vault::world::SECOND;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

fn set_mode(fixture: &Fixture, name: &str, mode: u32) {
    std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Regression: undetected corruption was encoded with the next `chmod`, and the file could not be restored.
#[test]
fn rot_is_found_when_only_permissions_changed() {
    // Redundancy that is rewritten, and that is updated in place.
    for size in [1, 3000, 300_000, 20_000_000] {
        let fixture = Fixture::new("4+2");
        let content = TestRng(size).bytes(size as usize);
        fixture.write("a/file", &content);
        fixture.write("fine", &content);
        fixture.protect_all();
        let before = std::fs::read(fixture.redundancy("a/file")).unwrap();
        flip(&fixture.path("a/file"), size / 2);
        set_mode(&fixture, "a/file", 0o600);
        set_mode(&fixture, "fine", 0o600);
        let report = fixture.protect_all();
        let [damage] = &report.done.damaged[..] else { panic!("{size}: {report:?}") };
        assert_eq!(
            (damage.path.as_slice(), damage.state, damage.changed),
            (&b"a/file"[..], State::Damaged, false)
        );
        let at = |piece| damage.problems.iter().filter(move |it| it.piece == piece);
        assert!(at(Piece::Data).count() == 1 && at(Piece::Data).all(|it| it.range.contains(&(size / 2))));
        assert_eq!((report.affected, report.pending), (vec![(State::Damaged, 1)], 0));
        // Its redundancy is unchanged except for the header.
        let after = std::fs::read(fixture.redundancy("a/file")).unwrap();
        assert!(
            before.len() == after.len() && before[256..before.len() - 256] == after[256..after.len() - 256]
        );
        // It stays damaged until it is repaired, and is not read again.
        let again = fixture.protect_all();
        assert!(again.seen.changes.is_empty() && again.affected == [(State::Damaged, 1)], "{again:?}");
        assert_eq!(fixture.repair("a/file").state, State::Protected);
        assert!(fixture.read("a/file") == content);
        assert!(fixture.protect_all().affected.is_empty());
        fixture.assert_clean();
    }
}

/// A restored file must not have weaker permissions than before.
#[test]
fn permissions_of_a_damaged_file_are_kept_for_its_restoration() {
    let fixture = Fixture::new("1+2");
    let content = TestRng(1).bytes(50_000);
    fixture.write("file", &content);
    set_mode(&fixture, "file", 0o644);
    fixture.protect_all();
    flip(&fixture.path("file"), 7);
    set_mode(&fixture, "file", 0o600);
    assert_eq!(fixture.protect_all().done.damaged.len(), 1);
    std::fs::remove_file(fixture.path("file")).unwrap();
    assert_eq!(fixture.repair("file").state, State::Protected);
    assert!(fixture.read("file") == content);
    assert_eq!(std::fs::metadata(fixture.path("file")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Regression: new permissions of a file that was renamed at the same time were ignored.
#[test]
fn permissions_of_a_renamed_file_are_kept_for_its_restoration() {
    let fixture = Fixture::new("1+2");
    fixture.write("file", b"secret");
    set_mode(&fixture, "file", 0o644);
    fixture.protect_all();
    std::fs::rename(fixture.path("file"), fixture.path("other")).unwrap();
    set_mode(&fixture, "other", 0o600);
    fixture.protect_all();
    std::fs::remove_file(fixture.path("other")).unwrap();
    assert_eq!(fixture.repair("other").state, State::Protected);
    assert_eq!(std::fs::metadata(fixture.path("other")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Regression: a refused file that was then renamed was forgotten, or encoded.
#[test]
fn damage_goes_along_when_a_file_is_renamed() {
    for (rename_first, same_run) in [(true, true), (false, true), (false, false)] {
        let fixture = Fixture::new("4+2");
        let content = TestRng(9).bytes(100_000);
        fixture.write("d/file", &content);
        fixture.protect_all();
        flip(&fixture.path("d/file"), 50_000);
        if rename_first {
            std::fs::rename(fixture.path("d"), fixture.path("e")).unwrap();
            set_mode(&fixture, "e/file", 0o600);
        } else {
            set_mode(&fixture, "d/file", 0o600);
            if !same_run {
                assert_eq!(fixture.protect_all().done.damaged.len(), 1);
            }
            std::fs::rename(fixture.path("d"), fixture.path("e")).unwrap();
        }
        let report = fixture.protect_all();
        assert_eq!((report.affected.as_slice(), report.pending), (&[(State::Damaged, 1)][..], 0));
        assert!(!fixture.redundancy("d/file").exists());
        assert_eq!(fixture.vault.catalogue.count().unwrap(), 1);
        assert!(fixture.protect_all().seen.changes.is_empty());
        assert_eq!(fixture.state("e/file"), State::Damaged);
        assert_eq!(fixture.repair("e/file").state, State::Protected);
        assert!(fixture.read("e/file") == content);
        fixture.protect_all();
        fixture.assert_clean();
    }
}

/// A new attribute may not fit into the existing header: it is stored when the file is intact again.
#[test]
fn attributes_of_a_damaged_file_follow_after_its_repair() {
    let fixture = Fixture::new("4+2");
    let content = TestRng(2).bytes(40_000);
    fixture.write("file", &content);
    fixture.protect_all();
    flip(&fixture.path("file"), 1);
    let file = std::fs::File::open(fixture.path("file")).unwrap();
    let value = [b'v'; 500];
    rustix::fs::fsetxattr(&file, "user.note", &value, rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(fixture.protect_all().done.damaged.len(), 1);
    assert_eq!(fixture.repair("file").state, State::Protected);
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, report.done.stripes.0), (1, 0), "{report:?}");
    fixture.assert_clean();
    assert!(std::fs::read(fixture.redundancy("file")).unwrap().windows(500).any(|window| window == value));
    assert!(fixture.protect_all().seen.changes.is_empty());
}

/// An intended change with the old mtime is protected once the mtime changes.
#[test]
fn an_intended_change_is_protected_after_a_touch() {
    let fixture = Fixture::new("4+2");
    fixture.write("file", &TestRng(3).bytes(10_000));
    fixture.protect_all();
    rot(&fixture.path("file"), 10, b"meant");
    assert_eq!(fixture.protect_all().done.damaged.len(), 1);
    let file = std::fs::File::options().write(true).open(fixture.path("file")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, report.affected.len()), (1, 0));
    fixture.assert_clean();
}

/// Regression: a protected file with a corrupt bit got a second hard link. `protect` reported the first name as damaged
/// and encoded the corrupt content for the second. Repairs of the two names then reverted each other.
#[test]
fn a_new_name_of_a_damaged_file_is_not_protected() {
    let fixture = Fixture::new("4+2");
    let content = TestRng(8).bytes(100_000);
    fixture.write("a", &content);
    fixture.protect_all();
    flip(&fixture.path("a"), 500);
    std::fs::hard_link(fixture.path("a"), fixture.path("h")).unwrap();
    let report = fixture.protect();
    assert_eq!(report.done.failures, 1, "{report:?}");
    assert!(report.done.failed[0].1.to_string().contains("hard link of a"), "{report:?}");
    assert!(!fixture.redundancy("h").exists());
    fixture.scrub();
    fixture.repair("a");
    assert!(std::fs::read(fixture.path("h")).unwrap() == content);
    fixture.protect_all();
    fixture.assert_clean();
    // A further hard link of an intact file costs one comparison.
    std::fs::hard_link(fixture.path("a"), fixture.path("third")).unwrap();
    fixture.protect_all();
    fixture.assert_clean();
    assert!(std::fs::read(fixture.path("a")).unwrap() == content);
}

/// A file that was tried again in one run, because the others took long, was reported once for each try, and as failed
/// although the last try had succeeded.
#[test]
fn a_file_that_is_tried_again_is_reported_once() {
    for is_mended in [false, true] {
        let fixture = Fixture::new("4+2");
        fixture.write("a", &TestRng(8).bytes(100_000));
        fixture.protect_all();
        flip(&fixture.path("a"), 500);
        std::fs::hard_link(fixture.path("a"), fixture.path("h")).unwrap();
        assert_eq!(fixture.protect().done.failures, 1);
        fixture.clock.set(fixture.clock.now() + 60 * SECOND);
        let (path, calls) = (fixture.path("a"), AtomicU32::new(0));
        // It is asked a few times in each try.
        let stopped = || {
            let call = calls.fetch_add(1, Relaxed);
            if is_mended && call == 30 {
                flip(&path, 500);
            }
            call >= 100
        };
        let scanned = Scanned::default();
        let mut worker = live_worker(&fixture.vault, &scanned);
        worker.options.retry = Duration::ZERO;
        worker.run.stopped = &stopped;
        let done = worker.drain(None).unwrap();
        let paths: Vec<&[u8]> = done.failed.iter().map(|(path, _)| &path[..]).collect();
        let expected: &[&[u8]] = if is_mended { &[] } else { &[b"h"] };
        assert_eq!((&paths[..], done.failures), (expected, expected.len() as u64), "{done:?}");
        let left = fixture.vault.changelog.entries(None, 10).unwrap();
        assert!(is_mended || left[0].attempts >= 5, "{left:?}");
    }
}
