//! Damage that redundancy cannot restore, and files with the same content.

use super::fixture::{Fixture, TestRng, flip};
use gabion_vault::catalogue::State;
use std::os::unix::fs::MetadataExt;

const SIZE: u64 = 400_000;

/// Files `one` and `two` with the same content, and one of the same size without.
fn begin() -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new("4+2");
    let content = TestRng(3).bytes(SIZE as usize);
    fixture.write("one", &content);
    fixture.write("two", &content);
    fixture.write("another", &TestRng(4).bytes(SIZE as usize));
    fixture.protect_all();
    (fixture, content)
}

/// Destroys bytes in all four columns.
fn destroy(fixture: &Fixture, name: &str) {
    (0..SIZE).step_by(500).for_each(|at| flip(&fixture.path(name), at));
    assert_eq!(fixture.state(name), State::Lost);
}

#[test]
fn a_file_beyond_its_redundancy_is_repaired_from_a_duplicate() {
    let (fixture, content) = begin();
    destroy(&fixture, "one");
    let damaged = fixture.read("one");
    let before = fixture.path("one").metadata().unwrap().mtime_nsec();
    let done = fixture.repair("one");
    assert_eq!((done.state, &done.lost[..]), (State::Protected, &[][..]), "{done:?}");
    assert!(done.notes.iter().any(|note| note.ends_with("from two")), "{done:?}");
    assert!(fixture.read("one") == content);
    assert_eq!(fixture.path("one").metadata().unwrap().mtime_nsec(), before);
    // What was overwritten is kept.
    let kept = std::fs::read(done.replaced.unwrap()).unwrap();
    assert!((0..content.len()).all(|at| content[at] == damaged[at] || kept[at] == damaged[at]));
    fixture.protect_all();
    fixture.assert_clean();
}

#[test]
fn a_duplicate_that_is_damaged_or_changed_gives_what_it_has() {
    let (fixture, content) = begin();
    destroy(&fixture, "one");
    // Redundancy restores two columns of each stripe: more than that has to come from the duplicate, which lacks much.
    let mut changed = content.clone();
    changed[..100_000].fill(7);
    fixture.write("two", &changed);
    let done = fixture.repair("one");
    let after = fixture.read("one");
    assert_eq!(done.state, State::Protected, "{done:?}");
    assert!(after == content);
    // Without a duplicate nothing is restored, and nothing is made worse.
    destroy(&fixture, "one");
    let damaged = fixture.read("one");
    fixture.write("two", &TestRng(9).bytes(SIZE as usize));
    let done = fixture.repair("one");
    assert_eq!((done.state, done.data_blocks, done.replaced), (State::Lost, 0, None));
    assert!(fixture.read("one") == damaged);
}

/// Signatures without hashes can be forged on purpose, by a file of somebody else.
#[test]
fn files_of_other_users_are_duplicates_only_with_strong_hashes() {
    if !rustix::process::geteuid().is_root() {
        gabion_testkit::skip!("files cannot be given to another user");
        return;
    }
    for strong in [false, true] {
        let (mut fixture, content) = begin();
        if strong {
            let policy = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nstrong = true\n";
            fixture.vault.set_policy(policy).unwrap();
            fixture.protect_all();
        }
        std::os::unix::fs::chown(fixture.path("two"), Some(12_345), None).unwrap();
        fixture.protect_all();
        destroy(&fixture, "one");
        let done = fixture.repair("one");
        assert_eq!(done.state == State::Protected, strong, "{done:?}");
        assert_eq!(fixture.read("one") == content, strong);
    }
}
