//! Small files of a repository: readable by their owner only, replaced as a whole, opened without following links.
//!
//! A repository may lie in a tree that other users can write to, so a link or a pipe may lie under the name of one of
//! its files.

use crate::tree::{Kind, Tree, absent_is_none, stat_of};
use crate::world::{Timestamp, unique_id};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Most bytes of a file of settings or of a policy.
pub const MAX_TEXT: u64 = 1 << 20;

/// Mode of the files of a repository: read and written by their owner only.
pub const MODE: u32 = 0o600;

/// Between the name of a file and what is its draft's own.
const DRAFT: &str = ".draft-";

/// Age of a draft that nobody will finish.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Reads a text of at most [`MAX_TEXT`] bytes.
///
/// # Errors
/// Those of the operating system; `InvalidData` if it is too long or not UTF-8.
pub fn read_text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if bytes.len() as u64 > MAX_TEXT {
        return Err(wrong(format!("it has more than {MAX_TEXT} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8 text".to_owned()))
}

/// Reads a small file of a repository; none if it is absent.
///
/// # Errors
/// Those of the operating system; `InvalidData` if it is no text or no regular file;
/// [`Untrusted`](crate::tree::Untrusted).
pub fn read(repository: &Path, name: &str) -> io::Result<Option<String>> {
    let Some(tree) = absent_is_none(Tree::open_owned(repository))? else { return Ok(None) };
    let Some(found) = tree.find(name.as_bytes())? else { return Ok(None) };
    if found.kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    absent_is_none(tree.read(name.as_bytes()))?.map(read_text).transpose()
}

/// Replaces a small file of a repository atomically, also if others do that at the same time, on other hosts, too: a
/// reader finds the whole of one of them.
///
/// # Errors
/// Those of the operating system; [`Untrusted`](crate::tree::Untrusted).
pub fn replace(repository: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tree = Tree::open_owned(repository)?;
    let id = u128::from_be_bytes(unique_id()?);
    let draft = format!("{name}{DRAFT}{id:032x}").into_bytes();
    let mut file = tree.create(&draft, MODE)?;
    let replaced = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| tree.rename(&draft, name.as_bytes()));
    if replaced.is_err() {
        // If that fails, a later call removes it.
        let _ = tree.remove(&draft);
    }
    replaced?;
    forget_drafts(&tree, name, stat_of(&file)?.mtime)?;
    tree.sync_directory(b"")
}

/// Removes drafts that processes left which were killed, by the clock of the file system.
fn forget_drafts(tree: &Tree, name: &str, now: Timestamp) -> io::Result<()> {
    let start = format!("{name}{DRAFT}").into_bytes();
    let directory = tree.directory(b"")?;
    for (found, _) in directory.names()?.iter().filter(|(found, _)| found.starts_with(&start)) {
        // Whoever made it may have renamed it meanwhile.
        let Some(stat) = absent_is_none(directory.stat(found))? else { continue };
        if stat.kind == Kind::File && stat.mtime < now - LEFT_AFTER {
            tree.remove(found)?;
        }
    }
    Ok(())
}

/// The name of the file that a draft of [`replace`] was to become; none for other names.
pub fn name_of_draft(draft: &[u8]) -> Option<&[u8]> {
    let (start, id) = draft.split_at_checked(draft.len().checked_sub(32)?)?;
    id.iter().all(u8::is_ascii_hexdigit).then(|| start.strip_suffix(DRAFT.as_bytes()))?
}

/// Opens a log of a repository for appending; creates it if it is absent.
///
/// # Errors
/// Those of the operating system; [`Untrusted`](crate::tree::Untrusted).
pub fn append(repository: &Path, name: &str) -> io::Result<File> {
    let file = Tree::open_owned(repository)?.write_or_create(name.as_bytes(), MODE)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::{DRAFT, name_of_draft, read, replace};
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    /// Regression: all had the same draft. One removed that of another, which renamed what was half written, or
    /// nothing.
    #[test]
    fn replacements_at_once_are_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = |number: usize| format!("{number}\n").repeat(20_000);
        let (writers, rounds) = (4, 30);
        replace(directory.path(), "policy.toml", text(0).as_bytes()).expect("replaced");
        std::thread::scope(|scope| {
            let writing: Vec<_> = (0..writers)
                .map(|writer| {
                    let at = directory.path();
                    scope.spawn(move || {
                        for _ in 0..rounds {
                            replace(at, "policy.toml", text(writer).as_bytes()).expect("replaced");
                        }
                    })
                })
                .collect();
            while !writing.iter().all(|writer| writer.is_finished()) {
                let found = read(directory.path(), "policy.toml").expect("read").expect("always there");
                assert!((0..writers).any(|writer| found == text(writer)), "{} bytes", found.len());
            }
        });
        let names = std::fs::read_dir(directory.path()).expect("names").count();
        assert_eq!(names, 1, "no draft is left");
    }

    #[test]
    fn drafts_are_known_by_their_names() {
        let id = "0123456789abcdef0123456789abcdef";
        let of = |name: &str| name_of_draft(name.as_bytes()).map(<[u8]>::to_vec);
        assert_eq!(of(&format!("a{DRAFT}{id}")), Some(b"a".to_vec()));
        for other in
            [format!("a{id}"), format!("a{DRAFT}x{}", &id[1..]), format!("a{DRAFT}{}", &id[1..]), "a".into()]
        {
            assert_eq!(of(&other), None, "{other}");
        }
    }

    #[test]
    fn drafts_of_the_dead_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = |name: &str| directory.path().join(name);
        for (name, age) in
            [("a.draft-old", 7200), ("a.draft-new", 60), ("b.draft-old", 7200), ("a.old", 7200)]
        {
            let file = File::create(place(name)).expect("created");
            let made = file.metadata().expect("metadata").modified().expect("a time");
            let time = made - Duration::from_secs(age);
            file.set_times(FileTimes::new().set_modified(time)).expect("set");
        }
        std::fs::create_dir(place(&format!("a{DRAFT}directory"))).expect("created");
        replace(directory.path(), "a", b"text").expect("replaced");
        let left = ["a", "a.draft-old", "a.draft-new", "b.draft-old", "a.old", "a.draft-directory"];
        assert_eq!(left.map(|name| place(name).exists()), [true, false, true, true, true, true]);
    }
}
