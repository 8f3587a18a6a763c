//! What differs from what was protected although nobody wrote to it, by all that the file system says, is damaged: whatever else
//! happens to the file, no redundancy is made of it.

use super::playground::{Playground, Seed, flip, rot};
use gabion_vault::catalogue::{Piece, State};
use std::os::unix::fs::PermissionsExt;

fn set_mode(ground: &Playground, name: &str, mode: u32) {
    std::fs::set_permissions(ground.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Rot that nobody had found went into redundancy with the next `chmod`, and nothing could bring the file back.
#[test]
fn rot_is_found_when_only_permissions_changed() {
    // Redundancy that is made anew, and that is updated in place.
    for size in [1, 3000, 300_000, 20_000_000] {
        let ground = Playground::new("4+2");
        let content = Seed(size).bytes(size as usize);
        ground.write("a/file", &content);
        ground.write("fine", &content);
        ground.protect_all();
        let before = std::fs::read(ground.redundancy("a/file")).unwrap();
        flip(&ground.path("a/file"), size / 2);
        set_mode(&ground, "a/file", 0o600);
        set_mode(&ground, "fine", 0o600);
        let report = ground.protect_all();
        let [trouble] = &report.done.damaged[..] else { panic!("{size}: {report:?}") };
        assert_eq!(
            (trouble.path.as_slice(), trouble.state, trouble.changed),
            (&b"a/file"[..], State::Damaged, false)
        );
        let at = |piece| trouble.problems.iter().filter(move |it| it.piece == piece);
        assert!(at(Piece::Data).count() == 1 && at(Piece::Data).all(|it| it.range.contains(&(size / 2))));
        assert_eq!((report.affected, report.pending), (vec![(State::Damaged, 1)], 0));
        // Its redundancy is what it was, but for the header.
        let after = std::fs::read(ground.redundancy("a/file")).unwrap();
        assert!(
            before.len() == after.len() && before[256..before.len() - 256] == after[256..after.len() - 256]
        );
        // It stays so until it is repaired, and is not looked at anew.
        let again = ground.protect_all();
        assert!(again.seen.changes.is_empty() && again.affected == [(State::Damaged, 1)], "{again:?}");
        assert_eq!(ground.repair("a/file").state, State::Protected);
        assert!(ground.read("a/file") == content);
        assert!(ground.protect_all().affected.is_empty());
        ground.assert_clean();
    }
}

/// A file that is restored must not be open to more people than it was when it was seen last.
#[test]
fn permissions_of_a_damaged_file_are_kept_for_its_restoration() {
    let ground = Playground::new("1+2");
    let content = Seed(1).bytes(50_000);
    ground.write("file", &content);
    set_mode(&ground, "file", 0o644);
    ground.protect_all();
    flip(&ground.path("file"), 7);
    set_mode(&ground, "file", 0o600);
    assert_eq!(ground.protect_all().done.damaged.len(), 1);
    std::fs::remove_file(ground.path("file")).unwrap();
    assert_eq!(ground.repair("file").state, State::Protected);
    assert!(ground.read("file") == content);
    assert_eq!(std::fs::metadata(ground.path("file")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// New permissions of what is renamed at the same time were not noticed.
#[test]
fn permissions_of_a_renamed_file_are_kept_for_its_restoration() {
    let ground = Playground::new("1+2");
    ground.write("file", b"secret");
    set_mode(&ground, "file", 0o644);
    ground.protect_all();
    std::fs::rename(ground.path("file"), ground.path("other")).unwrap();
    set_mode(&ground, "other", 0o600);
    ground.protect_all();
    std::fs::remove_file(ground.path("other")).unwrap();
    assert_eq!(ground.repair("other").state, State::Protected);
    assert_eq!(std::fs::metadata(ground.path("other")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A file that was refused and then renamed was forgotten, or encoded after all.
#[test]
fn damage_goes_along_when_a_file_is_renamed() {
    for (rename_first, same_run) in [(true, true), (false, true), (false, false)] {
        let ground = Playground::new("4+2");
        let content = Seed(9).bytes(100_000);
        ground.write("d/file", &content);
        ground.protect_all();
        flip(&ground.path("d/file"), 50_000);
        if rename_first {
            std::fs::rename(ground.path("d"), ground.path("e")).unwrap();
            set_mode(&ground, "e/file", 0o600);
        } else {
            set_mode(&ground, "d/file", 0o600);
            if !same_run {
                assert_eq!(ground.protect_all().done.damaged.len(), 1);
            }
            std::fs::rename(ground.path("d"), ground.path("e")).unwrap();
        }
        let report = ground.protect_all();
        assert_eq!((report.affected.as_slice(), report.pending), (&[(State::Damaged, 1)][..], 0));
        assert!(!ground.redundancy("d/file").exists());
        assert_eq!(ground.vault.catalogue.count().unwrap(), 1);
        assert!(ground.protect_all().seen.changes.is_empty());
        assert_eq!(ground.state("e/file"), State::Damaged);
        assert_eq!(ground.repair("e/file").state, State::Protected);
        assert!(ground.read("e/file") == content);
        ground.protect_all();
        ground.assert_clean();
    }
}

/// A new attribute may not fit into the header as it is: it is taken over when the file is whole again.
#[test]
fn attributes_of_a_damaged_file_follow_after_its_repair() {
    let ground = Playground::new("4+2");
    let content = Seed(2).bytes(40_000);
    ground.write("file", &content);
    ground.protect_all();
    flip(&ground.path("file"), 1);
    let file = std::fs::File::open(ground.path("file")).unwrap();
    let value = [b'v'; 500];
    rustix::fs::fsetxattr(&file, "user.note", &value, rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(ground.protect_all().done.damaged.len(), 1);
    assert_eq!(ground.repair("file").state, State::Protected);
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, report.done.stripes.0), (1, 0), "{report:?}");
    ground.assert_clean();
    assert!(std::fs::read(ground.redundancy("file")).unwrap().windows(500).any(|window| window == value));
    assert!(ground.protect_all().seen.changes.is_empty());
}

/// Whoever means what he wrote, and put the time back, says so by another time.
#[test]
fn a_change_that_is_meant_is_protected_once_the_file_is_touched() {
    let ground = Playground::new("4+2");
    ground.write("file", &Seed(3).bytes(10_000));
    ground.protect_all();
    rot(&ground.path("file"), 10, b"meant");
    assert_eq!(ground.protect_all().done.damaged.len(), 1);
    let file = std::fs::File::options().write(true).open(ground.path("file")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, report.affected.len()), (1, 0));
    ground.assert_clean();
}

/// A bit of a protected file rotted, and somebody gave the file a second name. `protect` called the first name damaged and made redundancy for the second one from the
/// rotten bytes. From then on repairs of the two names took turns: one put the content right, the other put the damage back.
#[test]
fn a_new_name_of_a_damaged_file_is_not_protected() {
    let ground = Playground::new("4+2");
    let content = Seed(8).bytes(100_000);
    ground.write("a", &content);
    ground.protect_all();
    flip(&ground.path("a"), 500);
    std::fs::hard_link(ground.path("a"), ground.path("h")).unwrap();
    let report = ground.protect();
    assert_eq!(report.done.failures, 1, "{report:?}");
    assert!(report.done.failed[0].1.contains("same file as a"), "{report:?}");
    assert!(!ground.redundancy("h").exists());
    ground.scrub();
    ground.repair("a");
    assert!(std::fs::read(ground.path("h")).unwrap() == content);
    ground.protect_all();
    ground.assert_clean();
    // A name more of a file that is right costs a comparison, and nothing else.
    std::fs::hard_link(ground.path("a"), ground.path("third")).unwrap();
    ground.protect_all();
    ground.assert_clean();
    assert!(std::fs::read(ground.path("a")).unwrap() == content);
}
