//! Tests of trees: no path leads out of one.

use super::{Kind, Tree, join, split};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;

fn playground() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    std::fs::write(dir.path().join("secret"), "outside").unwrap();
    let tree = Tree::open(&dir.path().join("tree")).unwrap();
    (dir, tree)
}

#[test]
fn names_and_links_do_not_lead_out() {
    let (dir, tree) = playground();
    symlink("../secret", dir.path().join("tree/link")).unwrap();
    symlink("..", dir.path().join("tree/up")).unwrap();
    for path in [&b"../secret"[..], b"/etc/passwd", b"link", b"up/secret", b"x/../../secret"] {
        assert!(tree.read(path).is_err(), "{:?}", String::from_utf8_lossy(path));
        assert!(tree.write(path).is_err());
    }
    // The last name is given to calls that the kernel does not keep beneath the root.
    for path in [&b".."[..], b"x/..", b"/secret", b"."] {
        assert!(tree.stat(path).is_err(), "{:?}", String::from_utf8_lossy(path));
    }
    assert!(tree.directory(b"").unwrap().stat(b"../secret").is_err());
    assert!(tree.create(b"up/new", 0o600).is_err());
    assert!(tree.make_directories(b"up/new/dir", 0o700).is_err());
    tree.create(b"file", 0o600).unwrap();
    assert!(tree.rename(b"file", b"up/file").is_err());
    assert!(tree.remove(b"../secret").is_err());
    assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"outside");
    assert_eq!(tree.stat(b"link").unwrap().kind, Kind::Link);
    tree.make_directories(b"d", 0o700).unwrap();
    symlink("../../secret", dir.path().join("tree/d/link")).unwrap();
    assert_eq!(tree.stat(b"d/link").unwrap().kind, Kind::Link);
    assert!(tree.stat(b"up/secret").is_err() && tree.find(b"d/none").unwrap().is_none());
}

#[test]
fn only_regular_files_are_read() {
    let (dir, tree) = playground();
    tree.make_directories(b"dir", 0o700).unwrap();
    assert!(tree.read(b"dir").is_err());
    rustix::fs::mkfifoat(
        std::fs::File::open(dir.path().join("tree")).unwrap(),
        "pipe",
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    // A pipe without a writer must not make anyone wait.
    assert!(tree.read(b"pipe").is_err());
}

#[test]
fn names_are_sorted_by_their_bytes() {
    let (_dir, tree) = playground();
    for name in [&b"b"[..], b"a\xff", b"a\n", b"a"] {
        tree.create(name, 0o600).unwrap();
    }
    let names = tree.directory(b"").unwrap().names().unwrap();
    let names: Vec<&[u8]> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"a"[..], b"a\n", b"a\xff", b"b"]);
}

#[test]
fn deep_paths_work_up_to_the_limit_below_the_root() {
    let (_dir, tree) = playground();
    // 15 names of 250 bytes and one to reach 4095 in all.
    let deep = [&[b'd'; 250][..]; 16].join(&b'/');
    tree.make_directories(&deep, 0o700).unwrap();
    let path = join(&deep, &vec![b'f'; 4095 - deep.len() - 1]);
    tree.create(&path, 0o600).unwrap().write_all(b"deep").unwrap();
    let mut text = String::new();
    tree.read(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "deep");
    tree.remove(&path).unwrap();
    tree.remove_empty(&deep, b"").unwrap();
    assert!(tree.directory(b"").unwrap().names().unwrap().get(0).is_none());
}

#[test]
fn directories_go_when_they_are_empty_and_not_before() {
    let (_dir, tree) = playground();
    tree.make_directories(b"a/b/c", 0o700).unwrap();
    tree.create(b"a/file", 0o600).unwrap();
    tree.remove_empty(b"a/b/c", b"").unwrap();
    assert!(tree.find(b"a/b").unwrap().is_none());
    assert!(tree.find(b"a/file").unwrap().is_some());
}

#[test]
fn paths_are_split_and_joined() {
    assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
    assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
    assert_eq!((join(b"", b"a"), join(b"a/b", b"c")), (b"a".to_vec(), b"a/b/c".to_vec()));
}

#[test]
fn a_file_supplants_another_or_nothing() {
    let (dir, tree) = playground();
    let content = |name: &str| std::fs::read_to_string(dir.path().join("tree").join(name)).ok();
    tree.make_directories(b"a/b", 0o700).unwrap();
    for text in ["first", "second"] {
        tree.create(b"new", 0o600).unwrap().write_all(text.as_bytes()).unwrap();
        tree.supplant(b"new", b"a/b/file").unwrap();
        assert_eq!((content("a/b/file").as_deref(), content("new")), (Some(text), None));
    }
    symlink("..", dir.path().join("tree/up")).unwrap();
    tree.create(b"new", 0o600).unwrap();
    assert!(tree.supplant(b"new", b"up/secret").is_err() && tree.supplant(b"new", b"a/c/file").is_err());
    assert_eq!(content("new").as_deref(), Some(""), "it is where it was");
    assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"outside");
}
