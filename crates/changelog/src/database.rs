//! Opening databases of SQLite safely: no links are followed, and nothing of the schema that a file brings along is
//! run.
//!
//! A repository may lie in a tree that other users can write to, so its databases are checked like its
//! [small files](gabion_platform::private), and what they contain is not trusted.

use gabion_platform::private::MODE;
use gabion_platform::tree::{Kind, Stat, Tree};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a database of SQLite, or creates it.
///
/// SQLite opens files by path. So the database is looked up beneath its directory before and after it was opened: a
/// directory or file that another user exchanged meanwhile is refused. Views, triggers and functions of the schema
/// are never run, and cells are checked before they are used.
///
/// # Errors
/// Those of SQLite; `SQLITE_CANTOPEN` for a database that is no regular file, that other users can change, or that
/// was exchanged while it was opened.
pub fn open_database(path: &Path) -> rusqlite::Result<Connection> {
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

/// File system and inode of a database and of its directory. An absent database is created, because SQLite would
/// create it readable for everyone. An existing one is not opened: closing it would release the locks that SQLite has
/// on it in this process.
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

/// True if the first 100 bytes of the file are not the header of a SQLite database that this program can read. SQLite
/// does not report all of these as damage: a number of a later format in one of the fields is an error of its own, or
/// makes the database read-only.
pub fn has_damaged_header(path: &Path) -> bool {
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

    /// A database that another user wrote may contain triggers, which would run with the rights of the process that
    /// opens it.
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
