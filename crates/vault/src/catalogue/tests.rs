//! Stored entries are found again: in order, by prefix, for any names.

use super::{Catalogue, CatalogueError, Entry, PAGE, Piece, Problem, Reason, State};
use crate::format::FileId;
use crate::tree::Generation;
use crate::world::Timestamp;

fn catalogue() -> (tempfile::TempDir, Catalogue) {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::open(&directory.path().join("catalogue.sqlite")).unwrap();
    (directory, catalogue)
}

fn entry(number: u64) -> Entry {
    Entry {
        id: FileId([number as u8; 16]),
        generation: Generation {
            size: number,
            mtime: Timestamp::from_nanoseconds(-5),
            ctime: Timestamp::from_nanoseconds(7),
            inode: u64::MAX - number,
        },
        code: "subspace:4+2:w8".to_owned(),
        wanted: 2,
        columns: 2,
        redundancy: 10 * number,
        protected_at: Timestamp::from_nanoseconds(99),
        scrubbed_at: None,
        state: State::Protected,
    }
}

fn paths(catalogue: &Catalogue, below: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    catalogue
        .each_page(below, |page| -> Result<(), CatalogueError> {
            found.extend(page.into_iter().map(|(path, _)| path));
            Ok(())
        })
        .unwrap();
    found
}

/// Names that sort next to the slash, that end with its byte in other encodings, and that are not UTF-8.
const NAMES: [&[u8]; 12] = [
    b"a",
    b"a/b",
    b"a/b/c",
    b"a/b0",
    b"a/\xff\xfe/x",
    b"a-/x",
    b"a0/x",
    b"a\xff/x",
    b"ab/x",
    b"\xff",
    b"\xff/\xff/y",
    b"z\n'\"/%_/x",
];

#[test]
fn a_directory_is_not_its_namesakes() {
    let (_directory, catalogue) = catalogue();
    for (number, name) in NAMES.iter().enumerate() {
        catalogue.put(name, &entry(number as u64)).unwrap();
    }
    let below = |path: &[u8]| {
        let is =
            |name: &&&[u8]| path.is_empty() || **name == path || name.starts_with(&[path, b"/"].concat());
        let mut expected: Vec<Vec<u8>> = NAMES.iter().filter(is).map(|name| name.to_vec()).collect();
        expected.sort();
        let mut found = paths(&catalogue, path);
        found.sort();
        assert_eq!(found, expected, "below {path:?}");
        // The directories are exactly those of these files.
        let mut above: Vec<Vec<u8>> = expected
            .iter()
            .filter(|name| **name != path)
            .map(|name| crate::tree::split(name).0.to_vec())
            .collect();
        above.sort();
        above.dedup();
        let directories: Vec<Vec<u8>> =
            catalogue.directories(path).unwrap().into_iter().map(|(_, path)| path).collect();
        assert_eq!(directories, above, "directories below {path:?}");
    };
    for path in [&b""[..], b"a", b"a/b", b"a0", b"a-", b"a\xff", b"a/\xff\xfe", b"\xff", b"z\n'\"", b"no"] {
        below(path);
    }
    for (number, name) in NAMES.iter().enumerate() {
        assert_eq!(catalogue.find(name).unwrap(), Some(entry(number as u64)));
        assert_eq!(catalogue.by_inode(&entry(number as u64).generation).unwrap(), [name.to_vec()]);
    }
    assert_eq!(catalogue.find(b"a/b/").unwrap(), None);
    assert_eq!(catalogue.count().unwrap(), NAMES.len() as u64);
}

/// Regression: removal of a file visited all directories, so a large tree took quadratic time.
#[test]
fn what_is_beneath_a_path_is_found_by_an_index() {
    let (_directory, catalogue) = catalogue();
    let numbers = format!("SELECT number FROM directories WHERE {}", super::within(b"a"));
    for query in [numbers, super::queries::count_in(super::within(b"a"))] {
        let query = format!("EXPLAIN QUERY PLAN {query}");
        let mut plan = catalogue.connection.prepare(&query).unwrap();
        let steps = plan.query_map([b"a"], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        assert!(steps.iter().any(|step| step.starts_with("SEARCH directories")), "{steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{steps:?}");
    }
}

#[test]
fn pages_have_all_files_once_though_the_catalogue_changes() {
    let (_directory, catalogue) = catalogue();
    let count = 2 * PAGE as u64 + 7;
    catalogue
        .together(|| -> Result<(), CatalogueError> {
            (0..count).try_for_each(|number| {
                let path = format!("{}/file {number:05}", if number % 5 == 0 { "few" } else { "many" });
                catalogue.put(path.as_bytes(), &entry(number))
            })
        })
        .unwrap();
    let (mut seen, mut pages) = (Vec::new(), 0);
    catalogue
        .each_page(b"", |page| -> Result<(), CatalogueError> {
            pages += 1;
            for (path, entry) in page {
                // `visit` may change and remove the entries of its page.
                match entry.generation.size % 3 {
                    0 => catalogue.forget(&path)?,
                    _ => catalogue.put(&path, &Entry { state: State::Damaged, ..entry })?,
                }
                seen.push(path);
            }
            Ok(())
        })
        .unwrap();
    let mut distinct = seen.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!((seen.len() as u64, distinct.len() as u64), (count, count));
    assert!(pages > 1);
    assert_eq!(catalogue.affected().unwrap(), [(State::Damaged, count - count.div_ceil(3))]);
}

#[test]
fn the_matrix_counts_files_and_bytes() {
    let (_directory, catalogue) = catalogue();
    for (path, wanted, columns, size) in [
        ("a/x", 2, 2, 100),
        ("a/y", 2, 2, 11),
        ("a/z", 2, 0, 5),
        ("b", 3, 1, u64::MAX >> 2),
        ("a0/x", 2, 2, 9),
    ] {
        let generation = Generation { size, ..entry(0).generation };
        catalogue.put(path.as_bytes(), &Entry { wanted, columns, generation, ..entry(0) }).unwrap();
    }
    assert_eq!(catalogue.matrix(b"a").unwrap(), [(2, 0, 1, 5), (2, 2, 2, 111)]);
    let all = catalogue.matrix(b"").unwrap();
    assert_eq!(all[..2], [(2, 0, 1, 5), (2, 2, 3, 120)]);
    assert_eq!((all[2].0, all[2].1, all[2].2), (3, 1, 1));
}

#[test]
fn problems_are_replaced_and_go_with_their_file() {
    let (_directory, catalogue) = catalogue();
    catalogue.put(b"d/file", &entry(1)).unwrap();
    catalogue.put(b"d/file2", &entry(2)).unwrap();
    let problem = |piece, range| Problem { piece, range };
    let first = [problem(Piece::Redundancy, 5..u64::MAX >> 1), problem(Piece::Data, 9..10)];
    catalogue.set_problems(b"d/file", &first, Timestamp::from_nanoseconds(1)).unwrap();
    catalogue.set_problems(b"d/file2", &first[..1], Timestamp::from_nanoseconds(1)).unwrap();
    // In the order of kinds and bytes.
    assert_eq!(catalogue.problems(b"d/file").unwrap(), [first[1].clone(), first[0].clone()]);
    let second = [problem(Piece::Lost, 0..1)];
    catalogue.set_problems(b"d/file", &second, Timestamp::from_nanoseconds(2)).unwrap();
    assert_eq!(catalogue.problems(b"d/file").unwrap(), second);
    catalogue.forget(b"d/file").unwrap();
    assert!(
        catalogue.problems(b"d/file").unwrap().is_empty() && catalogue.find(b"d/file").unwrap().is_none()
    );
    assert_eq!(catalogue.problems(b"d/file2").unwrap(), first[..1]);
    catalogue.clear_problems(b"nowhere/at all").unwrap();
    catalogue.forget(b"nowhere/at all").unwrap();
}

#[test]
fn what_fails_together_has_not_happened() {
    let (_directory, catalogue) = catalogue();
    catalogue.put(b"a", &entry(1)).unwrap();
    let failed = catalogue.together(|| -> Result<(), CatalogueError> {
        catalogue.put(b"b", &entry(2))?;
        // Nested: the inner transaction is rolled back alone.
        let inner = catalogue.together(|| -> Result<(), CatalogueError> {
            catalogue.forget(b"a")?;
            catalogue.put(b"c", &entry(3))?;
            Err(refusal(&catalogue))
        });
        assert!(inner.is_err());
        assert!(catalogue.find(b"a")?.is_some() && catalogue.find(b"b")?.is_some());
        assert!(catalogue.find(b"c")?.is_none());
        Err(refusal(&catalogue))
    });
    assert!(failed.is_err());
    assert!(catalogue.find(b"a").unwrap().is_some() && catalogue.find(b"b").unwrap().is_none());
    // The connection remains usable.
    catalogue.together(|| catalogue.put(b"d", &entry(4))).unwrap();
    assert_eq!(catalogue.count().unwrap(), 2);
}

fn refusal(catalogue: &Catalogue) -> CatalogueError {
    CatalogueError { path: catalogue.path.clone(), reason: Reason::Database(rusqlite::Error::InvalidQuery) }
}

/// Regression: of two processes that stored results concurrently one was refused, because it read before the other
/// wrote.
#[test]
fn two_that_write_wait_for_each_other() {
    let (directory, one) = catalogue();
    let other = Catalogue::open(&directory.path().join("catalogue.sqlite")).unwrap();
    let write = |catalogue: Catalogue, name: &str| {
        for number in 0..200u64 {
            catalogue
                .together(|| -> Result<(), CatalogueError> {
                    let before = catalogue.find(name.as_bytes())?.map_or(0, |entry| entry.redundancy);
                    catalogue.put(name.as_bytes(), &Entry { redundancy: before + 1, ..entry(number) })
                })
                .unwrap();
        }
        catalogue.find(name.as_bytes()).unwrap().unwrap().redundancy
    };
    std::thread::scope(|scope| {
        let threads =
            [(one, "same/x"), (other, "same/y")].map(|(it, name)| scope.spawn(move || write(it, name)));
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 200));
    });
}

#[test]
fn a_catalogue_of_another_version_begins_anew() {
    let (directory, catalogue) = catalogue();
    catalogue.put(b"a", &entry(1)).unwrap();
    catalogue.set_note("key", Some("value")).unwrap();
    catalogue.connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(catalogue);
    let catalogue = Catalogue::open(&directory.path().join("catalogue.sqlite")).unwrap();
    assert_eq!((catalogue.count().unwrap(), catalogue.note("key").unwrap()), (0, None));
    catalogue.put(b"a", &entry(1)).unwrap();
}

#[test]
fn a_share_of_files_is_that_which_was_scrubbed_longest_ago() {
    let (_directory, catalogue) = catalogue();
    for (number, scrubbed_at) in [Some(30), None, Some(10), Some(20)].into_iter().enumerate() {
        let scrubbed_at = scrubbed_at.map(Timestamp::from_nanoseconds);
        let path = format!("{number}");
        catalogue.put(path.as_bytes(), &Entry { scrubbed_at, ..entry(0) }).unwrap();
    }
    let oldest = |now| {
        let oldest = |files| catalogue.oldest_scrubbed(files, Timestamp::from_nanoseconds(now)).unwrap();
        [0, 1, 2, 3, 4, 5].map(|files| oldest(files).map(Timestamp::nanoseconds))
    };
    assert_eq!(oldest(30), [None, None, Some(10), Some(20), Some(30), None]);
    assert_eq!(oldest(15), [None, None, None, None, Some(10), None], "what lies ahead is not known");
}

/// Regression: queries that run once per file were compiled again each time because they joined tables.
#[test]
fn queries_for_each_file_are_compiled_once() {
    let (_directory, catalogue) = catalogue();
    (0..9).for_each(|number| catalogue.put(format!("dir/{number}").as_bytes(), &entry(number)).unwrap());
    for number in 0..20 {
        let generation = entry(number).generation;
        assert_eq!(catalogue.by_inode(&generation).unwrap().len(), usize::from(number < 9));
        assert_eq!(catalogue.names_of(generation.inode).unwrap().len(), usize::from(number < 9));
        assert_eq!(catalogue.like(number, Timestamp::from_nanoseconds(-5)).unwrap().is_some(), number < 9);
        assert_eq!(catalogue.count_beneath(b"dir").unwrap(), 9);
    }
    let count = super::queries::count_in(super::within(b"dir"));
    for query in [super::queries::BY_INODE, super::queries::NAMES_OF, super::queries::LIKE, &count] {
        let statement = catalogue.connection.prepare_cached(query).unwrap();
        let [runs, again] = [rusqlite::StatementStatus::Run, rusqlite::StatementStatus::RePrepare]
            .map(|what| statement.get_status(what));
        assert!(runs >= 20 && again == 0, "{query}: {again} of {runs}");
    }
}
