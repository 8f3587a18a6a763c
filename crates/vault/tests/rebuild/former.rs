//! Pools of earlier versions of the program, which kept redundancy at `redundancy/PATH`: it is read there, and `protect` moves it.

use super::playground::{Ground, Seed, files_below};
use std::fs;

/// Puts all redundancy where an earlier version of the program had it.
fn put_back(ground: &Ground) {
    for name in ground.files.keys() {
        for (number, path) in ground.redundancy(name) {
            let former = ground.target(number).join("redundancy").join(name);
            fs::create_dir_all(former.parent().unwrap()).unwrap();
            fs::rename(path, former).unwrap();
        }
    }
}

fn former_files(ground: &Ground) -> usize {
    let tops = (1..=8).map(|number| ground.target(number).join("redundancy")).filter(|top| top.exists());
    tops.map(|top| files_below(&top).len()).sum()
}

#[test]
fn former_redundancy_is_read_where_it_is_and_moved_by_protect() {
    let mut ground = Ground::filled(70);
    put_back(&ground);
    assert_eq!(former_files(&ground), 2 * ground.files.len());
    let scrubbed = ground.scrub();
    assert!(scrubbed.damage.is_empty() && scrubbed.failed.is_empty(), "{scrubbed:?}");
    ground.lose(4);
    ground.lose(7);
    ground.assert_right("at its former place");
    ground.protect();
    ground.assert_right("at its place");
    ground.bring_back(4);
    ground.bring_back(7);
    ground.protect();
    assert_eq!(former_files(&ground), 0, "targets that come back are seen to, too");
    ground.rebuild_all("all are back");
    ground.assert_whole("all are back");
}

/// Former redundancy of a file that got another name goes to that file; that of a file which is gone, and what cannot be used, goes.
#[test]
fn former_redundancy_finds_its_file_or_goes() {
    let mut ground = Ground::filled(71);
    ground.put("other", &Seed(1).bytes(20_000));
    ground.protect();
    put_back(&ground);
    let encoded = |ground: &Ground| ground.redundancy("dir1/file 7").len();
    ground.pool.rename(b"other", b"dir0/file 8").unwrap();
    let content = ground.files.remove("other").unwrap();
    ground.files.insert("dir0/file 8".to_owned(), content);
    ground.pool.remove(b"dir0/file 6").unwrap();
    ground.files.remove("dir0/file 6");
    fs::create_dir_all(ground.target(2).join("redundancy")).unwrap();
    fs::write(ground.target(2).join("redundancy/broken"), vec![7; 5000]).unwrap();
    ground.lose(5);
    ground.protect();
    ground.assert_right("without one target");
    assert_eq!(former_files(&ground), 0);
    assert!(!ground.target(2).join("redundancy").exists());
    ground.bring_back(5);
    ground.protect();
    assert_eq!(encoded(&ground), 2);
    ground.rebuild_all("it is back");
    ground.assert_whole("it is back");
}
