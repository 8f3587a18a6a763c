use super::{Ahead, PART, WAITING};
use crate::storage::plain::Plain;
use crate::tree::{Kind, Tree};
use std::path::Path;

/// A storage of what is below `root`.
fn storage(root: &Path) -> Plain {
    let tree = Tree::open(root).unwrap();
    Plain::new(tree.clone(), tree)
}

/// A directory, and its names with whether each is a file, if it can be read.
type Read = (String, Option<Vec<(String, bool)>>);

/// All directories in the order in which they come.
fn all(root: &Path, directories: &[&str]) -> Vec<Read> {
    let storage = storage(root);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let directories = directories.iter().map(|path| path.as_bytes().to_vec()).collect();
    std::thread::scope(|scope| {
        let mut ahead = Ahead::of(directories, &storage, scope);
        let mut all = Vec::new();
        while let Some((path, read)) = ahead.directory() {
            let mut names = Vec::new();
            while let Some((name, stat)) = ahead.next_if(|_| true) {
                let is_file = stat.map(|stat| stat.unwrap().kind == Kind::File);
                names.push((text(name), is_file.unwrap_or(false)));
            }
            all.push((text(&path), read.ok().map(|()| names)));
        }
        all
    })
}

#[test]
fn directories_come_in_order_each_before_what_is_in_it() {
    let place = tempfile::tempdir().unwrap();
    for directory in ["b/c", "b/a", "a", "empty"] {
        std::fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    for file in ["b/c/x", "b/b", "z", "a/1"] {
        std::fs::write(place.path().join(file), file).unwrap();
    }
    let file = |name: &str| (name.to_owned(), true);
    let directory = |name: &str| (name.to_owned(), false);
    let found = all(place.path(), &["absent", ""]);
    let expected = [
        ("", Some(vec![directory("a"), directory("b"), directory("empty"), file("z")])),
        ("a", Some(vec![file("1")])),
        ("b", Some(vec![directory("a"), file("b"), directory("c")])),
        ("b/a", Some(vec![])),
        ("b/c", Some(vec![file("x")])),
        ("empty", Some(vec![])),
        ("absent", None),
    ];
    assert_eq!(found, expected.map(|(path, names)| (path.to_owned(), names)));
}

#[test]
fn names_of_large_directories_come_whole_and_in_order() {
    let place = tempfile::tempdir().unwrap();
    // As many as a part has, one fewer, one more; what is behind them is not taken for theirs.
    for (directory, count) in [("a", PART - 1), ("b", PART), ("c", PART + 1), ("d", 2 * PART), ("e", 1)] {
        std::fs::create_dir(place.path().join(directory)).unwrap();
        for number in 0..count {
            std::fs::write(place.path().join(format!("{directory}/{number:05}")), "").unwrap();
        }
    }
    let found = all(place.path(), &[""]);
    let counts: Vec<usize> = found.iter().map(|(_, names)| names.as_ref().unwrap().len()).collect();
    assert_eq!(counts, [5, PART - 1, PART, PART + 1, 2 * PART, 1]);
    for (_, names) in &found[1..] {
        let numbers = names.as_ref().unwrap().iter().map(|(name, is_file)| (name.parse::<usize>(), *is_file));
        assert!(numbers.eq((0..names.as_ref().unwrap().len()).map(|number| (Ok(number), true))));
    }
}

#[test]
fn names_that_are_not_asked_for_are_passed_over_and_reading_ends_with_whoever_wants_it() {
    let place = tempfile::tempdir().unwrap();
    for number in 0..2 * WAITING {
        let directory = place.path().join(format!("{number:02}"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
    }
    let storage = storage(place.path());
    // More directories than wait: whoever reads them would wait for ever.
    std::thread::scope(|scope| {
        let mut ahead = Ahead::of(vec![Vec::new()], &storage, scope);
        let root = ahead.directory().unwrap();
        assert!(root.0.is_empty() && root.1.is_ok());
        assert!(ahead.next_if(|name| name == b"01").is_none());
        assert_eq!(ahead.next_if(|name| name == b"00").unwrap().0, b"00");
        assert_eq!(ahead.directory().unwrap().0, b"00");
        assert_eq!(ahead.next_if(|_| true).unwrap().0, b"file");
        assert!(ahead.next_if(|_| true).is_none());
        assert_eq!(ahead.directory().unwrap().0, b"01");
    });
}
