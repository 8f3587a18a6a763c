//! Foreign objects in the place of redundancy are set aside and reported, and all files are protected.

use super::fixture::{Fixture, TestRng};
use std::os::unix::fs::symlink;
use std::path::Path;

type Put = fn(&Path);

/// Objects that can be in the place of a redundancy file.
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
    // These can be overwritten.
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

/// Regression: a directory in the place of a redundancy file blocked the file's protection for good, without advice.
#[test]
fn obstacles_in_place_of_redundancy_files_are_set_aside() {
    for (what, put, aside) in IN_PLACE_OF_A_FILE {
        for changed in [false, true] {
            let fixture = Fixture::new("4+2");
            let content = TestRng(4).bytes(30_000);
            ["a/file", "a/other", "z"].iter().for_each(|name| fixture.write(name, &content));
            fixture.protect_all();
            std::fs::remove_file(fixture.redundancy("a/file")).unwrap();
            put(&fixture.redundancy("a/file"));
            // Found by a scrub, or when a new version is protected.
            if changed {
                fixture.write("a/file", &content[1..]);
            } else {
                assert_eq!(fixture.scrub().damage.len(), 1, "{what}");
            }
            fixture.write("z", &content[2..]);
            let report = fixture.protect_all();
            assert_eq!((report.pending, report.affected.len()), (0, 0), "{what}");
            let told: Vec<&[u8]> = report.done.set_aside.iter().map(|(path, _)| path.as_slice()).collect();
            assert_eq!(told, if aside { vec![&b"a/file"[..]] } else { vec![] }, "{what}");
            for (_, place) in &report.done.set_aside {
                assert!(
                    place.is_dir() && place.starts_with(fixture.root().join(".gabion/replaced")),
                    "{what}"
                );
            }
            fixture.assert_clean();
            assert!(fixture.protect_all().seen.changes.is_empty());
        }
    }
}

/// The same in the place of a directory.
#[test]
fn obstacles_in_place_of_directories_are_set_aside() {
    let puts: [(&str, Put); 2] = [
        ("a file", |path| std::fs::write(path, b"of somebody").unwrap()),
        ("a link", |path| symlink("/tmp", path).unwrap()),
    ];
    for (what, put) in puts {
        let fixture = Fixture::new("4+2");
        fixture.write("a/b/file", b"content");
        fixture.write("moves", b"and moves");
        fixture.protect_all();
        std::fs::remove_dir_all(fixture.redundancy("a")).unwrap();
        put(&fixture.redundancy("a"));
        fixture.write("a/b/file", b"changed content");
        std::fs::rename(fixture.path("moves"), fixture.path("a/moved")).unwrap();
        let report = fixture.protect_all();
        assert_eq!((report.done.set_aside.len(), report.done.moved, report.pending), (1, 1, 0), "{what}");
        fixture.assert_clean();
        assert_eq!(fixture.vault.catalogue.count().unwrap(), 2);
        assert!(fixture.protect_all().seen.changes.is_empty());
    }
}
