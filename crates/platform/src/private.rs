//! Small files of a repository: readable by their owner only, replaced as a whole, opened without following links.
//!
//! A repository may lie in a tree that other users can write to, so a link or a pipe may lie under the name of one of
//! its files.

use crate::tree::{Kind, Tree, absent_is_none};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Most bytes of a file of settings or of a policy.
pub const MAX_TEXT: u64 = 1 << 20;

/// Mode of the files of a repository: read and written by their owner only.
pub const MODE: u32 = 0o600;

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

/// Replaces a small file of a repository atomically.
///
/// # Errors
/// Those of the operating system; [`Untrusted`](crate::tree::Untrusted).
pub fn replace(repository: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tree = Tree::open_owned(repository)?;
    let draft = format!("{name}.draft").into_bytes();
    tree.remove(&draft)?;
    let mut file = tree.create(&draft, MODE)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    tree.rename(&draft, name.as_bytes())?;
    tree.sync_directory(b"")
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
