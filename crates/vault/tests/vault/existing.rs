//! Redundancy that is there and must not be overwritten or believed: of a later program, of another file, with a damaged update beside it.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::repair;
use std::path::PathBuf;

const VERSION: usize = 8;

/// Changes both headers of a redundancy file and makes their checksums right.
fn reseal(ground: &Playground, name: &str, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = std::fs::read(ground.redundancy(name)).unwrap();
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    change(&mut bytes[..length]);
    let checksum = blake3::hash(&bytes[..length - 32]);
    bytes[length - 32..length].copy_from_slice(checksum.as_bytes());
    let end = bytes.len() - length;
    bytes.copy_within(..length, end);
    std::fs::write(ground.redundancy(name), &bytes).unwrap();
    bytes
}

/// The update that waits for the redundancy of a file, if there is one.
fn update_of(ground: &Playground, name: &str, ending: &str) -> PathBuf {
    let bytes = std::fs::read(ground.redundancy(name)).unwrap();
    let id: String = bytes[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
    ground.root().join(".gabion/staging").join(format!("{id}.0.{ending}"))
}

/// Redundancy of a later format was removed with its file, or because another file got its file's name.
#[test]
fn redundancy_of_a_later_version_is_never_removed() {
    let ground = Playground::new("4+2");
    for (name, seed) in [("deleted", 1), ("moved", 2), ("in the way", 3)] {
        ground.write(name, &Seed(seed).bytes(50_000));
    }
    ground.protect_all();
    let deleted = reseal(&ground, "deleted", |header| header[VERSION] = 3);
    let replaced = reseal(&ground, "in the way", |header| header[VERSION] = 3);
    std::fs::remove_file(ground.path("deleted")).unwrap();
    std::fs::rename(ground.path("moved"), ground.path("in the way")).unwrap();
    // Each run names them again: somebody has to decide.
    for _ in 0..2 {
        let report = ground.protect();
        assert!(report.done.failures >= 1, "{report:?}");
        assert!(report.done.failed.iter().all(|(_, why)| why.contains("left as it is")), "{report:?}");
        assert!(std::fs::read(ground.redundancy("deleted")).unwrap() == deleted, "{report:?}");
        let places = ["moved", "in the way"].map(|name| std::fs::read(ground.redundancy(name)).ok());
        assert!(places.contains(&Some(replaced.clone())), "{report:?}");
    }
}

/// Somebody went back to an older program: it took redundancy of a later format for none and wrote over it, so that the later program had lost what it
/// relied on. It is left alone, the file is named, and nothing is called damaged.
#[test]
fn redundancy_of_a_later_version_is_never_overwritten() {
    let ground = Playground::new("4+2");
    for (name, field, value) in [("version", VERSION, 3), ("flag", 92, 128), ("column", 152, 1)] {
        ground.write(name, &Seed(1).bytes(50_000));
        ground.protect_all();
        let later = reseal(&ground, name, |header| header[field] = value);
        let scrub = ground.scrub();
        assert!(scrub.trouble.is_empty(), "{scrub:?}");
        let [(path, why)] = &scrub.failed[..] else { panic!("{name}: {scrub:?}") };
        assert!(path == name.as_bytes() && why.contains("later"), "{why}");
        ground.write(name, &Seed(2).bytes(50_000));
        let report = ground.protect();
        let [(path, why)] = &report.done.failed[..] else { panic!("{name}: {report:?}") };
        assert!(path == name.as_bytes() && why.contains("left as it is"), "{why}");
        assert!(std::fs::read(ground.redundancy(name)).unwrap() == later, "{name} was overwritten");
        let refused = repair::repair(&ground.vault, name.as_bytes(), QUIET);
        assert!(refused.is_err(), "{refused:?}");
        assert!(std::fs::read(ground.redundancy(name)).unwrap() == later, "{name} was overwritten");
        // The way out is the user's: without it the file is protected again.
        std::fs::remove_file(ground.redundancy(name)).unwrap();
        ground.write(name, &Seed(3).bytes(50_000));
        ground.protect_all();
        ground.assert_clean();
    }
}

/// One damaged byte in an update that a crash left behind ended scrub, repair and protect by a stack overflow, and a daemon with all its mounts: the file was
/// opened, the update not finished, the file opened again, without end. The update is set aside, and redundancy is what its own checks say.
#[test]
fn a_damaged_update_is_set_aside() {
    for garbage in [&b"garbage"[..], b"", &[0; 4096]] {
        let ground = Playground::new("4+2");
        let content = Seed(4).bytes(300_000);
        ground.write("file", &content);
        ground.protect_all();
        std::fs::write(update_of(&ground, "file", "redo"), garbage).unwrap();
        ground.assert_clean();
        assert!(!update_of(&ground, "file", "redo").exists());
        assert_eq!(std::fs::read(update_of(&ground, "file", "redo-damaged")).unwrap(), garbage);
        // Half of the update was made: redundancy is damaged, and repaired like any other.
        std::fs::write(update_of(&ground, "file", "redo"), garbage).unwrap();
        flip(&ground.redundancy("file"), 5000);
        flip(&ground.path("file"), 100);
        assert_eq!(ground.repair("file").state, State::Protected);
        assert!(ground.read("file") == content);
        std::fs::write(update_of(&ground, "file", "redo"), garbage).unwrap();
        ground.write("file", &Seed(5).bytes(300_000));
        ground.protect_all();
        ground.assert_clean();
    }
}

/// An update knows its redundancy file by id: a file that was renamed while one waited was opened again and again, too.
#[test]
fn an_update_of_redundancy_that_was_renamed_is_finished() {
    let ground = Playground::new("4+2");
    ground.write("file", &Seed(6).bytes(300_000));
    ground.protect_all();
    let redundancy = std::fs::read(ground.redundancy("file")).unwrap();
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
    std::fs::write(update_of(&ground, "file", "redo"), &update).unwrap();
    flip(&ground.redundancy("file"), 303);
    std::fs::rename(ground.redundancy("file"), ground.redundancy("renamed")).unwrap();
    let repository = &ground.vault.storage.repositories()[0];
    let part = repository.place(b"renamed").open(&ground.vault.coders).unwrap();
    assert!(part.is_some_and(|part| part.head_damage.is_none()));
    assert!(std::fs::read(ground.redundancy("renamed")).unwrap() == redundancy);
    assert!(!update_of(&ground, "renamed", "redo").exists());
}

/// Redundancy of one file in the place of another's (swapped, copied, misplaced) made repair write the content of the first into the second.
#[test]
fn repair_does_not_bring_the_content_of_another_file() {
    let ground = Playground::new("4+2");
    let (secret, mine) = (Seed(7).bytes(50_000), Seed(8).bytes(50_000));
    ground.write("secret", &secret);
    ground.write("mine", &mine);
    ground.protect_all();
    std::fs::copy(ground.redundancy("secret"), ground.redundancy("mine")).unwrap();
    let refused = repair::repair(&ground.vault, b"mine", QUIET);
    assert!(refused.is_err_and(|why| why.to_string().contains("another file")));
    assert!(ground.read("mine") == mine);
    // A directory that is renamed takes files and redundancy along; both still belong together.
    ground.write("a/file", &secret);
    ground.protect_all();
    for (from, to) in [(ground.path("a"), ground.path("b")), (ground.redundancy("a"), ground.redundancy("b"))]
    {
        std::fs::rename(from, to).unwrap();
    }
    flip(&ground.path("b/file"), 5);
    assert_eq!(ground.repair("b/file").state, State::Protected);
    assert!(ground.read("b/file") == secret);
}
