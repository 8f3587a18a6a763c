//! Names that change from many threads at once.

use super::fixture::{Fixture, TestRng, can_mount};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

/// Every file has a content of its own, so it can be told whatever it is called.
#[test]
fn rename_storms_lose_and_double_nothing() {
    if !can_mount("rename_storms_lose_and_double_nothing") {
        return;
    }
    let fixture = Fixture::new(5, 2, 1, 4096);
    let mount = fixture.mount();
    for directory in ["a", "b", "c"] {
        fs::create_dir(mount.path(directory)).unwrap();
    }
    let name = |number: u64| format!("{}/n{}", ["a", "b", "c"][number as usize % 3], number / 3);
    for number in 0..24 {
        fs::write(mount.path(&name(number)), format!("token {number}")).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mount, name) = (&mount, &name);
            scope.spawn(move || {
                let mut chance = TestRng(thread);
                for step in 0..120 {
                    // Most names are free, so that not all files are replaced.
                    let (from, to) = (name(chance.below(90)), name(chance.below(90)));
                    match fs::rename(mount.path(&from), mount.path(&to)) {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{from} to {to}: {error}")
                        }
                    }
                    // Directories move as well, with all that is in them.
                    if thread == 0 && step % 10 == 0 {
                        fs::rename(mount.path("a"), mount.path("elsewhere")).unwrap();
                        fs::rename(mount.path("elsewhere"), mount.path("a")).unwrap();
                    }
                }
            });
        }
    });
    let tokens = |mount: &super::fixture::Mount| -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for directory in ["a", "b", "c"] {
            for entry in fs::read_dir(mount.path(directory)).unwrap() {
                let path = entry.unwrap().path();
                let content = fs::read_to_string(&path).unwrap();
                found
                    .insert(path.strip_prefix(mount.path("")).unwrap().to_str().unwrap().to_owned(), content);
            }
        }
        found
    };
    let before = tokens(&mount);
    let distinct: BTreeSet<&String> = before.values().collect();
    assert_eq!(distinct.len(), before.len(), "no file has two names: {before:?}");
    assert!(!before.is_empty() && before.len() <= 24);
    mount.unmount();
    // What was replaced is gone, and nothing else.
    let left = fixture.pool().sweep(false).unwrap();
    assert!(left.orphans.is_empty(), "{left:?}");
    fixture.assert_converges();
    let mount = fixture.mount();
    assert_eq!(tokens(&mount), before);
    mount.unmount();
}

#[test]
fn directories_move_under_open_files() {
    if !can_mount("directories_move_under_open_files") {
        return;
    }
    let fixture = Fixture::new(4, 2, 1, 4096);
    let mount = fixture.mount();
    fs::create_dir_all(mount.path("old/deep")).unwrap();
    let mut file = fs::File::create(mount.path("old/deep/file")).unwrap();
    std::io::Write::write_all(&mut file, b"before ").unwrap();
    fs::rename(mount.path("old"), mount.path("new")).unwrap();
    fs::create_dir_all(mount.path("old/deep")).unwrap();
    std::io::Write::write_all(&mut file, b"after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(mount.path("new/deep/file")).unwrap(), b"before after");
    assert!(!mount.path("old/deep/file").exists());
    let full = fs::rename(mount.path("old"), mount.path("new")).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::remove_dir(mount.path("new/deep")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_dir(mount.path("old/deep")).unwrap();
    mount.unmount();
    let mut content = Vec::new();
    fixture.pool().get(b"new/deep/file", &mut content).unwrap();
    assert_eq!(content, b"before after");
}

/// Who looks for changes by the time of change finds what was moved, now and after the mount.
#[test]
fn a_rename_changes_the_ctime() {
    use std::os::unix::fs::MetadataExt;
    if !can_mount("a_rename_changes_the_ctime") {
        return;
    }
    let fixture = Fixture::new(5, 2, 1, 4096);
    let mount = fixture.mount();
    fs::write(mount.path("file"), "content").unwrap();
    fs::write(mount.path("other"), "another content").unwrap();
    fs::write(mount.path("replaced"), "old").unwrap();
    std::os::unix::fs::symlink("file", mount.path("link")).unwrap();
    fs::create_dir(mount.path("directory")).unwrap();
    let changed = |name: &str| {
        let stat = fs::symlink_metadata(mount.path(name)).unwrap();
        (stat.ctime(), stat.ctime_nsec())
    };
    let written = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().modified().unwrap();
    for (old, new) in
        [("file", "moved"), ("link", "moved link"), ("directory", "moved directory"), ("moved", "replaced")]
    {
        let before = (changed(old), written(old));
        // File systems of targets count time in steps.
        let probe = fixture.root().join("probe");
        gabion_testkit::until("time passes", || {
            fs::write(&probe, "").unwrap();
            let stat = fs::metadata(&probe).unwrap();
            (stat.ctime(), stat.ctime_nsec()) > before.0
        });
        fs::rename(mount.path(old), mount.path(new)).unwrap();
        assert!(changed(new) > before.0, "{old}: {before:?}");
        assert_eq!(written(new), before.1, "{old}");
    }
    let before = ["other", "replaced"].map(changed);
    let (one, other) = (mount.path("other"), mount.path("replaced"));
    let both = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, both).unwrap();
    assert!(changed("replaced") > before[0] && changed("other") > before[1]);
    let told = changed("other");
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    let stat = fs::metadata(mount.path("other")).unwrap();
    assert_eq!((stat.ctime(), stat.ctime_nsec()), told);
    assert_eq!(fs::read_to_string(mount.path("other")).unwrap(), "content");
    mount.unmount();
}
