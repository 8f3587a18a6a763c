//! Marks in the kernel after each operation.

use super::super::tree::Tree;
use super::{Marks, SLICE};
use crate::event::FilesystemWide;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

struct Fixture {
    dir: tempfile::TempDir,
    tree: Tree,
    marks: Marks,
}

/// A tree of some directories, two of them excluded. `None`, with a recorded skip, without privileges.
fn fixture(test: &str, directories: &[&str]) -> Option<Fixture> {
    if !rustix::process::geteuid().is_root() {
        gabion_testkit::skip!("{test}: we are not root");
        return None;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in [&["tree/.own/in it", "outside"], directories].concat() {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let tree = Tree::open_root(&dir.path().join("tree"), b".own").unwrap();
    let marks = Marks::new(&tree).unwrap();
    Some(Fixture { dir, tree, marks })
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// State in the kernel: true if content events are requested for the file system, and the number of marked
    /// directories.
    fn marked(&self) -> (bool, usize) {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.marks.queue.as_raw_fd())).unwrap();
        let mark = |line: &&str| line.starts_with("fanotify sdev:");
        let whole = info.lines().find(mark).expect("the mark of the file system");
        let mask = whole.split("mask:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        assert_eq!(mask & super::NAMES, super::NAMES, "{whole}");
        let content = mask & super::CONTENT;
        assert!(content == 0 || content == super::CONTENT, "{whole}");
        let directories = info.lines().filter(|line| line.starts_with("fanotify ino:")).count();
        (content != 0, directories)
    }

    /// Number of ignored directories in the kernel.
    fn ignored_in_kernel(&self) -> usize {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.marks.queue.as_raw_fd())).unwrap();
        let is_ignored = |line: &&str| {
            let ignored = line.split("ignored_mask:").nth(1).and_then(|rest| rest.split(' ').next());
            ignored.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() & super::IGNORED != 0)
        };
        info.lines().filter(is_ignored).count()
    }
}

#[test]
fn content_events_are_filesystem_wide_until_all_directories_are_marked() {
    let Some(mut fixture) = fixture("content_is_asked_for", &["tree/a/b", "tree/c"]) else { return };
    assert_eq!(fixture.marked(), (true, 0));
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, 4), "the root, a, a/b and c; neither ours nor what is outside");
    fs::create_dir(fixture.path("tree/c/new")).unwrap();
    fixture.marks.made(b"c/new", &fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, 5));
    // A removed directory, or one replaced by a file, is no error.
    fs::write(fixture.path("tree/c/file"), "x").unwrap();
    fixture.marks.made(b"c/gone", &fixture.tree).unwrap();
    fixture.marks.made(b"c/file", &fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, 5));
    fs::create_dir_all(fixture.path("outside/comes/with/some")).unwrap();
    fs::rename(fixture.path("outside/comes"), fixture.path("tree/came")).unwrap();
    fixture.marks.moved(b"came", &fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (true, 5));
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, 8));
    fixture.marks.start_again(&fixture.tree).unwrap();
    assert!(fixture.marked().0);
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, 8));
}

#[test]
fn many_directories_are_marked_in_slices() {
    let Some(mut fixture) = fixture("many_directories", &[]) else { return };
    for number in 0..SLICE + 10 {
        fs::create_dir(fixture.path(&format!("tree/{number}"))).unwrap();
    }
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (true, SLICE));
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (false, SLICE + 11));
}

/// Directories under a mount cannot be marked, and an unmount would reveal them: their files would not be watched.
#[test]
fn a_mount_below_the_root_makes_the_watch_filesystem_wide() {
    let Some(mut fixture) = fixture("a_mount_below", &["tree/a", "tree/mounted"]) else { return };
    let at = fixture.path("tree/mounted");
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).status();
    if !mount.is_ok_and(|done| done.success()) {
        gabion_testkit::skip!("a_mount_below: nothing can be mounted here");
        return;
    }
    fixture.marks.walk(&fixture.tree).unwrap();
    let marked = fixture.marked();
    assert_eq!(fixture.marks.given_up(), Some(&FilesystemWide::Mount(b"mounted".to_vec())));
    let unmounted = Command::new("umount").arg(&at).status();
    assert_eq!(marked, (true, 0));
    assert!(unmounted.unwrap().success());
    // Permanent: no event reports an unmount.
    fixture.marks.made(b"a", &fixture.tree).unwrap();
    fixture.marks.moved(b"a", &fixture.tree).unwrap();
    fixture.marks.start_again(&fixture.tree).unwrap();
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (true, 0));
}

#[test]
fn too_many_directories_make_the_watch_filesystem_wide() {
    let Some(mut fixture) = fixture("too_many_directories", &["tree/a", "tree/b", "tree/c"]) else { return };
    fixture.marks.most = 4;
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!((fixture.marked(), fixture.marks.given_up()), ((false, 4), None));
    fs::create_dir(fixture.path("tree/d")).unwrap();
    fixture.marks.made(b"d", &fixture.tree).unwrap();
    // They are counted again first: some may have been removed.
    assert_eq!((fixture.marked(), fixture.marks.given_up()), ((true, 0), None));
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marked(), (true, 0));
    let why = fixture.marks.given_up().unwrap();
    assert_eq!(why, &FilesystemWide::TooMany { most: 4 });
    assert_eq!(why.to_string(), "the tree has more than 4 directories");
}

#[test]
fn a_new_directory_is_ignored_until_it_is_marked() {
    let Some(mut fixture) = fixture("a_new_directory_is_ignored", &["tree/a", "tree/b", "tree/c"]) else {
        return;
    };
    fixture.marks.made(b"a", &fixture.tree).unwrap();
    assert_eq!(
        (fixture.ignored_in_kernel(), fixture.marks.ignored()),
        (0, 0),
        "while all content is marked for"
    );
    fixture.marks.walk(&fixture.tree).unwrap();
    fs::create_dir(fixture.path("tree/new")).unwrap();
    fixture.marks.made(b"new", &fixture.tree).unwrap();
    if !fixture.marks.can_ignore {
        gabion_testkit::skip!("a_new_directory_is_ignored: this kernel has no ignore marks");
        return;
    }
    assert_eq!((fixture.marked(), fixture.ignored_in_kernel(), fixture.marks.ignored()), ((false, 5), 1, 1));
    assert!(fixture.marks.is_ignored(b"new") && !fixture.marks.is_ignored(b"a"));
    assert!(fixture.marks.end_ignore(1, &fixture.tree).unwrap().is_none(), "one may be left");
    assert!(fixture.marks.end_ignore(0, &fixture.tree).unwrap().is_some());
    assert_eq!((fixture.marked(), fixture.ignored_in_kernel(), fixture.marks.ignored()), ((false, 5), 0, 0));
    // A kernel without ignore marks rejects the flag.
    fixture.marks.can_ignore = false;
    fs::create_dir(fixture.path("tree/newer")).unwrap();
    fixture.marks.made(b"newer", &fixture.tree).unwrap();
    assert_eq!((fixture.marked(), fixture.ignored_in_kernel(), fixture.marks.ignored()), ((false, 6), 0, 0));
}

/// Files of an ignored directory are reported even if all marks were removed meanwhile.
#[test]
fn ignored_directories_survive_a_flush_of_marks() {
    let Some(mut fixture) = fixture("ignored_directories_survive_a_flush_of_marks", &["tree/a"]) else {
        return;
    };
    fixture.marks.walk(&fixture.tree).unwrap();
    fixture.marks.most = 3;
    for name in ["b", "c"] {
        fs::create_dir(fixture.path("tree").join(name)).unwrap();
        fixture.marks.made(name.as_bytes(), &fixture.tree).unwrap();
    }
    assert_eq!(
        (fixture.marked(), fixture.ignored_in_kernel()),
        ((true, 0), 0),
        "too many: they are counted anew"
    );
    if !fixture.marks.can_ignore {
        gabion_testkit::skip!(
            "ignored_directories_survive_a_flush_of_marks: this kernel has no ignore marks"
        );
        return;
    }
    assert!(fixture.marks.end_ignore(0, &fixture.tree).unwrap().is_some());
    fixture.marks.walk(&fixture.tree).unwrap();
    assert_eq!(fixture.marks.given_up(), Some(&FilesystemWide::TooMany { most: 3 }));
    assert!(fixture.marks.end_ignore(0, &fixture.tree).unwrap().is_some());
    assert!(fixture.marks.end_ignore(0, &fixture.tree).unwrap().is_none());
    assert_eq!((fixture.marked(), fixture.ignored_in_kernel()), ((true, 0), 0));
}
