//! The repository's own small files and databases: for its owner only, and nothing that lies in their place leads elsewhere.
//!
//! A repository may lie in a tree that others can write to: what is found there under our names may be a link or a pipe.

use crate::tree::{Kind, Stat, Tree, absent_is_none};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
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

/// Reads a small file of a repository; nothing if there is none.
///
/// # Errors
/// What the operating system says; `InvalidData` for what is no text or no regular file; [`Untrusted`](crate::tree::Untrusted).
pub fn read(repository: &Path, name: &str) -> io::Result<Option<String>> {
    let Some(tree) = absent_is_none(Tree::open_owned(repository))? else { return Ok(None) };
    let Some(found) = tree.find(name.as_bytes())? else { return Ok(None) };
    if found.kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    absent_is_none(tree.read(name.as_bytes()))?.map(read_text).transpose()
}

/// Replaces a small file of a repository, whole or not at all.
///
/// # Errors
/// What the operating system says; [`Untrusted`](crate::tree::Untrusted).
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

/// Opens a log of a repository to append to it, and makes it where it is absent.
///
/// # Errors
/// What the operating system says; [`Untrusted`](crate::tree::Untrusted).
pub fn append(repository: &Path, name: &str) -> io::Result<File> {
    let file = Tree::open_owned(repository)?.write_or_create(name.as_bytes(), MODE)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    Ok(file)
}

/// Opens a database of SQLite, or makes it.
///
/// SQLite opens files by their paths. So the database is looked at beneath its directory before, and after it was opened: a directory or
/// file that another user exchanged is refused. What the file says is not trusted either: views, triggers and functions of its schema are
/// never run, and cells are checked before they are used.
pub(crate) fn open_database(path: &Path) -> rusqlite::Result<Connection> {
    let name = path.file_name().ok_or_else(|| refused(path, &io::ErrorKind::InvalidInput.into()))?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    // Only the directory may be reached by links.
    let directory =
        directory.unwrap_or(Path::new(".")).canonicalize().map_err(|error| refused(path, &error))?;
    let path = directory.join(name);
    let found = || identity(&directory, name).map_err(|error| refused(&path, &error));
    let before = found()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(&path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    if found()? != before {
        let error = io::Error::new(io::ErrorKind::ResourceBusy, "it was exchanged while it was opened");
        return Err(refused(&path, &error));
    }
    Ok(connection)
}

/// File system and inode of a database and of its directory. The database is made where it is absent: SQLite would make it readable for
/// everyone. One that is there is not opened: closing it would end the locks that SQLite has on it in this process.
fn identity(directory: &Path, name: &OsStr) -> io::Result<[(u64, u64); 2]> {
    let (tree, name) = (Tree::open_owned(directory)?, name.as_encoded_bytes());
    match tree.create(name, MODE) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = tree.stat_owned(name)?;
    if file.kind != Kind::File {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let number = |stat: Stat| (stat.device, stat.inode);
    Ok([number(tree.stat(b"")?), number(file)])
}

fn refused(path: &Path, error: &io::Error) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(format!("{}: {error}", path.display())))
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

#[cfg(test)]
mod tests {
    use super::open_database;
    use rusqlite::Connection;

    /// A database that another user wrote may bring triggers along, which ran with the rights of whoever opened it.
    #[test]
    fn triggers_and_views_of_a_database_are_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalogue.sqlite");
        let tables = "CREATE TABLE a (x); CREATE TABLE b (x); CREATE VIEW v AS SELECT x FROM a;
                      CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO b VALUES (1); END;";
        Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        let ours = open_database(&path).unwrap();
        ours.execute("INSERT INTO a VALUES (7)", []).unwrap();
        let fired: i64 = ours.query_row("SELECT count(*) FROM b", [], |row| row.get(0)).unwrap();
        assert_eq!(fired, 0);
        assert!(ours.query_row("SELECT x FROM v", [], |row| row.get::<_, i64>(0)).is_err());
        assert!(ours.execute_batch("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema").is_err());
    }
}
