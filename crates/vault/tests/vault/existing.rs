//! Existing redundancy that must not be overwritten or trusted: of a newer format, of another file, with a damaged
//! pending update.

use super::fixture::{Fixture, QUIET, TestRng, flip};
use gabion_vault::catalogue::State;
use gabion_vault::repair;
use gabion_vault::retry::{Failure, Retry};
use gabion_vault::worker::RETRY;
use std::path::PathBuf;

const VERSION: usize = 8;

/// Changes both headers of a redundancy file and updates their checksums.
fn reseal(fixture: &Fixture, name: &str, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = std::fs::read(fixture.redundancy(name)).unwrap();
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    change(&mut bytes[..length]);
    let checksum = blake3::hash(&bytes[..length - 32]);
    bytes[length - 32..length].copy_from_slice(checksum.as_bytes());
    let end = bytes.len() - length;
    bytes.copy_within(..length, end);
    std::fs::write(fixture.redundancy(name), &bytes).unwrap();
    bytes
}

/// Path of the pending update of a file's redundancy, if there is one.
fn update_of(fixture: &Fixture, name: &str, ending: &str) -> PathBuf {
    let bytes = std::fs::read(fixture.redundancy(name)).unwrap();
    let id: String = bytes[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
    fixture.root().join(".gabion/staging").join(format!("{id}.0.{ending}"))
}

/// Regression: redundancy of a newer format was removed with its file, or when another file took the name.
#[test]
fn redundancy_of_a_later_version_is_never_removed() {
    let fixture = Fixture::new("4+2");
    for (name, seed) in [("deleted", 1), ("moved", 2), ("in the way", 3)] {
        fixture.write(name, &TestRng(seed).bytes(50_000));
    }
    fixture.protect_all();
    let deleted = reseal(&fixture, "deleted", |header| header[VERSION] = 3);
    let replaced = reseal(&fixture, "in the way", |header| header[VERSION] = 3);
    std::fs::remove_file(fixture.path("deleted")).unwrap();
    std::fs::rename(fixture.path("moved"), fixture.path("in the way")).unwrap();
    // Each run reports them until a person decides.
    for _ in 0..2 {
        let report = fixture.protect();
        assert!(report.done.failures >= 1, "{report:?}");
        let is_kept =
            |why: &Failure| ["not overwritten", "not removed"].iter().any(|it| why.to_string().contains(it));
        assert!(report.done.failed.iter().all(|(_, why)| is_kept(why)), "{report:?}");
        assert!(std::fs::read(fixture.redundancy("deleted")).unwrap() == deleted, "{report:?}");
        let places = ["moved", "in the way"].map(|name| std::fs::read(fixture.redundancy(name)).ok());
        assert!(places.contains(&Some(replaced.clone())), "{report:?}");
    }
}

/// Regression: an older program overwrote redundancy of a newer format. Now it is kept, the file is reported, and
/// nothing counts as damaged.
#[test]
fn redundancy_of_a_later_version_is_never_overwritten() {
    let fixture = Fixture::new("4+2");
    for (name, field, value) in [("version", VERSION, 3), ("flag", 92, 128), ("column", 152, 1)] {
        fixture.write(name, &TestRng(1).bytes(50_000));
        fixture.protect_all();
        let later = reseal(&fixture, name, |header| header[field] = value);
        let scrub = fixture.scrub();
        assert!(scrub.damage.is_empty(), "{scrub:?}");
        let [(path, why)] = &scrub.failed[..] else { panic!("{name}: {scrub:?}") };
        assert!(path == name.as_bytes() && why.to_string().contains("later"), "{why}");
        fixture.write(name, &TestRng(2).bytes(50_000));
        let report = fixture.protect();
        let [(path, why)] = &report.done.failed[..] else { panic!("{name}: {report:?}") };
        assert!(path == name.as_bytes() && why.to_string().contains("not overwritten"), "{why}");
        // It waits for a change, so it is tried again less often.
        assert_eq!(why.retry(), Retry::AfterChange);
        let due = fixture.vault.changelog.entries(None, 10).unwrap()[0].due;
        assert!(due > fixture.clock.now() + 2 * RETRY);
        assert!(std::fs::read(fixture.redundancy(name)).unwrap() == later, "{name} was overwritten");
        let refused = repair::repair(&fixture.vault, name.as_bytes(), QUIET);
        assert!(refused.is_err(), "{refused:?}");
        assert!(std::fs::read(fixture.redundancy(name)).unwrap() == later, "{name} was overwritten");
        // The user removes it: then the file is protected again.
        std::fs::remove_file(fixture.redundancy(name)).unwrap();
        fixture.write(name, &TestRng(3).bytes(50_000));
        fixture.protect_all();
        fixture.assert_clean();
    }
}

/// Regression: one damaged byte in a pending update led to endless recursion and a stack overflow in scrub, repair,
/// protect and the daemon. The damaged update is set aside, and redundancy is judged by its own checks.
#[test]
fn a_damaged_update_is_set_aside() {
    for garbage in [&b"garbage"[..], b"", &[0; 4096]] {
        let fixture = Fixture::new("4+2");
        let content = TestRng(4).bytes(300_000);
        fixture.write("file", &content);
        fixture.protect_all();
        std::fs::write(update_of(&fixture, "file", "redo"), garbage).unwrap();
        fixture.assert_clean();
        assert!(!update_of(&fixture, "file", "redo").exists());
        assert_eq!(std::fs::read(update_of(&fixture, "file", "redo-damaged")).unwrap(), garbage);
        // Half of the update was applied: the redundancy is damaged and repaired as usual.
        std::fs::write(update_of(&fixture, "file", "redo"), garbage).unwrap();
        flip(&fixture.redundancy("file"), 5000);
        flip(&fixture.path("file"), 100);
        assert_eq!(fixture.repair("file").state, State::Protected);
        assert!(fixture.read("file") == content);
        std::fs::write(update_of(&fixture, "file", "redo"), garbage).unwrap();
        fixture.write("file", &TestRng(5).bytes(300_000));
        fixture.protect_all();
        fixture.assert_clean();
    }
}

/// An update identifies its redundancy file by id. Regression: a file that was renamed with a pending update was opened
/// without end as well.
#[test]
fn an_update_of_redundancy_that_was_renamed_is_finished() {
    let fixture = Fixture::new("4+2");
    fixture.write("file", &TestRng(6).bytes(300_000));
    fixture.protect_all();
    let redundancy = std::fs::read(fixture.redundancy("file")).unwrap();
    let mut update = b"\x89GABRO\r\n".to_vec();
    update.extend(&redundancy[16..32]);
    update.extend(&redundancy[32..40]);
    let path = b"redundancy/file";
    update.extend((path.len() as u32).to_le_bytes());
    update.extend(path);
    update.extend(1u64.to_le_bytes());
    update.extend(300u64.to_le_bytes());
    update.extend(8u64.to_le_bytes());
    update.extend(&redundancy[300..308]);
    let checksum = blake3::hash(&update);
    update.extend(checksum.as_bytes());
    std::fs::write(update_of(&fixture, "file", "redo"), &update).unwrap();
    flip(&fixture.redundancy("file"), 303);
    std::fs::rename(fixture.redundancy("file"), fixture.redundancy("renamed")).unwrap();
    let repository = &fixture.vault.storage.repositories()[0];
    let part = repository.place(b"renamed").open(&fixture.vault.coders).unwrap();
    assert!(part.is_some_and(|part| part.head_damage.is_none()));
    assert!(std::fs::read(fixture.redundancy("renamed")).unwrap() == redundancy);
    assert!(!update_of(&fixture, "renamed", "redo").exists());
}

/// Regression: with redundancy of another file (swapped, copied, misplaced), repair wrote the other file's content.
#[test]
fn repair_does_not_bring_the_content_of_another_file() {
    let fixture = Fixture::new("4+2");
    let (secret, mine) = (TestRng(7).bytes(50_000), TestRng(8).bytes(50_000));
    fixture.write("secret", &secret);
    fixture.write("mine", &mine);
    fixture.protect_all();
    std::fs::copy(fixture.redundancy("secret"), fixture.redundancy("mine")).unwrap();
    let refused = repair::repair(&fixture.vault, b"mine", QUIET);
    assert!(refused.is_err_and(|why| why.to_string().contains("another file")));
    assert!(fixture.read("mine") == mine);
    // A renamed directory takes files and redundancy along, which still belong together.
    fixture.write("a/file", &secret);
    fixture.protect_all();
    for (from, to) in
        [(fixture.path("a"), fixture.path("b")), (fixture.redundancy("a"), fixture.redundancy("b"))]
    {
        std::fs::rename(from, to).unwrap();
    }
    flip(&fixture.path("b/file"), 5);
    assert_eq!(fixture.repair("b/file").state, State::Protected);
    assert!(fixture.read("b/file") == secret);
}
