//! Pools of earlier versions of the program, with redundancy at `redundancy/PATH`: it is read there, and `protect`
//! moves it.

use super::fixture::{Fixture, Seed, files_below};
use std::fs;

/// Moves all redundancy to the paths of an earlier version.
fn put_back(fixture: &Fixture) {
    for name in fixture.files.keys() {
        for (number, path) in fixture.redundancy(name) {
            let former = fixture.target(number).join("redundancy").join(name);
            fs::create_dir_all(former.parent().unwrap()).unwrap();
            fs::rename(path, former).unwrap();
        }
    }
}

fn former_files(fixture: &Fixture) -> usize {
    let tops = (1..=8).map(|number| fixture.target(number).join("redundancy")).filter(|top| top.exists());
    tops.map(|top| files_below(&top).len()).sum()
}

#[test]
fn former_redundancy_is_read_where_it_is_and_moved_by_protect() {
    let mut fixture = Fixture::filled(70);
    put_back(&fixture);
    assert_eq!(former_files(&fixture), 2 * fixture.files.len());
    let scrubbed = fixture.scrub();
    assert!(scrubbed.trouble.is_empty() && scrubbed.failed.is_empty(), "{scrubbed:?}");
    fixture.lose(4);
    fixture.lose(7);
    fixture.assert_right("at its former place");
    fixture.protect();
    fixture.assert_right("at its place");
    fixture.restore_disk(4);
    fixture.restore_disk(7);
    fixture.protect();
    assert_eq!(former_files(&fixture), 0, "targets that come back are seen to, too");
    fixture.rebuild_all("all are back");
    fixture.assert_whole("all are back");
}

/// Former redundancy of a renamed file moves to that file; redundancy of a removed file, and useless files, are
/// removed.
#[test]
fn former_redundancy_finds_its_file_or_goes() {
    let mut fixture = Fixture::filled(71);
    fixture.put("other", &Seed(1).bytes(20_000));
    fixture.protect();
    put_back(&fixture);
    let encoded = |fixture: &Fixture| fixture.redundancy("dir1/file 7").len();
    fixture.pool.rename(b"other", b"dir0/file 8").unwrap();
    let content = fixture.files.remove("other").unwrap();
    fixture.files.insert("dir0/file 8".to_owned(), content);
    fixture.pool.remove(b"dir0/file 6").unwrap();
    fixture.files.remove("dir0/file 6");
    fs::create_dir_all(fixture.target(2).join("redundancy")).unwrap();
    fs::write(fixture.target(2).join("redundancy/broken"), vec![7; 5000]).unwrap();
    fixture.lose(5);
    fixture.protect();
    fixture.assert_right("without one target");
    assert_eq!(former_files(&fixture), 0);
    assert!(!fixture.target(2).join("redundancy").exists());
    fixture.restore_disk(5);
    fixture.protect();
    assert_eq!(encoded(&fixture), 2);
    fixture.rebuild_all("it is back");
    fixture.assert_whole("it is back");
}
