//! What happens through a mount is protected, and nobody has to look for it.

use crate::ground::{Ground, Seed, can_mount, content};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Does something to files by chance, the same in two places.
fn random_operations(seed: &mut Seed, dirs: [&Path; 2], count: u32) {
    for _ in 0..count {
        let (one, other) = (format!("f{}", seed.below(12)), format!("f{}", seed.below(12)));
        let (folder, choice) = (format!("d{}", seed.below(3)), seed.below(10));
        let (offset, bytes) = (seed.below(60_000), seed.next() as usize % 20_000);
        let content = seed.bytes(bytes + 1);
        for dir in dirs {
            let folder = dir.join(&folder);
            let (one, other) = (folder.join(&one), dir.join(&other));
            // What cannot be done is refused in both places alike; the comparison at the end tells.
            let _ = match choice {
                0 | 1 => std::fs::create_dir(&folder),
                2 | 3 => std::fs::write(&one, &content),
                4 | 5 => std::fs::File::options()
                    .write(true)
                    .open(&one)
                    .and_then(|file| file.write_all_at(&content, offset)),
                6 => std::fs::rename(&one, &other),
                7 => std::fs::rename(&folder, dir.join(format!("d{}", offset % 3))),
                8 => std::fs::File::options().write(true).open(&other).and_then(|file| file.set_len(offset)),
                _ => std::fs::remove_file(&other),
            };
        }
    }
}

#[test]
fn mounted_changes_are_protected_without_a_search() {
    if !can_mount("changes") {
        return;
    }
    for number in 1..=3 {
        let mut seed = Seed(number * 77);
        let mut ground = Ground::new();
        std::fs::write(ground.source("before"), seed.bytes(50_000)).unwrap();
        ground.mount(&[]);
        ground.wait_until_protected();
        let reference = tempfile::tempdir().unwrap();
        std::fs::write(reference.path().join("before"), std::fs::read(ground.source("before")).unwrap())
            .unwrap();
        random_operations(&mut seed, [&ground.at(""), reference.path()], 300);
        assert_eq!(content(&ground.at("")), content(reference.path()), "seed {number}");
        ground.wait_until_protected();
        ground.unmount();
        assert_eq!(content(&ground.source("")), content(reference.path()), "seed {number}");
        ground.assert_protected();
        assert!(!ground.source(".gabion/mounted").exists());
    }
}

#[test]
fn mounted_small_changes_of_large_files_are_small_work() {
    if !can_mount("small changes") {
        return;
    }
    let mut ground = Ground::new();
    let bytes = Seed(3).bytes(8 << 20);
    std::fs::write(ground.source("large"), &bytes).unwrap();
    ground.mount(&["--workers", "0"]);
    ground.expect(0, &["protect", "source"]);
    let file = std::fs::File::options().write(true).open(ground.at("large")).unwrap();
    file.write_all_at(b"changed", 5_000_000).unwrap();
    file.sync_all().unwrap();
    // It is in the changelog as soon as it is durable, with its range.
    assert_eq!(ground.status()["pending"]["queued"], 1);
    drop(file);
    let work: serde_json::Value =
        serde_json::from_str(&ground.expect(0, &["protect", "source", "--json"])).unwrap();
    assert_eq!((&work["encoded"], &work["stripes_encoded"]), (&1.into(), &1.into()), "{work}");
    ground.unmount();
    ground.assert_protected();
}

#[test]
fn mounted_in_the_background_and_read_only() {
    if !can_mount("background") {
        return;
    }
    let ground = Ground::new();
    std::fs::write(ground.source("file"), b"content").unwrap();
    let said = ground.expect(0, &["mount", "source", "mount", "--background", "--read-only"]);
    assert!(said.starts_with("mounted "), "{said}");
    assert_eq!(std::fs::read(ground.at("file")).unwrap(), b"content");
    let error = std::fs::write(ground.at("file"), b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(std::process::Command::new("umount").arg(ground.at("")).status().unwrap().success());
}
