//! The repository's own small files and databases: for its owner only, and nothing that lies in their place leads elsewhere.
//!
//! A repository may lie in a tree that others can write to: what is found there under our names may be a link or a pipe.

use crate::tree::{Kind, Tree, absent_is_none};
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Settings and policies have at most so many bytes.
pub const MAX_TEXT: u64 = 1 << 20;

/// Rights of files that are ours.
const MODE: u32 = 0o600;

/// Reads text that has an end: at most [`MAX_TEXT`] bytes.
///
/// # Errors
/// What the operating system says; `InvalidData` where it is too long or no UTF-8.
pub fn read_text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if bytes.len() as u64 > MAX_TEXT {
        return Err(wrong(format!("it has more than {MAX_TEXT} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8 text".to_owned()))
}

/// Reads a small file of a directory of ours; nothing if there is none.
pub(crate) fn read(directory: &Path, name: &str) -> io::Result<Option<String>> {
    let Some(tree) = absent_is_none(Tree::open(directory))? else { return Ok(None) };
    let Some(found) = tree.find(name.as_bytes())? else { return Ok(None) };
    if found.kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    absent_is_none(tree.read(name.as_bytes()))?.map(read_text).transpose()
}

/// Replaces a small file of a directory of ours, whole or not at all.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tree = Tree::open(directory)?;
    let draft = format!("{name}.draft").into_bytes();
    tree.remove(&draft)?;
    let mut file = tree.create(&draft, MODE)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    tree.rename(&draft, name.as_bytes())?;
    tree.sync_directory(b"")
}

/// Opens a database of SQLite, or makes it.
pub(crate) fn open_database(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite would make it readable for everyone; if this fails, it says why.
    let _ = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // Only the directory may be reached by links.
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => Connection::open_with_flags(directory.join(name), flags),
        _ => Connection::open_with_flags(path, flags),
    }
}

/// True if the file begins like no database of SQLite that this program can read. SQLite does not call all of these damage: a
/// number of a later format in one of the fields is an error of its own, or makes the database read-only.
pub(crate) fn has_damaged_header(path: &Path) -> bool {
    let mut header = [0; 100];
    let read = OpenOptions::new()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32)
        .open(path)
        .and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut header, 0));
    // An empty file is a database without tables; one that cannot be read may be sound.
    if read.is_err() {
        return false;
    }
    let page = u16::from_be_bytes([header[16], header[17]]);
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    header[..16] != *b"SQLite format 3\0"
        || !(page == 1 || page >= 512 && page.is_power_of_two())
        || !(1..=2).contains(&header[18])
        || !(1..=2).contains(&header[19])
        || header[21..24] != [64, 32, 32]
        || number(44) > 4
        || number(56) > 3
}
