//! Which marks the kernel has at which moment.

use super::super::tree::Tree;
use super::{Marks, SLICE};
use crate::event::Wide;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

struct Ground {
    dir: tempfile::TempDir,
    tree: Tree,
    marks: Marks,
}

/// A tree of some directories, two of them not to be watched; nothing, and a line that says why, without rights.
fn ground(test: &str, directories: &[&str]) -> Option<Ground> {
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
    Some(Ground { dir, tree, marks })
}

impl Ground {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As the kernel has it: whether the file system is asked for content, and how many directories are.
    fn asked(&self) -> (bool, usize) {
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

    /// How many directories are hushed, as the kernel has it.
    fn ignored(&self) -> usize {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.marks.queue.as_raw_fd())).unwrap();
        let hushed = |line: &&str| {
            let ignored = line.split("ignored_mask:").nth(1).and_then(|rest| rest.split(' ').next());
            ignored.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() & super::HUSHED != 0)
        };
        info.lines().filter(hushed).count()
    }
}

#[test]
fn content_is_asked_for_everywhere_until_all_directories_are_marked() {
    let Some(mut ground) = ground("content_is_asked_for", &["tree/a/b", "tree/c"]) else { return };
    assert_eq!(ground.asked(), (true, 0));
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, 4), "the root, a, a/b and c; neither ours nor what is outside");
    fs::create_dir(ground.path("tree/c/new")).unwrap();
    ground.marks.made(b"c/new", &ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, 5));
    // What is gone, or a file by now, is nothing to worry about.
    fs::write(ground.path("tree/c/file"), "x").unwrap();
    ground.marks.made(b"c/gone", &ground.tree).unwrap();
    ground.marks.made(b"c/file", &ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, 5));
    fs::create_dir_all(ground.path("outside/comes/with/some")).unwrap();
    fs::rename(ground.path("outside/comes"), ground.path("tree/came")).unwrap();
    ground.marks.moved(b"came", &ground.tree).unwrap();
    assert_eq!(ground.asked(), (true, 5));
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, 8));
    ground.marks.start_again(&ground.tree).unwrap();
    assert!(ground.asked().0);
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, 8));
}

#[test]
fn many_directories_are_marked_in_slices() {
    let Some(mut ground) = ground("many_directories", &[]) else { return };
    for number in 0..SLICE + 10 {
        fs::create_dir(ground.path(&format!("tree/{number}"))).unwrap();
    }
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (true, SLICE));
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (false, SLICE + 11));
}

/// Directories under a mount cannot be reached, and may come to light: their files would not be heard of.
#[test]
fn a_mount_below_keeps_the_mark_of_the_file_system_wide() {
    let Some(mut ground) = ground("a_mount_below", &["tree/a", "tree/mounted"]) else { return };
    let at = ground.path("tree/mounted");
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).status();
    if !mount.is_ok_and(|done| done.success()) {
        gabion_testkit::skip!("a_mount_below: nothing can be mounted here");
        return;
    }
    ground.marks.walk(&ground.tree).unwrap();
    let asked = ground.asked();
    assert_eq!(ground.marks.given_up(), Some(&Wide::Mount(b"mounted".to_vec())));
    let unmounted = Command::new("umount").arg(&at).status();
    assert_eq!(asked, (true, 0));
    assert!(unmounted.unwrap().success());
    // For good: nobody tells that it is gone.
    ground.marks.made(b"a", &ground.tree).unwrap();
    ground.marks.moved(b"a", &ground.tree).unwrap();
    ground.marks.start_again(&ground.tree).unwrap();
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (true, 0));
}

#[test]
fn too_many_directories_keep_the_mark_of_the_file_system_wide() {
    let Some(mut ground) = ground("too_many_directories", &["tree/a", "tree/b", "tree/c"]) else { return };
    ground.marks.most = 4;
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!((ground.asked(), ground.marks.given_up()), ((false, 4), None));
    fs::create_dir(ground.path("tree/d")).unwrap();
    ground.marks.made(b"d", &ground.tree).unwrap();
    // They are counted anew first: some may be gone.
    assert_eq!((ground.asked(), ground.marks.given_up()), ((true, 0), None));
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.asked(), (true, 0));
    let why = ground.marks.given_up().unwrap();
    assert_eq!(why, &Wide::TooMany { most: 4 });
    assert_eq!(why.to_string(), "the tree has more than 4 directories");
}

#[test]
fn a_new_directory_is_hushed_until_it_gets_its_mark() {
    let Some(mut ground) = ground("a_new_directory_is_hushed", &["tree/a", "tree/b", "tree/c"]) else {
        return;
    };
    ground.marks.made(b"a", &ground.tree).unwrap();
    assert_eq!((ground.ignored(), ground.marks.hushed()), (0, 0), "while all content is asked for");
    ground.marks.walk(&ground.tree).unwrap();
    fs::create_dir(ground.path("tree/new")).unwrap();
    ground.marks.made(b"new", &ground.tree).unwrap();
    if !ground.marks.can_hush {
        gabion_testkit::skip!("a_new_directory_is_hushed: this kernel has no ignore marks");
        return;
    }
    assert_eq!((ground.asked(), ground.ignored(), ground.marks.hushed()), ((false, 5), 1, 1));
    assert!(ground.marks.is_hushed(b"new") && !ground.marks.is_hushed(b"a"));
    assert!(ground.marks.end_hush(1, &ground.tree).unwrap().is_none(), "one may be left");
    assert!(ground.marks.end_hush(0, &ground.tree).unwrap().is_some());
    assert_eq!((ground.asked(), ground.ignored(), ground.marks.hushed()), ((false, 5), 0, 0));
    // A kernel that has no ignore marks says that the flag is none.
    ground.marks.can_hush = false;
    fs::create_dir(ground.path("tree/newer")).unwrap();
    ground.marks.made(b"newer", &ground.tree).unwrap();
    assert_eq!((ground.asked(), ground.ignored(), ground.marks.hushed()), ((false, 6), 0, 0));
}

/// What is in a hushed directory is told even if all marks were taken away since.
#[test]
fn hushes_outlive_the_marks() {
    let Some(mut ground) = ground("hushes_outlive_the_marks", &["tree/a"]) else { return };
    ground.marks.walk(&ground.tree).unwrap();
    ground.marks.most = 3;
    for name in ["b", "c"] {
        fs::create_dir(ground.path("tree").join(name)).unwrap();
        ground.marks.made(name.as_bytes(), &ground.tree).unwrap();
    }
    assert_eq!((ground.asked(), ground.ignored()), ((true, 0), 0), "too many: they are counted anew");
    if !ground.marks.can_hush {
        gabion_testkit::skip!("hushes_outlive_the_marks: this kernel has no ignore marks");
        return;
    }
    assert!(ground.marks.end_hush(0, &ground.tree).unwrap().is_some());
    ground.marks.walk(&ground.tree).unwrap();
    assert_eq!(ground.marks.given_up(), Some(&Wide::TooMany { most: 3 }));
    assert!(ground.marks.end_hush(0, &ground.tree).unwrap().is_some());
    assert!(ground.marks.end_hush(0, &ground.tree).unwrap().is_none());
    assert_eq!((ground.asked(), ground.ignored()), ((true, 0), 0));
}
