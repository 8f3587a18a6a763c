//! Something else stands where redundancy belongs: it is set aside and named, and all files are protected.

use super::playground::{Playground, Seed};
use std::os::unix::fs::symlink;
use std::path::Path;

type Put = fn(&Path);

/// Things that can stand in the place of a redundancy file.
const IN_PLACE_OF_A_FILE: [(&str, Put, bool); 5] = [
    ("an empty directory", |path| std::fs::create_dir(path).unwrap(), true),
    (
        "a directory with something in it",
        |path| {
            std::fs::create_dir_all(path.join("deep/er")).unwrap();
            std::fs::write(path.join("deep/er/file"), b"of somebody").unwrap();
        },
        true,
    ),
    // These can be replaced.
    ("a link to nowhere", |path| symlink("/nowhere/at all", path).unwrap(), false),
    ("a link to a directory", |path| symlink("/", path).unwrap(), false),
    (
        "a pipe",
        |path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap()
        },
        false,
    ),
];

/// A directory in the place of a redundancy file kept the file from being protected for good, without a word of what to do.
#[test]
fn what_stands_in_the_place_of_a_redundancy_file_makes_way() {
    for (what, put, aside) in IN_PLACE_OF_A_FILE {
        for changed in [false, true] {
            let ground = Playground::new("4+2");
            let content = Seed(4).bytes(30_000);
            ["a/file", "a/other", "z"].iter().for_each(|name| ground.write(name, &content));
            ground.protect_all();
            std::fs::remove_file(ground.redundancy("a/file")).unwrap();
            put(&ground.redundancy("a/file"));
            // Found by scrub, or in the way of a new version.
            if changed {
                ground.write("a/file", &content[1..]);
            } else {
                assert_eq!(ground.scrub().trouble.len(), 1, "{what}");
            }
            ground.write("z", &content[2..]);
            let report = ground.protect_all();
            assert_eq!((report.pending, report.affected.len()), (0, 0), "{what}");
            let told: Vec<&[u8]> = report.done.set_aside.iter().map(|(path, _)| path.as_slice()).collect();
            assert_eq!(told, if aside { vec![&b"a/file"[..]] } else { vec![] }, "{what}");
            for (_, place) in &report.done.set_aside {
                assert!(
                    place.is_dir() && place.starts_with(ground.root().join(".gabion/replaced")),
                    "{what}"
                );
            }
            ground.assert_clean();
            assert!(ground.protect_all().seen.changes.is_empty());
        }
    }
}

/// The same where a directory belongs.
#[test]
fn what_stands_in_the_place_of_a_directory_makes_way() {
    let puts: [(&str, Put); 2] = [
        ("a file", |path| std::fs::write(path, b"of somebody").unwrap()),
        ("a link", |path| symlink("/tmp", path).unwrap()),
    ];
    for (what, put) in puts {
        let ground = Playground::new("4+2");
        ground.write("a/b/file", b"content");
        ground.write("moves", b"and moves");
        ground.protect_all();
        std::fs::remove_dir_all(ground.redundancy("a")).unwrap();
        put(&ground.redundancy("a"));
        ground.write("a/b/file", b"changed content");
        std::fs::rename(ground.path("moves"), ground.path("a/moved")).unwrap();
        let report = ground.protect_all();
        assert_eq!((report.done.set_aside.len(), report.done.moved, report.pending), (1, 1, 0), "{what}");
        ground.assert_clean();
        assert_eq!(ground.vault.catalogue.count().unwrap(), 2);
        assert!(ground.protect_all().seen.changes.is_empty());
    }
}
